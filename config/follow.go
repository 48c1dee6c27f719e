package config

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/middleware"
)

// Follower is a guard whose policies are a document that is followed while it serves. Its methods are safe for concurrent
// use. Make one with [Open].
type Follower struct {
	source Source
	deps   Deps
	log    *slog.Logger
	name   string
	guard  *middleware.Guard
	own    *Controllers // those of Deps.Controllers that nobody else closes; nil: somebody does

	mu     sync.Mutex
	status Status

	// Of Follow, and before it of Open.
	cfg     middleware.Config // in force
	refused string            // hash of the document that was refused last
	refusal error             // why
	// What was refused before, by hash: a source that goes back and forth between bad versions is told of each once.
	refusals map[string]error
	away     bool // the source could not be asked, and that has been told
	waiting  time.Time
}

// Status is what a [Follower] is doing.
type Status struct {
	Source   string    // name of the source
	Document *Document // in force
	Hash     string    // of its bytes
	Loaded   time.Time // when it came into force
	Warnings Findings  // about it
	Changes  []Change  // what it changed in the one before; empty for the first
	// Err is why what the source has now is not in force; nil: it is.
	Err     error
	Checked time.Time // when the source was last asked
}

const (
	settle      = time.Second      // a document that cannot be read is looked at again so much later
	longWait    = 5 * time.Second  // a source without a whole document for so long is told of
	minPause    = time.Second      // between watches that were lost
	maxPause    = 30 * time.Second // likewise
	callBudget  = 30 * time.Second // a source that hangs is given up
	maxSettles  = 5                // a document that changes all the time is not waited for for ever
	maxChanges  = 20               // told in one line of a log
	maxRefusals = 16               // remembered
)

// Open loads the document of source and makes a guard of it. It waits for a document that is missing or half written, and
// for a source that is away, until ctx ends; a document that is whole and wrong is an error at once, with all [Findings].
// Nothing is followed until [Follower.Follow] runs.
//
// Whoever neither runs Follow nor gives [Deps].Controllers calls [Follower.Close] at the end.
func Open(ctx context.Context, source Source, deps Deps) (*Follower, error) {
	f := &Follower{source: source, deps: deps, log: deps.Logger, name: fmt.Sprintf("%T", source)}
	if deps.Controllers == nil {
		f.own = new(Controllers)
		f.deps.Controllers = f.own
	}
	if f.log == nil {
		f.log = slog.Default()
	}
	if s, ok := source.(fmt.Stringer); ok {
		f.name = s.String()
	}
	f.status.Source = f.name
	var last error // that was not the end of ctx
	for pause := minPause / 10; ; pause = min(2*pause, minPause) {
		data, err := f.load(ctx)
		var v version
		if err == nil {
			v, err = f.read(ctx, data)
		}
		if err == nil {
			if err := v.err; err != nil {
				f.report(limiter.ReasonInvalid, v.hash, err)
				return nil, err
			}
			if f.guard, err = middleware.New(v.cfg); err != nil {
				f.report(limiter.ReasonInvalid, v.hash, err)
				return nil, err
			}
			f.keep(v.cfg)
			f.force(v, nil)
			return f, nil
		}
		if ctx.Err() == nil {
			f.unavailable(err)
			last = err
		}
		if !sleep(ctx, pause) {
			return nil, fmt.Errorf("config: %s: %w", f.name, cmp.Or(last, err))
		}
	}
}

// Guard returns the guard. It is the same for as long as the Follower lives.
func (f *Follower) Guard() *middleware.Guard { return f.guard }

// Status returns what is in force, and why what the source has is not.
func (f *Follower) Status() Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.status
}

// Follow applies each new version of the document, within a second of the source's word, until ctx ends, and returns its
// error. A version with errors is refused as a whole, told once, and the one in force serves on. Call it once. At its end
// it does what Close does: the guard serves on, and nothing moves its limits by what the service bears any more.
func (f *Follower) Follow(ctx context.Context) error {
	defer f.Close() //nolint:errcheck // of controllers, which have none
	changed := make(chan struct{}, 1)
	var watching sync.WaitGroup
	defer watching.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	watching.Go(func() { f.watch(ctx, changed) })
	var again <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-changed:
		case <-again:
		}
		again = nil
		if !f.update(ctx) {
			again = time.After(minPause)
		}
	}
}

// Close ends what adaptive policies run in the background: their fixed limits are in force from then on. It leaves alone what
// [Deps].Controllers has brought. Closing again does nothing.
func (f *Follower) Close() error {
	if f.own == nil {
		return nil
	}
	return f.own.Close()
}

// keep notes what is in force, and closes the controllers of what was.
func (f *Follower) keep(cfg middleware.Config) {
	f.cfg = cfg
	f.deps.Controllers.Keep(cfg)
}

// watch keeps a watch on the source, with growing pauses while it is lost.
func (f *Follower) watch(ctx context.Context, changed chan<- struct{}) {
	pause, told := minPause, false
	for {
		began := time.Now()
		err := f.guarded("the source", func() error {
			return f.source.Watch(ctx, func() {
				select {
				case changed <- struct{}{}:
				default: // one is enough
				}
			})
		})
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > maxPause {
			pause, told = minPause, false
		}
		if !told {
			told = true
			f.log.Warn("spillway: the watch on the policy document is lost and begins again", "source", f.name, "error", err)
		}
		if !sleep(ctx, pause/2+rand.N(pause/2)) {
			return
		}
		pause = min(2*pause, maxPause)
		select {
		case changed <- struct{}{}: // what nobody was watching for may have happened
		default:
		}
	}
}

// guarded turns a panic into an error: a background task has to survive one.
func (f *Follower) guarded(who string, call func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("config: %s panicked: %v", who, r)
		}
	}()
	return call()
}

func (f *Follower) load(ctx context.Context) (data []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, callBudget)
	defer cancel()
	err = f.guarded("the source", func() error {
		data, err = f.source.Load(ctx)
		return err
	})
	return data, err
}

// version is a document as the source has it, and what came of it.
type version struct {
	doc      *Document
	cfg      middleware.Config
	hash     string
	err      error // it is wrong
	findings Findings
}

// read parses and builds data. What cannot be read may still be being written: it is looked at again for as long as it
// changes, within reason. An error is one of the source.
func (f *Follower) read(ctx context.Context, data []byte) (version, error) {
	v := version{}
	for range maxSettles {
		v.doc, v.findings = Parse(data)
		if v.findings.Err() == nil || !sleep(ctx, settle) {
			break
		}
		later, err := f.load(ctx)
		if err != nil {
			return version{}, err
		}
		if bytes.Equal(later, data) {
			break
		}
		data = later
		v.doc, v.findings = Parse(data)
	}
	v.hash = hashOf(data)
	if v.err = v.findings.Err(); v.err != nil {
		return v, ctx.Err()
	}
	var more Findings
	v.err = f.guarded("a constructor", func() error { // what the application has registered is called
		v.cfg, more = Build(v.doc, f.deps)
		return more.Err()
	})
	v.findings = append(v.findings, more...).finish(v.doc.source)
	return v, ctx.Err()
}

// update asks the source and applies what it has. false: ask again soon.
func (f *Follower) update(ctx context.Context) bool {
	data, err := f.load(ctx)
	if err == nil && !f.known(hashOf(data)) {
		var v version
		if v, err = f.read(ctx, data); err == nil && !f.known(v.hash) {
			f.apply(v)
		}
	}
	if err != nil && ctx.Err() == nil {
		f.unavailable(err)
		return false
	}
	return true
}

// known notes that the source has a document, and reports whether it is one that is in force or refused already.
func (f *Follower) known(hash string) bool {
	wasAway := f.away
	if f.away {
		f.away = false
		f.log.Info("spillway: the policy document can be read again", "source", f.name)
	}
	f.waiting = time.Time{}
	switch hash {
	case f.Status().Hash:
		f.checked(nil)
		if f.refused != "" {
			f.log.Info("spillway: the policy document is again the one in force", "source", f.name, "hash", hash)
		}
		if wasAway || f.refused != "" { // what is in force is what the source has, again
			f.refused, f.refusal = "", nil
			f.report(limiter.ReasonOK, hash, nil)
		}
		return true
	case f.refused:
		f.checked(f.refusal)
		return true
	}
	if err, was := f.refusals[hash]; was { // and has been told
		f.refused, f.refusal = hash, err
		f.checked(err)
		f.report(limiter.ReasonInvalid, hash, err)
		return true
	}
	return false
}

// apply puts a new version into force, or refuses it.
func (f *Follower) apply(v version) {
	err := v.err
	if err == nil {
		// The document is shown before its policies are in force: who mounts the stages it names finds a new one empty for a
		// moment, and not policies that he has not mounted.
		old := f.show(v.doc)
		if err = f.guarded("an observer or a function of the application", func() error { return f.guard.Reconfigure(v.cfg) }); err == nil {
			f.keep(v.cfg)
			f.force(v, old)
			return
		}
		f.keep(f.cfg)
		f.show(old)
	}
	if f.refused, f.refusal = v.hash, err; f.refusals == nil || len(f.refusals) >= maxRefusals {
		f.refusals = make(map[string]error)
	}
	f.refusals[v.hash] = err
	f.checked(err)
	f.report(limiter.ReasonInvalid, v.hash, err)
	f.log.Error("spillway: a new policy document is refused, and the one in force serves on", "source", f.name, "hash", v.hash, "error", err)
}

// unavailable notes that the source has no document to give.
func (f *Follower) unavailable(err error) {
	f.checked(err)
	if errors.Is(err, ErrIncomplete) {
		if f.waiting.IsZero() {
			f.waiting = time.Now()
		}
		if time.Since(f.waiting) < longWait {
			return
		}
	}
	if f.away {
		return
	}
	f.away = true
	f.report(limiter.ReasonUnavailable, "", err)
	serves := "and what is in force serves on"
	if f.guard == nil {
		serves = "and nothing is served yet"
	}
	f.log.Error("spillway: the policy document cannot be read, "+serves, "source", f.name, "error", err)
}

// checked notes what came of asking the source.
func (f *Follower) checked(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.status.Err, f.status.Checked = err, time.Now()
}

// show makes doc the document that Status tells, and returns the one before.
func (f *Follower) show(doc *Document) *Document {
	f.mu.Lock()
	defer f.mu.Unlock()
	old := f.status.Document
	f.status.Document = doc
	return old
}

// force notes what is in force now, and tells what changed from old.
func (f *Follower) force(v version, old *Document) {
	now := time.Now()
	warnings := v.findings.Warnings()
	var changes []Change
	if old != nil {
		changes = Diff(old, v.doc)
	}
	f.mu.Lock()
	f.status.Document, f.status.Hash, f.status.Loaded, f.status.Warnings = v.doc, v.hash, now, warnings
	f.status.Changes, f.status.Err, f.status.Checked = changes, nil, now
	f.mu.Unlock()
	f.refused, f.refusal, f.away = "", nil, false
	f.report(limiter.ReasonOK, v.hash, nil)
	for _, w := range warnings {
		f.log.Warn("spillway: policy document: "+w.Message, "source", f.name, "at", w.Path, "line", w.Line, "id", w.ID)
	}
	if old == nil {
		f.log.Info("spillway: a policy document is in force", "source", f.name, "hash", v.hash, "policies", len(v.doc.Policies))
		return
	}
	texts := make([]string, 0, maxChanges+1)
	for k, c := range changes {
		if k == maxChanges {
			texts = append(texts, fmt.Sprintf("and %d more", len(changes)-k))
			break
		}
		texts = append(texts, c.String())
	}
	f.log.Info("spillway: a new policy document is in force", "source", f.name, "hash", v.hash, "changes", texts)
}

// report tells the observer of a reload. Its panic must not end the following.
func (f *Follower) report(reason, hash string, err error) {
	if f.deps.Observer == nil {
		return
	}
	_ = f.guarded("an observer", func() error {
		f.deps.Observer.Observe(limiter.Event{Kind: limiter.EventReload, Time: time.Now(), Name: f.name, Hash: hash, Reason: reason, Err: err})
		return nil
	})
}

// hashOf names a version of a document.
func hashOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:6])
}

// sleep reports whether ctx lived as long.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
