package config

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// callersHidden are the names in overrides that no one is shown: a policy that counts by hmac(header:X-API-Key) has keys of
// its callers there. It is told by the text of a key, for what is registered is not known where documents are shown: all
// kinds are hidden but those that stand outside of hmac.
type callersHidden struct {
	policies []func(kind string) bool // whether names of a kind are hidden
	names    map[string]string        // what is shown instead
}

// hiddenCallers finds them in documents. A name that is in several is shown as the same.
func hiddenCallers(docs ...*Document) (all []callersHidden) {
	names := make(map[string]string)
	for _, d := range docs {
		c := callersHidden{names: names}
		for k := range value(d).Policies {
			p := &d.Policies[k]
			hides := hiddenKinds(p.Key, d.source != nil && d.source.digests)
			c.policies = append(c.policies, hides)
			for kind, callers := range p.Overrides {
				if hides(kind) {
					for name := range callers {
						names[name] = ""
					}
				}
			}
		}
		all = append(all, c)
	}
	for k, name := range slices.Sorted(maps.Keys(names)) {
		names[name] = fmt.Sprintf("(redacted %d)", k+1)
	}
	return all
}

// hiddenKinds reads a key without knowing what is registered. digests: the document says hmac somewhere, which counts where
// a key cannot be read.
func hiddenKinds(key List, digests bool) func(kind string) bool {
	inside, outside := make(map[string]bool), make(map[string]bool)
	hidden := digests && (len(key) == 0 || slices.Contains(key, ""))
	for _, text := range key {
		var calls []string
		for text != "" {
			end := strings.IndexAny(text, "(),")
			word, delimiter := text, byte(',')
			if end >= 0 {
				word, delimiter = text[:end], text[end]
			}
			text = text[len(word):]
			if text != "" {
				text = text[1:]
			}
			switch word = strings.TrimSpace(word); {
			case delimiter == '(':
				calls = append(calls, word)
				continue
			case word == "":
			case slices.ContainsFunc(calls, func(c string) bool { return c != "first" }): // a misspelled hmac, too
				inside[kindOfWord(word)] = true
				hidden = true
			default:
				outside[kindOfWord(word)] = true
			}
			if delimiter == ')' && len(calls) > 0 {
				calls = calls[:len(calls)-1]
			}
		}
	}
	return func(kind string) bool { return hidden && (inside[kind] || !outside[kind]) }
}

// kindOfWord returns the kind of keys that a word of a key makes; of what is registered most likely its name.
func kindOfWord(word string) string {
	if _, name, ok := strings.Cut(word, ":"); ok {
		return strings.ReplaceAll(strings.ToLower(strings.TrimSpace(name)), "-", "_")
	}
	word, _, _ = strings.Cut(word, "/")
	if word == "global" {
		return "all"
	}
	return word
}

// finding takes a hidden name out of a finding about it.
func (c *callersHidden) finding(f *Finding) {
	rest, ok := strings.CutPrefix(f.Path, "policies[")
	if c == nil || !ok {
		return
	}
	index, rest, _ := strings.Cut(rest, "].overrides")
	k, err := strconv.Atoi(index)
	if err != nil || k < 0 || k >= len(c.policies) || !strings.HasPrefix(rest, ".") {
		return
	}
	kind, name, _ := strings.Cut(rest[1:], ".")
	if !c.policies[k](kind) {
		return
	}
	f.Text = ""
	if name == "" {
		return
	}
	shown := c.names[name]
	if shown == "" {
		shown = redacted
	}
	f.Path = fmt.Sprintf("policies[%d].overrides.%s.%s", k, kind, shown)
	quoted := strconv.Quote(name)
	for _, text := range []*string{&f.Message, &f.Suggestion} {
		*text = strings.ReplaceAll(strings.ReplaceAll(*text, quoted, shown), name, shown)
	}
}

// shown returns the overrides of a policy with what is shown instead of names.
func (c *callersHidden) shown(policy int, overrides map[string]map[string]Limit) map[string]map[string]Limit {
	var out map[string]map[string]Limit
	for kind, callers := range overrides {
		if !c.policies[policy](kind) {
			continue
		}
		if out == nil {
			out = maps.Clone(overrides)
		}
		out[kind] = make(map[string]Limit, len(callers))
		for name, l := range callers {
			out[kind][c.names[name]] = l
		}
	}
	if out == nil {
		return overrides
	}
	return out
}
