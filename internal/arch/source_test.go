package arch_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	maxFunction = 70  // lines of a function
	maxFile     = 600 // lines of a file
)

// source is one parsed Go file; name is its path from the root.
type source struct {
	name      string
	test      bool
	generated bool
	lines     int
	set       *token.FileSet
	file      *ast.File
}

// folder returns the folder of the file, from the root.
func (s source) folder() string { return filepath.ToSlash(filepath.Dir(s.name)) }

func (s source) at(node ast.Node) string {
	return s.name + ":" + strconv.Itoa(s.set.Position(node.Pos()).Line)
}

func parse(t *testing.T, name, text string) source {
	t.Helper()
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, text, parser.ParseComments)
	require.NoError(t, err)
	return source{
		name: name, test: strings.HasSuffix(name, "_test.go"), generated: ast.IsGenerated(file),
		lines: strings.Count(text, "\n"), set: set, file: file,
	}
}

// sources returns every Go file of every module of the repository.
func sources(t *testing.T) []source {
	t.Helper()
	var all []source
	walk(t, ".go", func(name, text string) { all = append(all, parse(t, name, text)) })
	return all
}

// walk calls visit with every file of the repository that has the ending.
func walk(t *testing.T, ending string, visit func(name, text string)) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if entry.IsDir() {
			hidden := strings.HasPrefix(entry.Name(), ".") && name != "."
			if hidden || entry.Name() == "testdata" || entry.Name() == "node_modules" || name == "bin" {
				return filepath.SkipDir
			}
			return nil
		}
		if strings.HasSuffix(name, ending) {
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			visit(filepath.ToSlash(name), string(text))
		}
		return nil
	}))
}

// rules check one file each and return one line a breach.
var rules = map[string]func(source) []string{
	"package names say what they hold":      packageName,
	"tests do not sleep or skip":            sleepless,
	"money is never a float":                floatless,
	"the domain is pure":                    pure,
	"functions and files stay readable":     short,
	"SQL is spoken in one place":            sqlInPlace,
	"a context comes from its caller":       contextFromCaller,
	"a TODO carries the number of an issue": todo,
}

func TestHabits(t *testing.T) {
	t.Parallel()
	all := sources(t)
	for name, rule := range rules {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var found []string
			for _, s := range all {
				found = append(found, rule(s)...)
			}
			report(t, found)
		})
	}
}

func TestEveryPackageSaysWhatItIs(t *testing.T) {
	t.Parallel()
	report(t, undocumented(sources(t)))
}

// undocumented returns the packages without a package comment. A package that a
// generator wrote completely is the generator's.
func undocumented(all []source) []string {
	documented, written := map[string]bool{}, map[string]string{}
	for _, s := range all {
		if s.test {
			continue
		}
		if !s.generated {
			written[s.folder()] = s.file.Name.Name
		}
		// A comment of one word is a label, not a description.
		if s.file.Doc != nil && len(strings.Fields(s.file.Doc.Text())) > 3 {
			documented[s.folder()] = true
		}
	}
	var found []string
	for folder, name := range written {
		if !documented[folder] {
			found = append(found, fmt.Sprintf("%s: package %s has no comment: say what it owns and what it does not", folder, name))
		}
	}
	return found
}

func packageName(s source) []string {
	name := strings.TrimSuffix(s.file.Name.Name, "_test")
	if slices.Contains([]string{"util", "utils", "common", "helper", "helpers", "model", "models", "shared", "base", "misc", "types"}, name) {
		return []string{s.folder() + ": package " + name + " has no subject: find the noun"}
	}
	return nil
}

// selector returns the two names of x.y, "" for anything else.
func selector(node ast.Node) (string, string) {
	sel, ok := node.(*ast.SelectorExpr)
	if !ok {
		return "", ""
	}
	x, ok := sel.X.(*ast.Ident)
	if !ok {
		return "", ""
	}
	return x.Name, sel.Sel.Name
}

func sleepless(s source) []string {
	if !s.test && !strings.HasPrefix(s.name, "internal/testkit/") {
		return nil
	}
	return inspect(s, func(node ast.Node) string {
		x, y := selector(node)
		switch {
		case x == "time" && y == "Sleep":
			return "time.Sleep: wait for the event itself, or move a fake clock"
		case slices.Contains([]string{"t", "b", "f", "tb", "rt"}, x) && strings.HasPrefix(y, "Skip"):
			return x + "." + y + ": a missing service is a failure"
		}
		return ""
	})
}

func floatless(s source) []string {
	if s.test || !inAny(s.folder(), []string{"internal/money", "billing", "internal/metering"}) {
		return nil
	}
	return inspect(s, func(node ast.Node) string {
		if x, ok := node.(*ast.Ident); ok && (x.Name == "float64" || x.Name == "float32") {
			return x.Name + ": amounts are exact"
		}
		return ""
	})
}

var impure = []string{
	"context", "log", "os", "net", "database", "runtime", "crypto/rand", "math/rand", "io/fs", "testing",
}

// pure holds for the hand-written packages of floor 1.
func pure(s source) []string {
	if s.test || s.generated || floorOf(s.folder()) != 1 || within(s.folder(), "openapi/wire") {
		return nil
	}
	return inspect(s, func(node ast.Node) string {
		switch node := node.(type) {
		case *ast.ImportSpec:
			path, _ := strconv.Unquote(node.Path.Value)
			if inAny(path, impure) {
				return "import of " + path + ": the domain decides, others do"
			}
		case *ast.GoStmt:
			return "a goroutine: the domain decides, others do"
		case *ast.Field:
			if node.Tag != nil && strings.Contains(node.Tag.Value, "json:") {
				return "a json tag: the wire has its own types"
			}
		case *ast.SelectorExpr:
			x, y := selector(node)
			if x == "time" && slices.Contains([]string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker"}, y) {
				return "time." + y + ": time is an argument"
			}
		}
		return ""
	})
}

func short(s source) []string {
	if s.test || s.generated {
		return nil
	}
	var found []string
	if s.lines > maxFile {
		found = append(found, fmt.Sprintf("%s has %d lines, cap %d: find the seam", s.name, s.lines, maxFile))
	}
	for _, declared := range s.file.Decls {
		f, ok := declared.(*ast.FuncDecl)
		if !ok || returnsCommand(f) {
			continue
		}
		lines := s.set.Position(f.End()).Line - s.set.Position(f.Pos()).Line + 1
		if lines > maxFunction {
			found = append(found, fmt.Sprintf("%s: %s has %d lines, cap %d", s.at(f), f.Name.Name, lines, maxFunction))
		}
	}
	return found
}

// returnsCommand reports whether a function builds a command, a long literal.
func returnsCommand(f *ast.FuncDecl) bool {
	if f.Type.Results == nil || len(f.Type.Results.List) != 1 {
		return false
	}
	star, ok := f.Type.Results.List[0].Type.(*ast.StarExpr)
	if !ok {
		return false
	}
	x, y := selector(star.X)
	return x == "cobra" && y == "Command"
}

var statement = regexp.MustCompile(`(?is)^\s*(select\s+\S.*\sfrom|insert\s+into|update\s+\w+\s+set|delete\s+from|with\s+\w+\s+as\s*\(|merge\s+into|(create|alter|drop|truncate)\s+(table|index|role|database|schema)|set\s+local)\s`)

func sqlInPlace(s source) []string {
	home := []string{"internal/store", "migrations", "internal/testkit", "internal/arch", "devstack"}
	if s.test || s.generated || inAny(s.folder(), home) {
		return nil
	}
	return inspect(s, func(node ast.Node) string {
		if text, ok := literal(node); ok && statement.MatchString(text+" ") {
			return "SQL outside internal/store"
		}
		return ""
	})
}

func literal(node ast.Node) (string, bool) {
	lit, ok := node.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return "", false
	}
	text, err := strconv.Unquote(lit.Value)
	return text, err == nil
}

func contextFromCaller(s source) []string {
	free := []string{"cmd", "agent/cmd", "internal/testkit", "internal/arch", "devstack", "terraform", "tools"}
	if s.test || s.generated || inAny(s.folder(), free) {
		return nil
	}
	return inspect(s, func(node ast.Node) string {
		if x, y := selector(node); x == "context" && (y == "Background" || y == "TODO") {
			return "context." + y + ": take the caller's; for undo and shutdown use context.WithoutCancel with a timeout"
		}
		return ""
	})
}

var (
	todoMark  = regexp.MustCompile(`\b(TODO|FIXME|XXX|HACK)\b`)
	withIssue = regexp.MustCompile(`#\d+`)
)

func todo(s source) []string {
	var found []string
	if s.generated || within(s.folder(), "internal/arch") {
		return nil
	}
	for _, group := range s.file.Comments {
		for _, comment := range group.List {
			if todoMark.MatchString(comment.Text) && !withIssue.MatchString(comment.Text) {
				found = append(found, s.at(comment)+": a TODO without the number of its issue")
			}
		}
	}
	return found
}

// inspect collects what the visitor objects to, with the place.
func inspect(s source, visit func(ast.Node) string) []string {
	var found []string
	ast.Inspect(s.file, func(node ast.Node) bool {
		if node == nil {
			return false
		}
		if complaint := visit(node); complaint != "" {
			found = append(found, s.at(node)+": "+complaint)
		}
		return true
	})
	return found
}

func TestEachHabitSeesItsBreach(t *testing.T) {
	t.Parallel()
	long := "package x\nfunc F() {\n" + strings.Repeat("\tprintln()\n", maxFunction) + "}\n"
	for _, tc := range []struct {
		rule, name, text string
		breaches         int
	}{
		{"package names say what they hold", "internal/util/x.go", "package util", 1},
		{"tests do not sleep or skip", "api/x_test.go", "package x\nfunc F() { time.Sleep(1); t.Skip() }", 2},
		{"tests do not sleep or skip", "api/x.go", "package x\nfunc F() { time.Sleep(1) }", 0},
		{"money is never a float", "billing/rating/x.go", "package x\nvar V float64", 1},
		{"money is never a float", "internal/gpu/x.go", "package x\nvar V float64", 0},
		{"the domain is pure", "internal/quota/x.go", "package x\nimport \"context\"\ntype T struct { A int `json:\"a\"` }\nfunc F() { go F(); time.Now() }", 4},
		{"the domain is pure", "internal/quota/x.go", "package x\nimport \"log/slog\"", 1},
		{"the domain is pure", "internal/store/x.go", "package x\nimport \"context\"", 0},
		{"functions and files stay readable", "api/x.go", long, 1},
		{"functions and files stay readable", "api/x_test.go", long, 0},
		{"functions and files stay readable", "api/x.go", "package x\n" + strings.Repeat("\n", maxFile), 1},
		{"functions and files stay readable", "api/x.go", "// Code generated by y. DO NOT EDIT.\n" + long, 0},
		{"functions and files stay readable", "api/x.go", strings.Replace(long, "F()", "F() *cobra.Command", 1), 0},
		{"SQL is spoken in one place", "api/x.go", "package x\nconst q = `select id from hosts`", 1},
		{"SQL is spoken in one place", "api/x.go", "package x\nconst q = \"update instances set a = 1\"", 1},
		{"SQL is spoken in one place", "api/x.go", "package x\nconst q = \"select an offer\"", 0},
		{"SQL is spoken in one place", "internal/store/x.go", "package x\nconst q = `select id from hosts`", 0},
		{"a context comes from its caller", "api/x.go", "package x\nvar c = context.Background()", 1},
		{"a context comes from its caller", "cmd/tranched/x.go", "package x\nvar c = context.Background()", 0},
		{"a TODO carries the number of an issue", "api/x.go", "package x\n// TODO: later\n// TODO #12: later", 1},
	} {
		require.Len(t, rules[tc.rule](parse(t, tc.name, tc.text)), tc.breaches, "%s on %s", tc.rule, tc.text)
	}
	bare := parse(t, "api/x.go", "package api")
	label := parse(t, "api/x.go", "// Package api.\npackage api")
	good := parse(t, "api/doc.go", "// Package api owns the HTTP edge.\npackage api")
	require.Len(t, undocumented([]source{bare}), 1)
	require.Len(t, undocumented([]source{label}), 1)
	require.Empty(t, undocumented([]source{bare, good}))
}

// literals returns the string literals below a node.
func literals(node ast.Node) []string {
	var texts []string
	ast.Inspect(node, func(node ast.Node) bool {
		if text, ok := literal(node); ok {
			texts = append(texts, text)
		}
		return true
	})
	return texts
}
