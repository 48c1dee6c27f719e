package middleware

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway/degrade"
	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/response"
)

// snapshot is one set of policies, compiled. It is immutable; Update swaps the pointer, and a request settles on the
// snapshot it began with.
type snapshot struct {
	settings *settings
	policies []*policy // in configuration order
	byName   map[string]*policy
	stages   map[string]*stage
	order    []string // of stages
	warned   atomic.Bool
}

// stage is the policies of one place in the chain.
type stage struct {
	settings *settings
	policies []*policy
	matcher  matcher
	byRule   []*policy // whose Match a rule is; nil for exemptions
	subjects []uint64  // a bit for every rule that is a Match
	exempt   int       // rule of Config.Exempt
	stores   []store
	enforced int  // so many of the stores are asked by policies that are no shadows; they come first
	shadows  bool // some policy is a shadow
	gated    bool // some policy has a degrade.Gate
	adaptive bool // some policy has a controller
	traits

	keepsNoKey bool // all stores are forgetful, and no policy has a callback or a bound that keys are given to
}

// store is one limiter of a stage, with what it can.
type store struct {
	limiter  limiter.Limiter
	batcher  limiter.Batcher  // nil: cannot
	refunder limiter.Refunder // nil: cannot
	local    bool             // state in this process: decided first
}

// policy is a Policy compiled.
type policy struct {
	Policy
	space    string // of its keys
	match    int    // rules of the stage's matcher
	exempt   int
	store    int  // of the stage's stores
	queue    bool // the limit is a LeakyBucket, as far as New can see
	set      response.Set
	messages *response.Messages
	names    []string // the name alone, for refusals
	inflight *response.Policy
	rate     bool // Adaptive moves the rate and no bound
	most     int  // requests in flight, as told
	records  []degrade.Recorder
	gates    []degrade.Gate
	state    *policyState
	told     told
	observer limiter.Observer // of the guard, for this policy
	unbind   func()           // nil: none
	fixed    *toldLimit       // the limit of every request, where it is a plain one; nil: ask
	plain    bool             // nothing of the user's is asked for what to take: one unit of fixed
}

// told caches what responses tell of a policy by nominal limit: constant texts, rendered once.
type told struct {
	last atomic.Pointer[toldLimit]
	all  atomic.Pointer[map[limiter.Limit]*toldLimit] // copied on write, for plans that take turns
	mu   sync.Mutex                                   // of writers
}

type toldLimit struct {
	limit  limiter.Limit
	policy *response.Policy
}

// maxTold bounds the limits cached per policy: plans and variables come from the operator, but may be many.
const maxTold = 256

func (t *told) of(p *policy, l limiter.Limit) (*toldLimit, error) {
	if x := t.last.Load(); x != nil && x.limit == l {
		return x, nil
	}
	if all := t.all.Load(); all != nil {
		if x := (*all)[l]; x != nil {
			return x, nil
		}
	}
	rp, err := response.NewPolicy(p.Name, l, p.Unit)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make(map[limiter.Limit]*toldLimit)
	if old := t.all.Load(); old != nil && len(*old) < maxTold {
		maps.Copy(all, *old)
	}
	x := &toldLimit{l, rp}
	all[l] = x
	t.all.Store(&all)
	t.last.Store(x)
	return x, nil
}

// compile checks all policies and makes a snapshot of them. The error joins everything that is wrong.
func (c *core) compile(set *settings, policies []Policy) (*snapshot, error) {
	s := &snapshot{settings: set, byName: make(map[string]*policy), stages: make(map[string]*stage)}
	var errs []error
	names := make(map[string]string) // lower case → what has it
	spaces := make(map[string]string)
	for k := range policies {
		p := &policy{Policy: policies[k]}
		at := fmt.Sprintf("policy %q", p.Name)
		bad := func(format string, args ...any) {
			errs = append(errs, &PolicyError{Index: k, Policy: p.Name, err: fmt.Errorf("middleware: "+at+": "+format, args...), at: at})
		}
		if !keyfunc.ValidName(p.Name) {
			at = fmt.Sprintf("policy %d (%q)", k, p.Name)
			bad("Name must be 1…64 letters, digits, '_', '.' and '-', beginning with a letter or digit")
		}
		if p.Adaptive != nil {
			if err := attempt(func() { p.rate, p.most = p.Adaptive.Bound() == math.MaxInt, p.Adaptive.Max() }); err != nil {
				bad("Adaptive: %w", err)
			}
		}
		if p.InFlight != 0 {
			p.most = p.InFlight
		}
		told := []string{p.Name}
		if p.InFlight != 0 || p.Adaptive != nil && !p.rate {
			told = append(told, p.Name+".inflight")
		}
		for _, name := range told {
			if other, ok := names[strings.ToLower(name)]; ok {
				bad("the name %q is taken by %s", name, other)
			}
			names[strings.ToLower(name)] = at
		}
		if p.Stage == "" {
			p.Stage = StageEdge
		}
		if !keyfunc.ValidName(p.Stage) {
			bad("Stage %q must be 1…64 letters, digits, '_', '.' and '-', beginning with a letter or digit", p.Stage)
		}
		if p.space = p.Name; p.Stage != StageEdge {
			p.space = p.Stage + "." + p.Name
		}
		if other, ok := spaces[p.space]; ok && other != at {
			bad("its keys would be those of %s", other)
		}
		spaces[p.space] = at
		set.check(p, bad)
		st := s.stages[p.Stage]
		if st == nil {
			st = &stage{settings: set}
			st.exempt, _ = st.matcher.add(&set.Exempt, true) // checked by newSettings
			s.stages[p.Stage] = st
		}
		var err error
		if p.match, err = st.matcher.add(&p.Match, false); err != nil {
			bad("Match: %w", err)
		}
		if p.exempt, err = st.matcher.add(&p.Exempt, true); err != nil {
			bad("Exempt: %w", err)
		}
		if p.Limiter == nil {
			p.Limiter = set.Limiter
		}
		if p.Limiter != nil {
			if err := attempt(func() { p.store = st.addStore(p.Limiter) }); err != nil {
				bad("Limiter: %w", err)
				p.Limiter = nil
			}
		}
		st.subject(p)
		st.shadows, st.gated = st.shadows || p.Shadow, st.gated || len(p.gates) > 0
		st.adaptive = st.adaptive || p.Adaptive != nil
		st.policies = append(st.policies, p)
		s.policies = append(s.policies, p)
		s.byName[p.Name] = p
	}
	for _, name := range sortedKeys(s.stages) {
		errs = append(errs, s.stages[name].check(name)...)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	s.order = orderOf(s.policies)
	for _, p := range s.policies {
		p.state = c.states.of(p)
	}
	for _, st := range s.stages {
		st.traits = st.find()
		if st.adaptive {
			controllers.Store(true)
		}
	}
	return s, nil
}

// check checks one policy by itself and fills in what is derived from it.
func (s *settings) check(p *policy, bad func(string, ...any)) {
	if p.Key == nil && p.Stage != StageManual {
		bad("Key is required: say by whom to count, such as keyfunc.IP()")
	}
	if p.Key != nil {
		if err := keyfunc.Check(p.Key); err != nil {
			bad("Key: %w", err)
		}
	}
	if p.OnNoKey > SkipPolicy {
		bad("OnNoKey %d is none of DenyRequest, SkipPolicy", p.OnNoKey)
	}
	if p.OnStoreError > FailClosed {
		bad("OnStoreError %d is none of FailOpen, FailClosed", p.OnStoreError)
	}
	switch {
	case p.Limit == nil && p.InFlight == 0 && (p.Adaptive == nil || p.rate):
		bad("Limit is required")
	case p.Limit == nil:
		if p.Plan != nil || len(p.Adjust) > 0 {
			bad("Plan and Adjust need a Limit to start from")
		}
	default:
		var l limiter.Limit
		if err := attempt(func() { l = p.Limit.Current() }); err != nil {
			bad("Limit: %w", err)
			break
		}
		if err := l.Validate(); err != nil {
			bad("Limit: %w", err)
			break
		}
		if p.Limiter == nil && s.Limiter == nil {
			bad("Limiter: neither the policy nor Config names one")
		}
		of := p.Limiter
		if of == nil {
			of = s.Limiter
		}
		if x, ok := of.(Local); p.rate && of != nil && !(ok && x.Local()) {
			bad("Adaptive moves the rate of one process, and the Limiter is shared by several: use one in memory")
		}
		told, err := p.told.of(p, l)
		if err != nil && keyfunc.ValidName(p.Name) { // a bad name has been told
			bad("%w", err)
		}
		if _, plain := p.Limit.(limiter.Limit); plain && p.Plan == nil {
			p.fixed = told
			p.plain = p.Adaptive == nil && p.StoreKey == nil && p.Cost == nil && p.Partition == nil && len(p.Adjust) == 0
		}
		p.queue = l.Algorithm == limiter.LeakyBucket
		if p.MaxDelay > 0 && l.Algorithm != limiter.LeakyBucket && p.Plan == nil {
			bad("MaxDelay belongs to a leaky_bucket, not to %v", l.Algorithm)
		}
	}
	for k, a := range p.Adjust {
		if a == nil {
			bad("Adjust[%d] is nil", k)
		}
	}
	switch {
	case p.InFlight < 0 || p.InFlight > limiter.MaxRate:
		bad("InFlight %d is outside 1…%d", p.InFlight, limiter.MaxRate)
	case p.InFlight > 0 || p.Adaptive != nil && !p.rate:
		inflight, err := response.NewInFlight(p.Name+".inflight", p.most)
		if err != nil {
			bad("%w", err)
		}
		p.inflight = inflight
	}
	if p.MaxDelay < 0 && p.MaxDelay != -1 {
		bad("MaxDelay %v is negative; −1 means not at all", p.MaxDelay)
	}
	p.names = []string{p.Name}
	if p.set = p.Headers.Or(s.renderer.Headers()); p.Shadow {
		p.set = response.Off
	}
	if err := p.Headers.Validate(); err != nil {
		bad("Headers: %w", err)
	}
	if len(p.Messages) > 0 {
		messages, err := response.NewMessages(p.Messages)
		if err != nil {
			bad("Messages: %w", err)
		}
		p.messages = messages
	}
	if p.Degrade != nil {
		if err := degrade.Validate(p.Degrade); err != nil {
			bad("Degrade: %w", err)
		}
		if p.Shadow {
			bad("Degrade: a Shadow policy refuses nothing that could be degraded")
		}
		p.records, p.gates = degrade.Find[degrade.Recorder](p.Degrade), degrade.Find[degrade.Gate](p.Degrade)
	}
}

// attempt calls f, which asks something of the user's before there is traffic, such as a nil pointer in an interface.
func attempt(f func()) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: it panics: %v", limiter.ErrInvalid, p)
		}
	}()
	f()
	return nil
}

// Local is a [limiter.Limiter] whose state is in this process. A guard asks it before others, so that what it refuses
// costs no trip.
type Local interface{ Local() bool }

// Forgetful is a [limiter.Limiter] that keeps no part of a key's strings beyond a call, and says so of itself:
// KeepsNoKey returns the receiver. Such limiters get keys that may be overwritten once the request has been served. A type
// that embeds one does not become one, as what it returns is not itself.
type Forgetful interface{ KeepsNoKey() limiter.Limiter }

func forgetful(l limiter.Limiter) bool {
	f, ok := l.(Forgetful)
	return ok && same(f.KeepsNoKey(), l)
}

func (st *stage) names() (names []string) {
	for _, p := range st.policies {
		names = append(names, p.Name)
	}
	return names
}

func (st *stage) addStore(l limiter.Limiter) int {
	for k := range st.stores {
		if same(st.stores[k].limiter, l) {
			return k
		}
	}
	s := store{limiter: l}
	if b, ok := l.(limiter.Batcher); ok {
		// A call without takes only asks whether it can.
		if _, err := b.AllowAll(context.Background(), time.Time{}, nil); !errors.Is(err, errors.ErrUnsupported) {
			s.batcher = b
		}
	}
	s.refunder, _ = l.(limiter.Refunder)
	if x, ok := l.(Local); ok {
		s.local = x.Local()
	}
	st.stores = append(st.stores, s)
	return len(st.stores) - 1
}

// same compares limiters or observers; those of a type that cannot be compared are never the same.
func same[T any](a, b T) (yes bool) {
	defer func() {
		if recover() != nil {
			yes = false
		}
	}()
	return any(a) == any(b)
}

// subject enters the policy under the rule of its Match.
func (st *stage) subject(p *policy) {
	st.byRule = append(st.byRule, make([]*policy, len(st.matcher.rules)-len(st.byRule))...)
	st.subjects = append(st.subjects, make([]uint64, len(st.matcher.free)-len(st.subjects))...)
	st.byRule[p.match] = p
	st.subjects[p.match/64] |= 1 << (p.match % 64)
}

// check checks what the policies of a stage ask of their limiters together.
func (st *stage) check(name string) (errs []error) {
	enforced := make([][]string, len(st.stores))
	var queues []string
	st.keepsNoKey = true
	for k := range st.stores {
		st.keepsNoKey = st.keepsNoKey && forgetful(st.stores[k].limiter)
	}
	for _, p := range st.policies {
		st.keepsNoKey = st.keepsNoKey && p.InFlight == 0 && p.StoreKey == nil && p.Degrade == nil
		if p.Limit == nil || p.Limiter == nil {
			continue
		}
		s := &st.stores[p.store]
		if !p.Shadow && name != StageManual {
			enforced[p.store] = append(enforced[p.store], p.Name)
			if p.queue && p.Match.empty() && p.Exempt.empty() {
				queues = append(queues, p.Name)
			}
		}
		if waits := p.MaxDelay > 0 || p.queue && !p.Shadow && p.MaxDelay == 0 && p.Limit.Current().Quota() > 1; s.batcher == nil && waits && name != StageManual {
			errs = append(errs, fmt.Errorf("middleware: policy %q: its Limiter cannot hold requests for their turn (no limiter.Batcher); MaxDelay −1 means that none is held", p.Name))
		}
		if x, ok := s.limiter.(limiter.Selective); ok {
			if err := x.Serves(p.Limit.Current()); err != nil {
				errs = append(errs, fmt.Errorf("middleware: policy %q: its Limiter does not serve its Limit: %w", p.Name, err))
			}
		}
		if s.refunder == nil && p.Refund != nil {
			errs = append(errs, fmt.Errorf("middleware: policy %q: Refund: its Limiter cannot give back (no limiter.Refunder)", p.Name))
		}
	}
	if len(queues) > 1 {
		errs = append(errs, fmt.Errorf("middleware: stage %q: policies %q are queues for every request, which would have to leave both at one instant", name, queues))
	}
	asked := 0
	for k, names := range enforced {
		if len(names) > 0 {
			asked++
		}
		if len(names) > 1 && st.stores[k].batcher == nil {
			errs = append(errs, fmt.Errorf("middleware: stage %q: policies %q share a Limiter that cannot decide them as one (no limiter.Batcher); put them into different stages, or use one that can", name, names))
		}
	}
	if asked > 1 {
		for k, names := range enforced {
			if len(names) > 0 && st.stores[k].refunder == nil {
				errs = append(errs, fmt.Errorf("middleware: stage %q: policies %q: with several Limiters in a stage each must be able to give back (no limiter.Refunder); put them into different stages, or use limiters that can", name, names))
			}
		}
	}
	// Local stores first: what they refuse costs no trip. Those of shadows alone last. Indexes of policies follow.
	st.enforced = asked
	order := make([]int, len(st.stores))
	for k := range order {
		order[k] = k
	}
	rank := func(k int) int {
		switch {
		case len(enforced[k]) == 0:
			return 2
		case !st.stores[k].local:
			return 1
		}
		return 0
	}
	sort.SliceStable(order, func(a, b int) bool { return rank(order[a]) < rank(order[b]) })
	stores, place := make([]store, len(order)), make([]int, len(order))
	for to, from := range order {
		stores[to], place[from] = st.stores[from], to
	}
	st.stores = stores
	for _, p := range st.policies {
		if p.Limiter != nil {
			p.store = place[p.store]
		}
	}
	return errs
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}
