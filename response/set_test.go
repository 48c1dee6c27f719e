package response_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/response"
)

func TestSetText(t *testing.T) {
	for _, c := range []struct {
		text string
		set  response.Set
	}{
		{"", response.Set{}},
		{"x", response.X},
		{"draft-11", response.Draft11Set},
		{"both", response.Both},
		{"off", response.Off},
		{"draft-07", response.Set{Draft: response.Draft07}},
		{"draft-06", response.Set{Draft: response.Draft06}},
		{"next", response.Set{Draft: response.DraftNext}},
		{"x+draft-07", response.Set{X: true, Draft: response.Draft07}},
		{"x+draft-06", response.Set{X: true, Draft: response.Draft06}},
		{"x+next", response.Set{X: true, Draft: response.DraftNext}},
	} {
		t.Run(c.text, func(t *testing.T) {
			got, err := response.ParseSet(c.text)
			require.NoError(t, err)
			require.Equal(t, c.set, got)
			text, err := c.set.MarshalText()
			require.NoError(t, err)
			require.Equal(t, c.text, string(text))
		})
	}
	got, err := response.ParseSet("x+draft-11")
	require.NoError(t, err)
	require.Equal(t, response.Both, got)

	for _, bad := range []string{"X", "x+", "x+off", "draft-8", "draft-11+x", " x", "on", "x+x", "draft-", "both,x"} {
		_, err := response.ParseSet(bad)
		require.Error(t, err, bad)
		set := response.X
		require.Error(t, set.UnmarshalText([]byte(bad)))
		require.Equal(t, response.X, set, "a bad text changes nothing")
	}
}

func TestSetOffIsNotZero(t *testing.T) {
	require.NotEqual(t, response.Set{}, response.Off)
	require.Equal(t, response.Both, response.Set{}.Or(response.Both))
	require.Equal(t, response.Off, response.Off.Or(response.Both))
	require.Equal(t, response.X, response.X.Or(response.Off))
}

func TestSetValidate(t *testing.T) {
	require.NoError(t, response.Both.Validate())
	require.Error(t, response.Set{Draft: 9}.Validate())
	contradiction := response.Off
	contradiction.X = true
	require.Error(t, contradiction.Validate())
	_, err := response.Set{Draft: 9}.MarshalText()
	require.Error(t, err)
}

func FuzzParseSet(f *testing.F) {
	for _, s := range []string{"", "x", "both", "off", "x+draft-07", "draft-11", "next", "x+"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		set, err := response.ParseSet(text)
		if err != nil {
			return
		}
		require.NoError(t, set.Validate())
		again, err := response.ParseSet(set.String())
		require.NoError(t, err)
		require.Equal(t, set, again)
	})
}
