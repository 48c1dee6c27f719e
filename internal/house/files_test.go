package house_test

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A path of the machine it was written on helps nobody, and a host name of its module proxy neither.
func TestNoFileNamesThisMachine(t *testing.T) {
	places := machine(t)
	for _, f := range committed(t, "") {
		text, err := os.ReadFile(filepath.Join(root, f))
		if os.IsNotExist(err) || bytes.IndexByte(text, 0) >= 0 {
			continue // deleted but not yet committed so, or not text
		}
		require.NoError(t, err)
		for _, place := range places {
			for _, line := range mentions(string(text), place) {
				t.Errorf("%s:%d names %s", f, line, place)
			}
		}
	}
}

// machine returns the folders in which this checkout and the toolchain live, and the hosts modules come from.
func machine(t *testing.T) (places []string) {
	t.Helper()
	checkout, err := filepath.Abs(root)
	require.NoError(t, err)
	folders := []string{checkout, filepath.Dir(checkout)}
	if home, err := os.UserHomeDir(); err == nil {
		folders = append(folders, home)
	}
	out, err := exec.Command("go", "env", "GOROOT", "GOMODCACHE", "GOCACHE", "GOPROXY").Output()
	require.NoError(t, err)
	env := strings.Split(strings.TrimSpace(string(out)), "\n")
	for _, f := range append(folders, env[:3]...) {
		if len(f) > 1 && !slices.Contains(places, f+"/") {
			places = append(places, f+"/")
		}
	}
	// The toolchain's own default names nobody's machine.
	byDefault := exec.Command("go", "env", "GOPROXY")
	byDefault.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "GOPROXY=") }), "GOENV=off")
	usual, err := byDefault.Output()
	require.NoError(t, err)
	for _, proxy := range strings.FieldsFunc(env[3], func(r rune) bool { return r == ',' || r == '|' }) {
		if u, err := url.Parse(proxy); err == nil && u.Host != "" && !strings.Contains(string(usual), u.Host) {
			places = append(places, u.Host)
		}
	}
	return places
}

// mentions returns the lines of text on which place stands by itself: a path counts only where no longer one goes on.
func mentions(text, place string) (lines []int) {
	for at := 0; ; {
		i := strings.Index(text[at:], place)
		if i < 0 {
			return lines
		}
		at += i
		if before := text[:at]; at == 0 || !strings.ContainsAny(before[at-1:], "/.-_}$abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789") {
			lines = append(lines, 1+strings.Count(before, "\n"))
		}
		at += len(place)
	}
}

func TestMentions(t *testing.T) {
	require.Equal(t, []int{1, 3}, mentions("/home/me/x\nno\n= \"/home/me/\"", "/home/me/"))
	require.Empty(t, mentions("example.com/home/me/x $/home/me/", "/home/me/"))
}

var purpose = regexp.MustCompile(`^Package \w+ exists (because|so that|for|to) `)

// An internal package is a promise to nobody but a cost to every reader: its first words say what for.
func TestInternalPackagesSayWhyTheyExist(t *testing.T) {
	docs := map[string]string{}
	for _, f := range committed(t, ".go") {
		dir := filepath.Dir(f)
		if !strings.Contains("/"+dir+"/", "/internal/") || strings.HasSuffix(f, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, f), nil, parser.PackageClauseOnly|parser.ParseComments)
		if os.IsNotExist(err) {
			continue
		}
		require.NoError(t, err)
		docs[dir] += parsed.Doc.Text()
	}
	for dir, doc := range docs {
		require.Regexp(t, purpose, doc, "%s: the package comment begins with why it exists", dir)
	}
}

// sleepers are the test files that sleep and do not import synctest, each with the reason.
var sleepers = map[string]string{
	"limiter/memory/faults_test.go": "its cases run in bubbles that bubble_test.go makes",
}

// Time in tests is that of a synctest bubble. A test that sleeps on the wall clock is slow, and fails on a busy machine.
func TestTestsDoNotSleep(t *testing.T) {
	for _, f := range committed(t, "_test.go") {
		fset := token.NewFileSet()
		parsed, err := parser.ParseFile(fset, filepath.Join(root, f), nil, 0)
		if os.IsNotExist(err) || sleepers[f] != "" || imports(parsed, "testing/synctest") {
			continue
		}
		require.NoError(t, err)
		ast.Inspect(parsed, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok && sel.Sel.Name == "Sleep" {
				if x, ok := sel.X.(*ast.Ident); ok && x.Name == "time" {
					t.Errorf("%s:%d sleeps on the wall clock: use testing/synctest, or list the file in sleepers with the reason",
						f, fset.Position(n.Pos()).Line)
				}
			}
			return true
		})
	}
}

func imports(f *ast.File, path string) bool {
	return f != nil && slices.ContainsFunc(f.Imports, func(s *ast.ImportSpec) bool { return s.Path.Value == strconv.Quote(path) })
}
