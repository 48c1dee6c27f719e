package filesource

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/spillway-go/spillway/config"
)

// Config is what [New] takes. Only Path is required.
type Config struct {
	// Path is the file. It need not be there yet, nor its directory. A relative path counts from the working directory at
	// the time of each call.
	Path string
	// Settle is how long the file has to be left alone before it counts as whole, 1 ms…1 s; zero: 100 ms. −1: off, for
	// writers that replace it and never write it in place.
	Settle time.Duration
	// Poll is how often the file is looked at where no event tells of it, at least 1 ms; zero: 10 s. −1: off.
	Poll time.Duration
	// Logger is told when the file cannot be watched and has to be looked at instead, and when that is over; nil:
	// [slog.Default].
	Logger *slog.Logger
}

const (
	defaultSettle = 100 * time.Millisecond
	defaultPoll   = 10 * time.Second
	raggedRounds  = 5  // how many equal readings in a row a document needs that ends within a line
	patientRounds = 50 // after how many readings Load gives up on a file that keeps changing
)

// Source is the [config.Source] of a file. It is safe for concurrent use and owns nothing between calls. Make one with
// [New].
type Source struct {
	path         string
	settle, poll time.Duration // below zero: off
	logger       *slog.Logger
	newNotifier  func() (*fsnotify.Watcher, error)
}

var _ config.Source = (*Source)(nil)

// New returns a source, or an error that names everything wrong with c. It does not look at the file.
func New(c Config) (*Source, error) {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("filesource: "+format, args...)) }
	switch {
	case c.Path == "":
		bad("no Path")
	case strings.ContainsRune(c.Path, 0):
		bad("Path %q has a zero byte", c.Path)
	case os.IsPathSeparator(c.Path[len(c.Path)-1]):
		bad("Path %q is a directory's", c.Path)
	}
	if c.Settle != 0 && c.Settle != -1 && (c.Settle < time.Millisecond || c.Settle > time.Second) {
		bad("Settle %v is outside 1ms…1s; −1 is off", c.Settle)
	}
	if c.Poll != 0 && c.Poll != -1 && c.Poll < time.Millisecond {
		bad("Poll %v is below 1ms; −1 is off", c.Poll)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	s := &Source{path: c.Path, settle: c.Settle, poll: c.Poll, logger: c.Logger, newNotifier: fsnotify.NewWatcher}
	if s.settle == 0 {
		s.settle = defaultSettle
	}
	if s.poll == 0 {
		s.poll = defaultPoll
	}
	return s, nil
}

// String is "file:" and the path.
func (s *Source) String() string { return "file:" + s.path }

// Load returns the document as soon as it has settled, at least Config.Settle after the call. See the package for what that
// promises, and for its errors.
func (s *Source) Load(ctx context.Context) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("filesource: %w", err)
	}
	last, err := s.read()
	if err != nil {
		return nil, err
	}
	if s.settle < 0 {
		return s.result(last)
	}
	pause := time.NewTicker(s.settle)
	defer pause.Stop()
	equal := 0
	for range patientRounds {
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("filesource: %w", ctx.Err())
		case <-pause.C:
		}
		next, err := s.read()
		if err != nil {
			return nil, err
		}
		equal++
		if !next.equals(last) {
			equal = 0
		}
		if last = next; equal > 0 && (equal >= raggedRounds || !last.ragged()) {
			return s.result(last)
		}
	}
	return nil, fmt.Errorf("filesource: %s keeps changing: %w", s.path, config.ErrIncomplete)
}

func (s *Source) result(r reading) ([]byte, error) {
	switch {
	case r.info == nil:
		return nil, fmt.Errorf("filesource: %s is missing: %w", s.path, config.ErrIncomplete)
	case len(r.doc) == 0:
		return nil, fmt.Errorf("filesource: %s is empty: %w", s.path, config.ErrIncomplete)
	}
	return r.doc, nil
}

// reading is the file at one time; without info it was not there.
type reading struct {
	info fs.FileInfo
	doc  []byte
}

func (r reading) equals(o reading) bool { return sameInfo(r.info, o.info) && bytes.Equal(r.doc, o.doc) }

// ragged says that the document ends within a line. What is written in pieces mostly does until it is whole, as the pieces
// are blocks.
func (r reading) ragged() bool { return len(r.doc) > 0 && r.doc[len(r.doc)-1] != '\n' }

func sameInfo(a, b fs.FileInfo) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime()) && a.Mode() == b.Mode()
}

func (s *Source) read() (reading, error) {
	r, err := readFile(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		return reading{}, nil
	}
	if err != nil {
		return reading{}, fmt.Errorf("filesource: %w", err)
	}
	return r, nil
}

func readFile(path string) (reading, error) {
	// To open some devices is to use them, so the path is looked at first.
	info, err := os.Stat(path)
	if err == nil {
		err = fits(path, info)
	}
	if err != nil {
		return reading{}, err
	}
	// Another file may have come to be there meanwhile. To open a pipe would be to wait for its other end.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return reading{}, err
	}
	defer f.Close() //nolint:errcheck // it was read alone
	if info, err = f.Stat(); err == nil {
		err = fits(path, info)
	}
	if err != nil {
		return reading{}, err
	}
	doc := bytes.NewBuffer(make([]byte, 0, info.Size()+bytes.MinRead))
	n, err := doc.ReadFrom(io.LimitReader(f, config.MaxDocument+1))
	if err != nil {
		return reading{}, err
	}
	return reading{info: info, doc: doc.Bytes()}, small(path, n)
}

// fits says whether what is there can be read as a document.
func fits(path string, info fs.FileInfo) error {
	what := "no file"
	switch mode := info.Mode(); {
	case mode.IsRegular():
		return small(path, info.Size())
	case mode.IsDir():
		what = "a directory"
	case mode&fs.ModeNamedPipe != 0:
		what = "a named pipe"
	case mode&fs.ModeSocket != 0:
		what = "a socket"
	case mode&fs.ModeDevice != 0:
		what = "a device"
	}
	return fmt.Errorf("%s is %s, not a regular file", path, what)
}

func small(path string, size int64) error {
	if size > config.MaxDocument {
		return fmt.Errorf("%s is larger than %d bytes", path, config.MaxDocument)
	}
	return nil
}
