package store_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/internal/testkit/pgtest"
)

// What is agreed is immutable by privilege first: no role of the application may
// change more than when it ends.
func TestNoRoleRewritesWhatIsAgreed(t *testing.T) {
	conn := catalog(t, pgtest.New(t).OwnerDSN)
	ends := map[string][]string{
		"contract_steps": nil, "contract_terms": {"cancelled_at", "during"}, "contracts": {"cancelled_at", "during", "ended_by", "revision"},
		"organization_price_books": {"during"}, "price_steps": nil, "prices": nil,
		"reservations": {"cancelled_at", "during", "ended_by", "next_at", "revision"}, "spot_prices": nil,
	}
	for table, columns := range ends {
		require.Equal(t, columns, append([]string(nil), texts(t, conn, `select column_name::text from information_schema.role_column_grants
			where grantee = 'tranche_system' and table_schema = 'public' and table_name = $1 and privilege_type = 'UPDATE' order by 1`, table)...), table)
		for _, role := range []string{"tranche_org", "tranche_system"} {
			var wide bool
			require.NoError(t, conn.QueryRow(t.Context(), `select has_table_privilege($1, $2, 'update') or has_table_privilege($1, $2, 'delete')
				or has_table_privilege($1, $2, 'truncate')`, role, table).Scan(&wide))
			require.False(t, wide, "%s on %s", role, table)
		}
	}
	for _, table := range []string{"contracts", "contract_terms", "contract_steps", "spot_prices", "price_steps"} {
		var write bool
		require.NoError(t, conn.QueryRow(t.Context(), `select has_table_privilege('tranche_org', $1, 'insert')`, table).Scan(&write))
		require.False(t, write, "tenants write no %s", table)
	}
}
