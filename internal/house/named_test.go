package house_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	testName = regexp.MustCompile("`((?:Test|Fuzz)\\w+)`")
	testFile = regexp.MustCompile(`[\w/]+/\w+_test\.go`)
)

// A promise is worth what shows it: each test that these documents name is there.
func TestDocumentsNameTestsThatExist(t *testing.T) {
	tests := map[string]bool{}
	for _, f := range committed(t, "") {
		if !strings.HasSuffix(f, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, f), nil, parser.SkipObjectResolution)
		if os.IsNotExist(err) {
			continue
		}
		require.NoError(t, err)
		for _, d := range file.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil {
				tests[fn.Name.Name] = true
			}
		}
	}
	for document, least := range map[string]int{"docs/guarantees.md": 40, "SECURITY.md": 15} {
		text, err := os.ReadFile(filepath.Join(root, document))
		require.NoError(t, err)
		named := testName.FindAllStringSubmatch(string(text), -1)
		require.Greater(t, len(named), least, document)
		for _, m := range named {
			require.True(t, tests[m[1]], "%s: there is no %s", document, m[1])
		}
		for _, name := range testFile.FindAllString(string(text), -1) {
			require.FileExists(t, filepath.Join(root, name), document)
		}
	}
}
