package config

import (
	"cmp"
	"errors"
	"regexp"
	"strconv"
	"strings"

	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/adaptive"
	"github.com/spillway-go/spillway/middleware"
)

// Adaptive is the settings of a limit that moves, as [adaptive.Config] has them.
type Adaptive struct {
	Target     string    `yaml:"target" rules:"oneof=in_flight|rate" about:"what moves: the most requests in service at once in each process, whatever their keys (the default), or the rate, which needs mode local"`
	Law        string    `yaml:"law" rules:"oneof=hybrid|aimd|bbr" about:"how: hybrid (the default) asks the processors whether slowness is ours, aimd cuts by the worst signal, bbr is for the most throughput in flight"`
	Min        Limit     `yaml:"min" about:"the least: a whole number in flight, default 5; or a limit such as 10/s, of which the rate counts, default a tenth of the limit"`
	Max        Limit     `yaml:"max" about:"the most: in flight what memory can hold, up to 1000000, required; or a limit of at most ten times the policy's, default that one"`
	Fixed      Limit     `yaml:"fixed" about:"at the start, and where the law cannot be trusted: default √(min·max) in flight; or max"`
	CPU        *Share    `yaml:"cpu" about:"load of the processors, of what this process may use, from which on the limit falls; default 80%"`
	RTT        *Duration `yaml:"rtt" rules:"off,min=1ms,max=1h" about:"a time to answer that can certainly not be healthy, or off; default 1s"`
	Errors     *Share    `yaml:"errors" rules:"off" about:"share of failed requests that is too much, below 100%, or off; default 5%"`
	QueueDelay *Duration `yaml:"queue_delay" rules:"off,min=100us,max=1m" about:"time that goroutines wait for a processor, 90th percentile, that is too much; default off"`
	Runnable   *Number   `yaml:"runnable" about:"goroutines waiting for each processor that count like cpu; default none do"`
	Window     *Duration `yaml:"window" rules:"min=10ms,max=1h" about:"what the law sees, at most interval; default 1s"`
	Interval   *Duration `yaml:"interval" rules:"min=10ms,max=1h" about:"from one step to the next; default 1s, or window where that is more"`
	MinSamples int       `yaml:"min_samples" rules:"min=1,max=1000000" about:"requests without which a window says nothing; default 10"`
	CPUQuota   *Number   `yaml:"cpu_quota" about:"processors that a process may use, for sandboxes that hide it; default: as the kernel says"`
}

// rates tells that rates move, and not a bound in flight.
func (a *Adaptive) rates() bool { return a != nil && a.Target == adaptive.Rate.String() }

// maxAdaptive is how many controllers a document may have: each reads the load of the processors four times a second.
const maxAdaptive = 100

// adaptive returns the controller of a policy, nil for none. own is the limit of the policy, if it has one.
func (b *builder) adaptive(at string, p *Policy, own limiter.Limit) limiter.Controller {
	a := p.Adaptive
	if a == nil {
		return nil
	}
	at += ".adaptive"
	if b.adaptives++; b.adaptives > maxAdaptive {
		if b.adaptives == maxAdaptive+1 {
			b.add(false, at, TooLarge, "Let one policy with a wider match bear the load of all.", "more than %d adaptive policies", maxAdaptive)
		}
		return nil
	}
	cfg := adaptive.Config{
		Name: p.Name, CPU: float64(value(a.CPU)), RTT: orOff(a.RTT), Errors: float64(value(a.Errors)), QueueDelay: max(0, orOff(a.QueueDelay)),
		Runnable: float64(value(a.Runnable)), Window: orOff(a.Window), Interval: orOff(a.Interval), MinSamples: a.MinSamples, CPUQuota: float64(value(a.CPUQuota)),
	}
	ok := false
	if a.rates() {
		cfg.Target = adaptive.Rate
		ok = b.shares(at, p, own, &cfg)
	} else {
		ok = b.bounds(at, a, &cfg)
	}
	if ok { // else what is wrong with Min and Max has been told
		for _, err := range split(cfg.Validate()) {
			ok = false
			b.unfit(at, err)
		}
	}
	if !ok {
		return nil
	}
	s := settings{law: cmp.Or(a.Law, "hybrid"), cfg: cfg}
	if c := b.deps.Controllers.find(s); c != nil {
		return c.Controller
	}
	c, err := b.newController(s)
	if err != nil {
		b.unfit(at, err)
		return nil
	}
	b.made = append(b.made, &controlled{s, c})
	return c
}

func (b *builder) newController(s settings) (c *adaptive.Controller, err error) {
	cfg := s.cfg
	if cfg.Law, err = adaptive.LawNamed(s.law); err != nil {
		return nil, err
	}
	cfg.Observer, cfg.Logger = b.deps.Observer, b.deps.Logger
	if b.deps.Adaptive != nil {
		b.deps.Adaptive(&cfg)
	}
	return adaptive.New(cfg)
}

// bounds reads numbers of requests in flight.
func (b *builder) bounds(at string, a *Adaptive, cfg *adaptive.Config) (ok bool) {
	ok = true
	if a.Max == "" {
		ok = false
		b.add(false, at, MissingField, "Say max: 500, or whatever is in flight when the memory of the process is full; ten times the usual is a start.", "the field \"max\" is required")
	}
	for _, x := range []struct {
		name string
		text Limit
		to   *float64
	}{{"min", a.Min, &cfg.Min}, {"max", a.Max, &cfg.Max}, {"fixed", a.Fixed, &cfg.Fixed}} {
		if x.text == "" {
			continue
		}
		n, err := strconv.Atoi(string(x.text))
		if err != nil || n < 1 || n > adaptive.MaxConcurrency {
			ok = false
			b.bad(at+"."+x.name, InvalidValue, "%q: want a whole number of requests in flight from 1 to %d", x.text, adaptive.MaxConcurrency)
		}
		*x.to = float64(n)
	}
	return ok
}

// shares reads limits as shares of the policy's own.
func (b *builder) shares(at string, p *Policy, own limiter.Limit, cfg *adaptive.Config) (ok bool) {
	a := p.Adaptive
	ok = true
	if p.Mode != "local" {
		ok = false
		b.add(false, at+".target", Conflict, "Set mode: local, or leave target out: what is in flight can be bounded in every mode.",
			"each process moves the rate by what it bears itself, and mode %s counts for all of them", cmp.Or(p.Mode, "central"))
	}
	if a.Law == "bbr" {
		ok = false
		b.add(false, at+".law", Conflict, "Take hybrid or aimd.", "bbr bounds requests in flight and cannot move a rate")
	}
	switch {
	case p.Limit == "":
		b.bad(at+".target", Conflict, "a rate belongs to a limit, and the policy has none")
		return false
	case own == (limiter.Limit{}): // which is a finding already
		return false
	case own.Rate == 0:
		b.bad(at+".target", Conflict, "the limit %q has no rate that could move", p.Limit)
		return false
	}
	for _, x := range []struct {
		name string
		text Limit
		to   *float64
	}{{"min", a.Min, &cfg.Min}, {"max", a.Max, &cfg.Max}, {"fixed", a.Fixed, &cfg.Fixed}} {
		if x.text == "" {
			continue
		}
		l, read := b.another(at+"."+x.name, x.text, own)
		if !read {
			ok = false
			continue
		}
		switch *x.to = adaptive.Share(l, own); {
		case *x.to == 0:
			ok = false
			b.bad(at+"."+x.name, InvalidValue, "%q is no part of the limit %q", x.text, p.Limit)
		case *x.to > adaptive.MaxShare:
			ok = false
			b.bad(at+"."+x.name, InvalidValue, "%q is more than %v times the limit %q", x.text, adaptive.MaxShare, p.Limit)
		}
	}
	if !ok {
		return false
	}
	// What is left out is as of the Config, and told here in limits and not in shares.
	most := cmp.Or(cfg.Max, 1)
	least := cmp.Or(cfg.Min, min(0.1, most))
	if least > most {
		b.bad(at+".min", InvalidValue, "%q is above %q", a.Min, cmp.Or(a.Max, p.Limit))
		return false
	}
	if fixed := cmp.Or(cfg.Fixed, most); fixed < least || fixed > most {
		b.bad(at+".fixed", InvalidValue, "%q is outside min and max", a.Fixed)
		return false
	}
	return true
}

// adaptiveNames are the fields of a document by those of an [adaptive.Config].
var adaptiveNames = map[string]string{
	"Min": "min", "Max": "max", "Fixed": "fixed", "CPU": "cpu", "RTT": "rtt", "Errors": "errors", "QueueDelay": "queue_delay", "Runnable": "runnable",
	"Window": "window", "Interval": "interval", "MinSamples": "min_samples", "CPUQuota": "cpu_quota", "Law": "law",
}

var adaptiveWord = regexp.MustCompile(`\b(?:MinSamples|QueueDelay|CPUQuota|Min|Max|Fixed|CPU|RTT|Errors|Runnable|Window|Interval|Law)\b`)

// unfit tells what the controller finds wrong with its settings.
func (b *builder) unfit(at string, err error) {
	message := strings.ReplaceAll(strings.TrimPrefix(err.Error(), "adaptive: "), limiter.ErrInvalid.Error()+": ", "")
	if where := adaptiveWord.FindStringIndex(message); where != nil && where[0] == 0 {
		at += "." + adaptiveNames[message[:where[1]]]
	}
	b.bad(at, InvalidValue, "%s", adaptiveWord.ReplaceAllStringFunc(message, func(name string) string { return adaptiveNames[name] }))
}

// moves builds what moves the limit of a policy: first the schedule, and last what the service bears.
func (b *builder) moves(at string, p *Policy, out *middleware.Policy) {
	own, _ := out.Limit.(limiter.Limit)
	if s := b.schedule(at, p, own); s != nil {
		out.Adjust = append(out.Adjust, s)
	}
	out.Adaptive = b.adaptive(at, p, own)
}

// Number is a number of more than 0 and at most 1000.
type Number float64

// UnmarshalText reads a decimal number.
func (n *Number) UnmarshalText(text []byte) error {
	x, err := strconv.ParseFloat(string(text), 64)
	if err != nil || !(x > 0 && x <= adaptive.MaxScale) || strings.ContainsAny(string(text), "xXpP_+") {
		return errors.New("want a number of more than 0 and at most 1000, such as 1.5")
	}
	*n = Number(x)
	return nil
}
