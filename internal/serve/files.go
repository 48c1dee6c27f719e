package serve

import (
	"io/fs"
	"os"
)

// Folder returns the files of a folder, none for "". Names lead nowhere outside of it, nor do links.
func Folder(path string) (fs.FS, error) {
	if path == "" {
		return nil, nil
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, err
	}
	return root.FS(), nil
}
