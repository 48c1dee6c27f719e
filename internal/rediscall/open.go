package rediscall

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"regexp"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-go/spillway/limiter"
)

// Open returns a client of the servers that a URL names:
//
//	redis://user:password@host:6379/0       one server, options as of redis.ParseURL; rediss:// with TLS
//	unix://user:password@/path?db=0         one server on this machine
//	redis+cluster://host:6379,host2:6379    a Cluster, options as of redis.ParseClusterURL; rediss+cluster:// with TLS
//	redis+sentinel://host:26379,host2/MASTER/0
//	                                        the master that Sentinels name, options as of redis.ParseFailoverURL; the user
//	                                        before the host is the Sentinels', username=…&password=… are the servers';
//	                                        rediss+sentinel:// with TLS
//	env:NAME                                the URL in that environment variable
//	file:/path                              the URL in that file, without its trailing newline
//
// It does no network I/O, unless min_idle_conns asks for connections. An error is [limiter.ErrInvalid] and holds nothing
// that could be part of a password. The caller closes the client.
func Open(where string) (c redis.UniversalClient, err error) {
	defer func() {
		if recover() != nil { // of go-redis, about options; its text may hold any of them
			c, err = nil, invalidURL("options that go-redis cannot work with")
		}
	}()
	where, err = indirect(where)
	if err != nil {
		return nil, err
	}
	scheme, rest, ok := strings.Cut(where, "://")
	if !ok {
		return nil, invalidURL("no scheme, such as redis://")
	}
	switch scheme {
	case "redis", "rediss", "unix":
		o, err := redis.ParseURL(where)
		if err != nil {
			return nil, redacted(where, err)
		}
		o.ContextTimeoutEnabled = true // lets Bound use it as it is
		o.DialerRetries = 1            // a refused connection is told at once
		return redis.NewClient(o), nil
	case "redis+cluster", "rediss+cluster":
		a := split(rest, "6379")
		o, err := redis.ParseClusterURL(a.url(strings.TrimSuffix(scheme, "+cluster"), a.path))
		if err != nil {
			return nil, redacted(where, err)
		}
		o.ContextTimeoutEnabled, o.DialerRetries = true, 1
		return redis.NewClusterClient(o), nil
	case "redis+sentinel", "rediss+sentinel":
		a := split(rest, "26379")
		master, db, _ := strings.Cut(strings.TrimPrefix(a.path, "/"), "/")
		if master == "" {
			return nil, invalidURL("no name of a master: redis+sentinel://host:26379/MASTER")
		}
		a.query = append(a.query, "master_name="+url.QueryEscape(unescaped(master)))
		o, err := redis.ParseFailoverURL(a.url(strings.TrimSuffix(scheme, "+sentinel"), "/"+db))
		if err != nil {
			return nil, redacted(where, err)
		}
		o.ContextTimeoutEnabled, o.DialerRetries = true, 1
		if o.RouteByLatency || o.RouteRandomly {
			return redis.NewFailoverClusterClient(o), nil
		}
		return redis.NewFailoverClient(o), nil
	}
	return nil, invalidURL("an unknown scheme; known are redis, rediss, unix, redis+cluster and redis+sentinel")
}

// indirect reads the URL from where it is kept, once.
func indirect(where string) (string, error) {
	if (strings.HasPrefix(where, "env:") || strings.HasPrefix(where, "file:")) && strings.Contains(where, "://") {
		return "", invalidURL("env: and file: are followed by a name, not by a URL")
	}
	if name, ok := strings.CutPrefix(where, "env:"); ok {
		v := os.Getenv(name)
		if v == "" {
			return "", fmt.Errorf("%w: the environment variable %q is not set", limiter.ErrInvalid, name)
		}
		return v, nil
	}
	if path, ok := strings.CutPrefix(where, "file:"); ok {
		b, err := os.ReadFile(path)
		if err != nil {
			return "", fmt.Errorf("%w: Redis URL: %w", limiter.ErrInvalid, err)
		}
		return strings.TrimRight(string(b), "\r\n"), nil
	}
	return where, nil
}

// address is a URL with several hosts, which net/url refuses.
type address struct {
	user  string // with its @
	hosts []string
	path  string
	query []string
}

func split(rest, port string) (a address) {
	rest, query, _ := strings.Cut(rest, "?")
	if query != "" {
		a.query = strings.Split(query, "&")
	}
	hosts, path, found := strings.Cut(rest, "/")
	if found {
		a.path = "/" + path
	}
	if i := strings.LastIndexByte(hosts, '@'); i >= 0 {
		a.user, hosts = hosts[:i+1], hosts[i+1:]
	}
	for h := range strings.SplitSeq(hosts, ",") {
		if _, _, err := net.SplitHostPort(h); err != nil {
			h = net.JoinHostPort(strings.Trim(h, "[]"), port)
		}
		a.hosts = append(a.hosts, h)
	}
	return a
}

// url writes the first host where a URL has it and the others as go-redis takes them.
func (a address) url(scheme, path string) string {
	query := a.query
	for _, h := range a.hosts[1:] {
		query = append(query, "addr="+url.QueryEscape(h))
	}
	return scheme + "://" + a.user + a.hosts[0] + path + "?" + strings.Join(query, "&")
}

func unescaped(s string) string {
	if u, err := url.PathUnescape(s); err == nil {
		return u
	}
	return s
}

func invalidURL(what string) error { return fmt.Errorf("%w: Redis URL: %s", limiter.ErrInvalid, what) }

var unexpected = regexp.MustCompile(`^redis: (unexpected option: [a-z_, ]+$|invalid \w+ (number|duration|boolean)\b)`)

// redacted keeps of an error only what cannot be a piece of a password. A password with a character that means something in
// URLs can end up in any part of them, and parsers quote what they do not understand.
func redacted(where string, err error) error {
	_, query, _ := strings.Cut(where, "?")
	if !strings.Contains(query, "@") {
		if m := unexpected.FindStringSubmatch(err.Error()); m != nil {
			return invalidURL(m[1])
		}
	}
	return invalidURL("malformed; what it is made of is not repeated here, as it may hold a password. " +
		"Characters other than letters and digits are safest percent-encoded in passwords")
}
