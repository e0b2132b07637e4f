package store

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/store/internal/db"
)

// Offence is one broken part of an invariant: how many rows break it, and the
// first of them by name.
type Offence struct {
	Invariant string
	Check     string
	Count     int
	Rows      []string
}

// namedRows is how many offenders are named.
const namedRows = 20

// CheckInvariants runs every check of the invariants that live in rows; what is under way
// for less than the tolerance (machine time; business time counts it times the
// clock's scale) is no offence. Each check reads one snapshot.
func (t *SystemTx) CheckInvariants(ctx context.Context, tolerance time.Duration) ([]Offence, error) {
	// Compiling these queries takes longer than running them.
	if _, err := t.raw.Exec(ctx, `select set_config('jit', 'off', true)`); err != nil {
		return nil, mapError(err)
	}
	var out []Offence
	for _, c := range slices.Concat(doctorChecks, usageChecks, walletChecks) {
		o := Offence{Invariant: c.invariant, Check: c.name}
		err := t.raw.QueryRow(ctx, `with s as (
				select make_interval(secs => $1::double precision) as machine,
					make_interval(secs => $1::double precision) * scale as biz from business_clock),
			found (what) as (`+c.sql+`)
			select count(*), coalesce((array_agg(what order by what))[1:$2], '{}') from found`,
			tolerance.Seconds(), namedRows).Scan(&o.Count, &o.Rows)
		if err != nil {
			return nil, fmt.Errorf("check %q of %s: %w", c.name, c.invariant, mapError(err))
		}
		if o.Count > 0 {
			for i, row := range o.Rows {
				o.Rows[i] = typedIDs(row)
			}
			out = append(out, o)
		}
	}
	geometry, err := t.auditGeometry(ctx)
	if err != nil {
		return nil, err
	}
	if geometry.Count > 0 {
		out = append(out, geometry)
	}
	return out, nil
}

var rawID = regexp.MustCompile(`\b(org|inst|asg|claim|op|seg|inv|gpu|intr)_([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\b`)

// typedIDs writes the ids of a row as people meet them elsewhere.
func typedIDs(row string) string {
	return rawID.ReplaceAllStringFunc(row, func(found string) string {
		prefix, raw, _ := strings.Cut(found, "_")
		u, err := uuid.Parse(raw)
		if err != nil {
			return found
		}
		return prefix + strings.TrimPrefix(id.Instance(u).String(), id.Instance(u).Prefix())
	})
}

// auditGeometry asks the one rule of the product whether what is held on each GPU
// can be held together: compute slices, maxima and engines are no cells.
func (t *SystemTx) auditGeometry(ctx context.Context) (Offence, error) {
	o := Offence{Invariant: "I1", Check: "slots that a GPU cannot hold together"}
	rows, err := t.q.ClaimedGPUs(ctx, t.raw)
	if err != nil {
		return o, mapError(err)
	}
	like := make([]db.PlacementGPUsRow, len(rows))
	for i, r := range rows {
		like[i] = db.PlacementGPUsRow(r)
	}
	byHost, err := t.describe(ctx, like)
	if err != nil {
		return o, err
	}
	for _, gpus := range byHost {
		for _, g := range gpus {
			if len(g.Held) == 0 {
				continue
			}
			if err := gpu.Coexist(g.Device, g.Held[0].Mode, g.Held); err != nil {
				o.Count++
				if len(o.Rows) < namedRows {
					o.Rows = append(o.Rows, fmt.Sprintf("GPU %s: %v", g.Device.UUID, err))
				}
			}
		}
	}
	return o, nil
}

// IssuedInvoice names a finalized invoice.
type IssuedInvoice struct {
	Org    id.Org
	ID     id.Invoice
	Number string
}

// NewestInvoices lists up to size finalized usage invoices, newest first.
func (t *SystemTx) NewestInvoices(ctx context.Context, size int) ([]IssuedInvoice, error) {
	rows, err := t.q.NewestInvoices(ctx, t.raw, int32(size))
	if err != nil {
		return nil, mapError(err)
	}
	out := make([]IssuedInvoice, len(rows))
	for i, r := range rows {
		out[i] = IssuedInvoice{Org: id.Org(r.OrgID), ID: id.Invoice(r.ID), Number: r.Number}
	}
	return out, nil
}
