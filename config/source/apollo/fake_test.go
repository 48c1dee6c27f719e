package apollosource_test

// This file is a fake of Apollo's config service, for tests. It is no Apollo and shares no code with it. It speaks these
// parts of the protocol, as Apollo's documentation for clients in other languages and its sources describe them:
//
//   - GET /configs/{appId}/{cluster}/{namespace}, from memory: 200 with a release as JSON, 304 where releaseKey is that of
//     the release, 404 where there is none. With a stale cache it answers with the release before the last one until
//     it is told of a newer notification by the parameter messages.
//   - GET /notifications/v2 with notification ids: 200 at once where there is a newer one, 200 as soon as there is one, and
//     304 after the hold, which is 60 s as it is there. The request is registered before the ids are compared.
//   - Access keys: 401 without a signature, with a wrong one, and where the timestamp is a minute off.
//
// It knows no gray rules, public namespaces, incremental answers or data centres; it notes the parameters for tests.

import (
	"crypto/hmac"
	"crypto/sha1"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"
)

const hold = time.Minute

type fake struct {
	appID, cluster, namespace string
	accessKey                 string // empty: unsigned requests are answered
	staleCache                bool

	mu       sync.Mutex
	releases []map[string]string // nil: removed
	id       int64               // of the last notification
	waiting  map[chan struct{}]bool
	seen     []*url.URL // the requests so far
	answer   http.HandlerFunc
}

func newFake() *fake {
	return &fake{appID: "shop", cluster: "default", namespace: "limits.yaml", accessKey: secret, waiting: map[chan struct{}]bool{}}
}

// set releases a document; nil removes the namespace.
func (f *fake) set(doc []byte) {
	if doc == nil {
		f.release(nil)
		return
	}
	f.release(map[string]string{"content": string(doc)})
}

func (f *fake) release(items map[string]string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.releases = append(f.releases, items)
	f.id += 3 // other namespaces have notifications too
	for c := range f.waiting {
		close(c)
		delete(f.waiting, c)
	}
}

// instead has h answer requests from now on; nil: the fake itself again.
func (f *fake) instead(h http.HandlerFunc) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answer = h
}

// requests returns what was asked for since the last call.
func (f *fake) requests() []*url.URL {
	f.mu.Lock()
	defer f.mu.Unlock()
	seen := f.seen
	f.seen = nil
	return seen
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	f.seen = append(f.seen, r.URL)
	instead := f.answer
	f.mu.Unlock()
	if instead != nil {
		instead(w, r)
		return
	}
	if r.Method != http.MethodGet {
		http.Error(w, "method", http.StatusMethodNotAllowed)
		return
	}
	if !f.isSigned(r) {
		http.Error(w, "Unauthorized", http.StatusUnauthorized)
		return
	}
	switch path := r.URL.EscapedPath(); {
	case path == "/notifications/v2":
		f.notifications(w, r)
	case strings.HasPrefix(path, "/configs/"):
		f.configs(w, r)
	default:
		http.NotFound(w, r)
	}
}

func (f *fake) isSigned(r *http.Request) bool {
	if f.accessKey == "" {
		return true
	}
	stamp := r.Header.Get("Timestamp")
	ms, err := strconv.ParseInt(stamp, 10, 64)
	if err != nil || time.Since(time.UnixMilli(ms)).Abs() >= time.Minute {
		return false
	}
	mac := hmac.New(sha1.New, []byte(f.accessKey))
	fmt.Fprintf(mac, "%s\n%s", stamp, r.RequestURI)
	want := "Apollo " + f.appID + ":" + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	return hmac.Equal([]byte(want), []byte(r.Header.Get("Authorization")))
}

func (f *fake) key() string { return f.appID + "+" + f.cluster + "+" + f.namespace }

func (f *fake) configs(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	at := len(f.releases) - 1
	if f.staleCache && at > 0 {
		var messages struct{ Details map[string]int64 }
		_ = json.Unmarshal([]byte(r.URL.Query().Get("messages")), &messages)
		if messages.Details[f.key()] < f.id {
			at--
		}
	}
	if r.URL.Path != "/configs/"+f.appID+"/"+f.cluster+"/"+f.namespace || at < 0 || f.releases[at] == nil {
		http.Error(w, `{"status":404,"message":"Could not load configurations"}`, http.StatusNotFound)
		return
	}
	releaseKey := fmt.Sprintf("20261130-%d", at)
	if r.URL.Query().Get("releaseKey") == releaseKey {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	reply(w, map[string]any{
		"appId": f.appID, "cluster": f.cluster, "namespaceName": f.namespace, "configurations": f.releases[at], "releaseKey": releaseKey,
	})
}

func (f *fake) notifications(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	var asked []struct {
		NamespaceName  string
		NotificationID int64
	}
	if json.Unmarshal([]byte(q.Get("notifications")), &asked) != nil || len(asked) != 1 || q.Get("appId") != f.appID || q.Get("cluster") != f.cluster {
		http.Error(w, "Invalid format of notifications", http.StatusBadRequest)
		return
	}
	if !strings.EqualFold(asked[0].NamespaceName, f.namespace) {
		http.NotFound(w, r)
		return
	}
	told := make(chan struct{})
	f.mu.Lock()
	f.waiting[told] = true
	if f.id > 0 && f.id > asked[0].NotificationID {
		delete(f.waiting, told)
		close(told)
	}
	f.mu.Unlock()
	timer := time.NewTimer(hold)
	defer timer.Stop()
	select {
	case <-told:
	case <-timer.C:
		f.mu.Lock()
		delete(f.waiting, told)
		f.mu.Unlock()
		w.WriteHeader(http.StatusNotModified)
		return
	case <-r.Context().Done():
		f.mu.Lock()
		delete(f.waiting, told)
		f.mu.Unlock()
		return
	}
	f.mu.Lock()
	id := f.id
	f.mu.Unlock()
	reply(w, []any{map[string]any{
		"namespaceName": asked[0].NamespaceName, "notificationId": id,
		"messages": map[string]any{"details": map[string]int64{f.key(): id}},
	}})
}

func reply(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json;charset=UTF-8")
	_ = json.NewEncoder(w).Encode(v)
}
