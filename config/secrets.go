package config

import (
	"regexp"
	"strconv"
	"strings"
	"unicode"

	"github.com/goccy/go-yaml/token"
)

// A secret has to stay out of findings also where the document is broken: where its field is misspelled, where it stands
// in the place of something else, where a quote is missing. So what holds one is told by the tokens, before anything is
// understood, and rather too much is hidden.
var secretName = regexp.MustCompile(`(?i)secret|passw|token|url`)

// Where only secrets and a few fields of ours are: at the top, and in store and what is in it.
var secretNameThere = regexp.MustCompile(`(?i)pwd|pass|auth|cred|dsn|hmac|private|api_?key|uri`)

func isSecretName(name string) bool {
	return secretName.MatchString(name) || nearest(name, []string{"key_secret", "key_secret_file", "url", "url_file"}) != ""
}

// In a document that says hmac, the names in overrides may be secrets of callers.
var (
	digests   = regexp.MustCompile(`(?i)hmac`)
	overrides = regexp.MustCompile(`(?i)overrid`)
)

// hideSecrets hides the lines of fields that hold a secret, and remembers their values.
func (s *source) hideSecrets(tokens token.Tokens) {
	for _, t := range tokens { // a name whose colon is missing is part of the text before
		if t.Type == token.StringType && brokenName.MatchString(t.Value) && strings.ContainsAny(t.Value, " \n:") {
			for line := t.Position.Line; line <= t.Position.Line+strings.Count(t.Origin, "\n"); line++ {
				s.hidden[line] = true
			}
			for word := range strings.FieldsFuncSeq(t.Value, func(r rune) bool { return unicode.IsSpace(r) || r == ':' }) {
				if len(word) >= shortest && len(s.suspects) < mostSecrets {
					s.suspects = append(s.suspects, word)
				}
			}
		}
	}
	depth, top := 0, 0       // brackets around, and how many of them a JSON document has around all
	store, callers := -1, -1 // where the values of store and overrides end
	if len(tokens) > 0 && tokens[0].Type == token.MappingStartType {
		depth, top = 1, 1
	}
	for k := 1; k < len(tokens); k++ {
		switch tokens[k].Type {
		case token.MappingStartType, token.SequenceStartType:
			depth++
		case token.MappingEndType, token.SequenceEndType:
			depth--
		}
		if key := tokens[k-1]; tokens[k].Type == token.MappingValueType && k > store && (key.Value == "store" || key.Value == "redis") {
			end := inBrackets(tokens[k+1:])
			if end == 0 {
				end = s.endOf(key, tokens[k+1:], func(string) {})
			}
			store = max(store, k+end)
		}
		if key := tokens[k-1]; tokens[k].Type == token.MappingValueType && k > callers && s.digests && overrides.MatchString(key.Value) {
			end := s.endOf(key, tokens[k+1:], func(string) {})
			s.hideValue(key, tokens[k+1:], end)
			callers = k + end
		}
		if key := tokens[k-1]; tokens[k].Type == token.MappingValueType && (isSecretName(key.Value) ||
			secretNameThere.MatchString(key.Value) && (k <= store || depth == top && (top == 1 || key.Position.Column == 1)) || k > 1 && tokens[k-2].Type == token.AliasType) {
			end := s.endOf(key, tokens[k+1:], s.remember)
			s.hideValue(key, tokens[k+1:], end)
			k += end
		}
	}
}

// inBrackets returns how many tokens the value in brackets has with which tokens begin.
func inBrackets(tokens token.Tokens) int {
	depth := 0
	for k, t := range tokens {
		switch t.Type {
		case token.MappingStartType, token.SequenceStartType:
			depth++
		case token.MappingEndType, token.SequenceEndType:
			depth--
		}
		if depth <= 0 {
			if k > 0 {
				k++
			}
			return k
		}
	}
	return len(tokens)
}

// hideValue hides the lines of key and its value, which is the first n of tokens.
func (s *source) hideValue(key *token.Token, tokens token.Tokens, n int) {
	last := len(s.lines)
	if n < len(tokens) {
		last = tokens[n].Position.Line
		if tokens[n].Position.Column <= key.Position.Column && last > key.Position.Line {
			last-- // begins behind the value
		}
	}
	for line := key.Position.Line; line <= last; line++ {
		s.hidden[line] = true
	}
}

// hideLines hides what looks like a secret where there are no tokens to go by: from the name on, to a line that begins
// something else.
func (s *source) hideLines() {
	deeper := -1
	for k, line := range s.lines {
		indent := len(line) - len(strings.TrimLeft(line, " \t"))
		if s.digests && overrides.MatchString(line) || secretName.MatchString(line) || brokenName.MatchString(notLetters.ReplaceAllString(line, "")) {
			deeper = indent
		} else if deeper >= 0 && indent <= deeper && beginsField.MatchString(line) {
			deeper = -1
		}
		if deeper >= 0 {
			s.hidden[k+1] = true
		}
	}
}

var (
	notLetters = regexp.MustCompile(`[^A-Za-z]+`)
	// With one letter too few, too many or wrong.
	brokenName = regexp.MustCompile(`(?i)ecret|s\w?cret|se\w?ret|sec\w?et|secr\w?t|secre|ur\w?l|u\w?rl`)
)

var beginsField = regexp.MustCompile(`^[\s{\[,-]*["']?[a-z0-9_]+["']?\s*:`)

// endOf calls remember for the value of key, with which tokens begin, and returns how many of them are of it.
func (s *source) endOf(key *token.Token, tokens token.Tokens, remember func(string)) int {
	for k, t := range tokens {
		ends := t.Type == token.CollectEntryType || t.Type == token.MappingEndType || t.Type == token.SequenceEndType
		behind := t.Position.Column < key.Position.Column || t.Position.Column == key.Position.Column && t.Type != token.SequenceEntryType
		if ends && k == 1 || behind && t.Position.Line > key.Position.Line {
			return k
		}
		switch t.Type {
		case token.StringType, token.SingleQuoteType, token.DoubleQuoteType:
			remember(t.Value)
			remember(t.Origin)
		}
	}
	return len(tokens)
}

// Parts of secrets that are looked for: a shorter one is in every other word, and nobody has more.
const (
	shortest    = 6
	mostSecrets = 100
)

func (s *source) remember(secret string) {
	for part := range strings.SplitSeq(secret, "\n") {
		part = strings.Trim(part, " \t\"'")
		if _, reference := envName(part); reference {
			continue
		}
		if len(part) >= shortest && len(s.secrets) < mostSecrets {
			s.secrets = append(s.secrets, part)
			if q := strconv.Quote(part); q != `"`+part+`"` {
				s.secrets = append(s.secrets, q[1:len(q)-1])
			}
		}
	}
}

var (
	userInfo      = regexp.MustCompile(`//[^\s"']*@`)
	passwordQuery = regexp.MustCompile(`(?i)((?:password|secret|token)=)[^&\s"']+`)
)

// mask takes secrets out of a text.
func (s *source) mask(text string) string {
	if s != nil {
		for _, secret := range s.secrets {
			text = strings.ReplaceAll(text, secret, redacted)
		}
	}
	if strings.ContainsAny(text, "@=") {
		text = userInfo.ReplaceAllString(text, "//"+redacted+"@")
		text = passwordQuery.ReplaceAllString(text, "${1}"+redacted)
	}
	return text
}
