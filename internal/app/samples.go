package app

import (
	"context"
	"time"

	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/store"
)

// Sample is what one source measured of an instance over one interval, or a gap.
type Sample = store.SampleRow

// SampleFilter is a half-open span of business time; a zero To is now, a zero From an
// hour before To.
type SampleFilter struct{ From, To time.Time }

// sampleSpan is how far back samples are read unless told.
const sampleSpan = time.Hour

// ListSamples lists what was measured of an instance, by time, gaps included. It fails
// with resource.not_found, and with request.invalid for a span that ends before it
// begins.
func (a *App) ListSamples(ctx context.Context, c Caller, p id.Project, i id.Instance, f SampleFilter, page Page) (List[Sample], error) {
	var rows []Sample
	err := a.Store.InOrg(ctx, c.Org, func(t *store.OrgTx) error {
		if _, err := t.Instance(ctx, p, i); err != nil {
			return err
		}
		var err error
		if f.To.IsZero() {
			if f.To, err = t.BusinessNow(ctx); err != nil {
				return err
			}
		}
		if f.From.IsZero() {
			f.From = f.To.Add(-sampleSpan)
		}
		if f.To.Before(f.From) {
			return fault.New(fault.Invalid, "request.invalid", "The span ends before it begins.").
				With(fault.Field{Pointer: "to", Code: "range", Detail: "must not be before from"})
		}
		rows, err = t.Samples(ctx, i, f.From, f.To, page.Cursor, page.Size+1)
		return err
	})
	return paged(rows, page.Size, func(s Sample) string { return s.Place }), err
}
