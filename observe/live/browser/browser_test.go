package browser_test

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// patience is how long anything may take to become true: far more than it takes, for machines that are busy.
const patience = 40 * time.Second

// chromium is the one browser of all tests.
var chromium struct {
	once sync.Once
	ctx  context.Context
	stop []context.CancelFunc
	why  string // there is none
}

func TestMain(m *testing.M) {
	m.Run()
	for k := len(chromium.stop) - 1; k >= 0; k-- {
		chromium.stop[k]()
	}
}

// launch starts the browser. In CI it must be there.
func launch() {
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil {
			path = found
			break
		}
	}
	if path == "" {
		chromium.why = "no chromium: apt-get install chromium"
		return
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.Flag("disable-dev-shm-usage", true))
	ctx, stop := chromedp.NewExecAllocator(context.Background(), options...)
	browser, stopBrowser := chromedp.NewContext(ctx)
	chromium.ctx, chromium.stop = browser, []context.CancelFunc{stop, stopBrowser}
	if err := chromedp.Do(browser); err != nil {
		chromium.why = "chromium does not start: " + err.Error()
	}
}

// tab is a page in the browser, which must ask nobody else and complain of nothing.
type tab struct {
	t      *testing.T
	ctx    context.Context
	origin string

	mu       sync.Mutex
	faults   []string
	expected []string // parts of faults that the test itself causes
}

// look opens the scene's page.
func (s *scene) look(t *testing.T, width, height int64, scheme string) *tab {
	t.Helper()
	chromium.once.Do(launch)
	if chromium.why != "" {
		if os.Getenv("CI") == "true" {
			t.Fatal(chromium.why)
		}
		t.Skip(chromium.why)
	}
	ctx, cancel := chromedp.NewContext(chromium.ctx)
	ctx, stop := context.WithTimeout(ctx, 3*time.Minute)
	b := &tab{t: t, ctx: ctx, origin: s.url}
	t.Cleanup(func() {
		stop()
		cancel()
		b.mu.Lock()
		defer b.mu.Unlock()
		require.Empty(t, b.faults, "what the page asked of others, and what the browser complained of")
	})
	require.NoError(t, chromedp.Listen(ctx, b.listen))
	call(b, network.Enable, network.EnableParams{})
	call(b, cdplog.Enable, cdp.Empty{})
	call(b, runtime.Enable, cdp.Empty{})
	call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	})
	call(b, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{
		Width: width, Height: height, DeviceScaleFactor: 1, Mobile: width < 500,
	})
	call(b, emulation.SetFocusEmulationEnabled, emulation.SetFocusEmulationEnabledParams{Enabled: true})
	b.do(chromedp.Navigate(s.url + "/live/"))
	b.until(`document.getElementById("state").dataset.word !== "wait"`)
	return b
}

func (b *tab) listen(event any) {
	fault := ""
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		if u, err := url.Parse(e.Request.URL); err == nil && u.Scheme != "data" && u.Scheme+"://"+u.Host != b.origin {
			fault = "asks " + e.Request.URL
		}
	case *runtime.EventExceptionThrown:
		fault = e.ExceptionDetails.Text
		if x := e.ExceptionDetails.Exception; x != nil {
			fault += " " + x.Description
		}
	case *runtime.EventConsoleAPICalled:
		switch e.Type {
		case runtime.ConsoleAPICalledTypeError, runtime.ConsoleAPICalledTypeWarning, runtime.ConsoleAPICalledTypeAssert:
			fault = fmt.Sprintf("console: %s", e.Args[0].Value)
		}
	case *cdplog.EventEntryAdded:
		if e.Entry.Level == cdplog.EntryLevelError || e.Entry.Level == cdplog.EntryLevelWarning {
			fault = e.Entry.Text + " " + e.Entry.URL
		}
	}
	if fault == "" {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, part := range b.expected {
		if strings.Contains(fault, part) {
			return
		}
	}
	b.faults = append(b.faults, fault)
}

// expect lets pass what the test itself causes.
func (b *tab) expect(part string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.expected = append(b.expected, part)
}

func (b *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	require.NoError(b.t, chromedp.Do(b.ctx, actions...))
}

// script runs one, whatever it returns.
func (b *tab) script(text string) {
	b.t.Helper()
	eval[bool](b, text+"\n;true")
}

// press is a key as a keyboard has it: what a script prevents does not become text.
func (b *tab) press(key, text string) {
	b.t.Helper()
	codes := map[string]int64{"Tab": 9, "Enter": 13, "Escape": 27, "/": 191}
	call(b, input.DispatchKeyEvent, input.DispatchKeyEventParams{
		Type: input.DispatchKeyEventTypeKeyDown, Key: key, Code: key, Text: text, WindowsVirtualKeyCode: codes[key],
	})
	call(b, input.DispatchKeyEvent, input.DispatchKeyEventParams{Type: input.DispatchKeyEventTypeKeyUp, Key: key, Code: key, WindowsVirtualKeyCode: codes[key]})
}

// call sends a command of the protocol.
func call[P, R any](b *tab, command cdp.Command[P, R], params P) {
	b.t.Helper()
	_, err := chromedp.Call(b.ctx, command, params)
	require.NoError(b.t, err)
}

// eval returns what a script returns.
func eval[T any](b *tab, script string) T {
	b.t.Helper()
	v, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](script, chromedp.EvalAwaitPromise))
	require.NoError(b.t, err)
	return v
}

// until waits until a script returns true. What it looks at may not be on the page yet.
func (b *tab) until(script string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	_, err := chromedp.Run(ctx, chromedp.Poll[bool]("(() => { try { return !!("+script+") } catch { return false } })()", chromedp.WithPollingInterval(100*time.Millisecond), chromedp.WithPollingTimeout(patience)))
	if err != nil {
		page, _ := chromedp.Run(b.ctx, chromedp.Evaluate[string](`document.body.innerText.slice(0, 3000)`))
		b.mu.Lock()
		defer b.mu.Unlock()
		require.NoError(b.t, err, "%s\nfaults: %s\n%s", script, b.faults, page)
	}
}

// picture keeps what is seen, for people: where SPILLWAY_PICTURES names a folder.
func (b *tab) picture(name string) {
	b.t.Helper()
	folder := os.Getenv("SPILLWAY_PICTURES")
	if folder == "" {
		return
	}
	png, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
	require.NoError(b.t, err)
	require.NoError(b.t, os.WriteFile(filepath.Join(folder, name+".png"), png, 0o600))
}
