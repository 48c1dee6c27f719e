package limitertest

import (
	"strings"

	"github.com/spillway-go/spillway/limiter"
)

var keyRules = []rule{
	{"keys-independent", "keys share nothing, whatever their identities are spelled like, and neither do spaces", 0, checkKeys},
	{"algorithms-independent", "another algorithm is another counter of the same key", 0, checkAlgorithms},
}

// hostileIDs are identities that a store which builds names or patterns from them would confuse.
func hostileIDs(base string) []string {
	return []string{
		base, base + " ", " " + base, strings.ToUpper(base), "{" + base + "}", base + "}", "{" + base, "{}" + base, "{}" + base + "{}",
		base + ":tb", base + ":", base + ":" + base, base + "\x00", "\x00" + base, base + "\x00\x00", base + "\n", base + "\r\n", base + "*",
		base + "?", base + "[a]", base + "\\", base + "é", base + "e\u0301", base + "\xff", base + "\xfe", base + "|ip=1", base + "%00",
		base + strings.Repeat("x", 4096), base + strings.Repeat("x", 4095) + "y", strings.Repeat("x", 70_000) + base,
	}
}

func checkKeys(c *check) {
	// Bursts that differ would be a change of one key's limit, so the number of takes tells the keys apart.
	l := c.calm(c.first(), 40)
	base := c.key()
	var keys []limiter.Key
	for _, id := range hostileIDs(base.ID) {
		keys = append(keys, limiter.Key{Space: base.Space, ID: id})
	}
	keys = append(keys,
		limiter.Key{Space: base.Space + ":" + base.ID, ID: base.ID},
		limiter.Key{Space: base.Space + ":", ID: base.ID},
		limiter.Key{Space: base.Space + "-other", ID: base.ID},
		limiter.Key{Space: base.Space, ID: ""},
	)
	for k, key := range keys {
		if d := c.take(key, l, 1+k%5); c.p.Bounds == nil {
			c.require(d.Allowed, "key %d %.40q was used by another key's takes", k, key.ID)
			c.left(d, 40-1-k%5, "a key never used")
		}
	}
	for k, key := range keys {
		d := c.peek(key, l)
		c.require(c.p.Bounds != nil || d.Remaining == 40-1-k%5 || d.Remaining >= 40-1-k%5-c.p.FewerLeft && d.Remaining < 40-1-k%5,
			"key %d %.40q has %d left, want %d: another key was counted on it", k, key.ID, d.Remaining, 40-1-k%5)
	}
	if !c.p.NoReset {
		c.reset(keys[0])
		c.left(c.peek(keys[4], l), 35, "a reset of a key whose name is part of this one's")
	}
	if c.p.Bounds != nil {
		full := c.key()
		for range 200 {
			c.take(full, l, 1)
		}
		c.worth(c.key(), l, 40, "a new key beside one that is used up")
	}
}

// first returns an algorithm of the profile, where any will do.
func (c *check) first() limiter.Algorithm {
	for _, a := range limiter.Algorithms() {
		if c.p.supports(a) && a != limiter.LeakyBucket {
			return a
		}
	}
	return limiter.LeakyBucket
}

func checkAlgorithms(c *check) {
	k := c.key()
	used := 0
	c.each(func(c *check, a limiter.Algorithm) {
		used++
		l := c.calm(a, 20)
		if c.p.Bounds != nil {
			c.take(k, l, used)
			return
		}
		c.left(c.passes(k, l, used, "a key used under other algorithms"), 20-used, "a key used under other algorithms")
	})
	want := 0
	c.each(func(c *check, a limiter.Algorithm) {
		want++
		c.left(c.peek(k, c.calm(a, 20)), 20-want, "takes under other algorithms")
	})
}
