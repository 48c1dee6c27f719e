package filesource_test

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/config"
	filesource "github.com/spillway-go/spillway/config/source/file"
	"github.com/spillway-go/spillway/config/source/sourcetest"
)

// quick is short enough to run the table, and Poll is off so that events alone tell of a change.
func quick(path string) filesource.Config {
	return filesource.Config{Path: path, Settle: 5 * time.Millisecond, Poll: -1}
}

// replace puts a file in the place of another one as a whole.
func replace(t *testing.T, path string, doc []byte) {
	t.Helper()
	if doc == nil {
		require.NoError(t, os.RemoveAll(path))
		return
	}
	require.NoError(t, os.WriteFile(path+".new", doc, 0o600))
	require.NoError(t, os.Rename(path+".new", path))
}

// configMap writes versions of a directory as the kubelet does.
type configMap struct {
	dir  string
	next int
	last string
}

func (m *configMap) set(t *testing.T, doc []byte) {
	t.Helper()
	const name = "limits.yaml"
	m.next++
	version := fmt.Sprintf("..2026_03_04_05_06_%06d", m.next)
	require.NoError(t, os.Mkdir(filepath.Join(m.dir, version), 0o700))
	if doc != nil {
		require.NoError(t, os.WriteFile(filepath.Join(m.dir, version, name), doc, 0o600))
	}
	tmp, data, file := filepath.Join(m.dir, "..data_tmp"), filepath.Join(m.dir, "..data"), filepath.Join(m.dir, name)
	require.NoError(t, os.Symlink(version, tmp))
	require.NoError(t, os.Rename(tmp, data))
	if doc == nil {
		require.NoError(t, os.RemoveAll(file))
	} else if _, err := os.Lstat(file); err != nil {
		require.NoError(t, os.Symlink(filepath.Join("..data", name), file))
	}
	if m.last != "" {
		require.NoError(t, os.RemoveAll(filepath.Join(m.dir, m.last)))
	}
	m.last = version
}

// linked replaces a file in another directory than that of the link to it.
func linked(t *testing.T, dir, target string) (path string, set func(doc []byte)) {
	t.Helper()
	path = filepath.Join(dir, "limits.yaml")
	require.NoError(t, os.Mkdir(filepath.Join(dir, "elsewhere"), 0o700))
	require.NoError(t, os.Symlink(target, path))
	return path, func(doc []byte) { replace(t, filepath.Join(dir, "elsewhere", "real.yaml"), doc) }
}

func TestTable(t *testing.T) {
	for name, newSet := range map[string]func(t *testing.T, dir string) (path string, set func(doc []byte)){
		"replaced by rename": func(t *testing.T, dir string) (string, func([]byte)) {
			path := filepath.Join(dir, "limits.yaml")
			return path, func(doc []byte) { replace(t, path, doc) }
		},
		"written in place": func(t *testing.T, dir string) (string, func([]byte)) {
			path := filepath.Join(dir, "limits.yaml")
			return path, func(doc []byte) {
				if doc == nil {
					require.NoError(t, os.RemoveAll(path))
					return
				}
				require.NoError(t, os.WriteFile(path, doc, 0o600))
			}
		},
		"saved by an editor that keeps a backup": func(t *testing.T, dir string) (string, func([]byte)) {
			path := filepath.Join(dir, "limits.yaml")
			return path, func(doc []byte) {
				_ = os.Rename(path, path+"~") // not the first time
				if doc != nil {
					require.NoError(t, os.WriteFile(path, doc, 0o600))
				}
			}
		},
		"a ConfigMap": func(t *testing.T, dir string) (string, func([]byte)) {
			m := &configMap{dir: dir}
			return filepath.Join(dir, "limits.yaml"), func(doc []byte) { m.set(t, doc) }
		},
		"a directory that is made anew": func(t *testing.T, dir string) (string, func([]byte)) {
			shop := filepath.Join(dir, "etc", "shop")
			path := filepath.Join(shop, "limits.yaml")
			return path, func(doc []byte) {
				require.NoError(t, os.RemoveAll(filepath.Join(dir, "etc")))
				if doc != nil {
					require.NoError(t, os.MkdirAll(shop, 0o700))
					require.NoError(t, os.WriteFile(path, doc, 0o600))
				}
			}
		},
		"a link to a release": func(t *testing.T, dir string) (string, func([]byte)) {
			n := 0
			current := filepath.Join(dir, "current")
			return filepath.Join(dir, "current", "etc", "limits.yaml"), func(doc []byte) {
				n++
				release := filepath.Join(dir, "releases", fmt.Sprint(n))
				require.NoError(t, os.MkdirAll(filepath.Join(release, "etc"), 0o700))
				if doc != nil {
					require.NoError(t, os.WriteFile(filepath.Join(release, "etc", "limits.yaml"), doc, 0o600))
				}
				require.NoError(t, os.Symlink(release, current+".new")) // absolute
				require.NoError(t, os.Rename(current+".new", current))
			}
		},
		"a relative link to a file elsewhere": func(t *testing.T, dir string) (string, func([]byte)) {
			return linked(t, dir, "./elsewhere/../elsewhere/real.yaml")
		},
		"an absolute link to a file elsewhere": func(t *testing.T, dir string) (string, func([]byte)) {
			return linked(t, dir, filepath.Join(dir, "elsewhere", "real.yaml"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			sourcetest.Run(t, func(t *testing.T) (config.Source, func([]byte)) {
				path, set := newSet(t, t.TempDir())
				return newSource(t, quick(path)), set
			})
		})
	}
}

var errNone = errors.New("too many open files")

// noNotifier is a system that gives out no more notifiers.
func noNotifier() (*fsnotify.Watcher, error) { return nil, errNone }

func TestTableByLookingAlone(t *testing.T) {
	sourcetest.Run(t, func(t *testing.T) (config.Source, func([]byte)) {
		path := filepath.Join(t.TempDir(), "limits.yaml")
		s := newSource(t, filesource.Config{
			Path: path, Settle: 5 * time.Millisecond, Poll: 5 * time.Millisecond, Logger: slog.New(slog.DiscardHandler),
		})
		s.NotifyWith(noNotifier)
		return s, func(doc []byte) { replace(t, path, doc) }
	})
}
