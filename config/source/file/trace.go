package filesource

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// trail is what decides where a path leads.
type trail struct {
	dirs  []string // physical paths of the directories in which a name on the way may come to mean something else
	names []string // those names
}

// maxLinks is how many symbolic links are followed, as many as Linux does.
const maxLinks = 40

// trace follows a path as the system does, and notes each name that is a link, is missing, or is the file itself, and the
// directory it is in. Plain directories on the way are not noted: those above are often busy ones, and what happens to the
// last of them is told to who watches it.
func trace(path string) (t trail) {
	path, err := filepath.Abs(path)
	if err != nil {
		return t // the working directory is gone
	}
	at, rest := root(path)
	for links := 0; len(rest) > 0; {
		name := rest[0]
		rest = rest[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			at = filepath.Dir(at)
			continue
		}
		next := filepath.Join(at, name)
		info, err := os.Lstat(next)
		link := err == nil && info.Mode()&fs.ModeSymlink != 0
		if err == nil && !link && len(rest) > 0 {
			at = next
			continue
		}
		t.note(at, name)
		if !link {
			return t
		}
		target, err := os.Readlink(next)
		if links++; err != nil || links > maxLinks {
			return t
		}
		if filepath.IsAbs(target) {
			var head []string
			at, head = root(target)
			rest = slices.Concat(head, rest)
		} else {
			rest = slices.Concat(split(target), rest)
		}
	}
	return t
}

func (t *trail) note(dir, name string) {
	if !slices.Contains(t.dirs, dir) {
		t.dirs = append(t.dirs, dir)
	}
	if !slices.Contains(t.names, name) {
		t.names = append(t.names, name)
	}
}

// concerns says whether an event for a path may be one of the file: names count wherever they are, as a directory may have
// several paths, and in any case, as file systems may.
func (t *trail) concerns(path string) bool {
	base := filepath.Base(path)
	return slices.Contains(t.dirs, path) || slices.ContainsFunc(t.names, func(n string) bool { return strings.EqualFold(n, base) })
}

// root splits an absolute path into its root and the names below it.
func root(path string) (at string, rest []string) {
	volume := filepath.VolumeName(path)
	return volume + string(filepath.Separator), split(path[len(volume):])
}

func split(path string) []string {
	return strings.FieldsFunc(path, func(r rune) bool { return r < 0x80 && os.IsPathSeparator(uint8(r)) })
}
