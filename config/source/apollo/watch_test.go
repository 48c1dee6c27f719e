package apollosource_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/config"
	apollosource "github.com/spillway-go/spillway/config/source/apollo"
)

// The signature that Apollo's own tests expect.
func TestSignature(t *testing.T) {
	src := newSource(t, apollosource.Config{Servers: []string{"http://10.0.0.1:8080"}, AppID: "100004458"})
	req, err := http.NewRequest(http.MethodGet, "http://10.0.0.1:8080/configs/100004458/default/application?ip=10.0.0.1", nil)
	require.NoError(t, err)
	src.Sign(req, time.UnixMilli(1576478257344))
	require.Equal(t, "Apollo 100004458:EoKyziXvKqzHgwx+ijDJwgVTDgE=", req.Header.Get("Authorization"))
	require.Equal(t, "1576478257344", req.Header.Get("Timestamp"))
}

// bubble runs a test in a bubble with a network, a fake of Apollo at http://apollo, and a source of it.
func bubble(t *testing.T, test func(t *testing.T, n *network, f *fake, src *apollosource.Source)) {
	synctest.Test(t, func(t *testing.T) {
		n, f := newNetwork(), newFake()
		n.serve(t, "apollo", f)
		test(t, n, f, newSource(t, apollosource.Config{Servers: []string{"http://apollo"}, Transport: n.transport()}))
	})
}

// polls returns the notification ids of the polls among requests.
func polls(t *testing.T, seen []*url.URL) (ids []int64) {
	for _, u := range seen {
		if u.Path != "/notifications/v2" {
			continue
		}
		var list []struct {
			NamespaceName  string
			NotificationID int64
		}
		require.NoError(t, json.Unmarshal([]byte(u.Query().Get("notifications")), &list))
		require.Len(t, list, 1)
		require.Equal(t, "limits.yaml", list[0].NamespaceName)
		ids = append(ids, list[0].NotificationID)
	}
	return ids
}

func TestWatchHoldsAPoll(t *testing.T) {
	bubble(t, func(t *testing.T, _ *network, f *fake, src *apollosource.Source) {
		f.set(document)
		w := watch(t, src)
		time.Sleep(time.Second)
		require.Equal(t, 2, w.calls(), "one for the beginning, one for the release that a first poll is told of")
		seen := f.requests()
		require.Equal(t, []int64{-1, 3}, polls(t, seen))
		require.Equal(t, "/notifications/v2?appId=shop&cluster=default&notifications=%5B%7B%22namespaceName%22%3A%22limits.yaml%22%2C%22notificationId%22%3A3%7D%5D", seen[len(seen)-1].String())

		time.Sleep(3*time.Minute + 30*time.Second)
		require.Equal(t, 0, w.calls(), "nothing was released")
		require.Equal(t, []int64{3, 3, 3}, polls(t, f.requests()), "one poll a minute")

		f.set(document)
		synctest.Wait()
		require.Equal(t, 1, w.calls())
		time.Sleep(apollosource.Pace)
		require.Equal(t, []int64{6}, polls(t, f.requests()))
	})
}

// Where nothing was released, a first poll is held; Watch has said all the same that it watches.
func TestWatchBeforeTheFirstRelease(t *testing.T) {
	bubble(t, func(t *testing.T, _ *network, f *fake, src *apollosource.Source) {
		w := watch(t, src)
		synctest.Wait()
		require.Equal(t, 1, w.calls())
		time.Sleep(10 * time.Minute)
		require.Equal(t, 0, w.calls())
		f.set(document)
		synctest.Wait()
		require.Equal(t, 1, w.calls())
	})
}

func TestWatchForgetsWhatItWasNotifiedOf(t *testing.T) {
	bubble(t, func(t *testing.T, _ *network, f *fake, src *apollosource.Source) {
		f.set(document)
		f.set(document)
		w := watch(t, src)
		time.Sleep(time.Second)
		w.calls()
		f.mu.Lock()
		f.id = 3 // a database that was set back
		f.mu.Unlock()
		time.Sleep(apollosource.Renewal + 2*hold)
		require.Equal(t, 1, w.calls())
		require.Contains(t, polls(t, f.requests()), int64(3))
		f.set(document)
		synctest.Wait()
		require.Equal(t, 1, w.calls(), "6 is more than 3 again")
	})
}

func TestLoadHandsTheNotificationOn(t *testing.T) {
	bubble(t, func(t *testing.T, _ *network, f *fake, src *apollosource.Source) {
		f.staleCache = true
		f.set([]byte("version: 1 # old\n"))
		w := watch(t, src)
		time.Sleep(time.Second)
		f.set(document)
		synctest.Wait()
		require.NotZero(t, w.calls())
		f.requests()
		doc, err := src.Load(t.Context())
		require.NoError(t, err)
		require.Equal(t, string(document), string(doc))
		require.JSONEq(t, `{"details":{"shop+default+limits.yaml":6}}`, f.requests()[0].Query().Get("messages"))
	})
}

// Another one that watches has an answer from before.
func TestNotificationsDoNotGoBack(t *testing.T) {
	bubble(t, func(t *testing.T, _ *network, f *fake, src *apollosource.Source) {
		answers := []string{`{"a":7}`, `{"a":5,"b":1}`, `{}`, `null`, `{"` + strings.Repeat("k", 600) + `":1}`}
		f.instead(func(w http.ResponseWriter, r *http.Request) {
			f.mu.Lock()
			defer f.mu.Unlock()
			if r.URL.Path != "/notifications/v2" || len(answers) == 0 {
				f.mu.Unlock()
				<-r.Context().Done()
				f.mu.Lock()
				return
			}
			f.id++
			fmt.Fprintf(w, `[{"namespaceName":"LIMITS.yaml","notificationId":%d,"messages":{"details":%s}}]`, f.id, answers[0])
			answers = answers[1:]
		})
		// Load would have to be answered first.
		f.mu.Lock()
		inner := f.answer
		f.answer = func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/notifications/v2" {
				http.NotFound(w, r)
				return
			}
			inner(w, r)
		}
		f.mu.Unlock()
		w := watch(t, src)
		time.Sleep(10 * time.Second)
		require.Equal(t, 6, w.calls())
		f.requests()
		_, err := src.Load(t.Context())
		require.ErrorIs(t, err, config.ErrIncomplete)
		require.JSONEq(t, `{"details":{"a":7,"b":1}}`, f.requests()[0].Query().Get("messages"))
	})
}

// A server that answers everything at once is asked no oftener than by the pace.
func TestWatchIsNoBusyLoop(t *testing.T) {
	for name, answer := range map[string]string{
		"304 at once":    "",
		"the same again": `[{"namespaceName":"limits.yaml","notificationId":1}]`,
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, _ *network, f *fake, src *apollosource.Source) {
				f.instead(func(w http.ResponseWriter, r *http.Request) {
					switch {
					case r.URL.Path != "/notifications/v2":
						http.NotFound(w, r)
					case answer == "":
						w.WriteHeader(http.StatusNotModified)
					default:
						fmt.Fprint(w, answer)
					}
				})
				w := watch(t, src)
				time.Sleep(time.Minute)
				w.cancel()
				synctest.Wait()
				require.InDelta(t, float64(time.Minute/apollosource.Pace), float64(len(polls(t, f.requests()))), 2)
				require.LessOrEqual(t, w.calls(), 2)
			})
		})
	}
}

func TestWatchIsLost(t *testing.T) {
	for name, row := range map[string]struct {
		answer http.HandlerFunc
		want   string
	}{
		"refused":         {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(401) }, "status 401: the access key"},
		"not understood":  {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(400) }, "status 400"},
		"no such path":    {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(404) }, "status 404: no config service"},
		"failing":         {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }, "apollo: status 500"},
		"other's news":    {func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `[{"namespaceName":"application"}]`) }, "other namespaces"},
		"no news":         {func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `[]`) }, "other namespaces"},
		"silent for 90 s": {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "no answer within 1m30s"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, _ *network, f *fake, src *apollosource.Source) {
				f.set(document)
				w := watch(t, src)
				time.Sleep(time.Second)
				f.instead(row.answer)
				err := <-w.result
				require.ErrorContains(t, err, "apollosource: shop/default/limits.yaml: ")
				require.ErrorContains(t, err, row.want)
				require.NotErrorIs(t, err, context.Canceled)
			})
		})
	}
}

func TestWatchSaysNothingWhereNobodyAnswers(t *testing.T) {
	bubble(t, func(t *testing.T, n *network, _ *fake, _ *apollosource.Source) {
		src := newSource(t, apollosource.Config{Servers: []string{"http://nowhere", "http://neither"}, Transport: n.transport()})
		err := src.Watch(t.Context(), func() { t.Error("called") })
		require.ErrorContains(t, err, "nowhere: ")
		require.ErrorContains(t, err, "neither: ")
	})
}

// Two services of one database. The one that is asked goes away, or falls silent, and the other one is told what was
// known.
func TestWatchGoesOnWithTheNextServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, f := newNetwork(), newFake()
		f.set(document)
		n.serve(t, "one", f)
		src := newSource(t, apollosource.Config{Servers: []string{"http://one", "http://two"}, Transport: n.transport()})
		w := watch(t, src)
		time.Sleep(time.Second)
		w.calls()
		f.requests()

		g := newFake()
		g.set(document)
		n.serve(t, "two", g)
		f.instead(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		time.Sleep(hold) // the poll that is held ends
		time.Sleep(90 * time.Second)
		require.Equal(t, 0, w.calls())
		require.Equal(t, []int64{3}, polls(t, g.requests()))
		g.set(document)
		synctest.Wait()
		require.Equal(t, 1, w.calls())
	})
}

func TestWatchEndsAtOnceInTheMiddleOfAPoll(t *testing.T) {
	bubble(t, func(t *testing.T, _ *network, f *fake, src *apollosource.Source) {
		f.set(document)
		w := watch(t, src)
		time.Sleep(30 * time.Second)
		began := time.Now()
		w.cancel()
		require.Equal(t, context.Canceled, <-w.result)
		require.Zero(t, time.Since(began))
		w.calls()
		f.set(document)
		synctest.Wait()
		require.Zero(t, w.calls())
	})
}

// A server that accepts and says nothing costs Timeout, not more.
func TestLoadIsBounded(t *testing.T) {
	bubble(t, func(t *testing.T, n *network, f *fake, _ *apollosource.Source) {
		f.instead(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		src := newSource(t, apollosource.Config{Servers: []string{"http://apollo", "http://apollo"}, Timeout: 3 * time.Second, Transport: n.transport()})
		began := time.Now()
		_, err := src.Load(t.Context())
		require.ErrorContains(t, err, "no answer within 3s")
		require.Equal(t, 6*time.Second, time.Since(began))

		// The same in the middle of a body.
		f.instead(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, `{"configurations":`)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		})
		began = time.Now()
		_, err = src.Load(t.Context())
		require.Error(t, err)
		require.Equal(t, 6*time.Second, time.Since(began))
	})
}
