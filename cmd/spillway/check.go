package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/spillway-go/spillway/config"
	"github.com/spillway-go/spillway/config/stores"
	"github.com/spillway-go/spillway/degrade"
	"github.com/spillway-go/spillway/internal/serve"
	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
)

// errFindings is a document with findings that refuse it; they have been printed.
var errFindings = errors.New("findings")

// check tells what is wrong with a document.
func check(args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("check", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() {
		fmt.Fprintln(stderr, "usage: spillway check [flags] FILE")
		flags.PrintDefaults()
	}
	strict := flags.Bool("strict", false, "warnings refuse it too")
	asJSON := flags.Bool("json", false, "print findings as JSON")
	app := flags.Bool("app", false, "the document is for an application that registers the names it uses: any name will do")
	var names serve.Names
	flags.Var(&names, "name", "a name that the document uses, as for serve: `tenant=header:X-Tenant`; may be repeated")
	if err := flags.Parse(args); err != nil {
		return usageError(err)
	}
	if flags.NArg() != 1 {
		flags.Usage()
		return errUsage
	}
	path := flags.Arg(0)
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	doc, findings := config.Parse(data)
	if findings.Err() == nil {
		deps := names.Deps()
		if *app {
			registerAll(doc, &deps)
		}
		limiters := stores.New(stores.Config{Dry: true})
		defer func() { _ = limiters.Close() }()
		deps.Central, deps.Local = limiters.Central, limiters.Local
		_, more := config.Build(doc, deps)
		findings = append(findings, more...)
	}
	if f, ok := neverChanges(path); ok {
		findings = append(findings, f)
	}
	bad := findings.Err() != nil || *strict && len(findings) > 0
	if *asJSON {
		if findings == nil {
			findings = config.Findings{}
		}
		e := json.NewEncoder(stdout)
		e.SetIndent("", "  ")
		e.SetEscapeHTML(false)
		if err := e.Encode(map[string]any{"ok": !bad, "findings": findings}); err != nil {
			return err
		}
	} else {
		for _, f := range findings {
			fmt.Fprintf(stdout, "%s:%s\n", path, f)
		}
		if findings.Err() == nil {
			explainDocument(stdout, doc)
		}
	}
	if bad {
		return errFindings
	}
	return nil
}

func usageError(err error) error {
	if errors.Is(err, flag.ErrHelp) {
		return err
	}
	return errUsage
}

// explainDocument says what the policies mean.
func explainDocument(w io.Writer, doc *config.Document) {
	if len(doc.Policies) == 0 {
		fmt.Fprintln(w, "no policies: everything passes")
		return
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "STAGE\tPOLICY\tREQUESTS\tBY\tLIMIT\tELSE")
	for _, stage := range append(doc.Stages(), "manual") {
		for k := range doc.Policies {
			p := &doc.Policies[k]
			if p.Stage == stage || p.Stage == "" && stage == "edge" {
				fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", stage, p.Name, requestsOf(p), strings.Join(p.Key, " and "), limitOf(p), restOf(p))
			}
		}
	}
	_ = t.Flush()
}

func requestsOf(p *config.Policy) string {
	m := p.Match
	if m == nil {
		return "all"
	}
	var parts []string
	for _, list := range [][]string{m.Routes, m.Hosts, m.Methods, m.CIDRs} {
		if len(list) > 2 {
			list = append(append([]string(nil), list[:2]...), "…")
		}
		if len(list) > 0 {
			parts = append(parts, strings.Join(list, " or "))
		}
	}
	if m.If != "" {
		parts = append(parts, "if "+m.If)
	}
	return strings.Join(parts, ", ")
}

func limitOf(p *config.Policy) string {
	var parts []string
	if p.Limit != "" {
		parts = append(parts, string(p.Limit))
	}
	if p.Algorithm != "" {
		parts = append(parts, p.Algorithm)
	}
	if p.Burst != nil {
		parts = append(parts, fmt.Sprint("burst ", *p.Burst))
	}
	if p.Align != nil {
		parts = append(parts, "by "+p.Align.Unit)
	}
	if p.InFlight > 0 {
		parts = append(parts, fmt.Sprint(p.InFlight, " in flight"))
	}
	return strings.Join(parts, " ")
}

func restOf(p *config.Policy) string {
	var parts []string
	add := func(given bool, what string) {
		if given {
			parts = append(parts, what)
		}
	}
	add(p.Shadow, "shadow")
	add(p.Mode != "" && p.Mode != "central", p.Mode)
	add(p.Plans != nil, "plans")
	add(len(p.Overrides) > 0, "overrides")
	add(p.OnStoreError == "fail_closed", "fail_closed")
	add(len(p.Degrade) > 0, strings.Join(p.Degrade, ", "))
	return strings.Join(parts, ", ")
}

// registerAll registers every name that a document uses, with functions that know nobody.
func registerAll(doc *config.Document, deps *config.Deps) {
	nobody := func(*keyfunc.Request) string { return "" }
	deps.Predicates = make(map[string]func(*keyfunc.Request) bool)
	deps.Costs = make(map[string]func(*keyfunc.Request) int)
	deps.StoreKeys = make(map[string]func(limiter.Key) string)
	deps.Partitions = make(map[string]func(keyfunc.Key) []byte)
	deps.Degrade = make(map[string]degrade.Handler)
	for _, m := range append(matches(doc), doc.Exempt) {
		if m != nil && m.If != "" {
			deps.Predicates[m.If] = func(*keyfunc.Request) bool { return false }
		}
	}
	for k := range doc.Policies {
		p := &doc.Policies[k]
		for _, text := range p.Key {
			for _, word := range strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune("(), ", r) }) {
				if _, known := deps.Keys[word]; !known && keyfunc.ValidName(word) && !isBuiltin(word) {
					kind := keyfunc.KindOf(word)
					deps.Keys[word] = func(r *keyfunc.Request) (keyfunc.Key, error) { return r.Key(kind, ""), nil }
				}
			}
		}
		if p.Plans != nil && !strings.Contains(p.Plans.From, ":") {
			deps.Plans[p.Plans.From] = nobody
		}
		deps.Costs[p.Cost] = func(*keyfunc.Request) int { return 1 }
		deps.StoreKeys[p.StoreKey] = func(k limiter.Key) string { return k.ID }
		deps.Partitions[p.Partition] = func(keyfunc.Key) []byte { return nil }
		for _, name := range p.Degrade {
			deps.Degrade[name] = degrade.Func(nil)
		}
	}
}

func isBuiltin(word string) bool {
	return word == "ip" || word == "route" || word == "global" || word == "hmac" || word == "first"
}

func matches(doc *config.Document) (all []*config.Match) {
	for k := range doc.Policies {
		all = append(all, doc.Policies[k].Match, doc.Policies[k].Exempt)
	}
	return all
}
