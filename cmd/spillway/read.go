package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"

	"github.com/spillway-go/spillway/config"
	"github.com/spillway-go/spillway/internal/serve"
)

// load reads the document at a location, which is a file, - for the standard input, or what serve takes; errors in the
// location itself are wrong use. name is what to call it, path the file it is, if it is one.
func load(ctx context.Context, where string) (data []byte, name, path string, err error) {
	switch {
	case where == "-":
		data, err = bounded(os.Stdin, "the standard input")
		return data, "stdin", "", err
	case !strings.Contains(where, "://"):
		data, err = readFile(where)
		return data, where, where, err
	}
	source, closeSource, err := serve.Builtin().Open(where)
	if err != nil {
		return nil, "", "", fmt.Errorf("%w: -config: %w", errUsage, err)
	}
	defer closeSource()
	loading, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	data, err = source.Load(loading)
	path, _ = strings.CutPrefix(where, "file://")
	if path == where {
		path = ""
	}
	return data, fmt.Sprint(source), path, err
}

// readFile reads a regular file. To open a pipe would be to wait for its other end, and a device may have no end.
func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err == nil {
		err = regular(path, info)
	}
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // another file may have come to be there
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // it was read alone
	if info, err = f.Stat(); err == nil {
		err = regular(path, info)
	}
	if err != nil {
		return nil, err
	}
	return bounded(f, path)
}

func regular(path string, info fs.FileInfo) error {
	switch {
	case info.Mode().IsRegular():
		return nil
	case info.IsDir():
		return errors.New(path + " is a directory, not a file")
	}
	return errors.New(path + " is no regular file; - is the standard input")
}

func bounded(r io.Reader, name string) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, config.MaxDocument+1))
	if err == nil && len(data) > config.MaxDocument {
		return nil, fmt.Errorf("%s is larger than the %d bytes that a document may have", name, config.MaxDocument)
	}
	return data, err
}
