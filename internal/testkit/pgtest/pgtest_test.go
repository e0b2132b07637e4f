package pgtest_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/internal/testkit/pgtest"
)

func TestTwoTestsNeverShareADatabase(t *testing.T) {
	t.Parallel()
	first, second := pgtest.New(t), pgtest.New(t)
	_, err := first.OwnerPool(t).Exec(t.Context(), "create table mine (n int)")
	require.NoError(t, err)
	require.NotEqual(t, first.Name, second.Name)
	require.False(t, exists(t, second.OwnerPool(t), "mine"))
}

func TestAFreshDatabaseIsMigratedAndAnEmptyOneIsNot(t *testing.T) {
	t.Parallel()
	require.True(t, exists(t, pgtest.New(t).OwnerPool(t), "goose_db_version"))
	require.False(t, exists(t, pgtest.Empty(t).OwnerPool(t), "goose_db_version"))
}

func TestTheApplicationLoginCannotPassRowSecurity(t *testing.T) {
	t.Parallel()
	var user string
	var above, inherits bool
	err := pgtest.New(t).Pool(t).QueryRow(t.Context(), `
		select current_user, rolsuper or rolbypassrls, rolinherit
		from pg_roles
		where rolname = current_user`).Scan(&user, &above, &inherits)
	require.NoError(t, err)
	require.Equal(t, "tranche", user)
	require.False(t, above)
	require.False(t, inherits)
}

func TestTheDatabaseIsGoneAfterTheTest(t *testing.T) {
	t.Parallel()
	var d pgtest.Database
	t.Run("the test that used it", func(t *testing.T) { d = pgtest.New(t) })
	_, err := pgx.Connect(t.Context(), d.SuperDSN)
	require.ErrorContains(t, err, "does not exist")
}

func exists(t *testing.T, db *pgxpool.Pool, table string) bool {
	t.Helper()
	var found bool
	err := db.QueryRow(t.Context(), "select to_regclass($1) is not null", table).Scan(&found)
	require.NoError(t, err)
	return found
}
