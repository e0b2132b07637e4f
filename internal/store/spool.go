package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/store/internal/db"
)

// HoldSpool locks what is known of a host's spool and returns the highest id that was
// taken in; lower ones were taken too.
func (t *SystemTx) HoldSpool(ctx context.Context, h id.Host) (taken uint64, err error) {
	if err := t.q.EnsureSpool(ctx, t.raw, uuid.UUID(h)); err != nil {
		return 0, mapError(err)
	}
	n, err := t.q.LockSpool(ctx, t.raw, uuid.UUID(h))
	return uint64(n), mapError(err)
}

// AdvanceSpool notes that everything up to an id is taken. The caller holds the spool.
func (t *SystemTx) AdvanceSpool(ctx context.Context, h id.Host, taken uint64) error {
	return mapError(t.q.AdvanceSpool(ctx, t.raw, int64(taken), uuid.UUID(h)))
}

// SliceReading is what one source measured of a slice over one interval, or a gap.
type SliceReading struct {
	Assignment id.Assignment
	Source     string
	Gap        string
	Readings   map[string]int64 // by name; a missing one is not reported
}

// InsertSamples writes the readings of one spooled sample. Those of assignments that
// are not on the host are left out.
func (t *SystemTx) InsertSamples(ctx context.Context, h id.Host, spool uint64, at time.Time, interval time.Duration, list []SliceReading) error {
	p := db.InsertSamplesParams{SpoolID: int64(spool), At: at, IntervalMs: int32(interval.Milliseconds()), HostID: uuid.UUID(h)}
	for _, s := range list {
		text := []byte("{}")
		if len(s.Readings) > 0 {
			var err error
			if text, err = json.Marshal(s.Readings); err != nil {
				return fmt.Errorf("write the readings of %s: %w", s.Assignment, err)
			}
		}
		p.AssignmentIds = append(p.AssignmentIds, uuid.UUID(s.Assignment))
		p.Sources, p.Gaps = append(p.Sources, s.Source), append(p.Gaps, s.Gap)
		p.Readings = append(p.Readings, string(text))
	}
	return mapError(t.q.InsertSamples(ctx, t.raw, p))
}

// Sample is a reading of an instance's slice. At is the business instant of the
// interval's end.
type Sample struct {
	SliceReading
	Run      int
	At       time.Time
	Interval time.Duration
}

// SamplesOf lists up to size samples of an instance in [from, to), oldest first.
func (t *OrgTx) SamplesOf(ctx context.Context, i id.Instance, from, to time.Time, size int) ([]Sample, error) {
	rows, err := t.q.SamplesOf(ctx, t.raw, db.SamplesOfParams{
		OrgID: uuid.UUID(t.org), InstanceID: uuid.UUID(i), FromAt: from, ToAt: to, Size: int32(size),
	})
	if err != nil {
		return nil, mapError(err)
	}
	return mapRows(rows, func(r db.SliceSample) (Sample, error) {
		s := Sample{
			SliceReading: SliceReading{Assignment: id.Assignment(r.AssignmentID), Source: r.Source, Gap: r.Gap},
			Run:          int(r.Run), At: r.At.UTC(), Interval: time.Duration(r.IntervalMs) * time.Millisecond,
		}
		return s, json.Unmarshal(r.Readings, &s.Readings)
	})
}

// PruneSamples deletes up to size samples that are older than so many days.
func (t *SystemTx) PruneSamples(ctx context.Context, days, size int) (int64, error) {
	n, err := t.q.PruneSamples(ctx, t.raw, int32(days), int32(size))
	return n, mapError(err)
}

// Owner says whose an assignment is.
type Owner struct {
	Org      id.Org
	Project  id.Project
	Instance id.Instance
	Run      int
	Cell     string
}

// OwnerOn reads the owner of an assignment that is, or was, on the host; found is
// false for any other.
func (t *SystemTx) OwnerOn(ctx context.Context, h id.Host, asg id.Assignment) (o Owner, found bool, err error) {
	r, err := t.q.AssignmentOwner(ctx, t.raw, uuid.UUID(asg), uuid.UUID(h))
	if isNoRows(err) {
		return Owner{}, false, nil
	}
	return Owner{
		Org: id.Org(r.OrgID), Project: id.Project(r.ProjectID), Instance: id.Instance(r.InstanceID), Run: int(r.Run), Cell: r.CellID,
	}, err == nil, mapError(err)
}

// GPUOn finds a GPU of a host by its driver's name, with its known health; found is
// false without one.
func (t *SystemTx) GPUOn(ctx context.Context, h id.Host, gpuUUID string) (g id.GPU, health string, found bool, err error) {
	r, err := t.q.GPUOnHost(ctx, t.raw, uuid.UUID(h), gpuUUID)
	if isNoRows(err) {
		return id.GPU{}, "", false, nil
	}
	return id.GPU(r.ID), r.Health, err == nil, mapError(err)
}

// CellOf returns the cell of a host. It fails with resource.not_found.
func (t *SystemTx) CellOf(ctx context.Context, h id.Host) (string, error) {
	cell, err := t.q.HostCell(ctx, t.raw, uuid.UUID(h))
	return cell, mapError(err)
}

// AppendEventAt is AppendEvent for what happened at an earlier business instant.
func (t *SystemTx) AppendEventAt(ctx context.Context, e Event, at time.Time) error {
	data, err := json.Marshal(e.Data)
	if err != nil {
		return fault.From(err)
	}
	p := db.AppendEventAtParams{
		OrgID: uuid.UUID(e.Org), ProjectID: nullable(e.Project), Type: e.Type, SubjectID: e.Subject.UUID(), Data: data, At: at,
	}
	if e.Cell != "" {
		p.CellID = &e.Cell
	}
	return mapError(t.q.AppendEventAt(ctx, t.raw, p))
}

// Interruption is time in which an instance was down by a fault of the platform.
// Instants are business time.
type Interruption struct {
	ID         id.Interruption
	Assignment id.Assignment
	Run        int
	Host       id.Host
	GPU        id.GPU // zero: none was held
	Cause      string // a public problem code
	Detail     string
	Credited   bool
	From       time.Time
	To         *time.Time // nil while it lasts
}

// OpenInterruption notes that the platform ended a run, unless an interruption of the
// instance is open. SaveStatus closes it when the instance runs again or is not
// wanted to run any more. The caller holds the instance and saves its row after.
func (t *SystemTx) OpenInterruption(ctx context.Context, r *InstanceRow, asg id.Assignment, cause, detail string, credited bool, from time.Time) error {
	err := t.q.OpenInterruption(ctx, t.raw, db.OpenInterruptionParams{
		InterruptionID: uuid.UUID(id.New[id.Interruption]()), AssignmentID: uuid.UUID(asg),
		Cause: cause, Detail: detail, Credited: credited, FromAt: from,
	})
	r.interrupted = err == nil
	return mapError(err)
}

// Interruptions lists up to size interruptions of an instance, newest first.
func (t *OrgTx) Interruptions(ctx context.Context, i id.Instance, size int) ([]Interruption, error) {
	rows, err := t.q.InterruptionsOf(ctx, t.raw, db.InterruptionsOfParams{
		OrgID: uuid.UUID(t.org), InstanceID: uuid.UUID(i), Size: int32(size),
	})
	if err != nil {
		return nil, mapError(err)
	}
	return mapRows(rows, func(r db.Interruption) (Interruption, error) {
		return Interruption{
			ID: id.Interruption(r.ID), Assignment: id.Assignment(r.AssignmentID), Run: int(r.Run), Host: id.Host(r.HostID),
			GPU: orZero[id.GPU](r.GpuID), Cause: r.Cause, Detail: r.Detail, Credited: r.Credited, From: r.FromAt.UTC(), To: r.ToAt,
		}, nil
	})
}
