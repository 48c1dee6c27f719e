package browser_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/memory"
	"github.com/spillway-go/spillway/middleware"
	"github.com/spillway-go/spillway/observe/live"
)

// shop is the policies of a service as there are many.
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

var paths = map[string]int{"/": 3, "/search": 6, "/login": 1, "/trial": 2, "/upload": 1, "/checkout": 2}

// lunch halves a limit and says why.
type lunch struct{}

func (lunch) Adjust(_ time.Time, l limiter.Limit) limiter.Limit {
	l.Rate /= 2
	return l
}

func (l lunch) Explain(now time.Time, nominal limiter.Limit) (limiter.Limit, string) {
	return l.Adjust(now, nominal), "schedule: half at lunch"
}

// rowOf finds the row of a policy.
func rowOf(name string) string {
	return fmt.Sprintf(`[...document.querySelectorAll("tr.policy")].find((r) => r.querySelector(".name").textContent === %q)`, name)
}

// noScroll is whether nothing is wider than the window.
const noScroll = `document.documentElement.scrollWidth <= document.documentElement.clientWidth`

// What is shown is what was sent, and a reload shows at once: policies come and go, and what changed is listed.
func TestNumbersAndReload(t *testing.T) {
	once := byIP("once", "GET /once", limiter.PerHour(3))
	s := newScene(t, nil, byIP("all", "/", limiter.PerHour(1000)), once)
	b := s.look(t, 1280, 900, "light")
	b.picture("empty-light-desktop")
	s.send("/once", "203.0.113.9", 7)
	s.send("/", "203.0.113.9", 11)
	b.until(rowOf("once") + `.cells[6].textContent === "0 %"`)
	b.script(rowOf("once") + `.querySelector(".name").click()`)
	b.until(`document.querySelector("tr.detail:not([hidden]) dd")?.textContent === "3 allowed, 4 refused, 0 degraded"`)
	b.until(`document.querySelector("#top tr td.mono")?.textContent.startsWith("$")`)
	require.False(t, eval[bool](b, `document.body.innerText.includes("203.0.113.9")`), "keys are hashed")
	require.Equal(t, "0 / 0", eval[string](b, rowOf("once")+`.cells[7].textContent`))

	changed := byIP("once", "GET /once", limiter.PerHour(5))
	require.NoError(t, s.guard.Update([]middleware.Policy{changed, byIP("fresh", "/", limiter.PerHour(9))}))
	s.set(func(st *live.Status) {
		st.Hash, st.Changes = "aaaaaaaaaaaa", []string{"policies.once.limit: 3/h → 5/h", "policies.all: − …", "policies.fresh: + …"}
	})
	b.until(`document.getElementById("changes").innerText.includes("policies.once.limit: 3/h → 5/h")`)
	b.until(`!!(` + rowOf("fresh") + `) && !(` + rowOf("all") + `)`)
	require.Equal(t, "5/h", eval[string](b, rowOf("once")+`.cells[1].textContent`))
	require.Equal(t, "true", eval[string](b, rowOf("once")+`.querySelector(".name").getAttribute("aria-expanded")`), "what is open stays open")

	s.set(func(st *live.Status) {
		st.Error = "policies.yaml:3:12: limit: \"100/x\": unknown unit\npolicies.yaml:9:3: key: is required"
	})
	b.until(`document.getElementById("state-text").textContent === "Configuration refused"`)
	require.Contains(t, eval[string](b, `document.getElementById("document-error").innerText`), "unknown unit")
	require.Contains(t, eval[string](b, `document.getElementById("spoken").textContent`), "Configuration refused", "it is said")
	b.picture("refused-light-desktop")
}

// Under load, at all widths and in both schemes: nothing is wider than the window, and axe finds nothing.
func TestBusy(t *testing.T) {
	s := newScene(t, nil, shop()...)
	s.load(paths)
	axe, err := os.ReadFile("testdata/axe.min.js")
	require.NoError(t, err)
	for _, c := range []struct {
		name          string
		width, height int64
		scheme        string
	}{
		{"light-desktop", 1280, 900, "light"}, {"dark-phone", 360, 740, "dark"}, {"dark-desktop", 1280, 900, "dark"}, {"light-phone", 360, 740, "light"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := s.look(t, c.width, c.height, c.scheme)
			b.until(rowOf("search") + `?.cells[4].textContent > "0" && document.querySelector("#top tr")`)
			b.script(rowOf("search") + `.querySelector(".name").click()`)
			b.until(`document.querySelector("tr.detail:not([hidden]) canvas") && document.querySelector("tr.detail:not([hidden]) meter")`)
			b.script(`document.querySelectorAll("details").forEach((d) => d.open = true)`)
			b.until(`document.querySelector("#data-all tbody tr")`)
			require.True(t, eval[bool](b, noScroll), "%s", eval[string](b,
				`[...document.querySelectorAll("body *")].filter((e) => e.getBoundingClientRect().right > innerWidth + 1).slice(0, 9).map((e) => e.outerHTML.slice(0, 120)).join("\n")`))
			b.script(string(axe) + ";0")
			require.Empty(t, eval[[]string](b, `axe.run().then((r) => r.violations.map((v) =>
				v.id + ": " + v.help + ": " + v.nodes.slice(0, 3).map((n) => n.html.slice(0, 150) + " " + n.failureSummary).join(" | ")))`))
			require.Equal(t, "table", eval[string](b, `document.querySelector(".grid").getAttribute("role")`))
			b.script(`document.querySelectorAll("details").forEach((d) => d.open = false)`)
			b.picture("busy-" + c.name)
		})
	}
}

// A shared store goes and comes back, and policies fail open meanwhile.
func TestStoreAway(t *testing.T) {
	var far *away
	s := newScene(t, func(o limiter.Observer) limiter.Limiter {
		m, err := memory.New(memory.Config{Observer: o})
		require.NoError(t, err)
		t.Cleanup(m.Close)
		far = &away{Limiter: m, watch: o}
		return far
	}, byIP("far", "/", limiter.PerSecond(20)))
	s.load(map[string]int{"/": 4})
	b := s.look(t, 360, 740, "light")
	b.until(`Number(document.getElementById("now-store").textContent) > 0 && !document.getElementById("figure-store").hidden`)
	far.take(true)
	b.until(`document.getElementById("state-text").textContent === "Store away"`)
	b.until(rowOf("far") + `.innerText.includes("no bound") && ` + rowOf("far") + `.innerText.includes("cannot decide: passes")`)
	b.until(`document.getElementById("stores").innerText.includes("failing: refused")`)
	b.until(`!document.getElementById("tile-undecided").hidden && Number(document.getElementById("now-undecided").textContent) > 0`)
	b.until(rowOf("far") + `.cells[3].innerText.includes("undecided")`)
	require.True(t, eval[bool](b, noScroll))
	b.picture("away-light-phone")
	far.take(false)
	b.until(`document.getElementById("state-text").textContent === "All in order"`)
}

// The server is killed and another one comes at its address: the page says so, and goes on by itself.
func TestReconnect(t *testing.T) {
	s := newScene(t, nil, byIP("first", "/", limiter.PerHour(9)))
	b := s.look(t, 1280, 900, "dark")
	b.expect("ERR_")       // what the browser says of streams that end
	b.expect("the server") // likewise
	b.until(`document.getElementById("link").dataset.word === "live"`)
	b.until(rowOf("first"))
	b.script(rowOf("first") + `.querySelector(".name").click()`)
	b.until(`document.querySelector("tr.detail:not([hidden]) details")`)
	b.script(`{
		const list = document.querySelector("tr.detail:not([hidden]) details");
		list.open = true;
		list.querySelector("summary").focus();
	}`)
	s.kill()
	b.until(`document.getElementById("link").textContent.startsWith("Connection lost")`)
	b.until(`document.getElementById("spoken").textContent.startsWith("Connection lost")`)
	require.Equal(t, "Not known", eval[string](b, `document.getElementById("state-text").textContent`))
	b.picture("lost-dark-desktop")
	other := newScene(t, nil, byIP("first", "/first", limiter.PerHour(9)), byIP("second", "/", limiter.PerHour(9)))
	other.serveAt(s.addr)
	b.until(`document.getElementById("link").dataset.word === "live" && !!(` + rowOf("second") + `)`)
	b.until(`document.querySelector("tr.detail:not([hidden]) details").open && document.activeElement.textContent === "As a table"`)
	other.send("/", "203.0.113.1", 5)
	b.until(rowOf("second") + `.cells[3].textContent > "0" || ` + rowOf("second") + `.cells[6].textContent !== "–"`)
}

// By keyboard alone: the filter, a row that opens and closes, and where the focus is.
func TestKeyboard(t *testing.T) {
	s := newScene(t, nil, shop()...)
	s.load(paths)
	b := s.look(t, 1280, 900, "light")
	b.until(`document.querySelectorAll("tr.policy").length === 7`)
	b.press("/", "/")
	b.until(`document.activeElement.id === "filter" && document.activeElement.value === ""`)
	b.do(chromedp.KeyEvent("memory sea"))
	b.until(`document.querySelectorAll("tr.policy:not([hidden])").length === 2`)
	b.press("Tab", "")
	b.press("Tab", "") // over the order
	b.until(`document.activeElement.className === "name"`)
	b.press("Enter", "\r")
	b.until(`document.activeElement.getAttribute("aria-expanded") === "true" && !!document.querySelector("tr.detail:not([hidden]) canvas")`)
	name := eval[string](b, `document.activeElement.textContent`)
	b.until(`document.getElementById("link").textContent !== ` + fmt.Sprintf("%q", eval[string](b, `document.getElementById("link").textContent`)))
	require.Equal(t, name, eval[string](b, `document.activeElement.textContent`), "news leave the focus where it is")
	b.press("Enter", "\r")
	b.until(`!document.querySelector("tr.detail:not([hidden])")`)
	b.press("/", "/")
	b.press("Escape", "")
	b.until(`document.querySelectorAll("tr.policy:not([hidden])").length === 7`)
	// Every stop has a focus that is seen.
	require.Equal(t, "solid", eval[string](b, `getComputedStyle(document.activeElement).outlineStyle`))
}

// On the narrowest screen (and at 400 % of a wide one) nothing scrolls to the side, with everything unfolded.
func TestNarrow(t *testing.T) {
	s := newScene(t, nil, shop()...)
	s.load(paths)
	b := s.look(t, 320, 640, "dark")
	b.until(rowOf("search") + `.cells[4].textContent > "0"`)
	b.script(rowOf("search") + `.querySelector(".name").click()`)
	b.until(`document.querySelector("tr.detail:not([hidden]) meter")`)
	b.script(`document.querySelectorAll("details").forEach((d) => d.open = true)`)
	b.until(`document.querySelectorAll("tr.detail:not([hidden]) details td").length > 0`)
	b.picture("narrow-dark")
	require.True(t, eval[bool](b, noScroll), eval[string](b, `document.documentElement.scrollWidth + " " + [...document.querySelectorAll("body *")]
		.filter((e) => e.getBoundingClientRect().right > innerWidth + 1 && !e.closest(".quiet, .scroll, .data")).map((e) => e.tagName + "." + e.className + "#" + e.id).join()`))
}

// Many policies, long names, and texts that would be markup.
func TestManyAndHostile(t *testing.T) {
	const evil = `<img src=x onerror="document.title='owned'"><script>document.title='owned'</script>`
	var many []middleware.Policy
	for k := range 60 {
		name := fmt.Sprintf("policy-%02d-%s", k, strings.Repeat("long.", k%11))
		many = append(many, byIP(name, fmt.Sprintf("GET /%d", k), limiter.PerSecond(5+k).WithBurst(50)))
	}
	s := newScene(t, nil, many...)
	s.set(func(st *live.Status) {
		st.Source, st.Error, st.Changes, st.Warnings = evil, evil, []string{evil}, []string{evil, strings.Repeat("x", 500)}
	})
	s.watch.Observe(limiter.Event{Kind: limiter.EventStore, Name: evil, Reason: evil, Err: errors.New(evil), Duration: time.Millisecond})
	load := make(map[string]int)
	for k := range 60 {
		load[fmt.Sprintf("/%d", k)] = 1 + k%3
	}
	s.load(load)
	for _, width := range []int64{360, 1280} {
		b := s.look(t, width, 800, "light")
		b.until(`document.querySelectorAll("tr.policy").length === 60 && document.getElementById("document-error").innerText.includes("<img")`)
		b.until(`document.getElementById("stores").innerText.includes("<img")`)
		require.Equal(t, "shop · limits", eval[string](b, `document.title`))
		require.Zero(t, eval[int](b, `document.querySelectorAll("img, main script").length`))
		require.True(t, eval[bool](b, noScroll))
		b.picture(fmt.Sprintf("many-%d", width))
	}
}

// Assets are those of the page: nothing is asked from elsewhere, and what may not be asked for is not there.
func TestMayNotLook(t *testing.T) {
	s := newScene(t, nil, byIP("a", "/", limiter.PerHour(9)))
	r := httptest.NewRequest(http.MethodGet, "/live/", nil)
	w := httptest.NewRecorder()
	s.page.ServeHTTP(w, r) // from 192.0.2.1
	require.Equal(t, http.StatusForbidden, w.Code)
}
