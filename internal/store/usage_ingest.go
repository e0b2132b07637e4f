package store

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

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

// ingestColumns are the columns of the temporary table, in the order of row.
var ingestColumns = []string{
	"org_id", "id", "subject_kind", "subject_id", "project_id", "meter", "start_id", "seq", "run", "assignment_id", "units", "sku_id",
	"sku_snapshot", "price_book_id", "locked_price_version_id", "pricing_kind", "region", "isolation_gpu", "isolation_host", "subject_name",
	"labels", "open_reason", "close_reason", "fault_party", "evidence", "simulated", "billing_period", "from_at", "to_at",
}

const ingestTable = `create temp table if not exists usage_ingest (
	org_id uuid, id uuid, subject_kind text, subject_id uuid, project_id uuid, meter text, start_id uuid, seq bigint, run integer,
	assignment_id uuid, units bigint, sku_id uuid, sku_snapshot jsonb, price_book_id uuid, locked_price_version_id uuid, pricing_kind text,
	region text, isolation_gpu text, isolation_host text, subject_name text, labels jsonb, open_reason text, close_reason text,
	fault_party text, evidence jsonb, simulated boolean, billing_period text, from_at timestamptz, to_at timestamptz) on commit delete rows`

// The rows go in ordered by subject: their neighbours in the indexes come one after
// the other. Only a key that exists is passed over; any other violation fails.
const ingestInsert = `insert into usage_segments (org_id, id, subject_kind, subject_id, project_id, meter, start_id, seq, run, assignment_id,
	units, sku_id, sku_snapshot, price_book_id, locked_price_version_id, pricing_kind, region, isolation_gpu, isolation_host, subject_name,
	labels, open_reason, close_reason, fault_party, evidence, simulated, billing_period, close_no, during)
select i.org_id, i.id, i.subject_kind, i.subject_id, i.project_id, i.meter, i.start_id, i.seq, i.run, i.assignment_id, i.units, i.sku_id,
	i.sku_snapshot, i.price_book_id, i.locked_price_version_id, i.pricing_kind, i.region, i.isolation_gpu, i.isolation_host, i.subject_name,
	i.labels, i.open_reason, i.close_reason, i.fault_party, i.evidence, i.simulated, i.billing_period,
	case when i.from_at < a.closed_until then a.close_no else 0 end, tstzrange(i.from_at, i.to_at, '[)')
from usage_ingest i join billing_accounts a on a.org_id = i.org_id
order by i.org_id, i.subject_id, i.meter, i.from_at
on conflict (org_id, subject_id, meter, seq) do nothing`

// A record whose key exists must say the same, in all that is billed by.
const ingestDiffers = `select count(*) filter (where (u.project_id, u.start_id, u.run, u.units, u.sku_id, u.pricing_kind, u.region, u.isolation_gpu,
		u.isolation_host, u.simulated, u.during) is distinct from (i.project_id, i.start_id, i.run, i.units, i.sku_id, i.pricing_kind, i.region,
		i.isolation_gpu, i.isolation_host, i.simulated, tstzrange(i.from_at, i.to_at, '[)'))
		or u.price_book_id is distinct from i.price_book_id or u.locked_price_version_id is distinct from i.locked_price_version_id),
	coalesce(min(u.subject_name || ' ' || u.meter || ' ' || u.seq) filter (where u.during is distinct from tstzrange(i.from_at, i.to_at, '[)')
		or (u.start_id, u.units, u.sku_id) is distinct from (i.start_id, i.units, i.sku_id)), ''),
	count(*)
from usage_ingest i left join usage_segments u on u.org_id = i.org_id and u.subject_id = i.subject_id and u.meter = i.meter and u.seq = i.seq`

// IngestSegments records closed segments in bulk, in any order. Records that are there
// already change nothing. It fails with fault.Internal, and records nothing, if a
// record differs from the one with its key, overlaps another, or crosses a month; with
// request.invalid for one that is open, empty, or has no quantity.
func (t *SystemTx) IngestSegments(ctx context.Context, batch []UsageRecord) (Ingested, error) {
	for i := range batch {
		if err := batch[i].check(); err != nil {
			return Ingested{}, err
		}
	}
	if _, err := t.raw.Exec(ctx, ingestTable); err != nil {
		return Ingested{}, mapError(err)
	}
	orgs := orgsOf(batch)
	if _, err := t.raw.Exec(ctx, `select 1 from billing_accounts where org_id = any($1) order by org_id for share`, orgs); err != nil {
		return Ingested{}, mapError(err)
	}
	rows := pgx.CopyFromSlice(len(batch), func(i int) ([]any, error) { return batch[i].row(), nil })
	if _, err := t.raw.CopyFrom(ctx, pgx.Identifier{"usage_ingest"}, ingestColumns, rows); err != nil {
		return Ingested{}, mapError(err)
	}
	done, err := t.raw.Exec(ctx, ingestInsert)
	if err != nil {
		return Ingested{}, mapError(err)
	}
	out := Ingested{Added: int(done.RowsAffected()), Known: len(batch) - int(done.RowsAffected())}
	if out.Known == 0 {
		return out, nil
	}
	var differing, all int
	var which string
	if err := t.raw.QueryRow(ctx, ingestDiffers).Scan(&differing, &which, &all); err != nil {
		return Ingested{}, mapError(err)
	}
	if differing > 0 {
		return Ingested{}, fault.New(fault.Internal, "internal", "A usage segment was recorded before with another content.").
			Because(fmt.Errorf("%d records differ from their keys, one is %s", differing, which))
	}
	return out, nil
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

func (r *UsageRecord) row() []any {
	return []any{
		uuid.UUID(r.Org), uuid.UUID(r.ID), r.Subject.Kind, uuid.UUID(r.Subject.ID), uuid.UUID(r.Project), string(r.Meter), uuid.UUID(r.StartID),
		r.Seq, int32(r.Run), nullable(r.Assignment), r.Units, uuid.UUID(r.SKU), object(r.SKUSnapshot), nullable(r.Book), nullable(r.Lock),
		string(r.Pricing), r.Region, r.IsolationGPU, r.IsolationHost, r.SubjectName, object(r.Labels), r.OpenReason, r.CloseReason, r.FaultParty,
		object(r.Evidence), r.Simulated, metering.PeriodOf(r.During.From), metering.Instant(r.During.From), metering.Instant(r.During.To),
	}
}

// object is a JSON object, {} for none.
func object(text json.RawMessage) json.RawMessage {
	if len(text) == 0 {
		return json.RawMessage("{}")
	}
	return text
}

func orgsOf(batch []UsageRecord) []uuid.UUID {
	seen := map[uuid.UUID]bool{}
	for i := range batch {
		seen[uuid.UUID(batch[i].Org)] = true
	}
	out := make([]uuid.UUID, 0, len(seen))
	for o := range seen {
		out = append(out, o)
	}
	slices.SortFunc(out, func(a, b uuid.UUID) int { return strings.Compare(a.String(), b.String()) })
	return out
}
