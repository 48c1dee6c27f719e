package apollosource

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spillway-go/spillway/config"
)

const (
	// pace is the least time between two polls: a service that answers everything at once is no busier for it, and
	// releases that follow each other closely are told as one.
	pace = 200 * time.Millisecond
	// renewal is how long what one was notified of counts.
	renewal = 5 * time.Minute
	// fresh is the number of somebody who has not been notified of anything.
	fresh = -1
	// maxMessages bounds what is kept of a notification: one key for each cluster and application that a namespace may
	// come from.
	maxMessages = 16
	// maxMessage bounds such a key: an application, a cluster and a namespace.
	maxMessage = 512
)

// notification is what a long poll ends with.
type notification struct {
	NamespaceName  string `json:"namespaceName"`
	NotificationID int64  `json:"notificationId"`
	Messages       *struct {
		Details map[string]int64 `json:"details"`
	} `json:"messages,omitempty"`
}

// Watch calls changed when Apollo notifies of a release of the namespace, and once when a server has answered. A server
// that fails is made up for by the next one; the watch is lost when none answers, or when one refuses.
func (s *Source) Watch(ctx context.Context, changed func()) error {
	c := s.connect()
	defer c.close()
	return s.fault(ctx, s.watch(ctx, c, changed))
}

func (s *Source) watch(ctx context.Context, c *connection, changed func()) error {
	// A first poll ends at once only where something was released before. Whether one is understood at all is seen
	// by loading, which is cheap. From here on no release is missed: whoever has the number fresh is told of any.
	if _, err := s.load(ctx, c); err != nil && !isAnswer(err) {
		return err
	}
	changed()
	id, since := int64(fresh), time.Now()
	for {
		if id != fresh && time.Since(since) >= renewal {
			id = fresh
		}
		began := time.Now()
		next, err := s.poll(ctx, c, id)
		if err != nil {
			return err
		}
		if next != id {
			if id == fresh {
				since = began
			}
			id = next
			changed()
		}
		if err := pause(ctx, pace-time.Since(began)); err != nil {
			return err
		}
	}
}

// isAnswer reports whether the error of a load is about the document, not about asking for it.
func isAnswer(err error) bool {
	return errors.Is(err, config.ErrIncomplete) || errors.Is(err, errLarge)
}

// poll waits for a number above id and returns it, or id if the server has waited long enough.
func (s *Source) poll(ctx context.Context, c *connection, id int64) (int64, error) {
	list, err := json.Marshal([]notification{{NamespaceName: s.namespace, NotificationID: id}})
	if err != nil {
		return 0, err
	}
	query := url.Values{"appId": {s.appID}, "cluster": {s.cluster}, "notifications": {string(list)}}
	set(query, "ip", s.ip)
	set(query, "dataCenter", s.dataCenter)
	var news []notification
	status, err := s.ask(ctx, c, s.pollTimeout, "/notifications/v2", query, &news)
	switch {
	case err != nil:
		return 0, err
	case status == http.StatusNotModified:
		return id, nil
	case status != http.StatusOK:
		return 0, statusError(status)
	}
	for _, n := range news {
		if strings.EqualFold(n.NamespaceName, s.namespace) { // Apollo knows namespaces by any case
			s.notify(n)
			return n.NotificationID, nil
		}
	}
	return 0, errors.New("a notification of other namespaces only")
}

// notify keeps what n says for [Source.Load].
func (s *Source) notify(n notification) {
	if n.Messages == nil || len(n.Messages.Details) == 0 || len(n.Messages.Details) > maxMessages {
		return
	}
	for key := range n.Messages.Details {
		if len(key) > maxMessage {
			return
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	// Others watch as well, and answers pass each other.
	merged := maps.Clone(n.Messages.Details)
	for key, id := range s.messages {
		if len(merged) < maxMessages || merged[key] != 0 {
			merged[key] = max(merged[key], id)
		}
	}
	s.messages = merged
}

// notified is the parameter that has a server look into its database if its cache is older than the last notification.
func (s *Source) notified() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.messages) == 0 {
		return ""
	}
	text, err := json.Marshal(map[string]any{"details": s.messages})
	if err != nil {
		return ""
	}
	return string(text)
}

// pause waits for d or the end of ctx.
func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
