package migrations_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/internal/testkit/golden"
	"github.com/tranche-cloud/tranche/internal/testkit/pgtest"
)

// TestTheSchemaIsTheGoldenDump shows a reviewer what a migration makes of the schema:
// testdata/schema.sql is a dump without comments, settings and the migrator's own
// table. `go test ./migrations -update` writes it anew.
func TestTheSchemaIsTheGoldenDump(t *testing.T) {
	t.Parallel()
	bin, err := exec.Command("pg_config", "--bindir").Output()
	require.NoError(t, err, "pg_config tells where PostgreSQL's programs are; install postgresql")
	dump := filepath.Join(strings.TrimSpace(string(bin)), "pg_dump")
	out, err := exec.Command(dump, "--schema-only", "--no-owner", "--exclude-table=goose_db_version*",
		"--dbname", pgtest.New(t).OwnerDSN).CombinedOutput()
	require.NoError(t, err, string(out))

	var kept []string
	for line := range strings.Lines(string(out)) {
		switch {
		case strings.HasPrefix(line, "--"), strings.HasPrefix(line, "SET "), strings.HasPrefix(line, `\`),
			strings.HasPrefix(line, "SELECT pg_catalog.set_config"),
			line == "\n" && (len(kept) == 0 || kept[len(kept)-1] == "\n"):
			continue
		}
		kept = append(kept, line)
	}
	golden.Assert(t, "schema.sql", []byte(strings.Join(kept, "")))
}
