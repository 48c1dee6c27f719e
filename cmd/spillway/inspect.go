package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spillway-go/spillway/config"
	"github.com/spillway-go/spillway/config/stores"
	"github.com/spillway-go/spillway/internal/serve"
	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/middleware"
)

// caller is what inspect and reset have in common: a guard of the document, the policies meant and the caller's identity.
type caller struct {
	guard    *middleware.Guard
	policies []string
	identity string
	close    func() error
}

const callerHelp = `usage: spillway %s -config FILE [-policy NAME] [flags] KEY

KEY is a caller as keys spell it, such as ip=203.0.113.7 or "tenant=acme|ip=203.0.113.7". The counters are those of the
document's store, which has to be on Redis: those in the memory of a process are that process's.

`

func callerOf(command string, args []string, stderr io.Writer) (*caller, error) {
	flags := flag.NewFlagSet(command, flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() {
		fmt.Fprintf(stderr, callerHelp, command)
		flags.PrintDefaults()
	}
	path := flags.String("config", "", "`file` that is the policy document")
	policy := flags.String("policy", "", "`name` of a policy; without it all whose keys are of the kinds of KEY")
	var names serve.Names
	flags.Var(&names, "name", "a name that the document uses, as for serve: `tenant=header:X-Tenant`; may be repeated")
	if err := flags.Parse(args); err != nil {
		return nil, usageError(err)
	}
	if flags.NArg() != 1 || *path == "" {
		flags.Usage()
		return nil, errUsage
	}
	data, err := os.ReadFile(*path)
	if err != nil {
		return nil, err
	}
	doc, findings := config.Parse(data)
	if err := findings.Err(); err != nil {
		return nil, err
	}
	if doc.Store == nil || doc.Store.Redis == nil {
		return nil, errors.New("the counters of this document are in the memory of the processes that serve it")
	}
	limiters := stores.New(stores.Config{Dry: true})
	deps := names.Deps()
	registerAll(doc, &deps)
	deps.Central, deps.Local = limiters.Central, limiters.Local
	doc.Store.Fallback = nil // an answer of this process's memory would be no answer
	patience := config.Duration(5 * time.Second)
	doc.Store.Timeout = &patience
	cfg, findings := config.Build(doc, deps)
	if err := findings.Err(); err != nil {
		return nil, errors.Join(err, limiters.Close())
	}
	guard, err := middleware.New(cfg)
	if err != nil {
		return nil, errors.Join(err, limiters.Close())
	}
	c := &caller{guard: guard, identity: flags.Arg(0), close: limiters.Close}
	for k := range doc.Policies {
		p := &doc.Policies[k]
		if p.Limit == "" || p.Mode == "local" || p.Name != *policy && (*policy != "" || !ofKinds(cfg.Policies[k], c.identity)) {
			continue
		}
		c.policies = append(c.policies, p.Name)
	}
	if len(c.policies) == 0 {
		return nil, errors.Join(fmt.Errorf("no policy counts by %s in the store", strings.Join(kindsOf(c.identity), " and ")), limiters.Close())
	}
	return c, nil
}

// inspect shows how a caller stands.
func inspect(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	c, err := callerOf("inspect", args, stderr)
	if err != nil {
		return err
	}
	defer func() { _ = c.close() }()
	t := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "POLICY\tLIMIT\tLEFT\tNEXT IN\tFULL IN")
	for _, name := range c.policies {
		d, e := c.guard.Inspect(ctx, name, c.identity)
		if e != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", name, e))
			continue
		}
		fmt.Fprintf(t, "%s\t%s\t%d\t%v\t%v\n", name, d.Limit, d.Remaining, wait(d.NextAfter), wait(d.ResetAfter))
	}
	return errors.Join(err, t.Flush())
}

func wait(d time.Duration) string {
	if d == limiter.Never {
		return "never"
	}
	return d.Round(time.Millisecond).String()
}

// reset forgets a caller.
func reset(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	c, err := callerOf("reset", args, stderr)
	if err != nil {
		return err
	}
	defer func() { _ = c.close() }()
	for _, name := range c.policies {
		if e := c.guard.Reset(ctx, name, c.identity); e != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", name, e))
			continue
		}
		fmt.Fprintf(stdout, "%s: forgotten\n", name)
	}
	return err
}

// ofKinds reports whether keys of p can be of the kinds of an identity.
func ofKinds(p middleware.Policy, identity string) bool {
	if p.Key == nil {
		return strings.HasPrefix(identity, "key=")
	}
	return kindsMatch(p, kindsOf(identity))
}

func kindsOf(identity string) (kinds []string) {
	for part := range strings.SplitSeq(identity, "|") {
		kind, _, _ := strings.Cut(part, "=")
		kinds = append(kinds, kind)
	}
	return kinds
}

// kindsMatch compares the kinds of an identity with those a key function asks for, of which first(…) uses one.
func kindsMatch(p middleware.Policy, kinds []string) bool {
	asked, err := keyfunc.Kinds(p.Key)
	if err != nil {
		return false
	}
	for _, k := range kinds {
		if !slices.Contains(asked, k) {
			return false
		}
	}
	return true
}
