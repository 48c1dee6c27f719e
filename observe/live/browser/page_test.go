package browser_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/memory"
	"github.com/spillway-go/spillway/middleware"
	"github.com/spillway-go/spillway/observe/live"
)

// shop is a service as there are many.
func shop() []middleware.Policy {
	return []middleware.Policy{
		byIP("burst", "/", limiter.PerSecond(200)),
		byIP("search", "GET /search", limiter.PerSecond(5).WithBurst(20)),
		{Name: "search-all", Match: route("GET /search"), Key: keyfunc.Global(), Limit: limiter.PerSecond(60).With(limiter.SlidingWindow)},
		{Name: "login", Match: route("GET /login"), Key: keyfunc.IP(), Limit: limiter.PerMinute(30).With(limiter.FixedWindow)},
		{Name: "trial", Match: route("GET /trial"), Key: keyfunc.Global(), Limit: limiter.PerSecond(10), Shadow: true},
		{Name: "upload", Match: route("GET /upload"), Key: keyfunc.Global(), InFlight: 50},
		{Name: "checkout", Match: route("GET /checkout"), Key: keyfunc.Global(), Limit: limiter.PerSecond(20), Adjust: []limiter.Adjuster{lunch{}}},
	}
}

// lunch halves a limit and says why.
type lunch struct{}

func (lunch) Adjust(_ time.Time, l limiter.Limit) limiter.Limit {
	l.Rate /= 2
	return l
}

func (l lunch) Explain(now time.Time, nominal limiter.Limit) (limiter.Limit, string) {
	return l.Adjust(now, nominal), "schedule: half at lunch"
}

func TestPictures(t *testing.T) {
	s := newScene(t, nil, shop()...)
	b := s.look(t, 1280, 900, "light")
	b.picture("empty-light-desktop")
	s.load(map[string]int{"/": 3, "/search": 6, "/login": 1, "/trial": 2, "/upload": 1, "/checkout": 2})
	b.until(`Number(document.getElementById("now-refused").textContent) > 0`)
	time.Sleep(20 * time.Second)
	b.do(chromedp.Click(chromedp.CSS(`.name`)))
	time.Sleep(2 * time.Second)
	b.picture("busy-light-desktop")
	d := s.look(t, 1280, 900, "dark")
	time.Sleep(2 * time.Second)
	d.do(chromedp.Click(chromedp.CSS(`.name`)))
	d.picture("busy-dark-desktop")
	p := s.look(t, 360, 740, "light")
	time.Sleep(2 * time.Second)
	p.do(chromedp.Click(chromedp.CSS(`.name`)))
	p.picture("busy-light-phone")
	q := s.look(t, 360, 740, "dark")
	time.Sleep(2 * time.Second)
	q.picture("busy-dark-phone")
	_ = fmt.Sprint
	_ = strings.Repeat
	_ = kb.Enter
	_ = memory.Config{}
	_ = live.Status{}
	require.True(t, true)
}
