package nacossource

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway/config"
)

// Config is what [New] takes. Servers and DataID are required.
type Config struct {
	// Servers are the base URLs of servers, as in http://nacos:8848 or https://nacos.example/nacos; at least one. The port
	// is 8848 and the path is /nacos where there is none. Scheme and path matter for logins alone. The one to begin
	// with is chosen at random.
	Servers []string
	// GRPCPort is the port of the gRPC service of all servers. Zero: the one of the URL and 1000.
	GRPCPort int
	// Namespace is the id of the namespace. Empty or "public": the public one.
	Namespace string
	// Group is the group. Empty: "DEFAULT_GROUP".
	Group string
	// DataID is the name of the configuration.
	DataID string

	// Username and Password log in; empty: no login. A token is used for nine tenths of its time. Over an http URL
	// they can be read on the way.
	Username, Password string
	// AccessKey and SecretKey sign requests, as Nacos in Alibaba Cloud wants it; empty: no signature.
	AccessKey, SecretKey string
	// TLS is for the gRPC service, and for logins at https URLs. Nil: the gRPC service is spoken to in the clear. It is
	// copied.
	TLS *tls.Config
	// IP is the address that a beta release is chosen by. Empty: none.
	IP string

	// Timeout bounds what one server is asked for by one Load, the login and the connection included, and how long a
	// Watch waits for each answer. Zero: 5 s.
	Timeout time.Duration
}

const (
	defaultPort    = 8848
	grpcOffset     = 1000
	defaultPath    = "/nacos"
	defaultGroup   = "DEFAULT_GROUP"
	defaultTimeout = 5 * time.Second
)

// server is where one server is found.
type server struct {
	grpc string  // host:port
	http url.URL // the base of what is spoken by HTTP
}

// Source is a [config.Source] of a configuration in Nacos. All methods are safe for concurrent use. It holds nothing that
// would have to be closed. Make one with [New].
type Source struct {
	servers   []server
	last      atomic.Int32 // the server that answered last
	namespace string
	group     string
	dataID    string
	username  string
	password  string
	accessKey string
	secretKey string
	tls       *tls.Config
	ip        string
	timeout   time.Duration
	dial      func(ctx context.Context, addr string) (net.Conn, error)

	mu    sync.Mutex
	token token
}

var _ config.Source = (*Source)(nil)

// What Nacos takes as a data id or a group.
var isName = regexp.MustCompile(`^[0-9A-Za-z_.:-]{1,256}$`)

// New makes a source. It does no I/O, so the servers may be away. The error names everything wrong with c.
func New(c Config) (*Source, error) {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("nacossource: "+format, args...)) }
	if c.Group == "" {
		c.Group = defaultGroup
	}
	if c.Timeout == 0 {
		c.Timeout = defaultTimeout
	}
	if c.Namespace == "public" {
		c.Namespace = "" // what all versions call it between client and server
	}
	s := &Source{
		namespace: c.Namespace, group: c.Group, dataID: c.DataID, username: c.Username, password: c.Password,
		accessKey: c.AccessKey, secretKey: c.SecretKey, tls: c.TLS.Clone(), ip: c.IP, timeout: c.Timeout,
		dial: func(ctx context.Context, addr string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", addr)
		},
	}
	if c.GRPCPort < 0 || c.GRPCPort > 65535 {
		bad("GRPCPort %d is outside 1…65535", c.GRPCPort)
	}
	if len(c.Servers) == 0 {
		bad("Servers are missing")
	}
	for i, text := range c.Servers {
		srv, err := parseServer(text, c.GRPCPort)
		if err != nil {
			bad("Servers[%d] %w", i, err)
			continue
		}
		s.servers = append(s.servers, srv)
	}
	switch {
	case c.DataID == "":
		bad("DataID is missing")
	case !isName.MatchString(c.DataID):
		bad("DataID %q is no name of Nacos: letters, digits, _ . : and -, at most 256", c.DataID)
	case strings.HasPrefix(c.DataID, "cipher-"):
		bad("DataID %q: encrypted configurations are not supported", c.DataID)
	}
	if !isName.MatchString(c.Group) {
		bad("Group %q is no name of Nacos: letters, digits, _ . : and -, at most 256", c.Group)
	}
	if c.Namespace != "" && !isName.MatchString(c.Namespace) {
		bad("Namespace %q is no id of Nacos: letters, digits, _ . : and -, at most 256", c.Namespace)
	}
	if (c.Username == "") != (c.Password == "") {
		bad("Username and Password go together")
	}
	if (c.AccessKey == "") != (c.SecretKey == "") {
		bad("AccessKey and SecretKey go together")
	}
	if _, err := netip.ParseAddr(c.IP); c.IP != "" && err != nil {
		bad("IP %q is no address", c.IP)
	}
	if c.Timeout < 0 {
		bad("Timeout %v is negative", c.Timeout)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	s.last.Store(rand.Int32N(int32(len(s.servers))))
	return s, nil
}

// parseServer takes a base URL. Its errors do not show what it was given: it may hold a password.
func parseServer(text string, grpcPort int) (server, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil, u.Scheme != "http" && u.Scheme != "https", u.Hostname() == "":
		return server{}, errors.New("is no http or https URL")
	case u.User != nil:
		return server{}, errors.New("has a user in it: there are Username and Password")
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return server{}, errors.New("has a query or a fragment")
	}
	port := defaultPort
	if text := u.Port(); text != "" {
		if port, err = strconv.Atoi(text); err != nil || port < 1 || port > 65535 {
			return server{}, errors.New("has no port in 1…65535")
		}
	}
	if grpcPort == 0 {
		grpcPort = port + grpcOffset
	}
	if grpcPort > 65535 {
		return server{}, errors.New("has a port that leaves none for the gRPC service: GRPCPort")
	}
	u.Host = net.JoinHostPort(u.Hostname(), strconv.Itoa(port))
	u.RawPath = ""
	if u.Path = strings.TrimRight(u.Path, "/"); u.Path == "" {
		u.Path = defaultPath
	}
	return server{grpc: net.JoinHostPort(u.Hostname(), strconv.Itoa(grpcPort)), http: *u}, nil
}

// Load returns the document as one server has it now, [config.ErrIncomplete] where there is none. A document above
// [config.MaxDocument] is an error. It takes Config.Timeout for each server at most.
func (s *Source) Load(ctx context.Context) ([]byte, error) {
	var doc []byte
	err := s.each(ctx, func(srv server) error {
		ctx, cancel := s.within(ctx)
		defer cancel()
		c, err := s.connect(ctx, srv)
		if err != nil {
			return err
		}
		defer c.close()
		doc, err = c.query(ctx)
		return err
	})
	if err != nil {
		return nil, s.fault(ctx, err)
	}
	return doc, nil
}

// within bounds what one server is asked for.
func (s *Source) within(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, s.timeout)
}

// query asks for the document.
func (c *connection) query(ctx context.Context) ([]byte, error) {
	var answer struct {
		Content string `json:"content"`
	}
	err := c.call(ctx, "ConfigQueryRequest", c.source.resource(), &answer)
	if fault, ok := errors.AsType[*answerError](err); ok && fault.is("ConfigQueryResponse") {
		switch fault.code {
		case codeNotFound:
			return nil, fmt.Errorf("no such configuration: %w", config.ErrIncomplete)
		case codeConflict:
			return nil, fmt.Errorf("it is being written: %w", config.ErrIncomplete)
		}
	}
	switch {
	case err != nil:
		return nil, err
	case len(answer.Content) > config.MaxDocument:
		return nil, &finalError{fmt.Errorf("the document is above %d bytes", config.MaxDocument)}
	}
	doc := []byte(answer.Content)
	if len(bytes.TrimSpace(doc)) == 0 {
		return nil, config.ErrIncomplete
	}
	return doc, nil
}

// each has one server after the other try until one succeeds, or says what another one would say as well.
func (s *Source) each(ctx context.Context, try func(server) error) error {
	var errs []error
	first := int(s.last.Load())
	for i := range s.servers {
		at := (first + i) % len(s.servers)
		err := try(s.servers[at])
		if err == nil { // also where ctx has just ended: what try has opened is to be closed
			s.last.Store(int32(at))
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if errors.Is(err, config.ErrIncomplete) || isFinal(err) {
			s.last.Store(int32(at))
			return err
		}
		errs = append(errs, fmt.Errorf("%s: %w", s.servers[at].grpc, err))
	}
	return errors.Join(errs...)
}

// finalError is one that no other server would make up for.
type finalError struct{ error }

func (e *finalError) Unwrap() error { return e.error }

func isFinal(err error) bool {
	_, is := errors.AsType[*finalError](err)
	return is
}

// fault is err with what it is about, and the bare error of a context that has ended.
func (s *Source) fault(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return fmt.Errorf("nacossource: %s: %w", s.name(), err)
}

func (s *Source) name() string {
	namespace := s.namespace
	if namespace == "" {
		namespace = "public"
	}
	return namespace + "/" + s.group + "/" + s.dataID
}

// String returns "nacos:" and the namespace, the group and the data id.
func (s *Source) String() string { return "nacos:" + s.name() }
