package app_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/internal/app"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
)

// gpu adds a healthy GPU in MIG mode to the host.
func (l *late) gpu(t *testing.T) id.GPU {
	t.Helper()
	g := id.New[id.GPU]()
	l.exec(t, `insert into gpu_inventories (hash, body) values ('h', '{}') on conflict do nothing`)
	l.exec(t, `insert into gpus (id, host_id, cell_id, uuid, model, memory_mib, sm_count, units, inventory_hash, mode_desired, mode_observed)
		values ($1, $2, 'local-1', $3, 'H200-141', 131072, 132, 8, 'h', 'mig', 'mig')`, uuid.UUID(g), uuid.UUID(l.host), "GPU-"+uuid.NewString())
	return g
}

// One GPU is looked at for an hour, half of it unwell; a slice of an eighth of its memory
// is sold for the hour.
func TestUtilisationReport(t *testing.T) {
	l := newLate(t)
	g := l.gpu(t)
	from := l.from[0].Truncate(time.Hour).Add(time.Hour)
	l.setClock(t, from.Add(time.Millisecond))
	l.begins(t, 0)
	l.exec(t, `update usage_segments set during = tstzrange($1, null)`, from)
	for i := range 7 {
		l.setClock(t, from.Add(time.Duration(i)*500*time.Second))
		require.NoError(t, l.Checkpoint(t.Context()))
		if i == 3 {
			l.exec(t, `update gpus set health = 'failed' where id = $1`, uuid.UUID(g))
		}
	}
	l.setClock(t, from.Add(3000*time.Second))
	got, err := l.UtilisationReport(t.Context(), l.operator, "2026-11")
	require.NoError(t, err)
	require.Len(t, got.Rows, 1)
	r := got.Rows[0]
	require.Equal(t, []any{"H200-141", "mig", l.host, "h", 1}, []any{r.Model, r.Mode, r.Host, r.HostName, r.GPUs})
	second := int64(1_000_000)
	near := func(want, got int64) { require.InDelta(t, want, got, float64(2*second)) }
	near(3000*second, r.Observed)
	near(1500*second, r.Sellable)
	near(3000*second/8, r.Sold)
	require.Equal(t, r.Sellable-r.Sold, r.Idle)
	require.True(t, r.Estimated, "nobody looked before")
	require.Len(t, r.Revenue, 1)
	require.Regexp(t, `^0\.408`, r.Revenue[0].Decimal(), "3000 s at 0.49 an hour")
	_, err = l.UtilisationReport(t.Context(), l.operator, "November")
	require.Equal(t, "request.invalid", fault.CodeOf(err))
	empty, err := l.UtilisationReport(t.Context(), l.operator, "2026-09")
	require.NoError(t, err)
	require.Equal(t, app.Utilisation{Period: "2026-09", Until: time.Date(2026, 10, 1, 0, 0, 0, 0, time.UTC), Rows: []app.UtilisationRow{}}, empty)
}
