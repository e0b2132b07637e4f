package store

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/store/internal/db"
)

// BillableUsage is UsageOf for a whole organization and window as of a close (nil:
// everything known), without labels, and the state that it was read in. Attributes come
// once a run, so that an invoice of many segments is read about as fast as they are
// summed.
func (t *tx) BillableUsage(ctx context.Context, org id.Org, window metering.Interval, asOf *int) (Usage, UsageState, error) {
	no, err := t.q.CloseNoOf(ctx, t.raw, uuid.UUID(org)) // first: what comes in later is not of this state
	if err != nil {
		return Usage{}, UsageState{}, mapError(err)
	}
	state, err := t.exclusionState(ctx, org, window)
	if err != nil {
		return Usage{}, UsageState{}, err
	}
	state.CloseNo = int(no)
	f := UsageFilter{Window: window, AsOf: asOf}
	rows, err := t.q.PackedUsage(ctx, t.raw, db.PackedUsageParams{OrgID: uuid.UUID(org), FromAt: window.From, ToAt: window.To, AsOf: f.asOf()})
	if err != nil {
		return Usage{}, UsageState{}, mapError(err)
	}
	gone, err := t.exclusions(ctx, org, f)
	if err != nil {
		return Usage{}, UsageState{}, err
	}
	var out Usage
	var books []id.PriceBook
	for _, r := range rows {
		if b := orZero[id.PriceBook](r.PriceBookID); !b.IsZero() && !slices.Contains(books, b) {
			books = append(books, b)
		}
		state.Segments += int64(len(r.Segments) / packedSize)
		if r.RecordedAt.After(out.MaxRecorded) {
			out.MaxRecorded = r.RecordedAt
		}
	}
	if out.MaxRecorded.After(state.MaxRecorded) {
		state.MaxRecorded = out.MaxRecorded.UTC()
	}
	if out.Books, err = t.bookMap(ctx, books); err != nil {
		return Usage{}, UsageState{}, err
	}
	out.Segments = slices.Grow(out.Segments, int(state.Segments))
	for _, r := range rows {
		if err := out.unpack(org, r, gone[seriesKey{r.SubjectID, r.Meter}], window); err != nil {
			return Usage{}, UsageState{}, err
		}
	}
	return out, state, t.fillStarted(ctx, org, out.Segments, f.asOf())
}

// packedSize is the bytes of a segment: id, seq, lower and upper bound.
const packedSize = 16 + 8 + 8 + 8

// unpack adds the segments of a group.
func (u *Usage) unpack(org id.Org, r db.PackedUsageRow, gone []metering.Interval, window metering.Interval) error {
	if len(r.Segments)%packedSize != 0 {
		return fmt.Errorf("reading usage of %s: %d bytes of segments", r.SubjectID, len(r.Segments))
	}
	common, err := usageFrom(org, db.UsageInWindowRow{
		ProjectID: r.ProjectID, SubjectKind: r.SubjectKind, SubjectID: r.SubjectID, Meter: r.Meter, StartID: r.StartID, Run: r.Run,
		Units: r.Units, IsOpen: true, SubjectName: r.SubjectName, ProjectName: r.ProjectName, SkuID: r.SkuID, SkuCode: r.SkuCode,
		GpuModel: r.GpuModel, Mode: r.Mode, Profile: r.Profile, GpuCount: r.GpuCount, IsolationGpu: r.IsolationGpu,
		IsolationHost: r.IsolationHost, Region: r.Region, PriceBookID: r.PriceBookID, LockedPriceVersionID: r.LockedPriceVersionID,
		LockedPrice: r.LockedPrice, PricingKind: r.PricingKind, Simulated: r.Simulated,
	}, u.Books)
	if err != nil {
		return err
	}
	for b := r.Segments; len(b) > 0; b = b[packedSize:] {
		one := common
		one.ID = id.Segment(b[:16])
		one.Seq = int64(binary.BigEndian.Uint64(b[16:]))
		one.During = metering.Interval{From: packedInstant(b[24:]), To: packedInstant(b[32:])}
		if len(gone) == 0 {
			u.Segments = append(u.Segments, one)
			continue
		}
		u.Segments = append(u.Segments, pieces(one, gone, window)...)
	}
	return nil
}

// packedEpoch is the instant that Postgres counts microseconds from.
var packedEpoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()

// packedInstant reads an instant as Postgres sends it; the zero time for infinity.
func packedInstant(b []byte) time.Time {
	micros := int64(binary.BigEndian.Uint64(b))
	if micros == math.MaxInt64 {
		return time.Time{}
	}
	return time.UnixMicro(packedEpoch + micros).UTC()
}

// exclusionState reads the part of the state that exclusions make.
func (t *tx) exclusionState(ctx context.Context, org id.Org, window metering.Interval) (UsageState, error) {
	r, err := t.q.ExclusionState(ctx, t.raw, db.ExclusionStateParams{OrgID: uuid.UUID(org), FromAt: window.From, ToAt: window.To})
	return UsageState{Changes: r.Changes, MaxRecorded: r.RecordedAt.UTC()}, mapError(err)
}

// UsageCheck is what a finalize looks at under the lock of the account.
type UsageCheck struct {
	State    UsageState
	Open     int64 // segments without an end
	Crossing int64 // segments across a bound of the window
	Unbilled int64 // (subject, meter) pairs whose documents do not sum to their usage
}

// CheckUsage reads the usage of a period again, in one pass: whether it is what a draft
// was made from, and whether the documents of the period, drafts too, bill exactly what
// was known as of a close.
func (t *SystemTx) CheckUsage(ctx context.Context, org id.Org, window metering.Interval, asOf int) (UsageCheck, error) {
	no, err := t.q.CloseNoOf(ctx, t.raw, uuid.UUID(org))
	if err != nil {
		return UsageCheck{}, mapError(err)
	}
	state, err := t.exclusionState(ctx, org, window)
	if err != nil {
		return UsageCheck{}, err
	}
	r, err := t.q.CheckUsage(ctx, t.raw, db.CheckUsageParams{
		FromAt: window.From, ToAt: window.To, AsOf: int32(asOf), OrgID: uuid.UUID(org), Period: metering.PeriodOf(window.From),
	})
	if err != nil {
		return UsageCheck{}, mapError(err)
	}
	state.CloseNo, state.Segments = int(no), r.SegmentCount
	if r.RecordedAt.After(state.MaxRecorded) {
		state.MaxRecorded = r.RecordedAt.UTC()
	}
	return UsageCheck{State: state, Open: r.OpenCount, Crossing: r.CrossingCount, Unbilled: r.Unbilled}, nil
}
