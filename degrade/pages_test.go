package degrade_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/degrade"
	"github.com/spillway-go/spillway/limiter"
)

// mapStore is the smallest store there is: what a user brings who has nothing but a map.
type mapStore struct{ m sync.Map }

func (s *mapStore) Get(key string) (*degrade.Copies, bool) {
	v, ok := s.m.Load(key)
	if !ok {
		return nil, false
	}
	c := new(degrade.Copies) // as one from another process
	return c, json.Unmarshal(v.([]byte), c) == nil
}

func (s *mapStore) Set(key string, c *degrade.Copies) {
	text, _ := json.Marshal(c)
	s.m.Store(key, text)
}

func (s *mapStore) Delete(key string) { s.m.Delete(key) }

// Copies survive being written down, and everything works as in memory.
func TestPagesForeignStore(t *testing.T) {
	store := new(mapStore)
	s := newSite(t, degrade.PagesConfig{Store: store, Partition: byIdentity}, answers(200, "page", "Vary: Accept", "Cache-Control: max-age=60"))
	other := newSite(t, degrade.PagesConfig{Store: store, Partition: byIdentity}, nil)
	s.allow(fetch("/", "Accept: a"))
	s.allow(fetch("/", "Accept: b"))
	s.allow(fetch("/", "X-Identity: alice"))
	for _, x := range []*site{s, other} {
		require.Equal(t, "page", copyOf(x.refuse(fetch("/", "Accept: a"))))
		require.Equal(t, "page", copyOf(x.refuse(fetch("/", "Accept: b"))))
		require.Nil(t, x.refuse(fetch("/", "Accept: c")))
		require.Equal(t, "page", copyOf(x.refuse(fetch("/", "X-Identity: alice"))))
		require.Nil(t, x.refuse(fetch("/", "X-Identity: bob")))
	}
	store.m.Range(func(key, value any) bool {
		require.Regexp(t, `^[A-Za-z0-9_-]{43}$`, key)
		require.NotContains(t, string(value.([]byte)), "alice", "who it belongs to is in the hash alone")
		return true
	})
	s.allow(cacheRequest("POST", "/"))
	require.Nil(t, other.refuse(fetch("/", "Accept: a")), "a write removes what is shared with others")
	s.origin = answers(200, "page", "Cache-Control: private")
	s.allow(fetch("/", "X-Identity: alice"))
	require.Nil(t, other.refuse(fetch("/", "X-Identity: alice")))
}

type brokenStore struct{ on string }

func (b *brokenStore) Get(string) (*degrade.Copies, bool) {
	if b.on == "get" {
		panic("get")
	}
	return &degrade.Copies{}, true
}

func (b *brokenStore) Set(string, *degrade.Copies) { panic("set") }
func (b *brokenStore) Delete(string)               { panic("delete") }

// A store that panics costs copies: no response, and one line in the log.
func TestPagesBrokenStore(t *testing.T) {
	var log bytes.Buffer
	b := &brokenStore{}
	s := newSite(t, degrade.PagesConfig{Store: b, Log: slog.New(slog.NewTextHandler(&log, nil))}, answers(200, "page"))
	for range 3 {
		require.Equal(t, "page", s.allow(fetch("/")).Body.String())
		require.Equal(t, "page", s.allow(cacheRequest("POST", "/")).Body.String())
	}
	require.Equal(t, 1, strings.Count(log.String(), "level=ERROR"), log.String())
	require.Nil(t, s.refuse(fetch("/")), "empty copies")
	b.on = "get"
	require.PanicsWithValue(t, "get", func() { s.refuse(fetch("/")) }, "is the guard's to report, and the next handler's turn")
	require.Equal(t, "page", s.allow(fetch("/")).Body.String())
}

func TestPagesValidate(t *testing.T) {
	require.NoError(t, degrade.NewPages(degrade.PagesConfig{
		MaxBytes: 1 << 20, MaxPage: 1 << 19, MaxStale: 24 * time.Hour, MaxStaleIfError: -1, Statuses: []int{200, 203, 301, 404, 410},
		Partition: byIdentity, PartitionName: "identity", Credentials: []string{"X-Session"}, IgnoreCookies: []string{"_ga"}, Query: []string{"q"}, Name: "edge:80/1",
	}).Validate())
	for want, cfg := range map[string]degrade.PagesConfig{
		"MaxBytes 1:":            {MaxBytes: 1},
		"MaxBytes -1:":           {MaxBytes: -1},
		"there is a Store":       {MaxBytes: 1 << 20, Store: new(mapStore)},
		"MaxPage -1:":            {MaxPage: -1},
		"MaxPage 67108865:":      {MaxPage: 64<<20 + 1},
		"more than half":         {MaxBytes: 1 << 20, MaxPage: 1<<19 + 1},
		"MaxPage 262144: more":   {MaxBytes: 256 << 10},
		"MaxStale 24h0m0.000":    {MaxStale: 24*time.Hour + 1},
		"MaxStale -2ns":          {MaxStale: -2},
		"MaxStaleIfError -1s":    {MaxStaleIfError: -time.Second},
		"Statuses: 500":          {Statuses: []int{200, 500}},
		`Credentials: "X Y"`:     {Credentials: []string{"X Y"}},
		`IgnoreCookies: ""`:      {IgnoreCookies: []string{""}},
		"Query: a name is empty": {Query: []string{""}},
		"without a Partition":    {PartitionName: "x"},
		`Name "a b"`:             {Name: "a b"},
		`Name "1"`:               {Name: "1"},
		`Name "é"`:               {Name: "é"},
	} {
		p := degrade.NewPages(cfg)
		err := p.Validate()
		require.ErrorIs(t, err, limiter.ErrInvalid)
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, degrade.Validate(degrade.First(degrade.Cached(p))), "degrade: Pages: ")
	}
	err := degrade.NewPages(degrade.PagesConfig{MaxPage: -1, MaxStale: -2, Name: " "}).Validate()
	for _, part := range []string{"MaxPage", "MaxStale", "Name"} {
		require.ErrorContains(t, err, part, "everything at once")
	}
}

// Copies outlive a policy that is replaced by one of equal settings, and only that.
func TestPagesInherit(t *testing.T) {
	store := new(mapStore)
	type all = degrade.PagesConfig
	for name, c := range map[string]struct {
		old, new degrade.PagesConfig
		want     bool
	}{
		"equal":                    {all{}, all{}, true},
		"lists":                    {all{Query: []string{"q"}, Statuses: []int{200, 404}}, all{Query: []string{"q"}, Statuses: []int{200, 404}}, true},
		"another log":              {all{}, all{Log: slog.Default()}, true},
		"another bound":            {all{}, all{MaxStale: time.Hour}, false},
		"nothing of the query":     {all{}, all{Query: []string{}}, false},
		"a partition":              {all{}, all{Partition: byIdentity}, false},
		"partitions without names": {all{Partition: byIdentity}, all{Partition: byIdentity}, false},
		"partitions":               {all{Partition: byIdentity, PartitionName: "a"}, all{Partition: byIdentity, PartitionName: "a"}, true},
		"partitions of two names":  {all{Partition: byIdentity, PartitionName: "a"}, all{Partition: byIdentity, PartitionName: "b"}, false},
		"one store":                {all{Store: store}, all{Store: store}, true},
		"two stores":               {all{Store: store}, all{Store: new(mapStore)}, false},
		"own and memory":           {all{Store: store}, all{}, false},
		"uncomparable":             {all{Store: uncomparable{}}, all{Store: uncomparable{}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			old, next := newSite(t, c.old, answers(200, "page")), newSite(t, c.new, nil)
			if c.old.Store == nil {
				old.allow(fetch("/"))
			}
			require.Equal(t, c.want, next.h.(degrade.Heir).Inherit(old.h))
			if c.old.Store != nil {
				return
			}
			require.Equal(t, c.want, next.refuse(fetch("/")) != nil)
			if c.want { // both are in use for a while
				old.allow(fetch("/late"))
				require.NotNil(t, next.refuse(fetch("/late")))
				old.allow(cacheRequest("POST", "/late"))
				require.Nil(t, next.refuse(fetch("/late")))
			}
		})
	}
	a, b, c := newSite(t, all{}, answers(200, "page")), newSite(t, all{}, answers(200, "page")), newSite(t, all{}, nil)
	a.allow(fetch("/"))
	require.True(t, c.h.(degrade.Heir).Inherit(a.h))
	require.False(t, c.h.(degrade.Heir).Inherit(b.h), "one state is enough")
	require.True(t, c.h.(degrade.Heir).Inherit(a.h), "a second policy with the same pages")
	require.NotNil(t, c.refuse(fetch("/")))
	require.True(t, c.h.(degrade.Heir).Inherit(c.h))
	require.False(t, c.h.(degrade.Heir).Inherit(degrade.Cached(nil)))
	require.False(t, c.h.(degrade.Heir).Inherit(returns(degrade.Done)))
}

type uncomparable []int

func (uncomparable) Get(string) (*degrade.Copies, bool) { return nil, false }
func (uncomparable) Set(string, *degrade.Copies)        {}
func (uncomparable) Delete(string)                      {}

// A budget is asked where there is a copy, and only then. Without any left, the next handler has its turn.
func TestCachedBudget(t *testing.T) {
	s := newSite(t, degrade.PagesConfig{}, answers(200, "page", `ETag: "v1"`))
	s.allow(fetch("/"))
	for name, c := range map[string]struct {
		h       degrade.Handler
		decided limiter.Decision
		err     error
		target  string
		asked   []limiter.Limit
		want    degrade.Outcome
	}{
		"default":         {s.h, limiter.Decision{Allowed: true}, nil, "/", []limiter.Limit{limiter.PerMinute(30)}, degrade.Done},
		"within":          {degrade.Within(limiter.PerMinute(5), s.h), limiter.Decision{Allowed: true}, nil, "/", []limiter.Limit{limiter.PerMinute(5)}, degrade.Done},
		"spent":           {s.h, limiter.Decision{}, nil, "/", []limiter.Limit{limiter.PerMinute(30)}, degrade.Skip},
		"cannot be asked": {s.h, limiter.Decision{Allowed: true}, errors.New("away"), "/", []limiter.Limit{limiter.PerMinute(30)}, degrade.Skip},
		"no copy":         {degrade.Within(limiter.PerMinute(5), s.h), limiter.Decision{Allowed: true}, nil, "/none", nil, degrade.Skip},
	} {
		var asked []limiter.Limit
		d := &degrade.Denial{
			Policy: s.policy, Mode: degrade.ModeCache, Decision: limiter.Decision{Limit: limiter.PerMinute(3)}, Request: s.request(fetch(c.target)),
			Budget: func(_ context.Context, mode string, l limiter.Limit) (limiter.Decision, error) {
				require.Equal(t, degrade.ModeCache, mode)
				asked = append(asked, l)
				return c.decided, c.err
			},
		}
		rec := httptest.NewRecorder()
		require.Equal(t, c.want, c.h.Degrade(rec, fetch(c.target), d), name)
		require.Equal(t, c.asked, asked, name)
		if c.want == degrade.Skip {
			require.Empty(t, rec.Header(), "%s: nothing was written", name)
			require.Zero(t, rec.Body.Len())
		}
	}
	// Outside of a guard there is no request of keys, and nothing to ask.
	s.route = ""
	s.allow(fetch("/"))
	require.Equal(t, degrade.Done, s.h.Degrade(httptest.NewRecorder(), fetch("/"), &degrade.Denial{Policy: s.policy}))
}
