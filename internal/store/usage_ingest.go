package store

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
)

// UsageRecord is a closed segment as its evidence tells it, complete. (Org, subject,
// meter, Seq) is its key: the same record may come any number of times.
type UsageRecord struct {
	metering.Segment
	Assignment  id.Assignment // zero: none
	SKU         [16]byte
	SKUSnapshot json.RawMessage // a JSON object
	Book        id.PriceBook    // zero: none
	Lock        id.PriceVersion // zero: no ceiling
	Pricing     billing.PricingKind
	Region      string
	IsolationGPU,
	IsolationHost string
	SubjectName string
	Labels      json.RawMessage // a JSON object, or nil
	OpenReason,
	CloseReason,
	FaultParty string
	Evidence  json.RawMessage // a JSON object, or nil
	Simulated bool
}

// Ingested counts what became of a batch.
type Ingested struct{ Added, Known int }

// ingestGiven is a batch as rows, one array a column.
const ingestGiven = `with given as materialized (
	select * from unnest($1::uuid[], $2::uuid[], $3::text[], $4::uuid[], $5::uuid[], $6::text[], $7::uuid[], $8::bigint[], $9::integer[], $10::uuid[],
		$11::bigint[], $12::uuid[], $13::text[], $14::uuid[], $15::uuid[], $16::text[], $17::text[], $18::text[], $19::text[], $20::text[],
		$21::text[], $22::text[], $23::text[], $24::text[], $25::text[], $26::boolean[], $27::text[], $28::timestamptz[], $29::timestamptz[])
		as g (org_id, id, subject_kind, subject_id, project_id, meter, start_id, seq, run, assignment_id, units, sku_id, sku_snapshot, price_book_id,
		locked_price_version_id, pricing_kind, region, isolation_gpu, isolation_host, subject_name, labels, open_reason, close_reason, fault_party,
		evidence, simulated, billing_period, from_at, to_at)
)`

// ingestSQL records a batch in one statement: the accounts are locked against a finalize
// that is on its way, and rows go in in their order. Only a key that exists is passed
// over: any other violation fails.
const ingestSQL = ingestGiven + `, accounts as materialized (
	select org_id, closed_until, close_no from billing_accounts where org_id in (select org_id from given) order by org_id for share
), added as (
	insert into usage_segments (org_id, id, subject_kind, subject_id, project_id, meter, start_id, seq, run, assignment_id,
		units, sku_id, sku_snapshot, price_book_id, locked_price_version_id, pricing_kind, region, isolation_gpu, isolation_host, subject_name,
		labels, open_reason, close_reason, fault_party, evidence, simulated, billing_period, close_no, during)
	select g.org_id, g.id, g.subject_kind, g.subject_id, g.project_id, g.meter, g.start_id, g.seq, g.run, g.assignment_id, g.units, g.sku_id,
		g.sku_snapshot::jsonb, g.price_book_id, g.locked_price_version_id, g.pricing_kind, g.region, g.isolation_gpu, g.isolation_host, g.subject_name,
		g.labels::jsonb, g.open_reason, g.close_reason, g.fault_party, g.evidence::jsonb, g.simulated, g.billing_period,
		case when g.from_at < a.closed_until then a.close_no else 0 end, tstzrange(g.from_at, g.to_at, '[)')
	from given g join accounts a on a.org_id = g.org_id
	on conflict (org_id, subject_id, meter, seq) do nothing
	returning 1
)
select count(*) from added`

// ingestFound compares a batch with what is there, in all that is billed by: how many are
// the same, how many differ.
const ingestFound = ingestGiven + `, found as (
	select (u.project_id, u.start_id, u.run, u.units, u.sku_id, u.pricing_kind, u.region, u.isolation_gpu, u.isolation_host, u.simulated, u.during)
			= (g.project_id, g.start_id, g.run, g.units, g.sku_id, g.pricing_kind, g.region, g.isolation_gpu, g.isolation_host, g.simulated,
			tstzrange(g.from_at, g.to_at, '[)'))
		and u.price_book_id is not distinct from g.price_book_id
		and u.locked_price_version_id is not distinct from g.locked_price_version_id as same
	from given g join usage_segments u on u.org_id = g.org_id and u.subject_id = g.subject_id and u.meter = g.meter and u.seq = g.seq
)
select count(*) filter (where same), count(*) filter (where not same) from found`

// IngestSegments records closed segments in bulk, in any order. Records that are there
// already change nothing. It fails with fault.Internal, and records nothing, if a
// record differs from the one with its key or overlaps another; with request.invalid for
// one that is open, empty, crosses a month or has no quantity; and with
// resource.not_found for an unknown organization.
func (t *SystemTx) IngestSegments(ctx context.Context, batch []UsageRecord) (Ingested, error) {
	given, err := distinctRecords(batch)
	if err != nil || len(given) == 0 {
		return Ingested{}, err
	}
	columns := columnsOf(given)
	var added, same, differing int
	if err := t.raw.QueryRow(ctx, ingestSQL, columns...).Scan(&added); err != nil {
		return Ingested{}, mapError(err)
	}
	out := Ingested{Added: added, Known: len(batch) - added}
	if added == len(given) {
		return out, nil
	}
	if err := t.raw.QueryRow(ctx, ingestFound, columns...).Scan(&same, &differing); err != nil {
		return Ingested{}, mapError(err)
	}
	switch {
	case differing > 0:
		return Ingested{}, differs(fmt.Errorf("%d records differ from those with their keys", differing))
	case same < len(given):
		return Ingested{}, NotFound().Because(errors.New("a record of an organization without an account"))
	}
	return out, nil
}

func differs(why error) error {
	return fault.New(fault.Internal, "internal", "A usage segment was recorded before with another content.").Because(why)
}

// distinctRecords checks a batch and returns it ordered by subject and seq, each key once:
// neighbours in the indexes go in one after the other.
func distinctRecords(batch []UsageRecord) ([]UsageRecord, error) {
	for i := range batch {
		if err := batch[i].check(); err != nil {
			return nil, err
		}
	}
	sorted := slices.Clone(batch)
	slices.SortFunc(sorted, CompareRecords)
	out := sorted[:0]
	for _, r := range sorted {
		if n := len(out); n == 0 || CompareRecords(out[n-1], r) != 0 {
			out = append(out, r)
			continue
		}
		if before := out[len(out)-1]; before.body() != r.body() {
			return nil, differs(fmt.Errorf("%s %d comes twice in one batch", r.SubjectName, r.Seq))
		}
	}
	return out, nil
}

// CompareRecords orders records by their keys.
func CompareRecords(a, b UsageRecord) int {
	return cmp.Or(bytes.Compare(a.Org[:], b.Org[:]), bytes.Compare(a.Subject.ID[:], b.Subject.ID[:]), cmp.Compare(a.Meter, b.Meter), cmp.Compare(a.Seq, b.Seq))
}

// body is what two records of one key must share.
func (r *UsageRecord) body() string {
	return fmt.Sprint(r.Project, r.StartID, r.Run, r.Units, r.SKU, r.Book, r.Lock, r.Pricing, r.Region, r.IsolationGPU, r.IsolationHost, r.Simulated,
		r.During.From.UnixMicro(), r.During.To.UnixMicro())
}

func (r *UsageRecord) check() error {
	switch {
	case r.During.Open() || r.During.Empty():
		return invalidRecord(r, "its interval must be closed and not empty")
	case metering.MonthEnd(r.During.From).Before(r.During.To):
		return invalidRecord(r, "it crosses the end of a month: cut it there")
	case r.Units <= 0:
		return invalidRecord(r, "its units must be positive")
	case r.Seq <= 0 || r.Org.IsZero():
		return invalidRecord(r, "its key is incomplete")
	}
	return nil
}

func invalidRecord(r *UsageRecord, why string) error {
	return fault.New(fault.Invalid, "request.invalid", fmt.Sprintf("The usage record %d of %s is refused: %s.", r.Seq, r.SubjectName, why))
}

// columnsOf turns records into one array a column, in the order of ingestSQL.
func columnsOf(list []UsageRecord) []any {
	var c struct {
		org, id, subject, project, start, sku                          []uuid.UUID
		assignment, book, lock                                         []*uuid.UUID
		kind, meter, snapshot, pricing, region, gpu, host, name, label []string
		open, closed, party, evidence, period                          []string
		seq, units                                                     []int64
		run                                                            []int32
		simulated                                                      []bool
		from, to                                                       []time.Time
	}
	for i := range list {
		r := &list[i]
		c.org, c.id, c.subject = append(c.org, uuid.UUID(r.Org)), append(c.id, uuid.UUID(r.ID)), append(c.subject, r.Subject.ID)
		c.project, c.start, c.sku = append(c.project, uuid.UUID(r.Project)), append(c.start, r.StartID), append(c.sku, r.SKU)
		c.assignment = append(c.assignment, nullable(r.Assignment))
		c.book, c.lock = append(c.book, nullable(r.Book)), append(c.lock, nullable(r.Lock))
		c.kind, c.meter = append(c.kind, r.Subject.Kind), append(c.meter, string(r.Meter))
		c.snapshot, c.label, c.evidence = append(c.snapshot, object(r.SKUSnapshot)), append(c.label, object(r.Labels)), append(c.evidence, object(r.Evidence))
		c.pricing, c.region = append(c.pricing, string(r.Pricing)), append(c.region, r.Region)
		c.gpu, c.host, c.name = append(c.gpu, r.IsolationGPU), append(c.host, r.IsolationHost), append(c.name, r.SubjectName)
		c.open, c.closed, c.party = append(c.open, r.OpenReason), append(c.closed, r.CloseReason), append(c.party, r.FaultParty)
		c.period, c.simulated = append(c.period, metering.PeriodOf(r.During.From)), append(c.simulated, r.Simulated)
		c.seq, c.units, c.run = append(c.seq, r.Seq), append(c.units, r.Units), append(c.run, int32(r.Run))
		c.from, c.to = append(c.from, metering.Instant(r.During.From)), append(c.to, metering.Instant(r.During.To))
	}
	return []any{
		c.org, c.id, c.kind, c.subject, c.project, c.meter, c.start, c.seq, c.run, c.assignment, c.units, c.sku, c.snapshot, c.book, c.lock,
		c.pricing, c.region, c.gpu, c.host, c.name, c.label, c.open, c.closed, c.party, c.evidence, c.simulated, c.period, c.from, c.to,
	}
}

// object is a JSON object, {} for none.
func object(text json.RawMessage) string {
	if len(text) == 0 {
		return "{}"
	}
	return string(text)
}
