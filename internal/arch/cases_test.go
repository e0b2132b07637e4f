package arch_test

import (
	"fmt"
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

var caseRow = regexp.MustCompile("(?m)^\\| B([0-9]+) \\| [^|]+ \\| `(Test[A-Za-z0-9]+)` \\|")

// The table of billing cases has all of them in order, each with a test that exists.
func TestBillingCasesHaveTheirTests(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "billing-cases.md"))
	require.NoError(t, err)
	tests := map[string]bool{}
	for _, s := range sources(t) {
		for _, d := range s.file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && s.test && f.Recv == nil {
				tests[f.Name.Name] = true
			}
		}
	}
	rows := caseRow.FindAllStringSubmatch(string(text), -1)
	require.Len(t, rows, 65)
	for i, r := range rows {
		require.Equal(t, fmt.Sprint(i+1), r[1], "in order")
		require.Truef(t, tests[r[2]], "case B%s names %s, which does not exist", r[1], r[2])
	}
}
