package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spillway-go/spillway/config"
	"github.com/spillway-go/spillway/config/stores"
	"github.com/spillway-go/spillway/degrade"
	"github.com/spillway-go/spillway/internal/serve"
	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/middleware"
)

// errFindings is a document with findings that refuse it; they have been printed.
var errFindings = errors.New("findings")

const checkHelp = `usage: spillway check [flags] FILE
       spillway check -config WHERE [flags]

Tells what is wrong with a policy document: first with its form and, once that is right, with its meaning. Of one that is
right it tells what the policies mean. FILE is a regular file, or - for the standard input. It asks no store of counters.

`

// check tells what is wrong with a document.
func check(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("check", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() {
		fmt.Fprint(stderr, checkHelp)
		flags.PrintDefaults()
	}
	strict := flags.Bool("strict", false, "warnings refuse it too")
	asJSON := flags.Bool("json", false, "print findings as JSON")
	app := flags.Bool("app", false, "the document is for an application that registers the names it uses: any name will do")
	where := flags.String("config", "", "`where` the document is, as for serve, instead of FILE")
	files := flags.String("files", "", "`folder` of the files that contents of static name, as for serve")
	at := flags.String("at", "", "also tell what limits are at that `time` and why: 2026-10-01T09:30:00+08:00, \"2026-10-01 09:30\", now")
	zone := flags.String("zone", "", "IANA `name` of the zone of -at, as Asia/Shanghai; without it that of this machine")
	var names serve.Names
	flags.Var(&names, "name", "a name that the document uses, as for serve: `tenant=header:X-Tenant`; may be repeated")
	if err := flags.Parse(args); err != nil {
		return usageError(err)
	}
	switch {
	case flags.NArg() == 1 && *where == "":
		*where = flags.Arg(0)
	case flags.NArg() > 0 || *where == "":
		fmt.Fprintf(stderr, "spillway: check needs one FILE or -config, but got %q\n\"spillway check -h\" tells more.\n", args)
		return errUsage
	}
	then, err := instant(*at, *zone)
	if err != nil {
		return told(err, stderr)
	}
	data, name, path, err := load(ctx, *where)
	if err != nil {
		return told(err, stderr)
	}
	var cfg middleware.Config
	doc, findings := config.Parse(data)
	if findings.Err() == nil {
		deps := names.Deps()
		if deps.Files, err = serve.Folder(*files); err != nil {
			return told(fmt.Errorf("%w: -files: %w", errUsage, err), stderr)
		}
		if *app {
			registerAll(doc, &deps)
		}
		limiters := stores.New(stores.Config{Dry: true})
		defer func() { _ = limiters.Close() }()
		deps.Central, deps.Local, deps.Leased = limiters.Central, limiters.Local, limiters.Leased
		var more config.Findings
		cfg, more = config.Build(doc, deps)
		findings = append(findings, more...)
		if !*app {
			findings = append(findings, neverAsked(doc)...)
			hint(findings)
		}
	}
	if path != "" {
		if f, ok := neverChanges(path); ok {
			findings = append(findings, f)
		}
	}
	bad := findings.Err() != nil || *strict && len(findings) > 0
	if *asJSON {
		if findings == nil {
			findings = config.Findings{}
		}
		e := json.NewEncoder(stdout)
		e.SetIndent("", "  ")
		e.SetEscapeHTML(false)
		result := map[string]any{"ok": !bad, "findings": findings}
		if *at != "" && findings.Err() == nil {
			result["at"], result["limits"] = then.Format(time.RFC3339), limitsAt(doc, cfg, then)
		}
		if err := e.Encode(result); err != nil {
			return err
		}
	} else {
		for _, f := range findings {
			blank := " "
			if f.Line > 0 {
				blank = "" // path:line:column, which editors and terminals follow
			}
			fmt.Fprintf(stdout, "%s:%s%s\n", name, blank, f)
		}
		if findings.Err() == nil {
			explainDocument(stdout, doc)
			if *at != "" {
				explainAt(stdout, limitsAt(doc, cfg, then), then)
			}
		}
	}
	if bad {
		return errFindings
	}
	return nil
}

// told prints an error of wrong use, which run does not.
func told(err error, stderr io.Writer) error {
	if errors.Is(err, errUsage) {
		fmt.Fprintln(stderr, "spillway:", strings.TrimPrefix(err.Error(), errUsage.Error()+": "))
	}
	return err
}

func usageError(err error) error {
	if errors.Is(err, flag.ErrHelp) {
		return err
	}
	return errUsage
}

// neverAsked finds policies that nobody asks in "spillway serve".
func neverAsked(doc *config.Document) (found config.Findings) {
	for k := range doc.Policies {
		if doc.Policies[k].Stage == middleware.StageManual {
			found = append(found, config.Finding{
				ID: config.NoEffect, Warning: true, Path: fmt.Sprintf("policies[%d].stage", k), Message: "only an application asks policies of stage manual",
				Suggestion: "For a document of an application check with -app.",
			})
		}
	}
	return found
}

// hint adds how a name is told.
func hint(findings config.Findings) {
	for k := range findings {
		if f := &findings[k]; f.ID == config.UnknownName && serve.Nameless(f.Message) {
			f.Suggestion = strings.TrimSpace(f.Suggestion + " " + serve.NameHint)
		} else if strings.Contains(f.Message, "gives no access to files") {
			f.Suggestion += " Or say in which folder it is with -files."
		}
	}
}

// explainDocument says what the policies mean.
func explainDocument(w io.Writer, doc *config.Document) {
	if len(doc.Policies) == 0 {
		fmt.Fprintln(w, "no policies: everything passes")
		return
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "STAGE\tPOLICY\tREQUESTS\tBY\tLIMIT\tAND")
	for _, k := range inStages(doc) {
		p := &doc.Policies[k]
		by := cmp.Or(strings.Join(p.Key, " and "), "-")
		stage := cmp.Or(p.Stage, middleware.StageEdge)
		// No blanks at the end of a line.
		fmt.Fprintln(t, strings.TrimRight(strings.Join([]string{stage, p.Name, requestsOf(p.Match, "all"), by, limitOf(p), restOf(p)}, "\t"), "\t"))
	}
	_ = t.Flush()
}

// inStages returns the indices of policies in the order of their stages.
func inStages(doc *config.Document) (order []int) {
	for _, stage := range append(doc.Stages(), middleware.StageManual) {
		for k := range doc.Policies {
			if cmp.Or(doc.Policies[k].Stage, middleware.StageEdge) == stage {
				order = append(order, k)
			}
		}
	}
	return order
}

// few shortens a list.
func few(list []string, glue string) string {
	const most = 3
	if len(list) > most {
		list = append(append([]string(nil), list[:most-1]...), fmt.Sprintf("%d more", len(list)-most+1))
	}
	return strings.Join(list, glue)
}

func requestsOf(m *config.Match, none string) string {
	if m == nil {
		return none
	}
	var parts []string
	add := func(before string, list []string) {
		if len(list) > 0 {
			parts = append(parts, before+few(list, " or "))
		}
	}
	add("", m.Routes)
	add("to ", m.Hosts)
	add("by ", m.Methods)
	add("from ", m.CIDRs)
	if m.If != "" {
		parts = append(parts, "if "+m.If)
	}
	if len(parts) == 0 {
		return none
	}
	return strings.Join(parts, ", ")
}

func limitOf(p *config.Policy) string {
	var parts []string
	add := func(given bool, what ...any) {
		if given {
			parts = append(parts, fmt.Sprint(what...))
		}
	}
	add(p.Limit != "", string(p.Limit))
	add(p.Burst != nil, "burst ", value(p.Burst))
	add(p.Algorithm != "", p.Algorithm)
	add(p.Cells != nil, "cells ", value(p.Cells))
	if p.Align != nil {
		zone := p.Align.Zone
		if zone == "" {
			zone = "UTC"
		}
		add(true, "by ", p.Align.Unit, " in ", zone)
	}
	return withBounds(p, strings.Join(parts, " "))
}

// withBounds adds what bounds a policy beside its limit, and what moves it.
func withBounds(p *config.Policy, limit string) string {
	parts := []string{limit, "", movesBy(p)}
	if p.InFlight > 0 {
		parts[1] = fmt.Sprint(p.InFlight, " in flight")
	}
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), ", ")
}

func value(n *int) int {
	if n == nil {
		return 0
	}
	return *n
}

func restOf(p *config.Policy) string {
	var parts []string
	add := func(given bool, what ...any) {
		if given {
			parts = append(parts, fmt.Sprint(what...))
		}
	}
	add(p.Shadow, "shadow: refuses nothing")
	add(p.Exempt != nil, "not ", requestsOf(p.Exempt, "any"))
	add(p.Mode != "" && p.Mode != "central", p.Mode)
	add(p.Cost != "", "cost ", p.Cost)
	add(len(p.Schedule) > 0, "schedule ", few(scheduleOf(p), ", else "))
	if p.Plans != nil {
		others := "others the limit"
		if p.Plans.Unknown == "deny" {
			others = "others none"
		}
		add(true, "plans by ", p.Plans.From, " (", few(limits(p.Plans.Limits), ", "), ", ", others, ")")
	}
	for _, kind := range slices.Sorted(maps.Keys(p.Overrides)) {
		add(true, "overrides by ", kind, " (", few(limits(p.Overrides[kind]), ", "), ")")
	}
	add(p.OnNoKey == "skip", "passes without a key")
	add(p.OnStoreError == "fail_closed", "refuses while the store is away")
	add(len(p.Degrade) > 0, "instead of a refusal ", strings.Join(handlers(p.Degrade), ", "))
	return strings.Join(parts, "; ")
}

// handlers lists the names of a chain.
func handlers(chain config.Chain) (list []string) {
	for _, h := range chain {
		list = append(list, h.String())
	}
	return list
}

// limits lists limits by name.
func limits(m map[string]config.Limit) (list []string) {
	for _, name := range slices.Sorted(maps.Keys(m)) {
		list = append(list, name+" "+string(m[name]))
	}
	return list
}

// registerAll registers every name that a document uses, with functions that know nobody.
func registerAll(doc *config.Document, deps *config.Deps) {
	nobody := func(*keyfunc.Request) string { return "" }
	deps.Predicates = make(map[string]func(*keyfunc.Request) bool)
	deps.Costs = make(map[string]func(*keyfunc.Request) int)
	deps.StoreKeys = make(map[string]func(limiter.Key) string)
	deps.Partitions = make(map[string]func(keyfunc.Key) []byte)
	deps.Degrade = make(map[string]degrade.Handler)
	deps.Classes = make(map[string]func(*keyfunc.Request) degrade.Class)
	registerKeys := func(list config.List) {
		for _, text := range list {
			for _, word := range strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune("(), ", r) }) {
				if _, known := deps.Keys[word]; !known && keyfunc.ValidName(word) && !isBuiltin(word) {
					kind := keyfunc.KindOf(word)
					deps.Keys[word] = func(r *keyfunc.Request) (keyfunc.Key, error) { return r.Key(kind, ""), nil }
				}
			}
		}
	}
	for _, m := range append(matches(doc), doc.Exempt) {
		if m != nil && m.If != "" {
			deps.Predicates[m.If] = func(*keyfunc.Request) bool { return false }
		}
	}
	for k := range doc.Policies {
		p := &doc.Policies[k]
		registerKeys(p.Key)
		if p.Plans != nil && !strings.Contains(p.Plans.From, ":") {
			deps.Plans[p.Plans.From] = nobody
		}
		deps.Costs[p.Cost] = func(*keyfunc.Request) int { return 1 }
		deps.StoreKeys[p.StoreKey] = func(k limiter.Key) string { return k.ID }
		deps.Partitions[p.Partition] = func(keyfunc.Key) []byte { return nil }
		for _, h := range p.Degrade {
			skips := degrade.Func(func(http.ResponseWriter, *http.Request, *degrade.Denial) degrade.Outcome { return degrade.Skip })
			deps.Degrade[h.Name] = skips
			switch {
			case h.Func != nil:
				deps.Degrade[h.Func.Name] = skips
			case h.ReadOnly != nil:
				deps.Predicates[h.ReadOnly.Reads] = func(*keyfunc.Request) bool { return false }
				deps.Predicates[h.ReadOnly.Writes] = deps.Predicates[h.ReadOnly.Reads]
			case h.Static != nil && deps.Files == nil: // whatever is in the files
				for k := range h.Static.Contents {
					if c := &h.Static.Contents[k]; c.File != "" {
						c.Body, c.File = "?", ""
					}
				}
			case h.Cache != nil:
				registerKeys(h.Cache.Partition)
			case h.Shed != nil:
				registerKeys(h.Shed.By)
				deps.Classes[h.Shed.Class] = func(*keyfunc.Request) degrade.Class { return degrade.Critical }
			}
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
