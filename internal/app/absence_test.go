package app_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/internal/agentlink"
	"github.com/tranche-cloud/tranche/internal/app"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/instance"
)

var appMatchAny app.Match

// full is a complete report that names nothing.
func (s *stage) full(t *testing.T) {
	t.Helper()
	s.report(t, agentlink.Observed{Full: true})
}

func (s *stage) longAgo(t *testing.T) {
	t.Helper()
	s.exec(t, `update observed_slices set missing_since = missing_since - interval '31 seconds'`)
}

// Absence ends a run only after two complete reports of one boot, thirty seconds
// apart; and even then its slots are free only when the host acknowledges.
func TestAbsenceIsInferredTwice(t *testing.T) {
	s := newStage(t)
	s.runs(t, "restart")
	s.full(t)
	s.full(t)
	require.Equal(t, instance.Interrupted, s.get(t, s.inst).Status)
	require.Equal(t, 1, s.count(t, `select count(*) from assignments where state = 'applied'`), "too soon")
	require.Zero(t, s.count(t, `select count(*) from interruptions`))

	s.longAgo(t)
	s.report(t, agentlink.Observed{Full: true, Failed: true, Failure: "driver hangs"})
	require.Zero(t, s.count(t, `select count(*) from observed_slices where run_state = 'failed'`), "an unreadable host says nothing")
	s.report(t, agentlink.Observed{Slices: nil})
	require.Zero(t, s.count(t, `select count(*) from observed_slices where run_state = 'failed'`), "a delta says nothing of the rest")
	s.report(t, agentlink.Observed{Full: true, Unchanged: true, Hash: "h"})
	require.Equal(t, 1, s.count(t, `select count(*) from hosts where reason = 'observation: driver hangs'`))
	require.Equal(t, 1, s.count(t, `select count(*) from interruptions where credited and cause = 'run.lost'
		and from_at = (select last_proof_at from run_proofs)`))
	s.advance(t)
	require.Equal(t, 1, s.count(t, `select count(*) from assignments where state = 'releasing'`))
	require.Equal(t, 2, s.count(t, `select count(*) from claims`), "the old slots are held until the host says they are free")
	s.report(t, agentlink.Observed{Gone: []agentlink.Tombstone{{Assignment: s.asg, Fence: 2}}})
	require.Equal(t, 1, s.count(t, `select count(*) from claims`))
	s.full(t)
	require.Zero(t, s.count(t, `select count(*) from hosts where reason <> ''`), "it can observe again")
}

// Seen again in between, or missing in another boot: counted from the start.
func TestAbsenceStartsAnew(t *testing.T) {
	s := newStage(t)
	s.runs(t, "restart")
	s.full(t)
	s.longAgo(t)
	s.report(t, agentlink.Observed{Full: true, Slices: []agentlink.Slice{s.slice(instance.RunRunning, 0, none)}})
	require.Equal(t, instance.Running, s.get(t, s.inst).Status)
	s.full(t)
	require.Zero(t, s.count(t, `select count(*) from interruptions`), "seen in between")
	s.longAgo(t)
	require.NoError(t, s.EndSession(t.Context(), s.session))
	s.session = s.world.session(t, s.session.Host, "another boot")
	s.sequence = 0
	s.full(t)
	require.Zero(t, s.count(t, `select count(*) from interruptions`), "another boot")
	require.Equal(t, 1, s.count(t, `select count(*) from observed_slices where missing_boot = 'another boot'`))
}

// A host that names nothing any more loses at most two runs at a time.
func TestAbsenceIsBounded(t *testing.T) {
	s := newStage(t)
	var all []agentlink.Slice
	for _, name := range []string{"two", "three", "four", "five"} {
		i := s.create(t, name)
		_, err := s.Advance(t.Context(), i.ID)
		require.NoError(t, err)
	}
	rows, err := s.db.OwnerPool(t).Query(t.Context(), `select id from assignments`)
	require.NoError(t, err)
	for rows.Next() {
		var raw [16]byte
		require.NoError(t, rows.Scan(&raw))
		s.asg = id.Assignment(raw)
		all = append(all, s.slice(instance.RunRunning, 0, none))
	}
	require.NoError(t, rows.Err())
	s.report(t, agentlink.Observed{Full: true, Slices: all})
	require.Equal(t, 5, s.count(t, `select count(*) from instances where status = 'running'`))
	s.full(t)
	s.longAgo(t)
	s.full(t)
	require.Equal(t, 2, s.count(t, `select count(*) from interruptions`))
	s.full(t)
	require.Equal(t, 4, s.count(t, `select count(*) from interruptions`))
	s.report(t, agentlink.Observed{Full: true, Slices: all[4:]})
	require.LessOrEqual(t, s.count(t, `select count(*) from interruptions`), 5)
}

// An empty inventory is a failed read: GPUs, sizes and health stay.
func TestEmptyInventoryChangesNothing(t *testing.T) {
	w := newStage(t).world
	w = w.withAgents(t)
	joined, _ := w.joinHost(t, "b", true)
	s := w.session(t, joined.Host, "boot")
	in := inventory("GPU-1", "GPU-2")
	require.NoError(t, w.RecordInventory(t.Context(), s, in))
	before := w.count(t, `select count(*) from gpus where present`)
	in.GPUs = nil
	require.NoError(t, w.RecordInventory(t.Context(), s, in))
	require.NoError(t, w.RecordInventory(t.Context(), s, agentlink.Inventory{Failed: true, Failure: "NVML"}))
	require.Equal(t, before, w.count(t, `select count(*) from gpus where present`))
	h, err := w.GetHost(t.Context(), w.operator, joined.Host)
	require.NoError(t, err)
	require.Contains(t, h.Reason, "inventory: NVML")
	require.Equal(t, 2, h.GPUCount)
}
