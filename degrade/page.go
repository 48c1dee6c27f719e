package degrade

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unsafe"
)

// Page is one response as it is stored. It is not to be changed.
type Page struct {
	Variant string      // a hash of the values of the fields that [Copies].Vary names; "" if it names none
	Public  bool        // the origin said public; else it is for those without credentials, or for the one partition it is stored for
	Status  int         // such as 200
	Header  http.Header // what is replayed of the header: canonical names, and neither Set-Cookie nor a field of one connection
	Body    []byte

	Began        time.Time     // when the request came
	Stored       time.Time     // when the response began
	Age          time.Duration // at Stored, RFC 9111 4.2.3
	Lifetime     time.Duration // freshness; negative: the origin said nothing
	StaleIfError time.Duration // negative: the origin said nothing
}

// MaxVariants is how many responses are stored for one address, told apart by the fields of Vary.
const MaxVariants = 8

// Copies is what is stored under one key. It is not to be changed: [Store] replaces it as a whole.
type Copies struct {
	Key   string   // the key they are stored under: a store that mixes up its keys does not mix up callers
	Vary  []string // the request fields that tell Pages apart, canonical, sorted, at most MaxVary
	Pages []Page   // the newest first, at most MaxVariants
}

// Size is about how many bytes of memory c takes.
func (c *Copies) Size() int {
	n := int(unsafe.Sizeof(*c)) + len(c.Key)
	for _, name := range c.Vary {
		n += 16 + len(name)
	}
	for i := range c.Pages {
		p := &c.Pages[i]
		n += int(unsafe.Sizeof(*p)) + len(p.Variant) + cap(p.Body) + mapSize(len(p.Header))
		for name, values := range p.Header {
			n += len(name)
			for _, v := range values {
				n += 16 + len(v)
			}
		}
	}
	return n
}

// mapSize is what a header of n fields takes beside their texts: groups of 8 places, of which more than one group fills at
// most 7 in 8, and are doubled.
func mapSize(n int) int {
	const head, group = 48, 8 + 8*(16+24)
	if n <= 8 {
		return head + group
	}
	groups := 2
	for groups*7 < n {
		groups *= 2
	}
	const table, page, small = 128, 8 << 10, 32 << 10 // groups of one table; what is not small takes whole pages
	size := min(groups, table) * group
	if size > small {
		size = (size + page - 1) / page * page
	}
	return head + max(1, groups/table)*(40+size)
}

// with returns c and the page, of a response that depends on the fields of vary. Pages that the new one replaces are left
// out, so are dead ones. Fields are added up: the newest response that forgets one of them does not make older ones fit
// requests they were not made for. Pages of fewer fields cannot be told apart by more, and go.
func (c *Copies) with(key string, vary []string, values func(string) []string, p Page, dead func(*Page) bool) *Copies {
	next := &Copies{Key: key, Vary: vary}
	var kept []Page
	if c != nil && c.Key == key {
		for i := range c.Pages {
			if !dead(&c.Pages[i]) {
				kept = append(kept, c.Pages[i])
			}
		}
		if len(kept) > 0 {
			union := slices.Concat(vary, c.Vary)
			slices.Sort(union)
			if union = slices.Compact(union); len(union) <= MaxVary {
				next.Vary = union
			}
			if !slices.Equal(next.Vary, c.Vary) {
				kept = nil
			}
		}
	}
	p.Variant = variant(next.Vary, values)
	next.Pages = append(make([]Page, 0, 1+len(kept)), p)
	for i := range kept {
		if kept[i].Variant != p.Variant && len(next.Pages) < MaxVariants {
			next.Pages = append(next.Pages, kept[i])
		}
	}
	return next
}

// withoutPublic returns c without the pages that are for everybody: c itself if there is none, nil if nothing is left.
func (c *Copies) withoutPublic(key string) *Copies {
	if c != nil && c.Key != key {
		return nil // another's
	}
	if c == nil || !slices.ContainsFunc(c.Pages, func(p Page) bool { return p.Public }) {
		return c
	}
	kept := slices.DeleteFunc(slices.Clone(c.Pages), func(p Page) bool { return p.Public })
	if len(kept) == 0 {
		return nil
	}
	return &Copies{Key: key, Vary: c.Vary, Pages: kept}
}

// find returns the page that a request with these fields may get.
func (c *Copies) find(values func(string) []string, publicOnly bool) *Page {
	if c == nil || len(c.Pages) == 0 {
		return nil
	}
	v := variant(c.Vary, values)
	for i := range c.Pages {
		if p := &c.Pages[i]; p.Variant == v && (p.Public || !publicOnly) {
			return p
		}
	}
	return nil
}

// maxSkew is how far in the future a page may have been stored: the clock went back, or belongs to another machine.
const maxSkew = time.Minute

// resident is how long p has been stored. Where the clock went back it is 0 and not less.
func (p *Page) resident(now time.Time) time.Duration { return clampAge(now.Sub(p.Stored)) }

// age is current_age of RFC 9111 4.2.3.
func (p *Page) age(now time.Time) time.Duration { return clampAge(clampAge(p.Age) + p.resident(now)) }

// stale is for how long p has not been fresh any more at now, negative while it is. Where the origin gave no lifetime, it
// has none, and counts from when it was stored.
func (p *Page) stale(now time.Time) time.Duration {
	if p.Lifetime < 0 {
		return p.resident(now)
	}
	return p.age(now) - clampAge(p.Lifetime)
}

// ttl is what Cache-Status says: the lifetime that is left, negative once p is stale. It rounds as Age does, so that both
// together are the lifetime.
func (p *Page) ttl(now time.Time) time.Duration {
	return clampAge(p.Lifetime).Truncate(time.Second) - p.age(now).Truncate(time.Second)
}

// accepts reports whether a client that sent d takes p at now, RFC 9111 5.2.1.
func (d *directives) accepts(p *Page, now time.Time) bool {
	age, lifetime := p.age(now), clampAge(p.Lifetime)
	stale := age - lifetime
	switch {
	case d.bad, d.noCache, d.noStore:
		return false
	case d.maxAge >= 0 && age > seconds(d.maxAge):
		return false
	case d.minFresh >= 0 && lifetime-age < seconds(d.minFresh):
		return false
	case stale <= 0:
		return true
	case d.maxStale >= 0:
		return stale <= seconds(d.maxStale)
	}
	return d.maxAge < 0 || d.anyStale // who bounds the age and does not say more wants nothing stale
}

// initialAge is corrected_initial_age of RFC 9111 4.2.3 for a response that was asked for at began and came at stored.
func initialAge(h http.Header, began, stored time.Time) time.Duration {
	var apparent time.Duration
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		apparent = clampAge(stored.Round(0).Sub(date))
	}
	said, _, _ := strings.Cut(h.Get("Age"), ",") // a list: the first counts, RFC 9111 5.1
	n, _ := deltaSeconds(strings.TrimSpace(said))
	return max(apparent, clampAge(seconds(n)+clampAge(stored.Sub(began))))
}

// lifetime is freshness_lifetime of RFC 9111 4.2.1 without s-maxage, which forbids to store: negative if the origin said
// nothing. An Expires that is no date, or two of them, is in the past.
func lifetime(h http.Header, d *directives, stored time.Time) time.Duration {
	if d.maxAge >= 0 {
		return seconds(d.maxAge)
	}
	lines := h["Expires"]
	if len(lines) == 0 {
		return -1
	}
	expires, err := http.ParseTime(lines[0])
	if err != nil || len(lines) > 1 {
		return 0
	}
	date, err := http.ParseTime(h.Get("Date"))
	if err != nil {
		date = stored.Round(0)
	}
	return clampAge(expires.Sub(date))
}

// clampAge keeps sums of ages from overflowing.
func clampAge(d time.Duration) time.Duration { return min(max(d, 0), maxDelta*time.Second) }

// seconds is n seconds, and -1 of nothing said.
func seconds(n int64) time.Duration {
	if n < 0 {
		return -1
	}
	return time.Duration(n) * time.Second
}

// wholeSeconds rounds down, as ages are told.
func wholeSeconds(d time.Duration) string { return strconv.FormatInt(int64(d/time.Second), 10) }
