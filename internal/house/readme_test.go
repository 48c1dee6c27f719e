package house_test

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

var codeBlock = regexp.MustCompile("(?ms)^```[a-z]*\n.*?^```$")

// A translation shows the same code: who changes one README sees that the other has to follow.
func TestReadmesShowTheSameCode(t *testing.T) {
	var code [2][]string
	for k, name := range [2]string{"README.md", "README.zh-CN.md"} {
		text, err := os.ReadFile(filepath.Join(root, name))
		require.NoError(t, err)
		code[k] = codeBlock.FindAllString(string(text), -1)
	}
	require.Greater(t, len(code[0]), 10)
	require.Equal(t, code[0], code[1])
}
