package config

import (
	"errors"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// Chain is what is served instead of a refusal: one handler or several, asked in turn.
type Chain []Handler

// Handler is one of a [Chain]: one field that says which, or the name alone. The names are those of the fields; any other
// is that of a handler registered in Go.
type Handler struct {
	Name string // of one that was registered, written alone or as func; else ""

	Cache    *Cache    `yaml:"cache" about:"a recorded response to the same request"`
	ReadOnly *ReadOnly `yaml:"read_only" about:"reads proceed within a budget, writes are refused"`
	Static   *Static   `yaml:"static" about:"a fixed answer"`
	Queue    *Queue    `yaml:"queue" about:"wait for a turn, then be decided once more"`
	Redirect *Redirect `yaml:"redirect" about:"somewhere else, such as a waiting page"`
	Shed     *Shed     `yaml:"shed" about:"the less important are refused before the limit is spent"`
	Flag     *Flag     `yaml:"flag" about:"proceed within a budget, marked: the application leaves something out"`
	Func     *Func     `yaml:"func" about:"a handler registered in Go"`
}

// Cache is the settings of [degrade.Cached].
type Cache struct {
	Limit           Limit     `yaml:"limit" about:"copies served, per key of the policy; default ten times its limit"`
	MaxStale        *Duration `yaml:"max_stale" rules:"off,min=1s,max=24h" about:"how long a copy is served behind its freshness, or off: fresh ones alone; default 1m"`
	MaxStaleIfError *Duration `yaml:"max_stale_if_error" rules:"off,min=1s,max=24h" about:"caps what stale-if-error of the origin may add where the service is at its bound, or off; default 10m"`
	MaxBytes        int       `yaml:"max_bytes" rules:"min=65536,max=1000000000000" about:"memory for copies, of this policy; default 67108864 (64 MiB)"`
	MaxPage         int       `yaml:"max_page" rules:"min=1,max=67108864" about:"largest body that is recorded, in bytes; default 262144 (256 KiB)"`
	Statuses        []int     `yaml:"statuses" rules:"filled,len=5" about:"what is recorded: of 200, 203, 301, 404, 410; default 200"`
	Partition       List      `yaml:"partition" rules:"len=8" about:"whose copy it is: a key of callers who have been authenticated, as in key; without it answers to requests with credentials are recorded only if they say public"`
	Credentials     []string  `yaml:"credentials" rules:"len=100" about:"further request fields that tell who asks, beside Authorization, Cookie and the usual API keys"`
	IgnoreCookies   []string  `yaml:"ignore_cookies" rules:"len=100" about:"cookies that change nothing of a page, such as those of analytics"`
	Query           []string  `yaml:"query" rules:"len=100" about:"the parameters that tell pages apart, [] for none; default: the whole query"`
	Flushed         bool      `yaml:"flushed" about:"also record what is flushed while it is written, as a proxy does with answers of unknown length; serve always does"`
}

// ReadOnly is the settings of [degrade.ReadOnly].
type ReadOnly struct {
	Limit      Limit    `yaml:"limit" rules:"required" about:"reads that proceed, per key of the policy"`
	ReadRoutes []string `yaml:"read_routes" rules:"filled,len=1000" about:"routes that only read though their method says otherwise, such as POST /search"`
	Reads      string   `yaml:"reads" about:"tells further reads: a predicate registered by that name"`
	Writes     string   `yaml:"writes" about:"tells writes among reads: a predicate registered by that name"`
	Latch      *Share   `yaml:"latch" about:"share of refusals from which on all writes are refused, until it has been under half of that for 10 s, as 20%; default: each request by itself"`
}

// Static is the settings of [degrade.Static].
type Static struct {
	Limit        Limit             `yaml:"limit" about:"answers, per key of the policy; default ten times its limit"`
	Status       int               `yaml:"status" rules:"min=200,max=599" about:"default: that of the refusal"`
	Contents     []Content         `yaml:"contents" rules:"required,filled,len=100" about:"bodies, chosen by Accept and Accept-Language; the first where none fits"`
	Headers      map[string]string `yaml:"headers" rules:"len=50" about:"further fields"`
	CacheControl string            `yaml:"cache_control" about:"default no-store: a cache would keep the answer for the real one"`
}

// Content is one body of [Static].
type Content struct {
	Type     string `yaml:"type" rules:"required" about:"media type, such as text/html; charset=utf-8"`
	Language string `yaml:"language" about:"language tag, such as zh-CN"`
	Body     string `yaml:"body" about:"the body itself"`
	File     string `yaml:"file" about:"or the file that holds it, where the application gives access to files"`
}

// Queue is the settings of [degrade.Queue].
type Queue struct {
	PerKey      int       `yaml:"per_key" rules:"min=1,max=1000000" about:"requests of one key that wait; default 16"`
	Total       int       `yaml:"total" rules:"min=1,max=1000000" about:"requests that wait in a process; default 1024"`
	MaxWait     *Duration `yaml:"max_wait" rules:"min=1ms,max=1m" about:"longest wait; default 5s"`
	ServiceTime *Duration `yaml:"service_time" rules:"off,min=1ms,max=1m" about:"what is left of deadlines and time-outs to the handler; default 100ms"`
	NewestFirst bool      `yaml:"newest_first" about:"the newest go first once the oldest has waited for half of max_wait"`
}

// Redirect is the settings of [degrade.Redirect].
type Redirect struct {
	Limit        Limit  `yaml:"limit" about:"redirects, per key of the policy; default: all"`
	To           string `yaml:"to" rules:"required" about:"path or http(s) URL"`
	Status       int    `yaml:"status" rules:"oneof=303|307" about:"default 307 for GET and HEAD, else 303"`
	Return       string `yaml:"return" about:"the parameter that gets the path that was asked for"`
	NoRetryAfter bool   `yaml:"no_retry_after" about:"do not say how long to wait before following"`
}

// Shed is the settings of [degrade.Shed].
type Shed struct {
	Class   string              `yaml:"class" about:"how important a request is: a function registered by that name"`
	Routes  map[string][]string `yaml:"routes" rules:"len=4" about:"or routes by class: critical_plus, critical, sheddable_plus, sheddable"`
	Default string              `yaml:"default" rules:"oneof=critical_plus|critical|sheddable_plus|sheddable" about:"the class of other routes; default critical"`
	By      List                `yaml:"by" rules:"len=8" about:"who is served wholly or not at all, as in key; default: the key of the policy"`
	Keep    *Share              `yaml:"keep" about:"share of the limit for critical_plus alone; default 20%"`
	Rotate  *Duration           `yaml:"rotate" rules:"min=1s,max=8784h" about:"after how long others are shed; default never"`
}

// Flag is the settings of [degrade.Flag].
type Flag struct {
	Limit Limit `yaml:"limit" rules:"required" about:"requests that proceed, per key of the policy"`
}

// Func is a handler registered in Go, with a budget.
type Func struct {
	Name  string `yaml:"name" rules:"required" about:"the name it is registered by"`
	Limit Limit  `yaml:"limit" about:"how often it is asked, per key of the policy; default: always"`
}

// Share is a part of a whole, written as 20% or 0.2.
type Share float64

// UnmarshalText reads a share of more than nothing and at most all.
func (s *Share) UnmarshalText(text []byte) error {
	number, percent := strings.CutSuffix(string(text), "%")
	x, err := strconv.ParseFloat(number, 64)
	if percent {
		x /= 100
	}
	if err != nil || !(x > 0 && x <= 1) || strings.ContainsAny(number, "xXpP_+") {
		return errors.New("want a share of more than 0 and at most 100%, such as 20% or 0.2")
	}
	*s = Share(x)
	return nil
}

// MarshalText writes a share in percent, and one below 0 as off.
func (s Share) MarshalText() ([]byte, error) {
	if s < 0 {
		return []byte(off), nil
	}
	return append(strconv.AppendFloat(nil, float64(s)*100, 'g', 6, 64), '%'), nil
}

// alone is the field of a handler that is set, and its name; there is at most one.
func (h *Handler) alone() (name string, settings reflect.Value) {
	v := reflect.ValueOf(h).Elem()
	for _, f := range fieldsOf(v.Type()).fields {
		if x := v.Field(f.index); !x.IsNil() {
			return f.name, x
		}
	}
	return h.Name, reflect.Value{}
}

// String returns the name of a handler.
func (h Handler) String() string {
	name, _ := h.alone()
	return name
}

// setAlone makes a handler of a name alone.
func (h *Handler) setAlone(name string) {
	v := reflect.ValueOf(h).Elem()
	if f := fieldsOf(v.Type()).byName[name]; f != nil {
		x := v.Field(f.index)
		x.Set(reflect.New(x.Type().Elem()))
		return
	}
	h.Name = name
}

var typeOfHandler = reflect.TypeFor[Handler]()

// orOff returns what stands there, 0 for nothing, and below 0 for off.
func orOff(d *Duration) time.Duration { return time.Duration(value(d)) }
