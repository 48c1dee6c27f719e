package filesource_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/stretchr/testify/require"

	filesource "github.com/spillway-go/spillway/config/source/file"
)

// watching is a Watch under way.
type watching struct {
	calls  atomic.Int32
	signal chan struct{}
	result chan error
	cancel context.CancelFunc
}

func watch(t *testing.T, s *filesource.Source) *watching {
	ctx, cancel := context.WithCancel(t.Context())
	w := &watching{signal: make(chan struct{}, 1000), result: make(chan error, 1), cancel: cancel}
	go func() {
		w.result <- s.Watch(ctx, func() {
			w.calls.Add(1)
			w.signal <- struct{}{}
		})
	}()
	return w
}

func (w *watching) called(t *testing.T) {
	t.Helper()
	select {
	case <-w.signal:
	case <-t.Context().Done():
	case <-time.After(10 * time.Second):
		require.FailNow(t, "changed was not called")
	}
}

func (w *watching) end(t *testing.T) {
	t.Helper()
	w.cancel()
	require.ErrorIs(t, <-w.result, context.Canceled)
}

// What others do in the same directory, as in /tmp, is nothing to the follower.
func TestOtherFilesAreNoChange(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "limits.yaml")
	replace(t, path, []byte("version: 1\n"))
	w := watch(t, newSource(t, quick(path)))
	w.called(t)
	for i := range 100 {
		write(t, filepath.Join(dir, fmt.Sprint("other", i)), "busy")
	}
	replace(t, path, []byte("version: 2\n"))
	w.called(t)
	w.end(t)
	require.Equal(t, int32(2), w.calls.Load())
}

// A Watch reads nothing, so it ends while a pipe waits for its other end.
func TestWatchOfAPipe(t *testing.T) {
	for _, path := range []string{t.TempDir(), "/dev/zero"} {
		w := watch(t, newSource(t, filesource.Config{Path: path}))
		w.called(t)
		w.end(t)
	}
}

// Nobody tells of a directory that is renamed further up, but the file is looked at.
func TestRenamedFurtherUp(t *testing.T) {
	dir := t.TempDir()
	at := func(names ...string) string { return filepath.Join(append([]string{dir}, names...)...) }
	require.NoError(t, os.MkdirAll(at("a", "b", "c"), 0o700))
	write(t, at("a", "b", "c", "limits.yaml"), "version: 1\n")
	require.NoError(t, os.MkdirAll(at("x", "b", "c"), 0o700))
	write(t, at("x", "b", "c", "limits.yaml"), "version: 2\n")
	s := newSource(t, filesource.Config{Path: at("a", "b", "c", "limits.yaml"), Settle: -1, Poll: 5 * time.Millisecond})
	w := watch(t, s)
	w.called(t)
	require.NoError(t, os.Rename(at("a"), at("old")))
	require.NoError(t, os.Rename(at("x"), at("a")))
	for want := 2; want < 10; want++ { // the second time by events, as the new directory is watched
		for {
			doc, err := s.Load(t.Context())
			if err == nil && string(doc) == fmt.Sprintf("version: %d\n", want) {
				break
			}
			w.called(t)
		}
		replace(t, s.String()[len("file:"):], fmt.Appendf(nil, "version: %d\n", want+1))
	}
	w.end(t)
}

// notifiers has a source hand its notifiers out.
func notifiers(s *filesource.Source) <-chan *fsnotify.Watcher {
	made := make(chan *fsnotify.Watcher, 1)
	s.NotifyWith(func() (*fsnotify.Watcher, error) {
		n, err := fsnotify.NewWatcher()
		made <- n
		return n, err
	})
	return made
}

// A directory that has taken the path of a watched one is watched from the next look on.
func TestAnotherDirectoryOfTheSamePath(t *testing.T) {
	dir := t.TempDir()
	at := func(names ...string) string { return filepath.Join(append([]string{dir}, names...)...) }
	require.NoError(t, os.MkdirAll(at("a", "b", "c"), 0o700))
	require.NoError(t, os.MkdirAll(at("x", "b", "c"), 0o700))
	s := newSource(t, quick(at("a", "b", "c", "limits.yaml")))
	made := notifiers(s)
	w := watch(t, s)
	w.called(t)
	require.NoError(t, os.Rename(at("a"), at("old")))
	require.NoError(t, os.Rename(at("x"), at("a")))
	(<-made).Errors <- fsnotify.ErrEventOverflow
	w.called(t)
	replace(t, at("a", "b", "c", "limits.yaml"), []byte("version: 1\n"))
	w.called(t)
	w.end(t)
}

// What the path no longer leads through is no longer watched.
func TestOldReleasesAreLeft(t *testing.T) {
	dir := t.TempDir()
	current := filepath.Join(dir, "current")
	release := func(n int) {
		to := filepath.Join(dir, fmt.Sprint("release", n))
		require.NoError(t, os.Mkdir(to, 0o700))
		require.NoError(t, os.Symlink(to, current+".new"))
		require.NoError(t, os.Rename(current+".new", current))
	}
	release(0)
	s := newSource(t, quick(filepath.Join(current, "limits.yaml")))
	made := notifiers(s)
	w := watch(t, s)
	w.called(t)
	n := <-made
	for i := range 20 {
		release(i + 1)
		w.called(t)
		require.ElementsMatch(t, []string{dir, filepath.Join(dir, fmt.Sprint("release", i+1))}, n.WatchList())
	}
	w.end(t)
}

// A relative path counts from where the process is.
func TestRelativePath(t *testing.T) {
	t.Chdir(t.TempDir())
	w := watch(t, newSource(t, quick("shop/limits.yaml")))
	w.called(t)
	require.NoError(t, os.Mkdir("shop", 0o700))
	w.called(t)
	write(t, "shop/limits.yaml", "version: 1\n")
	w.called(t)
	w.end(t)
}

// Events that the kernel has dropped may have been ours.
func TestDroppedEvents(t *testing.T) {
	s := newSource(t, quick(filepath.Join(t.TempDir(), "limits.yaml")))
	made := notifiers(s)
	w := watch(t, s)
	w.called(t)
	n := <-made
	for range 3 {
		n.Errors <- fsnotify.ErrEventOverflow
		w.called(t)
	}
	w.end(t)
}

// With Poll off there is nothing to fall back to.
func TestNoNotifierAndNoPoll(t *testing.T) {
	s := newSource(t, quick(filepath.Join(t.TempDir(), "limits.yaml")))
	s.NotifyWith(noNotifier)
	err := s.Watch(t.Context(), func() {})
	require.ErrorIs(t, err, errNone)
	require.ErrorContains(t, err, "filesource: ")

	made := notifiers(s)
	w := watch(t, s)
	w.called(t)
	(<-made).Errors <- errNone
	require.ErrorIs(t, <-w.result, errNone)
}

// A notifier that fails is replaced by looking, and looking by the next notifier.
func TestNotifierThatFails(t *testing.T) {
	var log bytes.Buffer
	path := filepath.Join(t.TempDir(), "limits.yaml")
	replace(t, path, []byte("version: 1\n"))
	s := newSource(t, filesource.Config{Path: path, Settle: -1, Poll: 5 * time.Millisecond, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	made := notifiers(s)
	w := watch(t, s)
	w.called(t)
	(<-made).Errors <- errNone
	for want := range 5 {
		doc := fmt.Sprintf("version: %d\n", want)
		replace(t, path, []byte(doc))
		for {
			w.called(t)
			if got, err := s.Load(t.Context()); err == nil && string(got) == doc {
				break
			}
		}
	}
	w.end(t)
	require.Equal(t, 1, strings.Count(log.String(), "\n"), log.String())
	require.Contains(t, log.String(), errNone.Error())
	require.Contains(t, log.String(), "file:"+path)
}

// Where nothing can be watched, the file is looked at every second, and a notifier is asked for every minute.
func TestLookingInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		path := filepath.Join(t.TempDir(), "limits.yaml")
		age := func(d time.Duration) {
			require.NoError(t, os.Chtimes(path, time.Time{}, time.Now().Add(-d)))
		}
		write(t, path, "version: 1\n")
		age(time.Hour)
		s := newSource(t, filesource.Config{Path: path, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		var asked atomic.Int32
		s.NotifyWith(func() (*fsnotify.Watcher, error) {
			asked.Add(1)
			return nil, errNone
		})
		w := watch(t, s)
		synctest.Wait()
		require.Equal(t, int32(1), w.calls.Load())
		time.Sleep(10*time.Minute + time.Millisecond)
		require.Equal(t, int32(1), w.calls.Load(), "nothing has changed")
		require.Equal(t, int32(11), asked.Load())

		write(t, path, "version: 22\n")
		age(time.Hour)
		time.Sleep(time.Second)
		require.Equal(t, int32(2), w.calls.Load(), "another size")

		write(t, path, "version: 33\n")
		age(2 * time.Hour)
		time.Sleep(time.Second)
		require.Equal(t, int32(3), w.calls.Load(), "another time")

		// A second edition within the grain of the file system's time is not seen, only expected.
		write(t, path, "version: 44\n")
		age(0)
		written := time.Now()
		time.Sleep(time.Second)
		require.Equal(t, int32(4), w.calls.Load())
		write(t, path, "version: 55\n")
		require.NoError(t, os.Chtimes(path, time.Time{}, written))
		time.Sleep(time.Second)
		require.Equal(t, int32(5), w.calls.Load())
		time.Sleep(time.Minute)
		require.Equal(t, int32(6), w.calls.Load(), "once more as it was not two seconds old, and then it is left alone")

		require.NoError(t, os.Remove(path))
		time.Sleep(time.Second)
		require.Equal(t, int32(7), w.calls.Load())
		w.end(t)
		require.Equal(t, 1, strings.Count(log.String(), "\n"), log.String())
	})
}

// As soon as there is a notifier again, the file is watched again, and what was missed is made up for.
func TestWatchedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		path := filepath.Join(t.TempDir(), "limits.yaml")
		write(t, path, "version: 1\n")
		require.NoError(t, os.Chtimes(path, time.Time{}, time.Now().Add(-time.Hour)))
		s := newSource(t, filesource.Config{Path: path, Settle: -1, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		asked := 0
		s.NotifyWith(func() (*fsnotify.Watcher, error) {
			if asked++; asked == 1 {
				return nil, errNone
			}
			return fsnotify.NewWatcher()
		})
		began := time.Now()
		w := watch(t, s)
		w.called(t)
		<-w.signal
		require.Equal(t, time.Minute, time.Since(began))
		replace(t, path, []byte("version: 2\n"))
		<-w.signal // of the kernel: the clock of a bubble stands still while somebody waits for it
		require.Equal(t, time.Minute, time.Since(began))
		w.end(t)
		require.Equal(t, 2, strings.Count(log.String(), "\n"), log.String())
		require.Contains(t, log.String(), "watched again")
	})
}

// To watch a directory takes the right to list it. One that may only be searched is looked into instead.
func TestDirectoriesThatMayNotBeListed(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root may list everything")
	}
	dir := filepath.Join(t.TempDir(), "shop")
	require.NoError(t, os.Mkdir(dir, 0o300))
	t.Cleanup(func() { require.NoError(t, os.Chmod(dir, 0o700)) })
	path := filepath.Join(dir, "limits.yaml")
	require.ErrorIs(t, newSource(t, quick(path)).Watch(t.Context(), func() {}), os.ErrPermission)

	c := quick(path)
	c.Poll, c.Logger = 5*time.Millisecond, slog.New(slog.DiscardHandler)
	w := watch(t, newSource(t, c))
	w.called(t)
	write(t, path, "version: 1\n")
	w.called(t)
	w.end(t)
}
