package degrade_test

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/degrade"
	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
)

func TestClassOfRoutes(t *testing.T) {
	class, err := degrade.ClassOfRoutes(map[degrade.Class][]string{
		degrade.CriticalPlus: {"POST /checkout", "POST /pay/"}, degrade.Sheddable: {"GET /batch"}, degrade.SheddablePlus: {"GET /things/{id}"},
	}, degrade.Critical)
	require.NoError(t, err)
	for target, want := range map[string]degrade.Class{
		"POST /checkout": degrade.CriticalPlus, "POST /pay/1": degrade.CriticalPlus, "GET /checkout": degrade.Critical, "GET /batch": degrade.Sheddable,
		"GET //things/1": degrade.Sheddable, "GET /other/": degrade.Critical, "GET /x/../y": degrade.Sheddable, "GET /a%2Fb": degrade.Sheddable,
		"GET /": degrade.Critical, "GET /things/1": degrade.SheddablePlus, "GET /things/1/2": degrade.Critical, "HEAD /things/1": degrade.SheddablePlus,
	} {
		method, path, _ := strings.Cut(target, " ")
		var r keyfunc.Request
		r.Reset(httptest.NewRequest(method, path, nil), nil, nil)
		require.Equal(t, want, class(&r), target)
	}
	class, err = degrade.ClassOfRoutes(nil, degrade.Critical)
	require.NoError(t, err)
	var r keyfunc.Request
	r.Reset(httptest.NewRequest("GET", "/", nil), nil, nil)
	require.Equal(t, degrade.Critical, class(&r))
	_, err = degrade.ClassOfRoutes(map[degrade.Class][]string{degrade.Critical: {"get /x", "GET x"}, degrade.Class(9): nil}, degrade.Critical)
	require.ErrorIs(t, err, limiter.ErrInvalid)
	require.ErrorContains(t, err, "get /x")
	require.ErrorContains(t, err, "Class(9)")
}
