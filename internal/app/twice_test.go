package app_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/internal/app"
	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/instance"
)

// TestStepsThatRunTwiceAtOnceAreOne plays a life in which each step is taken by
// three workers at the same time and once more afterwards, as happens when a
// workflow task is lost after its effect: one run, one claim, each event once.
func TestStepsThatRunTwiceAtOnceAreOne(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	x := f.buyer(t, "acme")
	for n := range 3 {
		f.host(t, fmt.Sprint("h", n), 1, h200(), gpu.WholeMode())
	}
	f.offer(t, "whole", "H200-141", gpu.WholeMode(), "", 1)
	i := f.create(t, x, "whole")
	step := func() {
		inParallel(t, 3, []id.Instance{i, i, i}, func(i id.Instance) error {
			_, err := f.app.Advance(t.Context(), i)
			return err
		})
		f.advance(t, i)
	}
	count := func(table string) int { return scalar[int](t, f, `select count(*) from `+table) }

	step()
	require.Equal(t, 1, count("assignments"))
	require.Equal(t, 1, count("claims"))
	f.report(t, i, "failed", "NEEDS_RESET")
	step()
	require.Equal(t, 2, count("assignments"), "the next host, once")
	require.Equal(t, 1, scalar[int](t, f, `select attempts from instances`))
	f.report(t, i, "running", "")
	step()
	require.Equal(t, "running", f.status(t, i))
	f.acknowledge(t, i)
	step()
	f.want(t, x, i, instance.WantStopped)
	step()
	f.acknowledge(t, i)
	step()
	require.Equal(t, "stopped", f.status(t, i))
	f.want(t, x, i, instance.WantDeleted)
	step()
	require.Equal(t, "deleted", f.status(t, i))
	require.Zero(t, count("claims"))
	require.Zero(t, count("quota_claims"))
	require.Equal(t, []string{"instance.deleted 1", "instance.running 1", "instance.stopped 1", "operation.succeeded 1"},
		scalar[[]string](t, f, `select array_agg(type || ' ' || n order by type) from (select type, count(*) as n from events group by type) e`))
	require.Empty(t, f.broken(t, app.AuditTolerance))
}
