package middleware_test

import (
	"context"
	"errors"
	"net/http"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/degrade"
	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/limitertest"
	"github.com/spillway-go/spillway/middleware"
	"github.com/spillway-go/spillway/response"
)

var perMinute = limiter.PerMinute(10)

func with(change func(p *policy)) []policy {
	p := policy{Name: "a", Key: keyfunc.IP(), Limit: perMinute}
	change(&p)
	return []policy{p}
}

type panickySource struct{}

func (panickySource) Current() limiter.Limit { panic("no limit yet") }

func TestNewNamesWhatIsWrong(t *testing.T) {
	skip := degrade.Func(func(http.ResponseWriter, *http.Request, *degrade.Denial) degrade.Outcome { return degrade.Skip })
	queue := perMinute.With(limiter.LeakyBucket).WithBurst(5)
	two := func(change func(a, b *policy)) []policy {
		a, b := policy{Name: "a", Key: keyfunc.IP(), Limit: perMinute}, policy{Name: "b", Key: keyfunc.IP(), Limit: perMinute}
		change(&a, &b)
		return []policy{a, b}
	}
	for name, c := range map[string]struct {
		cfg  config
		want string
	}{
		"no name":               {config{Policies: with(func(p *policy) { p.Name = "" })}, "policy 0 (\"\"): Name"},
		"bad name":              {config{Policies: with(func(p *policy) { p.Name = "a b" })}, "Name must be"},
		"long name":             {config{Policies: with(func(p *policy) { p.Name = string(make([]byte, 65)) })}, "Name must be"},
		"same name":             {config{Policies: two(func(a, b *policy) { b.Name = "a" })}, `"a" is taken`},
		"same but for case":     {config{Policies: two(func(a, b *policy) { b.Name = "A" })}, `"A" is taken`},
		"name of a bound":       {config{Policies: two(func(a, b *policy) { a.InFlight, b.Name = 1, "A.inflight" })}, `"A.inflight" is taken`},
		"bound of a name":       {config{Policies: two(func(a, b *policy) { b.InFlight, a.Name = 1, "B.INFLIGHT" })}, `"b.inflight" is taken`},
		"keys of another stage": {config{Policies: two(func(a, b *policy) { a.Name, b.Stage, b.Name = "s.b", "s", "b" })}, "its keys would be those of"},
		"stage":                 {config{Policies: with(func(p *policy) { p.Stage = "no stage" })}, "Stage"},
		"no key":                {config{Policies: with(func(p *policy) { p.Key = nil })}, "Key is required"},
		"key function":          {config{Policies: with(func(p *policy) { p.Key = keyfunc.Header("no token") })}, "Key: "},
		"key function inside":   {config{Policies: with(func(p *policy) { p.Key = keyfunc.First(keyfunc.IP(), keyfunc.Join()) })}, "Key: "},
		"no limit":              {config{Policies: with(func(p *policy) { p.Limit = nil })}, "Limit is required"},
		"zero limit":            {config{Policies: with(func(p *policy) { p.Limit = limiter.Limit{} })}, "Limit: "},
		"zero rate":             {config{Policies: with(func(p *policy) { p.Limit = limiter.PerMinute(0) })}, "Limit: "},
		"zero var":              {config{Policies: with(func(p *policy) { p.Limit = new(limiter.Var) })}, "Limit: "},
		"nil var":               {config{Policies: with(func(p *policy) { p.Limit = (*limiter.Var)(nil) })}, "Limit: limiter: invalid: it panics"},
		"source that panics":    {config{Policies: with(func(p *policy) { p.Limit = panickySource{} })}, "no limit yet"},
		"plan without limit": {config{Policies: with(func(p *policy) {
			p.Limit, p.InFlight, p.Plan = nil, 1, func(*keyfunc.Request) (limiter.Limit, bool) { return perMinute, true }
		})}, "Plan and Adjust need a Limit"},
		"nil adjuster":      {config{Policies: with(func(p *policy) { p.Adjust = []limiter.Adjuster{nil} })}, "Adjust[0] is nil"},
		"in flight":         {config{Policies: with(func(p *policy) { p.InFlight = -1 })}, "InFlight -1"},
		"too many":          {config{Policies: with(func(p *policy) { p.InFlight = limiter.MaxRate + 1 })}, "InFlight"},
		"unit":              {config{Policies: with(func(p *policy) { p.Unit = "\x00" })}, "unit"},
		"no limiter":        {config{Policies: with(func(p *policy) { p.Limiter = nil }), Limiter: nilLimiter}, "Limiter: "},
		"limiter is nil":    {config{Policies: with(func(p *policy) { p.Limiter = (*uncalled)(nil) })}, "Limiter: limiter: invalid: it panics"},
		"delay":             {config{Policies: with(func(p *policy) { p.Limit, p.MaxDelay = queue, -2 })}, "MaxDelay"},
		"delay of a bucket": {config{Policies: with(func(p *policy) { p.MaxDelay = time.Second })}, "MaxDelay belongs to a leaky_bucket"},
		"delay without batch": {config{Policies: with(func(p *policy) {
			p.Limit, p.MaxDelay, p.Limiter = queue, time.Second, single{newFake()}
		})}, "its Limiter cannot hold requests"},
		"refund":           {config{Policies: with(func(p *policy) { p.Refund, p.Limiter = func(int) bool { return true }, single{newFake()} })}, "Refund: its Limiter cannot give back"},
		"headers":          {config{Policies: with(func(p *policy) { p.Headers = response.Set{Draft: 99} })}, "Headers: "},
		"messages":         {config{Policies: with(func(p *policy) { p.Messages = map[string]string{"not a tag!": "x"} })}, "Messages: "},
		"no key rule":      {config{Policies: with(func(p *policy) { p.OnNoKey = 9 })}, "OnNoKey 9"},
		"error rule":       {config{Policies: with(func(p *policy) { p.OnStoreError = 9 })}, "OnStoreError 9"},
		"route":            {config{Policies: with(func(p *policy) { p.Match.Routes = []string{"GET search"} })}, "Match: route"},
		"route twice":      {config{Policies: with(func(p *policy) { p.Match.Routes = []string{"/{a}/{a}", "/{x...}/b"} })}, `"/{x...}/b"`},
		"host":             {config{Policies: with(func(p *policy) { p.Match.Hosts = []string{"a.example:80"} })}, "host"},
		"host star":        {config{Policies: with(func(p *policy) { p.Match.Hosts = []string{"*"} })}, "host"},
		"host inner star":  {config{Policies: with(func(p *policy) { p.Match.Hosts = []string{"a.*.example"} })}, "host"},
		"host star no dot": {config{Policies: with(func(p *policy) { p.Match.Hosts = []string{"*example"} })}, "host"},
		"method":           {config{Policies: with(func(p *policy) { p.Match.Methods = []string{"get"} })}, "method"},
		"cidr":             {config{Policies: with(func(p *policy) { p.Match.CIDRs = []string{"10.0.0.0/33"} })}, "cidr"},
		"cidr zone":        {config{Policies: with(func(p *policy) { p.Match.CIDRs = []string{"fe80::1%eth0"} })}, "cidr"},
		"exempt":           {config{Policies: with(func(p *policy) { p.Exempt.Routes = []string{"{"} })}, "Exempt: "},
		"exempt of all":    {config{Exempt: match{CIDRs: []string{"x"}}}, "Exempt: cidr"},
		"waiting":          {config{MaxWaiting: -2}, "MaxWaiting -2"},
		"response":         {config{Response: response.Options{Jitter: -1}}, "Response: "},
		"client address":   {config{ClientIP: keyfunc.Trust{Strategy: "sorcery"}}, "ClientIP: "},
		"shadow degrades":  {config{Policies: with(func(p *policy) { p.Shadow, p.Degrade = true, skip })}, "Degrade: a Shadow"},
		"degrade budget":   {config{Policies: with(func(p *policy) { p.Degrade = degrade.Within(limiter.Limit{}, skip) })}, "Degrade: "},
		"nil in a chain":   {config{Policies: with(func(p *policy) { p.Degrade = degrade.First(skip, nil) })}, "a handler is nil"},
		"several without batch": {
			config{Limiter: single{newFake()}, Policies: two(func(a, b *policy) {})},
			"cannot decide them as one",
		},
		"several limiters, no refund": {
			config{Limiter: noRefund{newFake()}, Policies: two(func(a, b *policy) { b.Limiter = newFake() })},
			"must be able to give back",
		},
		"two queues": {config{Policies: two(func(a, b *policy) { a.Limit, b.Limit = queue, queue })}, "queues for every request"},
	} {
		t.Run(name, func(t *testing.T) {
			switch {
			case c.cfg.Limiter == nil:
				c.cfg.Limiter = limitertest.NewModel()
			case c.cfg.Limiter == nilLimiter:
				c.cfg.Limiter = nil
			}
			g, err := middleware.New(c.cfg)
			require.ErrorContains(t, err, c.want)
			require.Nil(t, g)
		})
	}
}

var nilLimiter = newFake() // stands for none

// uncalled is a limiter whose nil pointer cannot be used.
type uncalled struct{ fake }

func TestNewNamesEverythingAtOnce(t *testing.T) {
	_, err := middleware.New(config{
		Limiter: limitertest.NewModel(), MaxWaiting: -7, Exempt: match{Hosts: []string{"*"}}, Response: response.Options{Jitter: -1},
		ClientIP: keyfunc.Trust{Strategy: "sorcery"},
		Policies: []policy{
			{Name: "?", Limit: limiter.Limit{}, InFlight: -1, MaxDelay: -5, OnNoKey: 7},
			{Name: "b", Key: keyfunc.IP(), Limit: perMinute, Match: match{Routes: []string{"x", "y"}, Methods: []string{"get"}, CIDRs: []string{"z"}}},
			{Name: "B", Key: keyfunc.IP(), Limit: perMinute},
		},
	})
	for _, want := range []string{
		"MaxWaiting", "Exempt", "Response", "ClientIP", "Name must be", "Key is required", "Limit: ", "InFlight", "MaxDelay",
		"OnNoKey", `route "x"`, `route "y"`, `method "get"`, `cidr "z"`, `"B" is taken`,
	} {
		require.ErrorContains(t, err, want)
	}
}

func TestNewAcceptsWhatIsMeant(t *testing.T) {
	queue := perMinute.With(limiter.LeakyBucket)
	for name, cfg := range map[string]config{
		"nothing":        {},
		"own limiter":    {Policies: with(func(p *policy) { p.Limiter = newFake() })},
		"in flight only": {Policies: with(func(p *policy) { p.Limit, p.InFlight = nil, 5 })},
		"manual":         {Policies: with(func(p *policy) { p.Stage, p.Key = middleware.StageManual, nil }), Limiter: newFake()},
		"one without batch": {Limiter: single{newFake()}, Policies: []policy{
			{Name: "a", Key: keyfunc.IP(), Limit: perMinute},
			{Name: "b", Key: keyfunc.IP(), Limit: perMinute, Shadow: true},
			{Name: "c", Key: keyfunc.IP(), Limit: perMinute, Stage: "identity"},
		}},
		"queues apart": {Limiter: newFake(), Policies: []policy{
			{Name: "a", Key: keyfunc.IP(), Limit: queue, Match: match{Methods: []string{"GET"}}}, {Name: "b", Key: keyfunc.IP(), Limit: queue},
		}},
		"limiters that compare not": {Policies: []policy{
			{Name: "a", Key: keyfunc.IP(), Limit: perMinute, Limiter: uncomparable{f: newFake()}},
			{Name: "b", Key: keyfunc.IP(), Limit: perMinute, Limiter: uncomparable{f: newFake()}},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := middleware.New(cfg)
			require.NoError(t, err)
		})
	}
}

type uncomparable struct {
	f *fake
	_ []int
}

func (u uncomparable) Allow(ctx context.Context, k limiter.Key, l limiter.Limit, n int) (limiter.Decision, error) {
	return u.f.Allow(ctx, k, l, n)
}

func (u uncomparable) Refund(ctx context.Context, at time.Time, t *limiter.Take) error {
	return u.f.Refund(ctx, at, t)
}

// A wrapper around a limiter that cannot batch says so, and is then asked take by take.
func TestNewBelievesUnsupported(t *testing.T) {
	_, err := middleware.New(config{Limiter: wrapper{newFake()}, Policies: []policy{
		{Name: "a", Key: keyfunc.IP(), Limit: perMinute}, {Name: "b", Key: keyfunc.IP(), Limit: perMinute},
	}})
	require.ErrorContains(t, err, "cannot decide them as one")
	g := newGuard(t, config{Limiter: wrapper{newFake()}, Policies: []policy{{Name: "a", Key: keyfunc.IP(), Limit: perMinute}}})
	require.Equal(t, 200, get(g, "192.0.2.1").Code)
}

type wrapper struct{ *fake }

func (wrapper) AllowAll(context.Context, time.Time, []limiter.Take) (bool, error) {
	return false, errors.ErrUnsupported
}

// New asks no store and starts nothing.
func TestNewStartsNothing(t *testing.T) {
	f := newFake()
	before := runtime.NumGoroutine()
	for range 100 {
		newGuard(t, config{Limiter: f, Policies: []policy{{Name: "a", Key: keyfunc.IP(), Limit: perMinute}}})
	}
	require.Zero(t, f.calls.Load())
	require.LessOrEqual(t, runtime.NumGoroutine(), before)
}
