package nacossource_test

// This file is a fake of a Nacos server, for tests. It is no Nacos and shares no code with it, nor with the package under
// test: it reads and writes messages by their descriptor. It speaks these parts of the protocol of Nacos 2 and 3, as the
// sources of Nacos and of its clients show them:
//
//   - gRPC, unary: ServerCheckRequest; HealthCheckRequest; ConfigQueryRequest (content, 300 for none, 400 while it is being
//     written); ConfigBatchListenRequest (registers the connection, and names configurations whose MD5 differs). All but the
//     first are answered with an ErrorResponse of code 301 until the connection is set up on its stream.
//   - gRPC, stream: takes ConnectionSetupRequest and the answers to what it sends itself: ConfigChangeNotifyRequest to all
//     who listen, which it sends again until it is answered, ClientDetectionRequest and ConnectResetRequest.
//   - HTTP: the logins of Nacos 1 and of Nacos 3, with tokens that every request about a configuration then has to bear.
//   - Signatures with an access key, version 1: whatever is about the configuration has to bear one.
//
// It has no cluster, no other clients, no gray releases and no storage.

import (
	"context"
	"crypto/hmac"
	"crypto/md5"
	"crypto/sha1"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
)

type fake struct {
	tenant, group, dataID string
	username, password    string // empty: no login needed
	loginPath             string
	tokenTTL              int // seconds
	accessKey, secretKey  string
	setupDelay            time.Duration // how long a connection stays unknown
	again                 time.Duration // when a notification is sent again

	mu       sync.Mutex
	content  *string
	conns    map[int]*fakeConn
	next     int
	tokens   map[string]bool
	logins   int
	requests map[string]int
	instead  func(kind string) (string, map[string]any) // "": as always; for unary requests
	silent   bool                                       // requests are not answered
	acks     []string
}

// fakeConn is a connection and, once it is set up, its stream.
type fakeConn struct {
	out       chan message
	closing   chan struct{}
	end       sync.Once
	isSetUp   bool
	isListed  bool
	ip        string
	setup     map[string]any
	waitingBy map[string]chan struct{} // request ids that were not answered yet
}

func (c *fakeConn) close() { c.end.Do(func() { close(c.closing) }) }

func newFake() *fake {
	return &fake{
		group: "DEFAULT_GROUP", dataID: "limits.yaml", loginPath: "/nacos/v1/auth/users/login", tokenTTL: 18000, again: 3 * time.Second,
		conns: map[int]*fakeConn{}, tokens: map[string]bool{}, requests: map[string]int{},
	}
}

// set publishes a document; nil removes it.
func (f *fake) set(doc []byte) {
	f.mu.Lock()
	f.content = nil
	if doc != nil {
		text := string(doc)
		f.content = &text
	}
	var listed []*fakeConn
	for _, c := range f.conns {
		if c.isListed {
			listed = append(listed, c)
		}
	}
	f.mu.Unlock()
	for _, c := range listed {
		f.push(c, "ConfigChangeNotifyRequest", map[string]any{"dataId": f.dataID, "group": f.group, "tenant": f.tenant})
	}
}

// each calls fn with every connection that is set up.
func (f *fake) each(fn func(c *fakeConn)) {
	f.mu.Lock()
	var all []*fakeConn
	for _, c := range f.conns {
		if c.isSetUp {
			all = append(all, c)
		}
	}
	f.mu.Unlock()
	for _, c := range all {
		fn(c)
	}
}

// push sends a request and sends it again until it is answered.
func (f *fake) push(c *fakeConn, kind string, body map[string]any) {
	f.mu.Lock()
	f.next++
	id := strconv.Itoa(f.next)
	acked := make(chan struct{})
	c.waitingBy[id] = acked
	f.mu.Unlock()
	body["requestId"] = id
	body["module"] = "config"
	go func() {
		for {
			select {
			case c.out <- message{kind: kind, body: body}:
			case <-c.closing:
				return
			}
			timer := time.NewTimer(f.again)
			select {
			case <-acked:
				timer.Stop()
				return
			case <-c.closing:
				timer.Stop()
				return
			case <-timer.C:
			}
		}
	}()
}

// count returns how many requests of a kind there were since the last call.
func (f *fake) count(kind string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.requests[kind]
	f.requests[kind] = 0
	return n
}

func (f *fake) open() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.conns)
}

func (f *fake) answers(instead func(kind string) (string, map[string]any)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.instead = instead
}

// Connections are told apart by their transport.

type connKey struct{}

func (f *fake) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.next++
	f.conns[f.next] = &fakeConn{out: make(chan message), closing: make(chan struct{}), waitingBy: map[string]chan struct{}{}}
	return context.WithValue(ctx, connKey{}, f.next)
}

func (f *fake) HandleConn(ctx context.Context, s stats.ConnStats) {
	if _, ok := s.(*stats.ConnEnd); ok {
		f.mu.Lock()
		defer f.mu.Unlock()
		id, _ := ctx.Value(connKey{}).(int)
		f.conns[id].close()
		delete(f.conns, id)
	}
}

func (f *fake) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }
func (f *fake) HandleRPC(context.Context, stats.RPCStats)                       {}

func (f *fake) conn(ctx context.Context) (*fakeConn, string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	id, _ := ctx.Value(connKey{}).(int)
	return f.conns[id], strconv.Itoa(id)
}

// unary answers one request.
func (f *fake) unary(ctx context.Context, in message) (message, error) {
	c, id := f.conn(ctx)
	if c == nil {
		return message{}, status.Error(codes.Unavailable, "the connection has ended")
	}
	no := func(kind string, code int, text string) (message, error) {
		return message{kind: kind, body: map[string]any{"resultCode": 500, "errorCode": code, "message": text, "success": false}}, nil
	}
	yes := func(kind string, body map[string]any) (message, error) {
		body["resultCode"], body["errorCode"], body["success"] = 200, 0, true
		return message{kind: kind, body: body}, nil
	}
	f.mu.Lock()
	silent := f.silent
	f.mu.Unlock()
	if silent {
		<-ctx.Done()
		return message{}, ctx.Err()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if in.kind == "ServerCheckRequest" || c.isSetUp {
		f.requests[in.kind]++
	}
	if f.instead != nil {
		if kind, body := f.instead(in.kind); kind != "" {
			return message{kind: kind, body: body}, nil
		}
	}
	if in.kind == "ServerCheckRequest" {
		return yes("ServerCheckResponse", map[string]any{"connectionId": id, "supportAbilityNegotiation": true})
	}
	if !c.isSetUp {
		return no("ErrorResponse", 301, "Connection is unregistered.")
	}
	switch in.kind {
	case "HealthCheckRequest":
		return yes("HealthCheckResponse", map[string]any{})
	case "ConfigQueryRequest":
		if !f.mayRead(in) {
			return no("ConfigQueryResponse", 403, "authorization failed! token "+in.headers["accessToken"])
		}
		if f.content == nil || !f.isIt(in.body) {
			return no("ConfigQueryResponse", 300, "config data not exist")
		}
		return yes("ConfigQueryResponse", map[string]any{"content": *f.content, "md5": sum(f.content), "contentType": "yaml", "lastModified": 1})
	case "ConfigBatchListenRequest":
		if !f.mayRead(in) {
			return no("ConfigChangeBatchListenResponse", 403, "authorization failed!")
		}
		contexts, _ := in.body["configListenContexts"].([]any)
		if len(contexts) != 1 || in.body["listen"] != true {
			return no("ErrorResponse", 502, "Invalid request")
		}
		listened, _ := contexts[0].(map[string]any)
		changed := []any{}
		if f.isIt(listened) {
			c.isListed = true
			if sum(f.content) != listened["md5"] {
				changed = append(changed, map[string]any{"dataId": f.dataID, "group": f.group, "tenant": f.tenant})
			}
		}
		return yes("ConfigChangeBatchListenResponse", map[string]any{"changedConfigs": changed})
	}
	return no("ErrorResponse", 302, "RequestHandler Not Found")
}

func sum(content *string) string {
	if content == nil {
		return ""
	}
	return fmt.Sprintf("%x", md5.Sum([]byte(*content)))
}

func (f *fake) isIt(body map[string]any) bool {
	return body["dataId"] == f.dataID && body["group"] == f.group && body["tenant"] == f.tenant
}

// mayRead checks token and signature.
func (f *fake) mayRead(in message) bool {
	if f.username != "" && !f.tokens[in.headers["accessToken"]] {
		return false
	}
	if f.accessKey == "" {
		return true
	}
	stamp := in.headers["Timestamp"]
	text := stamp
	if in.kind == "ConfigQueryRequest" {
		text = f.group + "+" + stamp
		if f.tenant != "" {
			text = f.tenant + "+" + text
		}
	}
	mac := hmac.New(sha1.New, []byte(f.secretKey))
	mac.Write([]byte(text))
	ms, err := strconv.ParseInt(stamp, 10, 64)
	return err == nil && time.Since(time.UnixMilli(ms)).Abs() < time.Minute && in.headers["Spas-AccessKey"] == f.accessKey &&
		in.headers["Spas-Signature"] == base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// bidi is the stream of a connection.
func (f *fake) bidi(s grpc.ServerStream) error {
	c, _ := f.conn(s.Context())
	if c == nil {
		return status.Error(codes.Unavailable, "the connection has ended")
	}
	go func() {
		for {
			in, err := receive(s)
			if err != nil {
				c.close()
				return
			}
			f.streamed(c, in)
		}
	}()
	for {
		select {
		case out := <-c.out:
			if err := send(s, out); err != nil {
				return err
			}
		case <-c.closing:
			return nil
		case <-s.Context().Done():
			return nil
		}
	}
}

// streamed takes what a client says on its stream.
func (f *fake) streamed(c *fakeConn, in message) {
	if in.kind == "ConnectionSetupRequest" {
		known := func() {
			f.mu.Lock()
			defer f.mu.Unlock()
			c.isSetUp, c.setup, c.ip = true, in.body, in.ip
		}
		if f.setupDelay > 0 {
			time.AfterFunc(f.setupDelay, known)
		} else {
			known()
		}
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	id, _ := in.body["requestId"].(string)
	if acked, ok := c.waitingBy[id]; ok && in.body["resultCode"] == 200.0 {
		close(acked)
		delete(c.waitingBy, id)
		f.acks = append(f.acks, in.kind)
	}
}

// ServeHTTP answers logins.
func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r.URL.Path != f.loginPath || r.Method != http.MethodPost {
		http.NotFound(w, r)
		return
	}
	f.logins++
	if r.URL.RawQuery != "" || r.PostFormValue("username") != f.username || r.PostFormValue("password") != f.password {
		http.Error(w, "unknown user! "+r.PostFormValue("password"), http.StatusForbidden)
		return
	}
	text := fmt.Sprintf("token-%d", f.logins)
	f.tokens[text] = true
	_ = json.NewEncoder(w).Encode(map[string]any{"accessToken": text, "tokenTtl": f.tokenTTL, "globalAdmin": false, "username": f.username})
}
