package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/billing/rating"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/money"
	"github.com/tranche-cloud/tranche/internal/store/internal/db"
)

// closeSilence is the close reason of a segment that ended at the last proof with
// no symptom: evidence of the same run fills the gap (60-billing §1).
const closeSilence = string(metering.Silence)

// OpenSegment says which run begins to be billed on the gpu meter, and from when.
type OpenSegment struct {
	Org        id.Org
	Instance   id.Instance
	Assignment id.Assignment
	Run        int
	At         time.Time // business time, from metering.StartInstant
	Restarted  bool      // the process started after the last proof of the run: nothing fills the gap
	Reason     string    // the metering.Event, process_started
	Evidence   string    // JSON object, "" for none
}

// OpenSegment opens a segment unless one is open; false means one was. The caller
// holds the instance row's lock. Everything that prices the usage is copied from
// the instance in the same statement.
//
// A run that was billed before continues its start_id. If its last segment was
// closed by silence of the same assignment, the new one begins where that ended,
// because the run is now proven to have gone on. No segment begins inside an older
// one or in a closed period. It fails with resource.not_found for an unknown instance.
func (t *SystemTx) OpenSegment(ctx context.Context, in OpenSegment) (bool, error) {
	floor, err := t.q.ReadClosedUntil(ctx, t.raw, uuid.UUID(in.Org))
	if err != nil {
		return false, mapError(err)
	}
	last, err := t.q.LastSegment(ctx, t.raw, db.LastSegmentParams{
		OrgID: uuid.UUID(in.Org), SubjectID: uuid.UUID(in.Instance), Meter: string(metering.GPU),
	})
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return false, mapError(err)
	}
	if last.IsOpen {
		return false, nil
	}
	start, at := uuid.UUID(id.New[id.Segment]()), metering.Instant(in.At)
	if last.Seq > 0 && int(last.Run) == in.Run {
		start = last.StartID
		if last.CloseReason == closeSilence && !in.Restarted && orZero[id.Assignment](last.AssignmentID) == in.Assignment {
			at = last.ToAt
		}
	}
	at = latest(at, last.ToAt, floor)
	if in.Evidence == "" {
		in.Evidence = "{}"
	}
	n, err := t.q.InsertInstanceSegment(ctx, t.raw, db.InsertInstanceSegmentParams{
		SegmentID: uuid.UUID(id.New[id.Segment]()), Meter: string(metering.GPU), StartID: start, Seq: last.Seq + 1, Run: int32(in.Run),
		AssignmentID: nullable(in.Assignment), OpenReason: in.Reason, Evidence: []byte(in.Evidence),
		BillingPeriod: metering.PeriodOf(at), At: at, OrgID: uuid.UUID(in.Org), InstanceID: uuid.UUID(in.Instance),
	})
	if err != nil {
		return false, mapError(err)
	}
	if n == 0 {
		return false, NotFound()
	}
	return true, nil
}

func latest(times ...time.Time) time.Time { return slices.MaxFunc(times, time.Time.Compare).UTC() }

// CloseOpenSegment ends the open segment of one meter at a business instant, one
// microsecond after its start at the earliest; false means none was open, which is
// no error. reason is the metering.Event, party who caused it (tenant, operator).
func (t *tx) CloseOpenSegment(ctx context.Context, org id.Org, inst id.Instance, meter metering.Meter, at time.Time, reason, party string) (bool, error) {
	n, err := t.q.CloseSegment(ctx, t.raw, db.CloseSegmentParams{
		At: metering.Instant(at), CloseReason: reason, FaultParty: party,
		OrgID: uuid.UUID(org), SubjectID: uuid.UUID(inst), Meter: string(meter),
	})
	return n > 0, mapError(err)
}

// CloseByEvent ends what an event ends, by the table of internal/metering.
func (t *tx) CloseByEvent(ctx context.Context, org id.Org, inst id.Instance, event metering.Event, facts metering.Facts) (bool, error) {
	changes, known := metering.Changes(event, facts)
	if !known {
		return false, fault.New(fault.Internal, "internal", fmt.Sprintf("The metering event %q is unknown.", event))
	}
	closed := false
	for _, c := range changes {
		if !c.Close || c.Open {
			continue
		}
		did, err := t.CloseOpenSegment(ctx, org, inst, c.Meter, c.At, string(event), c.Party)
		if err != nil {
			return false, err
		}
		closed = closed || did
	}
	return closed, nil
}

// UsageFilter selects segments that share an instant with Window; zero fields do
// not filter.
type UsageFilter struct {
	Window    metering.Interval // closed
	Project   id.Project
	Instances []id.Instance
}

// forever holds every instant a segment may have.
var forever = metering.Interval{
	From: time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC),
	To:   time.Date(9000, 1, 1, 0, 0, 0, 0, time.UTC),
}

// Usage is segments with the price books that price them.
type Usage struct {
	Segments    []rating.Usage
	Regions     map[id.Segment]string
	Books       map[id.PriceBook]billing.Book
	MaxRecorded time.Time // zero without segments
}

// UsageOf reads segments of an organization and every price book they name, in
// three statements. A zero window means all time.
func (t *tx) UsageOf(ctx context.Context, org id.Org, f UsageFilter) (Usage, error) {
	if f.Window == (metering.Interval{}) {
		f.Window = forever
	}
	subjects := make([]uuid.UUID, 0, len(f.Instances))
	for _, i := range f.Instances {
		subjects = append(subjects, uuid.UUID(i))
	}
	rows, err := t.q.UsageInWindow(ctx, t.raw, db.UsageInWindowParams{
		OrgID: uuid.UUID(org), FromAt: f.Window.From, ToAt: f.Window.To, ProjectID: nullable(f.Project), SubjectIds: subjects,
	})
	if err != nil {
		return Usage{}, mapError(err)
	}
	out := Usage{Regions: map[id.Segment]string{}}
	var books []id.PriceBook
	for _, r := range rows {
		if b := orZero[id.PriceBook](r.PriceBookID); !b.IsZero() && !slices.Contains(books, b) {
			books = append(books, b)
		}
		out.Regions[id.Segment(r.ID)] = r.Region
		if r.RecordedAt.After(out.MaxRecorded) {
			out.MaxRecorded = r.RecordedAt
		}
	}
	if out.Books, err = t.bookMap(ctx, books); err != nil {
		return Usage{}, err
	}
	for _, r := range rows {
		u, err := usageFrom(org, r, out.Books)
		if err != nil {
			return Usage{}, err
		}
		out.Segments = append(out.Segments, u)
	}
	return out, nil
}

func usageFrom(org id.Org, r db.UsageInWindowRow, books map[id.PriceBook]billing.Book) (rating.Usage, error) {
	during := metering.Between(r.FromAt, r.ToAt)
	if r.IsOpen {
		during.To = time.Time{}
	}
	u := rating.Usage{
		Segment: metering.Segment{
			ID: id.Segment(r.ID), Org: org, Project: id.Project(r.ProjectID), Subject: metering.Subject{Kind: r.SubjectKind, ID: r.SubjectID},
			Meter: metering.Meter(r.Meter), StartID: r.StartID, Seq: r.Seq, Run: int(r.Run), Units: r.Units, During: during,
		},
		SubjectName: r.SubjectName, ProjectName: r.ProjectName, SKU: skuOf(r), Book: orZero[id.PriceBook](r.PriceBookID),
		Pricing: billing.PricingKind(r.PricingKind), Simulated: r.Simulated,
	}
	if r.LockedPriceVersionID != nil && r.LockedPrice != "" {
		price, err := money.ParsePrice(r.LockedPrice, books[u.Book].Currency)
		if err != nil {
			return rating.Usage{}, fmt.Errorf("reading the price lock of segment %s: %w", u.ID, err)
		}
		u.Lock = &billing.Lock{Version: id.PriceVersion(*r.LockedPriceVersionID), Price: price}
	}
	return u, nil
}

// skuOf names a SKU for people: 2 × H200-141 mig 1g.18gb.
func skuOf(r db.UsageInWindowRow) billing.SKU {
	name := strings.TrimSpace(strings.Join([]string{r.GpuModel, r.Mode, r.Profile}, " "))
	if r.GpuCount > 1 {
		name = fmt.Sprintf("%d × %s", r.GpuCount, name)
	}
	return billing.SKU{ID: r.SkuID, Code: r.SkuCode, Name: name, IsolationGPU: r.IsolationGpu, IsolationHost: r.IsolationHost}
}
