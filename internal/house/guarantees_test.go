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

var testName = regexp.MustCompile("`(Test\\w+)`")

// A guarantee is worth what shows it: each test that docs/guarantees.md names is there.
func TestGuaranteesNameTestsThatExist(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs", "guarantees.md"))
	require.NoError(t, err)
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
	named := testName.FindAllStringSubmatch(string(text), -1)
	require.Greater(t, len(named), 40)
	for _, m := range named {
		require.True(t, tests[m[1]], "there is no %s", m[1])
	}
}
