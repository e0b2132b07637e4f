package store

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/billing/rating"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/money"
	"github.com/tranche-cloud/tranche/internal/store/internal/db"
)

// UsageFilter selects segments that share an instant with Window; zero fields do
// not filter.
type UsageFilter struct {
	Window    metering.Interval // closed
	Project   id.Project
	Instances []id.Instance
	// AsOf reads what was known at that close of the organization: segments, exclusions
	// and liftings with a later close_no do not count. Nil counts everything.
	AsOf *int
}

// asOf is the last close that counts.
func (f UsageFilter) asOf() int32 {
	if f.AsOf == nil {
		return math.MaxInt32
	}
	return int32(*f.AsOf)
}

// forever holds every instant a segment may have.
var forever = metering.Interval{
	From: time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC),
	To:   time.Date(9000, 1, 1, 0, 0, 0, 0, time.UTC),
}

// Usage is segments with the price books that price them.
type Usage struct {
	Segments    []rating.Usage
	Labels      map[SegmentKey]map[string]string // at the time
	Books       map[id.PriceBook]billing.Book
	MaxRecorded time.Time // zero without segments
}

// UsageOf reads what is billable of an organization, segments without what is excluded
// of them, and every price book they name, in four statements. A zero window means all
// time. The parts of a segment with a hole have ids of their own, except the first.
func (t *tx) UsageOf(ctx context.Context, org id.Org, f UsageFilter) (Usage, error) {
	if f.Window == (metering.Interval{}) {
		f.Window = forever
	}
	subjects := make([]uuid.UUID, 0, len(f.Instances))
	for _, i := range f.Instances {
		subjects = append(subjects, uuid.UUID(i))
	}
	rows, err := t.q.UsageInWindow(ctx, t.raw, db.UsageInWindowParams{
		OrgID: uuid.UUID(org), FromAt: f.Window.From, ToAt: f.Window.To, ProjectID: nullable(f.Project), SubjectIds: subjects, AsOf: f.asOf(),
	})
	if err != nil {
		return Usage{}, mapError(err)
	}
	gone, err := t.exclusions(ctx, org, f)
	if err != nil {
		return Usage{}, err
	}
	out := Usage{Labels: map[SegmentKey]map[string]string{}}
	var books []id.PriceBook
	for _, r := range rows {
		if b := orZero[id.PriceBook](r.PriceBookID); !b.IsZero() && !slices.Contains(books, b) {
			books = append(books, b)
		}
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
		var labels map[string]string
		if err := json.Unmarshal(r.Labels, &labels); err != nil {
			return Usage{}, fmt.Errorf("reading the labels of segment %s: %w", u.ID, err)
		}
		if len(labels) > 0 {
			out.Labels[KeyOf(u)] = labels
		}
		out.Segments = append(out.Segments, pieces(u, gone[seriesKey{r.SubjectID, r.Meter}], f.Window)...)
	}
	return out, t.fillStarted(ctx, org, out.Segments, f.asOf())
}

// SegmentKey names a segment, whatever was cut out of it.
type SegmentKey struct {
	Subject [16]byte
	Meter   metering.Meter
	Seq     int64
}

// KeyOf returns the key of a segment or of a piece of one.
func KeyOf(u rating.Usage) SegmentKey { return SegmentKey{u.Subject.ID, u.Meter, u.Seq} }

// seriesKey names a meter of a subject.
type seriesKey struct {
	subject uuid.UUID
	meter   string
}

// exclusions reads what is not billed after all.
func (t *tx) exclusions(ctx context.Context, org id.Org, f UsageFilter) (map[seriesKey][]metering.Interval, error) {
	rows, err := t.q.ExclusionsInWindow(ctx, t.raw, db.ExclusionsInWindowParams{
		OrgID: uuid.UUID(org), FromAt: f.Window.From, ToAt: f.Window.To, AsOf: f.asOf(),
	})
	if err != nil || len(rows) == 0 {
		return nil, mapError(err)
	}
	out := map[seriesKey][]metering.Interval{}
	for _, r := range rows {
		k := seriesKey{r.SubjectID, r.Meter}
		out[k] = append(out[k], metering.Between(r.FromAt, r.ToAt))
	}
	return out, nil
}

// pieces cuts what is excluded out of a segment, and drops what lies outside the window.
func pieces(u rating.Usage, gone []metering.Interval, window metering.Interval) []rating.Usage {
	if len(gone) == 0 {
		return []rating.Usage{u}
	}
	var out []rating.Usage
	for n, part := range metering.Without(u.During, gone) {
		if !part.Overlaps(window) {
			continue
		}
		piece := u
		piece.During = part
		if n > 0 {
			piece.ID = pieceID(u.ID, n)
		}
		out = append(out, piece)
	}
	return out
}

// pieceID names the later pieces of a segment with holes.
func pieceID(whole id.Segment, n int) id.Segment {
	return id.Segment(uuid.NewMD5(uuid.UUID(whole), []byte(strconv.Itoa(n))))
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
		SubjectName: r.SubjectName, ProjectName: r.ProjectName, SKU: skuOf(r), Book: orZero[id.PriceBook](r.PriceBookID), Region: r.Region,
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
	return billing.SKU{ID: r.SkuID, Code: r.SkuCode, Name: name, Family: billing.FamilyOf(r.GpuModel, r.Mode), IsolationGPU: r.IsolationGpu, IsolationHost: r.IsolationHost}
}
