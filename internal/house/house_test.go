package house_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	root   = "../.."
	module = "github.com/spillway-go/spillway"
)

// committed returns the files of the repository, relative to root, whose names end in suffix. A copy without its
// repository cannot be checked.
func committed(t *testing.T, suffix string) []string {
	t.Helper()
	cmd := exec.Command("git", "ls-files", "-z")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil && os.Getenv("CI") == "" {
		t.Skipf("not a git checkout: %v", err)
	}
	require.NoError(t, err)
	var files []string
	for f := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		if strings.HasSuffix(f, suffix) {
			files = append(files, f)
		}
	}
	return files
}

// inTree reports whether folder matches pattern: itself, or "tree/..." for everything at or below tree.
func inTree(folder, pattern string) bool {
	tree, whole := strings.CutSuffix(pattern, "/...")
	return folder == tree || whole && strings.HasPrefix(folder, tree+"/")
}
