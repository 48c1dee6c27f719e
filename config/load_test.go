package config_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Limits change a hundred times while thousands of requests a second are served: what stays admits exactly its number.
func TestReloadUnderLoad(t *testing.T) {
	const quota = 500
	document := func(k int) string {
		return fmt.Sprintf("version: 1\npolicies:\n- {name: stays, key: global, limit: %d/d fixed_window, match: {routes: [/stays]}}\n"+
			"- {name: moves, key: ip, limit: %d/s, match: {routes: [/moves]}}\n"+
			"- {name: comes%d, key: ip, limit: 5/s, match: {routes: [/stays/%d]}}\n", quota, 1+k%7*1000, k%3, k)
	}
	bubble(t, func(t *testing.T) {
		src := &fake{data: []byte(document(0))}
		d, s := watched(t)
		f := following(t, src, d)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var admitted, refused, other atomic.Int64
		var clients sync.WaitGroup
		for c := range 8 {
			clients.Go(func() {
				handler := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
				for k := 0; ctx.Err() == nil; k++ {
					path := []string{"/stays", "/moves"}[k%2]
					w := httptest.NewRecorder()
					f.Guard().Serve(w, httptest.NewRequest(http.MethodGet, path, nil), handler)
					switch {
					case w.Code >= 500:
						other.Add(1)
					case k%2 == 0 && w.Code == 200:
						admitted.Add(1)
					case k%2 == 0:
						refused.Add(1)
					}
					time.Sleep(time.Duration(1+(k+c)%3) * time.Millisecond) // of the bubble
				}
			})
		}
		for k := 1; k <= 100; k++ {
			src.write(document(k))
			time.Sleep(10 * time.Millisecond)
		}
		synctest.Wait()
		require.Contains(t, f.Guard().Policies(), fmt.Sprint("comes", 100%3))
		cancel()
		clients.Wait()
		require.EqualValues(t, quota, admitted.Load())
		require.NotZero(t, refused.Load())
		require.Zero(t, other.Load())
		reasons, _ := s.take()
		require.Len(t, reasons, len("ok")+100*len(" ok"))
	})
}
