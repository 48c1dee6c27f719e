package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spillway-go/spillway/config"
	"github.com/spillway-go/spillway/config/stores"
	"github.com/spillway-go/spillway/internal/serve"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/middleware"
)

// caller is what inspect and reset have in common: a guard of the document and what the caller is called by its policies.
type caller struct {
	guard    *middleware.Guard
	document *config.Document
	policies []named
	close    func() error
}

// named is a policy and its key of the caller.
type named struct {
	*config.Policy
	identity string
}

const callerHelp = `usage: spillway %s -config WHERE [-policy NAME] [flags] KEY

KEY is a caller as keys name it: ip=203.0.113.7, "tenant=acme|ip=203.0.113.7", all=- for the key global, with one part for
each element of a policy's key. What hmac(…) keys is the plain value, as header:X-Api-Key=secret, or its digest $… as it
stands in the store and in logs. The counters are those of the document's store, which has to be on Redis: those in the
memory of a process are that process's.

`

// patience of a command with a source or a store that does not answer.
const patience = 5 * time.Second

func callerOf(ctx context.Context, command string, args []string, stderr io.Writer) (*caller, error) {
	flags := flag.NewFlagSet(command, flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() {
		fmt.Fprintf(stderr, callerHelp, command)
		flags.PrintDefaults()
	}
	where := flags.String("config", "", "`where` the policy document is, as for serve")
	policy := flags.String("policy", "", "`name` of a policy; without it all whose keys are of the kinds of KEY")
	var names serve.Names
	flags.Var(&names, "name", "a name that the document uses, as for serve: `tenant=header:X-Tenant`; may be repeated")
	if err := flags.Parse(args); err != nil {
		return nil, usageError(err)
	}
	var missing []string
	if *where == "" {
		missing = append(missing, command+" needs -config, where the policy document is")
	}
	if n := flags.NArg(); n == 0 {
		missing = append(missing, command+" needs KEY, a caller such as ip=203.0.113.7")
	} else if n > 1 {
		missing = append(missing, fmt.Sprintf("%s takes one KEY behind its flags, but got %q: one with | or blanks needs quotes", command, flags.Args()))
	}
	if len(missing) > 0 {
		for _, what := range missing {
			fmt.Fprintln(stderr, "spillway:", what)
		}
		fmt.Fprintf(stderr, "\"spillway %s -h\" tells more.\n", command)
		return nil, errUsage
	}
	parts, err := partsOf(flags.Arg(0))
	if err != nil {
		fmt.Fprintln(stderr, "spillway:", err)
		return nil, errUsage
	}
	data, _, _, err := load(ctx, *where)
	if err != nil {
		return nil, told(err, stderr)
	}
	doc, findings := config.Parse(data)
	if err := findings.Err(); err != nil {
		return nil, err
	}
	if doc.Store == nil || doc.Store.Redis == nil {
		return nil, errors.New("the counters of this document are in the memory of the processes that serve it")
	}
	return newCaller(doc, names.Deps(), *policy, parts)
}

func newCaller(doc *config.Document, deps config.Deps, policy string, parts []part) (c *caller, err error) {
	limiters := stores.New(stores.Config{Dry: true})
	defer func() {
		if err != nil {
			err = errors.Join(err, limiters.Close())
		}
	}()
	registerAll(doc, &deps)
	deps.Central, deps.Local, deps.Leased = limiters.Central, limiters.Local, limiters.Leased
	doc.Store.Fallback = nil // an answer of this process's memory would be no answer
	most := config.Duration(patience)
	doc.Store.Timeout = &most
	cfg, findings := config.Build(doc, deps)
	if err := findings.Err(); err != nil {
		return nil, err
	}
	c = &caller{document: doc, close: limiters.Close}
	if c.guard, err = middleware.New(cfg); err != nil {
		return nil, err
	}
	by := callers{doc, deps}
	found := false
	for k := range doc.Policies {
		p := &doc.Policies[k]
		if policy != "" && p.Name != policy {
			continue
		}
		found = true
		why, identity := "", ""
		switch {
		case p.Limit == "":
			why = "counts nothing, it has no limit"
		case p.Mode == "local":
			why = "counts in the memory of the processes that serve it"
		case p.StoreKey != "":
			why = "has keys in the store that a function of the application spells"
		default:
			identity, why = by.identity(k, parts)
		}
		if why == "" {
			c.policies = append(c.policies, named{p, identity})
		} else if policy != "" {
			return nil, fmt.Errorf("policy %s %s", policy, why)
		}
	}
	if !found && policy != "" {
		return nil, fmt.Errorf("the document has no policy %q", policy)
	}
	if len(c.policies) == 0 {
		return nil, fmt.Errorf("no policy counts by %s in the store", kindsOf(parts))
	}
	return c, nil
}

// inspect shows how a caller stands.
func inspect(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	c, err := callerOf(ctx, "inspect", args, stderr)
	if err != nil {
		return err
	}
	defer func() { _ = c.close() }()
	t := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
	told, special := false, false
	for _, p := range c.policies {
		d, e := c.guard.Inspect(ctx, p.Name, p.identity)
		if e != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", p.Name, e))
			if errors.Is(e, limiter.ErrUnavailable) {
				break // the others would wait as long
			}
			continue
		}
		if !told {
			told = true
			fmt.Fprintln(t, "POLICY\tKEY\tLIMIT\tLEFT\tNEXT IN\tFULL IN")
		}
		limit := d.Limit.String()
		if p.Plans != nil || len(p.Overrides) > 0 {
			limit, special = limit+" *", true
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%v\t%v\n", p.Name, p.identity, limit, d.Remaining, wait(d.NextAfter), wait(d.ResetAfter))
	}
	err = errors.Join(err, t.Flush())
	if special {
		fmt.Fprintln(stdout, "* the policy's own limit: a plan or an override may give the caller another one, of which more or less is left")
	}
	return err
}

func wait(d time.Duration) string {
	if d == limiter.Never {
		return "never"
	}
	return d.Round(time.Millisecond).String()
}

// reset forgets a caller.
func reset(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	c, err := callerOf(ctx, "reset", args, stderr)
	if err != nil {
		return err
	}
	defer func() { _ = c.close() }()
	done := false
	for _, p := range c.policies {
		d, unknown := c.guard.Inspect(ctx, p.Name, p.identity)
		if e := c.guard.Reset(ctx, p.Name, p.identity); e != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", p.Name, e))
			if errors.Is(e, limiter.ErrUnavailable) {
				break
			}
			continue
		}
		if unknown == nil && d.NextAfter == 0 {
			fmt.Fprintf(stdout, "%s: nothing was counted for %s\n", p.Name, p.identity)
			continue
		}
		done = true
		fmt.Fprintf(stdout, "%s: forgot %s\n", p.Name, p.identity)
	}
	if keeps := keepsDenials(c.document); done && keeps > 0 {
		fmt.Fprintf(stdout, "processes that have just refused may go on for up to %v\n", keeps)
	}
	return err
}

// keepsDenials is how long a process may remember that the store has denied.
func keepsDenials(doc *config.Document) time.Duration {
	if d := doc.Store.DenyCache; d != nil {
		return max(time.Duration(*d), 0)
	}
	return time.Second
}

func kindsOf(parts []part) string {
	kinds := make([]string, len(parts))
	for k := range parts {
		kinds[k] = parts[k].kind
	}
	slices.Sort(kinds)
	return strings.Join(kinds, " and ")
}
