package filesource

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	blindPoll   = time.Second     // how often the file is looked at where it cannot be watched
	blindRetry  = time.Minute     // how often watching is tried again then
	freshFor    = 2 * time.Second // the coarsest time of a file system in use
	traceRounds = 4               // how often the way to the file is followed anew where it changes meanwhile
)

// Watch calls changed when the file may have changed, and once as soon as it is being watched. It returns when ctx ends, or
// when the file cannot be watched and Config.Poll is off.
func (s *Source) Watch(ctx context.Context, changed func()) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("filesource: %w", err)
	}
	w := &watch{Source: s}
	defer w.close()
	w.open()
	w.look()
	changed()
	tick := time.NewTimer(w.pause())
	defer tick.Stop()
	for {
		if w.blind != nil && s.poll < 0 {
			return fmt.Errorf("filesource: %s cannot be watched, and Poll is off: %w", s.path, w.blind)
		}
		var events <-chan fsnotify.Event
		var errs <-chan error
		if w.notifier != nil {
			events, errs = w.notifier.Events, w.notifier.Errors
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("filesource: %w", ctx.Err())
		case e := <-events:
			if !w.trail.concerns(e.Name) {
				continue
			}
			w.look()
			changed()
		case err := <-errs:
			// Something may have been missed. Dropped events are over with that; anything else is the end of this notifier.
			if !errors.Is(err, fsnotify.ErrEventOverflow) {
				w.lose(err)
			}
			w.look()
			changed()
		case <-tick.C:
			if w.looksNew() {
				changed()
			}
			tick.Reset(w.pause())
			continue
		}
		if w.blind != nil {
			tick.Reset(w.pause()) // sooner than it was meant to
		}
	}
}

// watch is the state of one Watch.
type watch struct {
	*Source
	notifier *fsnotify.Watcher      // nil: there is none
	tried    time.Time              // when a notifier was last asked for
	dirs     map[string]fs.FileInfo // what the notifier was given
	trail    trail
	blind    error // why the file cannot be watched, wholly or in part
	told     error // the one that was logged

	info  fs.FileInfo // the file at the last look, nil: none
	fresh bool        // it was just written then, so it may change without looking new
}

func (w *watch) open() {
	w.tried = time.Now()
	w.dirs = map[string]fs.FileInfo{}
	n, err := w.newNotifier()
	if err != nil {
		w.blind = err
		return
	}
	w.notifier = n
}

func (w *watch) close() {
	if w.notifier != nil {
		_ = w.notifier.Close() // nothing was written
		w.notifier = nil
	}
}

func (w *watch) lose(err error) {
	if err == nil {
		err = errors.New("the events have ended")
	}
	w.close()
	w.blind = err
}

func (w *watch) pause() time.Duration {
	switch {
	case w.poll < 0:
		return 1<<63 - 1
	case w.blind != nil:
		return min(w.poll, blindPoll)
	}
	return w.poll
}

// looksNew looks at the file and says whether a follower should be told.
func (w *watch) looksNew() bool {
	before, fresh, wasBlind := w.info, w.fresh, w.blind != nil
	if w.notifier == nil && time.Since(w.tried) >= blindRetry {
		w.open()
	}
	w.look()
	return fresh || wasBlind && w.blind == nil || !sameInfo(before, w.info)
}

// look notes how the file looks, and has the directories watched that lead to it. What changes after that is noticed.
func (w *watch) look() {
	w.place()
	w.tell()
	w.info, w.fresh = nil, false
	if info, err := os.Stat(w.path); err == nil {
		w.info, w.fresh = info, time.Since(info.ModTime()) < freshFor
	}
}

// place has the notifier watch the directories of the trail and no others. The trail may change while it is followed, so
// it is followed until all of it was being watched already.
func (w *watch) place() {
	for range traceRounds {
		w.trail = trace(w.path)
		if w.notifier == nil {
			return
		}
		w.blind = nil
		held := w.notifier.WatchList()
		for _, dir := range held {
			if !slices.Contains(w.trail.dirs, dir) {
				_ = w.notifier.Remove(dir) // it may be gone with its directory
			}
		}
		settled := true
		for _, dir := range w.trail.dirs {
			info, err := os.Stat(dir)
			if err == nil && slices.Contains(held, dir) && os.SameFile(info, w.dirs[dir]) {
				continue
			}
			settled = false
			// A watch belongs to a directory, not to its path: one that is left from another directory has to go.
			_ = w.notifier.Remove(dir)
			if err == nil {
				err = w.notifier.Add(dir)
			}
			w.dirs[dir] = info
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				w.blind = fmt.Errorf("%s: %w", dir, err)
			}
		}
		for dir := range w.dirs {
			if !slices.Contains(w.trail.dirs, dir) {
				delete(w.dirs, dir)
			}
		}
		if settled || w.blind != nil {
			return
		}
	}
}

// tell logs a turn from watching to looking, and back.
func (w *watch) tell() {
	if (w.blind == nil) == (w.told == nil) {
		return
	}
	w.told = w.blind
	logger := w.logger
	if logger == nil {
		logger = slog.Default()
	}
	switch {
	case w.blind == nil:
		logger.Info("a policy document is watched again", "source", w.String())
	case w.poll > 0:
		logger.Warn("a policy document cannot be watched, and is looked at instead", "source", w.String(),
			"every", w.pause(), "err", w.blind)
	}
}
