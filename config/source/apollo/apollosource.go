package apollosource

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway/config"
)

// Config is what [New] takes. Servers, AppID and Namespace are required.
type Config struct {
	// Servers are the base URLs of config services, as in http://apollo-config:8080; at least one. The one to begin with
	// is chosen at random.
	Servers []string
	// AppID is the application whose namespace it is.
	AppID string
	// Cluster is the cluster of it. Empty: "default". Apollo turns to the cluster of the data centre and to the default one
	// where there is no release in it.
	Cluster string
	// Namespace is the name with its ending, as in limits.yaml; without one it is a namespace of properties.
	Namespace string
	// Key names the item of a namespace of properties that is the document. It is required there and must be empty for a
	// namespace of one document.
	Key string
	// AccessKey is the secret that requests are signed with. Empty: they are not signed. The service refuses a signature
	// when the clocks are a minute apart. It is not sent, and never shown.
	AccessKey string

	// IP and Label are what gray releases are chosen by. Empty: the service takes the address that it sees, and no label.
	IP, Label string
	// DataCenter is the data centre of this process, whose cluster Apollo prefers. Empty: none.
	DataCenter string

	// Timeout bounds one request for the document to one server. Zero: 5 s.
	Timeout time.Duration
	// PollTimeout bounds one long poll; it has to be longer than the service holds one, which is 60 s unless it is
	// set otherwise. Zero: 90 s; at least 1 s.
	PollTimeout time.Duration
	// Transport carries the requests, for those who need TLS settings or a proxy of their own. Nil: one made for each
	// Load and Watch, with a proxy as the environment says, of which no connection is left at their end. Connections of
	// a transport handed in are its owner's to close.
	Transport http.RoundTripper
}

const (
	defaultCluster     = "default"
	defaultTimeout     = 5 * time.Second
	defaultPollTimeout = 90 * time.Second
	leastPollTimeout   = time.Second

	// contentKey is the one item of a namespace that holds one document.
	contentKey = "content"
)

// Source is a [config.Source] of a namespace of Apollo. All methods are safe for concurrent use. It holds nothing that would
// have to be closed. Make one with [New].
type Source struct {
	servers     []*url.URL
	last        atomic.Int32 // the server that answered last
	appID       string
	cluster     string
	namespace   string
	key         string
	accessKey   []byte
	ip          string
	label       string
	dataCenter  string
	timeout     time.Duration
	pollTimeout time.Duration
	transport   http.RoundTripper

	mu       sync.Mutex
	messages map[string]int64 // of the last notification, for Load
}

var _ config.Source = (*Source)(nil)

var (
	// What Apollo takes as a name. None of it needs escaping, so a signature is over the same path at both ends.
	isName = regexp.MustCompile(`^[0-9A-Za-z_.-]{1,128}$`)

	// Namespaces that hold one document. The others hold properties.
	documents = []string{".yaml", ".yml", ".json", ".txt"}
)

// New makes a source. It does no I/O, so the servers may be away. The error names everything wrong with c.
func New(c Config) (*Source, error) {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("apollosource: "+format, args...)) }
	c.Cluster = or(c.Cluster, defaultCluster)
	s := &Source{
		appID: c.AppID, cluster: c.Cluster, namespace: c.Namespace, key: or(c.Key, contentKey), accessKey: []byte(c.AccessKey),
		ip: c.IP, label: c.Label, dataCenter: c.DataCenter,
		timeout: or(c.Timeout, defaultTimeout), pollTimeout: or(c.PollTimeout, defaultPollTimeout), transport: c.Transport,
	}
	if len(c.Servers) == 0 {
		bad("Servers are missing")
	}
	for i, text := range c.Servers {
		u, err := parseServer(text)
		if err != nil {
			bad("Servers[%d] %w", i, err)
			continue
		}
		s.servers = append(s.servers, u)
	}
	for _, name := range []struct{ field, value string }{{"AppID", c.AppID}, {"Cluster", c.Cluster}, {"Namespace", c.Namespace}} {
		switch {
		case name.value == "":
			bad("%s is missing", name.field)
		case !isName.MatchString(name.value) || strings.Trim(name.value, ".") == "":
			bad("%s %q is no name of Apollo: letters, digits, _ . and -, at most 128", name.field, name.value)
		}
	}
	lower := strings.ToLower(c.Namespace)
	isDocument := slices.ContainsFunc(documents, func(ending string) bool { return strings.HasSuffix(lower, ending) })
	switch {
	case strings.HasSuffix(lower, ".properties"):
		bad("Namespace %q: Apollo's name for it is without .properties", c.Namespace)
	case strings.HasSuffix(lower, ".xml"):
		bad("Namespace %q: no policy document is XML", c.Namespace)
	case c.Namespace != "" && !isDocument && c.Key == "":
		bad("Key is missing: the namespace %q holds properties, one of which is the document", c.Namespace)
	case isDocument && c.Key != "":
		bad("Key %q: the namespace %q holds one document and has no keys", c.Key, c.Namespace)
	}
	if _, err := netip.ParseAddr(c.IP); c.IP != "" && err != nil {
		bad("IP %q is no address", c.IP)
	}
	if c.Timeout < 0 {
		bad("Timeout %v is negative", c.Timeout)
	}
	if c.PollTimeout != 0 && c.PollTimeout < leastPollTimeout {
		bad("PollTimeout %v is below %v", c.PollTimeout, leastPollTimeout)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	s.last.Store(rand.Int32N(int32(len(s.servers))))
	return s, nil
}

// parseServer takes a base URL. Its errors do not show what it was given: it may hold a password.
func parseServer(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil, u.Scheme != "http" && u.Scheme != "https", u.Host == "":
		return nil, errors.New("is no http or https URL")
	case u.User != nil:
		return nil, errors.New("has a user in it: the header that would carry it is that of the access key")
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return nil, errors.New("has a query or a fragment")
	}
	u.Path, u.RawPath = strings.TrimRight(u.Path, "/"), ""
	return u, nil
}

func or[T comparable](v, byDefault T) T {
	var zero T
	if v == zero {
		return byDefault
	}
	return v
}

var errLarge = fmt.Errorf("the document is above %d bytes", config.MaxDocument)

// release is the part of an answer to a request for a namespace that matters.
type release struct {
	Configurations map[string]string `json:"configurations"`
}

// Load returns the document of the release in force, [config.ErrIncomplete] where nothing is released or the document is
// blank. A document above [config.MaxDocument] is an error. It takes Config.Timeout for each server at most.
func (s *Source) Load(ctx context.Context) ([]byte, error) {
	c := s.connect()
	defer c.close()
	doc, err := s.load(ctx, c)
	return doc, s.fault(ctx, err)
}

func (s *Source) load(ctx context.Context, c *connection) ([]byte, error) {
	query := url.Values{}
	set(query, "ip", s.ip)
	set(query, "label", s.label)
	set(query, "dataCenter", s.dataCenter)
	set(query, "messages", s.notified())
	var r release
	status, err := s.ask(ctx, c, s.timeout, "/configs/"+s.appID+"/"+s.cluster+"/"+s.namespace, query, &r)
	switch {
	case err != nil:
		return nil, err
	case status == http.StatusNotFound:
		return nil, fmt.Errorf("nothing is released, or there is no such namespace: %w", config.ErrIncomplete)
	case status != http.StatusOK:
		return nil, statusError(status)
	}
	text, ok := r.Configurations[s.key]
	switch {
	case !ok:
		return nil, fmt.Errorf("no item %q in the release: %w", s.key, config.ErrIncomplete)
	case len(text) > config.MaxDocument:
		return nil, errLarge
	}
	doc := []byte(text)
	if len(bytes.TrimSpace(doc)) == 0 {
		return nil, config.ErrIncomplete
	}
	return doc, nil
}

func set(query url.Values, name, value string) {
	if value != "" {
		query.Set(name, value)
	}
}

// fault is err with what it is about, and the bare error of a context that has ended.
func (s *Source) fault(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return fmt.Errorf("apollosource: %s: %w", s.name(), err)
}

func (s *Source) name() string { return s.appID + "/" + s.cluster + "/" + s.namespace }

// String returns "apollo:" and the application, the cluster and the namespace.
func (s *Source) String() string { return "apollo:" + s.name() }
