package nacossource

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/spillway-go/spillway/config"
)

const (
	// maxAnswer bounds a message. In JSON a byte of a document may take six.
	maxAnswer = 6*config.MaxDocument + 64<<10
	// beforeAgain is how long one waits to ask again a server that has not yet taken note of the connection.
	beforeAgain = 20 * time.Millisecond
	// version is how a server lists the connection.
	version = "Spillway:v1"

	codeOK = 200
	// Of a ConfigQueryResponse.
	codeNotFound = 300
	codeConflict = 400
	// Of an ErrorResponse.
	codeUnregistered = 301
	// Of any answer.
	codeNoRight = 403
)

// connection is one to one server, on which requests are made and on whose stream the server makes its own.
type connection struct {
	source *Source
	server server
	conn   *grpc.ClientConn
	cancel context.CancelFunc
	told   chan struct{} // holds one: the server has notified
	done   chan struct{} // closed when the stream has ended
	err    error         // why; to be read when done is closed
}

// untimed is a context whose deadline a server is not told: one that keeps to it may say that it is over before the
// context does, and whose context ended would be anybody's guess.
type untimed struct{ context.Context }

func (untimed) Deadline() (time.Time, bool) { return time.Time{}, false }

var stream = grpc.StreamDesc{StreamName: "requestBiStream", ClientStreams: true, ServerStreams: true}

// connect opens a connection that the server has taken note of. It lives until close, and no longer than ctx.
func (s *Source) connect(ctx context.Context, srv server) (*connection, error) {
	creds := insecure.NewCredentials()
	if s.tls != nil {
		creds = credentials.NewTLS(s.tls)
	}
	conn, err := grpc.NewClient("passthrough:///"+srv.grpc,
		grpc.WithTransportCredentials(creds),
		grpc.WithContextDialer(s.dial),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(codec{}), grpc.MaxCallRecvMsgSize(maxAnswer)),
		grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: s.timeout}),
		grpc.WithDisableRetry(), grpc.WithDisableServiceConfig(), grpc.WithIdleTimeout(0),
	)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(untimed{ctx})
	c := &connection{source: s, server: srv, conn: conn, cancel: cancel, told: make(chan struct{}, 1), done: make(chan struct{})}
	// The stream is to live longer than it may take to open it, so a timer and no context bounds that.
	timer := time.AfterFunc(s.timeout, cancel)
	err = c.open(ctx)
	if !timer.Stop() && err != nil {
		err = fmt.Errorf("no answer within %v", s.timeout)
	}
	if err != nil {
		cancel()
		_ = conn.Close()
		return nil, err
	}
	return c, nil
}

func (c *connection) open(ctx context.Context) error {
	if err := c.callOnce(ctx, "ServerCheckRequest", internal{Module: "internal"}, nil); err != nil {
		return err
	}
	bi, err := c.conn.NewStream(ctx, &stream, "/BiRequestStream/requestBiStream")
	if err != nil {
		return bare(err)
	}
	setup, err := json.Marshal(struct {
		internal
		ClientVersion string            `json:"clientVersion"`
		Tenant        string            `json:"tenant"`
		Labels        map[string]string `json:"labels"`
	}{
		internal{Module: "internal"},
		version, c.source.namespace,
		map[string]string{"source": "sdk", "module": "config", "AppName": "spillway"},
	})
	if err != nil {
		return err
	}
	if err := bi.SendMsg(&payload{kind: "ConnectionSetupRequest", ip: c.source.ip, body: setup}); err != nil {
		return bare(err)
	}
	go func() {
		defer close(c.done)
		c.err = c.serve(bi)
	}()
	return nil
}

// close ends the connection and all that belongs to it.
func (c *connection) close() {
	c.cancel()
	_ = c.conn.Close()
	<-c.done
}

// internal is what requests about the connection begin with.
type internal struct {
	Module string `json:"module"`
}

// answer is what all answers have.
type answer struct {
	ResultCode int    `json:"resultCode"`
	ErrorCode  int    `json:"errorCode"`
	Message    string `json:"message,omitempty"`
	RequestID  string `json:"requestId,omitempty"`
	Success    bool   `json:"success"`
}

// answerError is an answer that says no.
type answerError struct {
	kind    string
	code    int
	message string
}

func (e *answerError) Error() string { return fmt.Sprintf("code %d: %q", e.code, e.message) }

func (e *answerError) is(kind string) bool { return e.kind == kind }

// call makes a request. It waits until the server knows the connection, and logs in again where a token is refused.
func (c *connection) call(ctx context.Context, kind string, request, into any) error {
	renewed := false
	var unknown error
	for {
		err := c.callOnce(ctx, kind, request, into)
		fault, ok := errors.AsType[*answerError](err)
		switch {
		case !ok && err != nil && unknown != nil && ctx.Err() != nil:
			return unknown // says more than that the time is over
		case !ok:
			return err
		case fault.is("ErrorResponse") && fault.code == codeUnregistered:
			unknown = err
			if pause(ctx, c.done, beforeAgain) != nil {
				return c.reset(err)
			}
		case fault.code == codeNoRight && c.source.username != "" && !renewed:
			// The token may have been good for less than was said.
			c.source.forget()
			renewed = true
		case fault.code == codeNoRight:
			return &finalError{fmt.Errorf("refused: %w", err)}
		default:
			return err
		}
	}
}

// callOnce makes a request and decodes an answer that says yes.
func (c *connection) callOnce(ctx context.Context, kind string, request, into any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	headers, err := c.source.headers(ctx, c.server, request)
	if err != nil {
		return err
	}
	var p payload
	if err := c.conn.Invoke(untimed{ctx}, "/Request/request", &payload{kind: kind, ip: c.source.ip, headers: headers, body: body}, &p); err != nil {
		return bare(err)
	}
	var a answer
	if err := json.Unmarshal(p.body, &a); err != nil {
		return errWire
	}
	if a.ResultCode != codeOK {
		return &answerError{kind: p.kind, code: a.ErrorCode, message: c.source.scrub(a.Message)}
	}
	if into == nil {
		return nil
	}
	if json.Unmarshal(p.body, into) != nil {
		return errWire
	}
	return nil
}

// bare drops what gRPC puts around a message.
func bare(err error) error {
	if s, ok := status.FromError(err); ok {
		return fmt.Errorf("%s: %s", s.Code(), s.Message())
	}
	return err
}

// reset is why a server does not get to know the connection if it has said so, else err.
func (c *connection) reset(err error) error {
	select {
	case <-c.done:
		if errors.Is(c.err, errReset) {
			return errReset
		}
	default:
	}
	return err
}

var errReset = errors.New("the server takes no connection, or sends its clients elsewhere")

// serve answers the requests of the server until the stream ends.
func (c *connection) serve(bi grpc.ClientStream) error {
	for {
		var p payload
		if err := bi.RecvMsg(&p); err != nil {
			return fmt.Errorf("the connection has ended: %w", bare(err))
		}
		var request struct {
			RequestID string `json:"requestId"`
		}
		if json.Unmarshal(p.body, &request) != nil {
			return errWire
		}
		name, isRequest := strings.CutSuffix(p.kind, "Request")
		switch name {
		case "ConfigChangeNotify":
			select {
			case c.told <- struct{}{}:
			default:
			}
		case "ClientDetection", "ConnectReset", "SetupAck":
		default:
			isRequest = false // one that is not understood is not answered
		}
		if !isRequest {
			continue
		}
		body, err := json.Marshal(answer{ResultCode: codeOK, RequestID: request.RequestID, Success: true})
		if err != nil {
			return err
		}
		if err := bi.SendMsg(&payload{kind: name + "Response", ip: c.source.ip, body: body}); err != nil {
			return fmt.Errorf("the connection has ended: %w", bare(err))
		}
		if name == "ConnectReset" {
			return errReset
		}
	}
}

// pause waits for d; the error is that the connection or ctx has ended before.
func pause(ctx context.Context, done <-chan struct{}, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-done:
		return errReset
	case <-ctx.Done():
		return ctx.Err()
	}
}
