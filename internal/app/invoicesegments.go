package app

import (
	"context"
	"fmt"
	"math/big"
	"time"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/billing/rating"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/store"
)

// LineSegment is a part of a segment in a line: the seconds behind the money.
type LineSegment struct {
	Subject  metering.Subject
	Name     string
	Segment  id.Segment
	From, To time.Time
	Units    int64
	Quantity *big.Int // Units × microseconds; of egress, bytes
	Unit     string   // of Quantity, gpu_us
}

// key orders segments within a line and names one of a page.
func (s LineSegment) key() string {
	return fmt.Sprintf("%x.%x.%016x", s.Subject.ID, s.Segment, s.From.UnixMicro())
}

// InvoiceLineSegments lists the parts of segments that a line of usage is the sum of,
// by subject: their quantities sum to the line's exactly. They are read from the usage
// as of the invoice's close and the terms stored with it. A line that is computed from
// others has none. It fails with resource.not_found and page_token.invalid.
func (a *App) InvoiceLineSegments(ctx context.Context, c Caller, inv id.Invoice, line int, p Page) (List[LineSegment], error) {
	var all []LineSegment
	err := a.Store.InOrg(ctx, c.Org, func(t *store.OrgTx) error {
		v, err := t.Invoice(ctx, c.Org, inv)
		if err != nil {
			return err
		}
		if v.State != billing.Open || line < 1 || line > len(v.Lines) {
			return store.NotFound()
		}
		all, err = a.lineSegments(ctx, t, v, v.Lines[line-1])
		return err
	})
	if err != nil {
		return List[LineSegment]{}, err
	}
	return segmentPage(all, p)
}

func (a *App) lineSegments(ctx context.Context, t *store.OrgTx, v billing.Invoice, l billing.Line) ([]LineSegment, error) {
	if l.Key.Component != billing.UsageCharge && l.Key.Component != billing.Covered {
		return nil, nil
	}
	kept, err := t.BasisOf(ctx, v.Org, v.ID)
	if err != nil {
		return nil, err
	}
	in, _, err := a.inputs(ctx, t, v.Org, v.Period, v.Period.To, kept.AsOf)
	if err != nil {
		return nil, err
	}
	in.Currency = v.Currency
	if in.Terms, err = billing.DecodeTerms(kept.Terms); err != nil {
		return nil, fmt.Errorf("reading the terms of invoice %s: %w", v.ID, err)
	}
	uses, err := rating.Trace(in, l.Key)
	if err != nil {
		return nil, err
	}
	sum, out := new(big.Int), make([]LineSegment, 0, len(uses))
	for _, u := range uses {
		sum.Add(sum, u.Quantity)
		out = append(out, LineSegment{
			Subject: u.Subject, Name: u.SubjectName, Segment: u.Segment, From: u.During.From, To: u.During.To, Units: u.Units, Quantity: u.Quantity,
			Unit: l.QuantityUnit,
		})
	}
	if sum.Cmp(l.Quantity) != 0 {
		return nil, fault.New(fault.Internal, "internal", "A line is not the sum of its segments.").
			Because(fmt.Errorf("line %d of invoice %s is %s, its segments %s", l.No, v.ID, l.Quantity, sum))
	}
	return out, nil
}

// segmentPage cuts a page out of all segments of a line, which are in order.
func segmentPage(all []LineSegment, p Page) (List[LineSegment], error) {
	from := 0
	if p.Cursor != "" {
		for from < len(all) && all[from].key() != p.Cursor {
			from++
		}
		if from == len(all) {
			return List[LineSegment]{}, fault.New(fault.Invalid, "page_token.invalid", "The page token is of another list.").
				Suggest("Start again without a page token.")
		}
		from++
	}
	to := min(from+p.Size, len(all))
	out := List[LineSegment]{Items: all[from:to]}
	if to < len(all) && to > from {
		out.Next = all[to-1].key()
	}
	return out, nil
}
