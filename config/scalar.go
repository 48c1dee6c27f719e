package config

import (
	"encoding"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"

	"github.com/spillway-go/spillway/response"
)

// setNames are the values of headers.
var setNames = []string{"x", "draft-11", "both", "off", "draft-07", "draft-06", "next", "x+draft-11", "x+draft-07", "x+draft-06", "x+next"}

// scalar decodes one value: as it is written, without the guesses of YAML.
func (d *decoder) scalar(n ast.Node, path string, v reflect.Value, rules rules) {
	text, quoted, ok := scalarText(n)
	if !ok {
		d.wrong(n, path, InvalidValue, "", "one value is expected here")
		return
	}
	if !d.spend(n, path, len(text)) {
		return
	}
	shown := fmt.Sprintf("%q", text)
	if rules.secret {
		shown = "the value"
	}
	bad := func(format string, args ...any) {
		d.wrong(n, path, InvalidValue, "", format, args...)
	}
	if rules.off && text == off {
		if v.CanFloat() {
			v.SetFloat(-1)
		} else {
			v.SetInt(-1)
		}
		return
	}
	if text == "" {
		d.wrong(n, path, InvalidValue, giveValue, "the value is empty")
		return
	}
	if strings.ContainsFunc(text, unprintable) {
		bad("a control character is in the value")
		return
	}
	if u, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok {
		err := u.UnmarshalText([]byte(text))
		switch _, set := u.(*response.Set); {
		case err != nil && set:
			d.wrong(n, path, InvalidValue, meant(text, setNames), "%s: want one of %s", shown, strings.Join(setNames, ", "))
			return
		case err != nil:
			bad("%s: %v", shown, err)
			return
		}
		if t, ok := u.(*Duration); ok && (rules.min != "" && *t < duration(rules.min) || rules.max != "" && *t > duration(rules.max)) {
			bad("%s is outside %s to %s", shown, rules.min, rules.max)
		}
		return
	}
	switch v.Kind() {
	case reflect.Bool:
		if text != "true" && text != "false" || quoted {
			bad("%s: want true or false", shown)
			return
		}
		v.SetBool(text == "true")
	case reflect.Int:
		number, err := strconv.ParseInt(text, 10, 64)
		if err != nil || quoted || strconv.FormatInt(number, 10) != text {
			bad("%s: want a whole number", shown)
			return
		}
		if rules.min != "" && number < integer(rules.min) || rules.max != "" && number > integer(rules.max) {
			bad("%s is outside %s to %s", shown, rules.min, rules.max)
			return
		}
		if len(rules.oneOf) > 0 && !slices.Contains(rules.oneOf, text) {
			bad("%s: want %s", shown, strings.Join(rules.oneOf, " or "))
			return
		}
		v.SetInt(number)
	default:
		switch {
		case rules.len > 0 && len(text) > rules.len:
			bad("%d bytes are too many: at most %d", len(text), rules.len)
		case len(rules.oneOf) > 0 && !slices.Contains(rules.oneOf, text):
			d.wrong(n, path, InvalidValue, meant(text, rules.oneOf), "%s: want one of %s", shown, strings.Join(rules.oneOf, ", "))
		default:
			v.SetString(text)
		}
	}
}

// unprintable tells of characters that no value has: they would be read otherwise where it is shown.
func unprintable(r rune) bool {
	return unicode.IsControl(r) && r != '\n' && r != '\t' || r == '\u2028' || r == '\u2029' || r == '\ufeff' || r == utf8.RuneError
}

// scalarText returns what stands there, as it stands there, and whether it was in quotes.
func scalarText(n ast.Node) (text string, quoted, ok bool) {
	switch x := n.(type) {
	case *ast.StringNode:
		quoted = x.Token.Type == token.DoubleQuoteType || x.Token.Type == token.SingleQuoteType
		return x.Value, quoted, true
	case *ast.LiteralNode:
		return x.Value.Value, true, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return n.GetToken().Value, false, true
	}
	return "", false, false
}

func duration(s string) Duration {
	d, err := time.ParseDuration(s)
	if err != nil {
		panic("config: " + err.Error()) // a tag of ours
	}
	return Duration(d)
}

func integer(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		panic("config: " + err.Error())
	}
	return n
}
