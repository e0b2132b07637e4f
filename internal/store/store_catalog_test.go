package store_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/internal/testkit/pgtest"
)

// shared lists the tables that belong to no organization. A table that is neither
// here nor carries org_id under forced row-level security fails the build.
var shared = []string{
	"approval_rules", "approvals", "business_clock", "cells", "coupons", "dunning_schedules", "goose_db_version",
	"gpu_costs", "gpu_hours", "gpu_inventories", "gpus", "host_desired", "host_liveness", "host_sessions",
	"host_spools", "hosts", "installations", "invoice_numbers", "invoice_runs", "issuer_versions", "issuers",
	"join_tokens", "ledger_books", "liveness_writers", "mode_changes", "month_closes", "observed_slices", "offers",
	"operator_keys", "outbox", "placement_changes", "pools", "price_books", "price_steps", "price_versions", "prices",
	"provider_events", "regions", "skus", "spot_prices", "ssh_authorities", "statement_lines", "tax_tables",
}

// readable lists the shared tables that a tenant's transaction may read: the
// catalogue and the clock, nothing about hosts or other tenants.
var readable = []string{
	"business_clock", "cells", "installations", "issuer_versions", "issuers", "offers", "pools", "price_books",
	"price_steps", "price_versions", "prices", "regions", "skus", "spot_prices", "tax_tables",
}

// loose lists foreign keys between tenant tables that need no org_id, and why.
var loose = map[string]string{
	"line_subjects_line": "a line is named by its invoice, whose key carries the organization",
}

func catalog(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close(context.WithoutCancel(t.Context()))) })
	return conn
}

// texts runs a query for one column of text.
func texts(t *testing.T, conn *pgx.Conn, sql string, args ...any) []string {
	t.Helper()
	rows, err := conn.Query(t.Context(), sql, args...)
	require.NoError(t, err)
	out, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	return out
}

const tenantTables = `select c.relname::text from pg_class c join pg_attribute a on a.attrelid = c.oid
	and a.attname = case when c.relname = 'organizations' then 'id' else 'org_id' end and not a.attisdropped
	where c.relkind in ('r', 'p') and c.relnamespace = 'public'::regnamespace and (c.relname = 'organizations' or a.attname = 'org_id')
	order by 1`

func tenantColumn(table string) string {
	if table == "organizations" {
		return "id"
	}
	return "org_id"
}

func TestEveryTableIsSharedOrUnderForcedRowLevelSecurity(t *testing.T) {
	conn := catalog(t, pgtest.New(t).OwnerDSN)
	tenants := texts(t, conn, tenantTables)
	all := texts(t, conn, `select relname::text from pg_class where relkind in ('r', 'p', 'f') and relnamespace = 'public'::regnamespace order by 1`)
	require.ElementsMatch(t, all, append(slices.Clone(tenants), shared...),
		"a new table carries org_id, or is listed here as shared with a reason to be")
	require.Empty(t, texts(t, conn, `select relname::text from pg_class c where relkind in ('v', 'm')
		and relnamespace = 'public'::regnamespace and not coalesce('security_invoker=true' = any(reloptions), false)`),
		"a view runs as its reader")
	for _, table := range tenants {
		var on, forced bool
		require.NoError(t, conn.QueryRow(t.Context(), `select relrowsecurity, relforcerowsecurity from pg_class
			where oid = ('public.' || $1)::regclass`, table).Scan(&on, &forced))
		require.True(t, on && forced, "%s: row-level security on=%v forced=%v", table, on, forced)
		policies := texts(t, conn, `select format('%s to %s for %s using %s check %s', policyname,
				(select string_agg(r, ',' order by r) from unnest(roles) r), cmd, qual, with_check)
			from pg_policies where schemaname = 'public' and tablename = $1 and permissive = 'PERMISSIVE' order by policyname`, table)
		mine := "(" + tenantColumn(table) + " = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid)"
		require.Equal(t, []string{
			fmt.Sprintf("%s_org to tranche_org for ALL using %s check %s", table, mine, mine),
			fmt.Sprintf("%s_system to tranche_owner,tranche_system for ALL using true check true", table),
		}, policies, table)
	}
}

func TestTenantTablesCannotPointAtAnotherOrganization(t *testing.T) {
	conn := catalog(t, pgtest.New(t).OwnerDSN)
	for _, table := range texts(t, conn, tenantTables) {
		require.Empty(t, texts(t, conn, `select attname::text from pg_attribute
			where attrelid = ('public.' || $1)::regclass and attname = 'org_id' and not attnotnull`, table), "%s: org_id may be null", table)
	}
	keys := texts(t, conn, `
		with tenant as (select attrelid, attnum from pg_attribute where attname = 'org_id' and not attisdropped)
		select k.conname::text from pg_constraint k join tenant f on f.attrelid = k.conrelid join tenant r on r.attrelid = k.confrelid
		where k.contype = 'f' and k.connamespace = 'public'::regnamespace
			and not (f.attnum = any(k.conkey) and r.attnum = any(k.confkey)) order by 1`)
	require.ElementsMatch(t, slices.Collect(maps.Keys(loose)), keys, "a foreign key between tenants' rows carries org_id")
}

func TestTenantRoleReadsOnlyTheCatalogueBesideItsRows(t *testing.T) {
	conn := catalog(t, pgtest.New(t).OwnerDSN)
	for _, table := range shared {
		var read bool
		require.NoError(t, conn.QueryRow(t.Context(), `select has_table_privilege('tranche_org', 'public.' || $1, 'select')`, table).Scan(&read))
		require.Equal(t, slices.Contains(readable, table), read, table)
	}
	require.Empty(t, texts(t, conn, `select table_name || ' ' || privilege_type from information_schema.role_table_grants
		where grantee = 'tranche' and table_schema = 'public' and table_name <> 'goose_db_version'`), "the login itself can do nothing")
	require.Empty(t, texts(t, conn, `select table_name || ' ' || privilege_type from information_schema.role_table_grants
		where grantee = 'tranche_org' and table_schema = 'public' and privilege_type not in ('SELECT', 'INSERT')`))
	require.Empty(t, texts(t, conn, `select rolname::text from pg_roles
		where rolname in ('tranche', 'tranche_org', 'tranche_system') and (rolsuper or rolbypassrls or rolcreaterole)`))
	require.Empty(t, texts(t, conn, `select conname::text from pg_constraint where connamespace = 'public'::regnamespace
		and contype in ('c', 'x') and conname ~ '_check\d*$|_excl\d*$'`), "constraints that a caller can meet have names")
}

// changeable lists the columns that a tenant's transaction may change: states, and of
// the quota counter nothing but its lock.
var changeable = map[string][]string{
	"api_keys":         {"revision", "revoked_at"},
	"assignments":      {"fence", "releasing_at", "revision", "state"},
	"idempotency_keys": {"body", "headers", "status"},
	"instances": {
		"attempts", "converged_generation", "deadline_at", "deleted_at", "desired", "ever_ran", "excluded_hosts", "generation",
		"intent_at", "next_wake_at", "operation_id", "recovering", "revision", "run", "ssh_keys", "started_at", "status",
		"status_code", "status_detail",
	},
	"interruptions":   {"to_at"},
	"operations":      {"finished_at", "percent", "problem", "revision", "status", "step", "superseded_by"},
	"quota_usage":     {"org_id"},
	"registry_logins": {"generation", "password_sealed", "revision", "updated_at", "username"},
	"usage_segments":  {"close_reason", "during", "fault_party", "revision"},
	"wallet_claims":   {"amount"},
	"wallets":         {"next_tick_at"},
}

func TestTenantRoleChangesNoPriceCounterOrRight(t *testing.T) {
	conn := catalog(t, pgtest.New(t).OwnerDSN)
	got := map[string][]string{}
	for _, pair := range texts(t, conn, `select table_name || ' ' || column_name from information_schema.role_column_grants
		where grantee = 'tranche_org' and table_schema = 'public' and privilege_type = 'UPDATE' order by 1`) {
		table, column, _ := strings.Cut(pair, " ")
		got[table] = append(got[table], column)
	}
	require.Equal(t, changeable, got)
}

// The application's filters are not there: raw statements over every table, with a
// row of each of two organizations in it.
func TestTwoOrganizationsNeverMeetWithoutApplicationFilters(t *testing.T) {
	db := pgtest.New(t)
	owner := catalog(t, db.SuperDSN)
	mine, theirs := uuid.New(), uuid.New()
	loosen(t, owner)
	tables := texts(t, owner, tenantTables)
	for _, table := range tables {
		for _, org := range []uuid.UUID{mine, theirs} {
			sql := plainInsert(t, owner, table, org)
			_, err := owner.Exec(t.Context(), sql)
			require.NoError(t, err, "%s: %s", table, sql)
		}
	}
	can := func(table, privilege string) (yes bool) {
		require.NoError(t, owner.QueryRow(t.Context(), `select has_table_privilege('tranche_org', $1, $2)`, table, privilege).Scan(&yes))
		return yes
	}
	app := catalog(t, db.AppDSN)
	_, err := app.Exec(t.Context(), `select 1 from instances`)
	require.ErrorContains(t, err, "permission denied", "the login takes a role in each transaction")
	checked := map[string]int{}
	for _, table := range tables {
		column := tenantColumn(table)
		asTenant := func(org string, work func(pgx.Tx)) {
			t.Helper()
			tx, err := app.Begin(t.Context())
			require.NoError(t, err)
			defer func() { require.NoError(t, tx.Rollback(t.Context())) }()
			_, err = tx.Exec(t.Context(), `select set_config('role', 'tranche_org', true), set_config('tranche.org_id', $1, true)`, org)
			require.NoError(t, err)
			work(tx)
		}
		if can(table, "select") {
			checked["select"]++
			asTenant(mine.String(), func(tx pgx.Tx) {
				var seen, own int
				require.NoError(t, tx.QueryRow(t.Context(), fmt.Sprintf(`select count(*), count(*) filter (where %s = $1) from %s`, column, table), mine).Scan(&seen, &own))
				require.Equal(t, []int{1, 1}, []int{seen, own}, table)
			})
			asTenant("", func(tx pgx.Tx) {
				var seen int
				require.NoError(t, tx.QueryRow(t.Context(), `select count(*) from `+table).Scan(&seen))
				require.Zero(t, seen, "%s: no organization sees no row", table)
			})
		}
		if columns := changeable[table]; len(columns) > 0 {
			checked["update"]++
			asTenant(mine.String(), func(tx pgx.Tx) {
				tag, err := tx.Exec(t.Context(), fmt.Sprintf(`update %s set %s = %s`, table, columns[0], columns[0]))
				require.NoError(t, err, table)
				require.EqualValues(t, 1, tag.RowsAffected(), table)
			})
			asTenant(mine.String(), func(tx pgx.Tx) {
				_, err := tx.Exec(t.Context(), fmt.Sprintf(`update %s set %s = $1`, table, column), theirs)
				require.Error(t, err, "%s: a row cannot be given away", table)
				require.Regexp(t, "row-level security|permission denied", err.Error(), table)
			})
		}
		if can(table, "insert") {
			checked["insert"]++
			asTenant(mine.String(), func(tx pgx.Tx) {
				_, err := tx.Exec(t.Context(), plainInsert(t, owner, table, theirs))
				require.ErrorContains(t, err, "row-level security", table)
			})
		}
	}
	require.Greater(t, checked["select"], 15, "the test looked at the tables")
	require.Greater(t, checked["update"], 4)
	require.Greater(t, checked["insert"], 5)
}

// loosen drops what would keep made-up rows out, in this test's database alone:
// checks, foreign keys and triggers. Row-level security stays.
func loosen(t *testing.T, owner *pgx.Conn) {
	t.Helper()
	for _, sql := range texts(t, owner, `
		select format('alter table %s drop constraint %I cascade', conrelid::regclass, conname) from pg_constraint
			where connamespace = 'public'::regnamespace and contype in ('c', 'f') and conrelid <> 0
		union all
		select format('drop trigger %I on %s', tgname, tgrelid::regclass) from pg_trigger t join pg_class c on c.oid = t.tgrelid
			where not tgisinternal and c.relnamespace = 'public'::regnamespace`) {
		_, err := owner.Exec(t.Context(), sql)
		require.NoError(t, err, sql)
	}
}

// plainInsert makes a statement that fills the columns of a table that need it.
func plainInsert(t *testing.T, owner *pgx.Conn, table string, org uuid.UUID) string {
	t.Helper()
	rows, err := owner.Query(t.Context(), `select attname::text, atttypid::regtype::text from pg_attribute
		where attrelid = ('public.' || $1)::regclass and attnum > 0 and not attisdropped and attidentity = ''
			and (attnotnull and not atthasdef or attname = $2) order by attnum`, table, tenantColumn(table))
	require.NoError(t, err)
	type column struct{ Name, Type string }
	columns, err := pgx.CollectRows(rows, pgx.RowToStructByPos[column])
	require.NoError(t, err)
	var names, values []string
	for _, c := range columns {
		value, ok := map[string]string{
			"uuid": "gen_random_uuid()", "text": "gen_random_uuid()::text", "integer": "1", "bigint": "1", "numeric": "1",
			"boolean": "true", "timestamp with time zone": "clock_timestamp()", "jsonb": "'{}'", "bytea": `'\x00'`,
			"text[]": "'{}'", "tstzrange": "tstzrange(clock_timestamp(), null)", "date": "current_date",
		}[c.Type]
		require.True(t, ok, "%s.%s has the type %s, which this test must learn", table, c.Name, c.Type)
		if c.Name == tenantColumn(table) {
			value = "'" + org.String() + "'"
		}
		names, values = append(names, c.Name), append(values, value)
	}
	return fmt.Sprintf("insert into %s (%s) values (%s)", table, strings.Join(names, ", "), strings.Join(values, ", "))
}
