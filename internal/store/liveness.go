package store

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tranche-cloud/tranche/internal/host"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/store/internal/db"
)

// SilentHost is a host that was not heard of for longer than a live one may be, or
// was and is suspect still.
type SilentHost struct {
	ID       id.Host
	Cell     string
	Liveness host.Liveness
	Silence  time.Duration // machine time in which proofs were being written down
}

// SilentHosts lists them; none while no gateway writes proofs.
func (t *SystemTx) SilentHosts(ctx context.Context) ([]SilentHost, error) {
	rows, err := t.q.SilentHosts(ctx, t.raw)
	if err != nil {
		return nil, mapError(err)
	}
	var out []SilentHost
	for _, r := range rows {
		out = append(out, SilentHost{
			ID: id.Host(r.ID), Cell: r.CellID, Liveness: host.Liveness(r.Liveness),
			Silence: time.Duration(r.Silence * float64(time.Second)),
		})
	}
	return out, nil
}

// SetLiveness changes a host's liveness, if it still is what the caller saw, with
// its event.
func (t *SystemTx) SetLiveness(ctx context.Context, h SilentHost, to host.Liveness) (bool, error) {
	n, err := t.q.SetLiveness(ctx, t.raw, db.SetLivenessParams{
		HostID: uuid.UUID(h.ID), Liveness: string(to), Was: string(h.Liveness),
	})
	if err != nil || n == 0 {
		return false, mapError(err)
	}
	if to != host.Suspect && to != host.Unknown {
		return true, nil
	}
	return true, t.AppendEvent(ctx, Event{
		Cell: h.Cell, Type: "host." + string(to), Subject: h.ID,
		Data: map[string]any{"silence_seconds": int(h.Silence.Seconds())},
	})
}

// InstancesOnUnknownHosts lists up to size instances that still show running there.
func (t *SystemTx) InstancesOnUnknownHosts(ctx context.Context, size int) ([]id.Instance, error) {
	rows, err := t.q.InstancesOnUnknownHosts(ctx, t.raw, int32(size))
	if err != nil {
		return nil, mapError(err)
	}
	var out []id.Instance
	for _, r := range rows {
		out = append(out, id.Instance(r))
	}
	return out, nil
}

// SettleProof extends the proof of a run to its silent host's last heartbeat and
// returns its business instant; false when the run was never proven.
func (t *SystemTx) SettleProof(ctx context.Context, a id.Assignment) (time.Time, bool, error) {
	at, err := t.q.SettleProofOfSilentRun(ctx, t.raw, uuid.UUID(a))
	if errors.Is(err, pgx.ErrNoRows) {
		return time.Time{}, false, nil
	}
	return at.UTC(), err == nil, mapError(err)
}

// HostRow is what a row of a host carries beside its view.
type HostRow struct {
	ID         id.Host
	Cell       string
	NextWakeAt *time.Time // machine clock
}

// LockHostView reads a host for its next step and keeps its row locked.
func (t *SystemTx) LockHostView(ctx context.Context, h id.Host) (host.View, HostRow, error) {
	r, err := t.q.LockHostProgress(ctx, t.raw, uuid.UUID(h))
	if err != nil {
		return host.View{}, HostRow{}, mapError(err)
	}
	return host.View{
		State: host.State(r.State), Liveness: host.Liveness(r.Liveness),
		Connected: r.Session > 0, InventoryComplete: r.InventoryComplete,
		Generation: r.Generation, Converged: r.ConvergedGeneration,
	}, HostRow{ID: h, Cell: r.CellID, NextWakeAt: r.NextWakeAt}, nil
}

// SaveHostView writes the state, converged generation and next wake-up of a locked host.
func (t *SystemTx) SaveHostView(ctx context.Context, r HostRow, v host.View) error {
	return mapError(t.q.SaveHostProgress(ctx, t.raw, db.SaveHostProgressParams{
		HostID: uuid.UUID(r.ID), State: string(v.State), ConvergedGeneration: v.Converged, NextWakeAt: r.NextWakeAt,
	}))
}
