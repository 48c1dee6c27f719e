package degrade

import (
	"hash/maphash"
	"log/slog"
	"net/http"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway/keyfunc"
)

// PagesConfig says what [Pages] store and for how long they serve it. The zero value is usable: it stores what a shared
// cache may store and serve stale, for those without credentials alone unless the response says public.
type PagesConfig struct {
	// Store holds the copies; nil is memory of MaxBytes, and anything else goes without MaxBytes. A store may be shared by
	// processes with the same settings.
	Store Store
	// MaxBytes bounds the memory of the copies: 64 KiB to 1 TiB, 0 is 64 MiB.
	MaxBytes int64
	// MaxPage is the longest body that is stored, in bytes, up to 64 MiB and to half of MaxBytes; 0 is 256 KiB.
	MaxPage int

	// MaxStale is for how long behind its freshness a copy is served, or behind its storing where the origin gave no
	// freshness: up to 24 h, 0 is 60 s, -1 is not at all.
	MaxStale time.Duration
	// MaxStaleIfError bounds the stale-if-error of a response, which replaces MaxStale where the cause of the refusal is
	// [Capacity]: up to 24 h, 0 is 10 min, -1 ignores it.
	MaxStaleIfError time.Duration

	// Statuses are the statuses that are stored, of 200, 203, 301, 404 and 410; none is 200 alone.
	Statuses []int

	// Partition names the authenticated identity that a request belongs to. Responses to its requests are stored for it
	// alone unless they say public. nil is the policy's own key as far as it names more than an address: all parts but ip,
	// route and all; with it, a request with credentials gets copies of requests with just the same. Whatever it says must have been verified: who can choose it reads others' pages. A
	// request without one ([keyfunc.ErrNoKey]) goes by its credentials; one whose identity cannot be told, for any other
	// error or a panic, gets what is public and nothing else.
	Partition keyfunc.Func
	// PartitionName says what Partition is, and changes when it does. By it, [Pages] with a Partition are known to have
	// equal settings when a policy is replaced; without it they start empty.
	PartitionName string
	// Credentials are more request fields that tell who asks, beside a client certificate and the fields with
	//   - a word that begins or ends with account, assertion, auth, cert, consumer, cookie, credential, email, identity, jwt,
	//     login, oidc, openid, passwd, password, principal, saml, secret, session, signature, token or user;
	//   - a word bearer, dn, dpop, pwd, sid, sig, sso or uid;
	//   - a word that ends with key, unless another one is idempotency or cache;
	//   - the word client beside ssl, tls or mtls.
	//
	// Authorization, Cookie, X-Api-Key, Private-Token, Remote-User and X-Forwarded-Client-Cert are such. Words end at whatever
	// is no letter and no digit, and case does not matter, for programs behind CGI read X_Api_Key as X-Api-Key. Not among them
	// are Sec-…, User-Agent, and what has a word csrf or xsrf.
	Credentials []string
	// IgnoreCookies are names of cookies that make no difference to a response, such as those of analytics. Requests with
	// no others count as those without, if all they have are well-formed.
	IgnoreCookies []string
	// Query lists the parameters that tell pages apart; any other makes no difference to a response. nil is the whole query
	// as sent, and an empty list none of it. A parameter that is left out and tells who asks, by the rule of Credentials, is
	// a credential.
	Query []string

	// Flushed stores responses too that are flushed while they are written, as reverse proxies do with bodies of unknown
	// length.
	Flushed bool
	// Name is that of Cache-Status, a token of RFC 9651; "" is "ratelimit".
	Name string
	// Log hears of panics of Store and Partition, of the first one; nil is [slog.Default].
	Log *slog.Logger
}

const (
	defaultMaxBytes        = 64 << 20
	defaultMaxPage         = 256 << 10
	defaultMaxStale        = time.Minute
	defaultMaxStaleIfError = 10 * time.Minute
	longestStale           = 24 * time.Hour
	defaultCacheName       = "ratelimit"
)

// Pages are recorded responses, and the rules by which they are stored and replayed. Any number of policies may share
// them, with [Cached]; each sees its own copies. They are safe for concurrent use.
type Pages struct {
	cfg      PagesConfig // as given
	store    atomic.Pointer[pageStore]
	own      *pageStore // the one it was made with
	maxPage  int
	maxStale time.Duration
	ifError  time.Duration // -1: ignored
	statuses []int
	creds    []string // as programs behind CGI read them
	name     string
	tell     sync.Once
}

// pageStore is what is taken over when settings stay.
type pageStore struct {
	Store
	seed maphash.Seed
	cuts atomic.Pointer[pageCuts] // nil until something is written
}

// pageCut is when a write succeeded, by a hash of host and path: copies of requests that came before are void, RFC 9111
// 4.4, whatever policy and route they are stored under. Addresses that share a cut lose copies to each other's writes, and
// nothing else. Times of one process compare by its monotonic clock, so that none is revived by a clock that goes back.
type pageCut struct{ at atomic.Pointer[time.Time] }

type pageCuts [4096]pageCut

// cutOf is the cut of a request's address.
func (s *pageStore) cutOf(r *http.Request) uint32 {
	var h maphash.Hash
	h.SetSeed(s.seed)
	var buf [256]byte
	_, _ = h.Write(appendLower(buf[:0], r.Host))
	_ = h.WriteByte(0)
	_, _ = h.WriteString(r.URL.Path)
	return uint32(h.Sum64() % uint64(len(pageCuts{})))
}

// written makes void what is stored at a cut.
func (s *pageStore) written(cut uint32, now time.Time) {
	if s.cuts.Load() == nil {
		s.cuts.CompareAndSwap(nil, new(pageCuts))
	}
	c := &s.cuts.Load()[cut]
	for {
		old := c.at.Load()
		if old != nil && !now.After(*old) || c.at.CompareAndSwap(old, &now) {
			return
		}
	}
}

// void reports whether the address has been written to since the page was asked for.
func (s *pageStore) void(cut uint32, page *Page) bool {
	cuts := s.cuts.Load()
	if cuts == nil {
		return false
	}
	at := cuts[cut].at.Load()
	return at != nil && !page.Began.After(*at)
}

// NewPages returns pages by cfg, which it copies. Errors in cfg are found by Validate, which a guard calls.
func NewPages(cfg PagesConfig) *Pages {
	cfg.Statuses, cfg.Credentials = slices.Clone(cfg.Statuses), slices.Clone(cfg.Credentials)
	cfg.IgnoreCookies, cfg.Query = slices.Clone(cfg.IgnoreCookies), slices.Clone(cfg.Query)
	p := &Pages{
		cfg: cfg, maxPage: cfg.MaxPage, statuses: cfg.Statuses, name: cfg.Name,
		maxStale: orDefault(cfg.MaxStale, defaultMaxStale), ifError: orDefault(cfg.MaxStaleIfError, defaultMaxStaleIfError),
	}
	if p.maxPage == 0 {
		p.maxPage = defaultMaxPage
	}
	if len(p.statuses) == 0 {
		p.statuses = []int{http.StatusOK}
	}
	if p.name == "" {
		p.name = defaultCacheName
	}
	for _, name := range cfg.Credentials {
		p.creds = append(p.creds, unambiguous(name))
	}
	store := cfg.Store
	if store == nil {
		store = NewMemoryStore(cfg.MaxBytes)
	}
	p.own = &pageStore{Store: store, seed: maphash.MakeSeed()}
	p.store.Store(p.own)
	return p
}

func orDefault(d, usual time.Duration) time.Duration {
	if d == 0 {
		return usual
	}
	return d
}

// inherit takes over the store of prev, which has equal settings, unless p has taken over another one's.
func (p *Pages) inherit(prev *Pages) bool {
	if p == prev {
		return true
	}
	if !p.equal(prev) {
		return false
	}
	theirs := prev.store.Load()
	return p.store.CompareAndSwap(p.own, theirs) || p.store.Load() == theirs
}

// equal reports whether p and q store and serve the same. Functions cannot be compared, so a Partition needs a name.
func (p *Pages) equal(q *Pages) bool {
	a, b := p.cfg, q.cfg
	if (a.Partition == nil) != (b.Partition == nil) || a.Partition != nil && a.PartitionName == "" {
		return false
	}
	if !sameStore(a.Store, b.Store) {
		return false
	}
	a.Store, b.Store, a.Partition, b.Partition, a.Log, b.Log = nil, nil, nil, nil, nil, nil
	return reflect.DeepEqual(a, b)
}

func sameStore(a, b Store) bool {
	if a == nil || b == nil {
		return a == b
	}
	return reflect.TypeOf(a) == reflect.TypeOf(b) && reflect.ValueOf(a).Comparable() && a == b
}

// defers reports whether an update may come to change what is stored after it has returned.
func (s *pageStore) defers() bool {
	if _, own := s.Store.(*MemoryStore); own {
		return false
	}
	_, ok := s.Store.(Updater)
	return ok
}

// update replaces what is stored under key.
func (s *pageStore) update(key string, change func(*Copies) *Copies) {
	if u, ok := s.Store.(Updater); ok {
		u.Update(key, change)
		return
	}
	old, ok := s.Get(key)
	if !ok {
		old = nil
	}
	switch c := change(old); {
	case c == old:
	case c == nil:
		s.Delete(key)
	default:
		s.Set(key, c)
	}
}

// bound is for how long p may be stale.
func (p *Pages) bound(page *Page, cause Cause) time.Duration {
	if cause == Capacity && p.ifError >= 0 && page.StaleIfError >= 0 {
		return min(page.StaleIfError, p.ifError)
	}
	return max(p.maxStale, 0)
}

// lives reports whether page may be served at now because of cause, as far as time goes.
func (p *Pages) lives(page *Page, now time.Time, cause Cause) bool {
	return now.Sub(page.Stored) >= -maxSkew && page.stale(now) <= p.bound(page, cause)
}

// panicked reports a panic of somebody else's code, which costs a copy and nothing else.
func (p *Pages) panicked(whose string, v any) {
	p.tell.Do(func() {
		log := p.cfg.Log
		if log == nil {
			log = slog.Default()
		}
		log.Error("degrade: Cached: a panic; further ones are not logged", "in", whose, "panic", v)
	})
}
