package arch_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// maxDirect is the number of modules that the root may require by itself.
const maxDirect = 25

var requirement = regexp.MustCompile(`(?m)^\s*(?:require\s+)?([\w.-]+\.[\w.-]+/\S+)\s+v\S+\s*(// indirect)?$`)

// direct returns the modules that a go.mod requires by itself.
func direct(text string) []string {
	var modules []string
	for _, match := range requirement.FindAllStringSubmatch(text, -1) {
		if match[2] == "" {
			modules = append(modules, match[1])
		}
	}
	return modules
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	require.NoError(t, err)
	return string(text)
}

func TestEveryDependencyHasItsReason(t *testing.T) {
	t.Parallel()
	modules := direct(read(t, "go.mod"))
	require.LessOrEqual(t, len(modules), maxDirect, "the root module stays small enough to know every dependency")
	reasons := read(t, "docs/dependencies.md")
	for _, module := range modules {
		if !strings.Contains(reasons, "`"+module+"`") {
			t.Errorf("%s has no row in docs/dependencies.md: say what it saves us", module)
		}
	}
}

func TestTheRootReplacesNothing(t *testing.T) {
	t.Parallel()
	require.NotContains(t, read(t, "go.mod"), "replace", "`go install` refuses a module with a replacement")
	require.NoFileExists(t, filepath.Join(root, "go.work"))
}

func TestTheReaderOfRequirementsKnowsBothForms(t *testing.T) {
	t.Parallel()
	text := "module x\n\ngo 1.26.8\n\nrequire (\n\texample.org/a v1.0.0\n\texample.org/b/v2 v2.0.0 // indirect\n)\n\nrequire example.org/c v0.1.0\n"
	require.Equal(t, []string{"example.org/a", "example.org/c"}, direct(text))
}
