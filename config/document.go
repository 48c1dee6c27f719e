package config

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/response"
)

// Document is a policy document as it was written. Its fields are described where people look them up: the tags are the
// source of the JSON Schema and of the reference in docs/policy.md.
//
// Tags of fields: yaml is the name; about tells what it is; rules are required, min=N, max=N, len=N (most elements or
// bytes), oneof=a|b and secret (not shown, see [Document.Redacted])
// and filled (a list that is not empty).
type Document struct {
	Version         int          `yaml:"version" rules:"required,oneof=1" about:"the version of this form of document: 1"`
	Store           *Store       `yaml:"store" about:"where counters are; without it in the memory of the process"`
	ClientIP        *ClientIP    `yaml:"client_ip" about:"whom to believe about the address of a client; without it the peer alone"`
	Headers         response.Set `yaml:"headers" about:"the fields that tell of policies which name none: x (the default), draft-11, both, off, draft-07, draft-06, next, x+draft-07, x+draft-06, x+next"`
	Response        *Response    `yaml:"response" about:"how responses look"`
	Exempt          *Match       `yaml:"exempt" about:"requests that no policy looks at, such as health checks"`
	MaxWaiting      *Count       `yaml:"max_waiting" about:"the most requests held for their turn at once: 1 or more, or off; default 1024"`
	MaxCacheBytes   int          `yaml:"max_cache_bytes" rules:"min=65536,max=1000000000000" about:"what the caches of all policies may hold together: the sum of their max_bytes, at most 1000 caches; default 4294967296 (4 GiB)"`
	CountPreflights bool         `yaml:"count_preflights" about:"policies see CORS preflights too"`
	KeySecret       string       `yaml:"key_secret" rules:"secret" about:"secret of hmac(…), 16 bytes or more, or ${env:NAME}"`
	KeySecretFile   string       `yaml:"key_secret_file" about:"file that holds the secret of hmac(…)"`
	Policies        []Policy     `yaml:"policies" rules:"len=10000" about:"the rules, in the order in which responses tell them"`
	source          *source      // where everything was written
}

// Store is where counters are: on Redis, or in the memory of the process.
type Store struct {
	Prefix      string    `yaml:"prefix" rules:"len=64" about:"begins every key on Redis: two applications on one Redis need two"`
	Redis       *Redis    `yaml:"redis" about:"one Redis for a fleet"`
	Memory      *Memory   `yaml:"memory" about:"the memory of the process"`
	Timeout     *Duration `yaml:"timeout" rules:"min=1ms,max=1m" about:"the most a decision on Redis takes; default 50ms"`
	CallerClock bool      `yaml:"caller_clock" about:"the clock of the process decides, for a Redis that cannot tell the time"`
	DenyCache   *Duration `yaml:"deny_cache" rules:"off,min=1ms,max=1s" about:"how long a denial may be remembered in the process, or off; default 1s"`
	NoSharing   bool      `yaml:"no_sharing" about:"every decision has a round trip of its own"`
	Fallback    *Fallback `yaml:"fallback" about:"decide in memory while Redis is away"`
}

// Redis is where Redis is.
type Redis struct {
	URL     string `yaml:"url" rules:"secret" about:"redis://, rediss://, unix://, redis+cluster:// or redis+sentinel://, or ${env:NAME}"`
	URLFile string `yaml:"url_file" about:"file that holds the URL"`
}

// Memory is the bounds of a store in memory.
type Memory struct {
	MaxKeys       int `yaml:"max_keys" rules:"min=1,max=1000000000" about:"the most keys held; default 1000000"`
	MaxLogEntries int `yaml:"max_log_entries" rules:"min=1,max=1000000000" about:"the most entries of sliding logs over all keys; default 16777216"`
}

// Fallback is what decides while Redis is away.
type Fallback struct {
	Replicas int       `yaml:"replicas" rules:"min=1,max=100000" about:"processes that share the limits; default 1"`
	Census   bool      `yaml:"census" about:"count the replicas that live, on Redis"`
	Failures int       `yaml:"failures" rules:"min=1,max=1000000" about:"failures in a row that open the breaker; default 5"`
	SlowCall *Duration `yaml:"slow_call" rules:"off,min=1ms,max=1h" about:"a call that takes longer is a failure, or off; default 250ms"`
	Cooldown *Duration `yaml:"cooldown" rules:"min=1ms,max=1h" about:"how long the breaker stays open at least; default 1s"`
	Memory   *Memory   `yaml:"memory" about:"the bounds of what decides meanwhile"`
}

// ClientIP says whom to believe about the address of a client.
type ClientIP struct {
	Strategy       string   `yaml:"strategy" rules:"oneof=remote_addr|xff|xff_count|forwarded|header" about:"where the address is read; default remote_addr"`
	Count          int      `yaml:"count" rules:"min=1,max=100" about:"xff_count: proxies that append to the header"`
	Header         string   `yaml:"header" about:"header: its name"`
	TrustedProxies []string `yaml:"trusted_proxies" rules:"len=10000" about:"addresses and networks of the proxies, and nothing else"`
	TrustUnix      bool     `yaml:"trust_unix" about:"also believe peers of a unix socket"`
	IPv6Prefix     int      `yaml:"ipv6_prefix" rules:"min=32,max=128" about:"clients are counted by networks of so many bits; default 64"`
	IPv4Prefix     int      `yaml:"ipv4_prefix" rules:"min=8,max=32" about:"likewise; default 32"`
	NAT64Prefixes  []string `yaml:"nat64_prefixes" rules:"len=100" about:"translation prefixes: clients in them are counted by the IPv4 address inside"`
	OnKeyError     string   `yaml:"on_key_error" rules:"oneof=nearest|deny|allow" about:"what to do if the address cannot be told; default nearest"`
	AllowTrustAll  bool     `yaml:"allow_trust_all" about:"accept 0.0.0.0/0 and ::/0 as trusted: every sender can then pass for anybody"`
}

// Response says how responses look.
type Response struct {
	ResetDelta        bool              `yaml:"reset_delta" about:"X-RateLimit-Reset in seconds from now instead of since the epoch"`
	RetryAfterDate    bool              `yaml:"retry_after_date" about:"Retry-After as a date"`
	MaxRetryAfter     *Duration         `yaml:"max_retry_after" rules:"min=1s,max=2147483647s" about:"caps Retry-After"`
	Jitter            *Duration         `yaml:"jitter" rules:"min=1ms,max=24h" about:"the most that is added to Retry-After at random; default none"`
	DegradedField     string            `yaml:"degraded_field" rules:"len=64" about:"the field that names what is served instead of a refusal, or off; default X-RateLimit-Degraded"`
	MaxUnitsPerSecond int               `yaml:"max_units_per_second" rules:"min=1,max=1000000000" about:"lowers the units told as left; default off"`
	NoExpose          bool              `yaml:"no_expose" about:"leave Access-Control-Expose-Headers alone"`
	Messages          map[string]string `yaml:"messages" rules:"len=100" about:"detail of refusals by language tag"`
}

// Match says which requests are meant. All that is given has to match.
type Match struct {
	Routes  []string `yaml:"routes" rules:"filled,len=10000" about:"patterns as of net/http: GET /search, /api/ (a prefix), /{$} (the root)"`
	Hosts   []string `yaml:"hosts" rules:"filled,len=10000" about:"names of hosts, *.example.com too"`
	Methods []string `yaml:"methods" rules:"filled,len=100" about:"methods; GET is HEAD too"`
	CIDRs   []string `yaml:"cidrs" rules:"filled,len=10000" about:"networks of clients"`
	If      string   `yaml:"if" about:"a predicate registered by that name"`
}

// Policy is one rule.
type Policy struct {
	Name         string                      `yaml:"name" rules:"required,len=64" about:"letters, digits, '_', '.' and '-'; in keys, metrics and responses"`
	Stage        string                      `yaml:"stage" rules:"len=64" about:"edge (the default, before authentication), identity (behind it), manual or a name of your own"`
	Match        *Match                      `yaml:"match" about:"which requests are meant; without it all"`
	Exempt       *Match                      `yaml:"exempt" about:"which are not meant even though they match"`
	Key          List                        `yaml:"key" rules:"len=8" about:"by whom is counted, joined: ip, ip/48, user, tenant, route, global, header:NAME, cookie:NAME, query:NAME, param:NAME, hmac(…), first(…), or a registered name"`
	OnNoKey      string                      `yaml:"on_no_key" rules:"oneof=deny|skip" about:"what becomes of a request without a key; default deny"`
	StoreKey     string                      `yaml:"store_key" about:"spells keys in the store: a function registered by that name"`
	Limit        Limit                       `yaml:"limit" about:"how much: 600/m, 5/s burst 20, 10/500ms sliding_window cells 10, unlimited, deny_all"`
	Algorithm    string                      `yaml:"algorithm" rules:"oneof=token_bucket|gcra|leaky_bucket|fixed_window|sliding_window|sliding_log" about:"how is counted; default token_bucket"`
	Burst        *int                        `yaml:"burst" rules:"min=1,max=1000000000" about:"token_bucket: capacity, default the number in limit; leaky_bucket: places, default 1"`
	Cells        *int                        `yaml:"cells" rules:"min=1,max=100" about:"sliding_window: cells of a window"`
	Align        *Align                      `yaml:"align" about:"fixed_window: windows of the calendar"`
	Mode         string                      `yaml:"mode" rules:"oneof=central|leased|local" about:"central: in the store (the default), leased: leased from the store to each process, for token_bucket, local: in the memory of the process"`
	Sync         *Duration                   `yaml:"sync" rules:"min=10ms,max=10s" about:"leased: how often a process asks for a busy key; default 100ms"`
	Plans        *Plans                      `yaml:"plans" about:"limits by the plan of the caller"`
	Overrides    map[string]map[string]Limit `yaml:"overrides" rules:"len=8" about:"limits of single callers, by kind and value of a key: {tenant: {acme: 9000/m}}; they win over plans"`
	Schedule     []Rule                      `yaml:"schedule" rules:"filled,len=1000" about:"limits by weekday, time and date: the first rule that is on decides, without one the limit stays"`
	Calendar     *Calendar                   `yaml:"calendar" about:"the days of the schedule that are not as usual"`
	Adaptive     *Adaptive                   `yaml:"adaptive" about:"a limit that moves by what the service bears, of 100 policies at most"`
	InFlight     int                         `yaml:"in_flight" rules:"min=1,max=1000000000" about:"the most requests in service at once, per key and process"`
	Unit         string                      `yaml:"unit" about:"what is counted, as told to clients; default requests"`
	Partition    string                      `yaml:"partition" about:"the pk parameter: a function registered by that name"`
	Cost         string                      `yaml:"cost" about:"units of a request: a function registered by that name; without it 1"`
	MaxDelay     *Duration                   `yaml:"max_delay" rules:"off,min=1ms,max=24h" about:"leaky_bucket: the longest a request is held, or off; default: for any place"`
	Refund       []Statuses                  `yaml:"refund" rules:"len=100" about:"statuses for which units are given back: [\"5xx\", 404]"`
	Degrade      Chain                       `yaml:"degrade" rules:"len=16" about:"what is served instead of a refusal: one handler or several, asked in turn, by name or with settings: [cache, {read_only: {limit: 60/m}}]"`
	OnStoreError string                      `yaml:"on_store_error" rules:"oneof=fail_open|fail_closed" about:"what becomes of a request while the store is away; default fail_open"`
	Shadow       bool                        `yaml:"shadow" about:"decide and be observed, and refuse nothing"`
	Headers      response.Set                `yaml:"headers" about:"the fields that tell of the policy; default those of the document"`
	Messages     map[string]string           `yaml:"messages" rules:"len=100" about:"detail of its refusals by language tag"`
}

// Align makes windows those of the calendar.
type Align struct {
	Unit string `yaml:"unit" rules:"required,oneof=day|week|month" about:"week begins on Monday"`
	Zone string `yaml:"zone" about:"IANA name such as Asia/Shanghai; default UTC"`
}

// Plans are limits by the plan of the caller.
type Plans struct {
	From    string           `yaml:"from" rules:"required" about:"a plan function registered by that name, or header:NAME"`
	Limits  map[string]Limit `yaml:"limits" rules:"required,len=10000" about:"limit of each plan"`
	Unknown string           `yaml:"unknown" rules:"oneof=default|deny" about:"the limit of other plans: the policy's (the default), or none"`
	Trusted bool             `yaml:"trusted" about:"from is a header that a gateway of yours sets and strips"`
}

// Limit is a limit as text; see [limiter.ParseLimit].
type Limit string

// Duration is a time such as 50ms or 1h30m.
type Duration time.Duration

// UnmarshalText reads a time with its unit.
func (d *Duration) UnmarshalText(text []byte) error {
	x, err := time.ParseDuration(string(text))
	if err != nil {
		return errors.New("want a time with a unit, such as 50ms, 10s or 1h30m")
	}
	*d = Duration(x)
	return nil
}

// off is the value of times and counts that are switched off.
const off = "off"

// Count is a number from 1, or off.
type Count int

// UnmarshalText reads a number or off, which is −1.
func (c *Count) UnmarshalText(text []byte) error {
	if string(text) == off {
		*c = -1
		return nil
	}
	n, err := strconv.Atoi(string(text))
	if err != nil || n < 1 || n > limiter.MaxRate {
		return fmt.Errorf("want a whole number from 1 to %d, or off", limiter.MaxRate)
	}
	*c = Count(n)
	return nil
}

// List is one text or several.
type List []string

// Statuses is a range of status codes: 404, or 5xx.
type Statuses struct{ From, To int }

// UnmarshalText reads a status or a class of them.
func (s *Statuses) UnmarshalText(text []byte) error {
	class, ok := strings.CutSuffix(strings.ToLower(string(text)), "xx")
	n, err := strconv.Atoi(class)
	if err == nil && ok && n >= 1 && n <= 5 {
		*s = Statuses{n * 100, n*100 + 99}
		return nil
	}
	if err != nil || ok || n < 100 || n > 599 {
		return errors.New("want a status such as 404, or a class such as 5xx")
	}
	*s = Statuses{n, n}
	return nil
}
