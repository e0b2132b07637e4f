package replay

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/tranche-cloud/tranche/devstack/internal/market"
	"github.com/tranche-cloud/tranche/devstack/internal/trace"
)

// Report prints what came of the play, for people. Slots is how many slices of
// each shape the fleet has; skipped is how many tasks were left out.
func (r *Result) Report(w io.Writer, skipped int, slots map[trace.Shape]int) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	arrivals := len(r.Outcomes)
	fmt.Fprintf(t, "arrivals\t%d\t(%d tasks of several GPUs left out)\n", arrivals, skipped)
	fmt.Fprintf(t, "ran\t%d\t%.1f %%\n", r.Ran(), 100*float64(r.Ran())/float64(arrivals))
	for _, code := range slices.Sorted(maps.Keys(r.Codes())) {
		fmt.Fprintf(t, "%s\t%d\n", code, r.Codes()[code])
	}
	var accepts, runnings []time.Duration
	for _, o := range r.Outcomes {
		if o.Accept > 0 {
			accepts = append(accepts, o.Accept)
		}
		if o.Running > 0 {
			runnings = append(runnings, o.Running)
		}
	}
	fmt.Fprintf(t, "create → 202\tp50 %d ms\tp99 %d ms\n", percentile(accepts, 50).Milliseconds(), percentile(accepts, 99).Milliseconds())
	fmt.Fprintf(t, "create → running\tp50 %d ms\tp99 %d ms\n", percentile(runnings, 50).Milliseconds(), percentile(runnings, 99).Milliseconds())
	fmt.Fprintf(t, "real time\t%.0f s\tbusiness time %.1f h\n", r.Took.Seconds(), (r.Took * time.Duration(r.Speed)).Hours())
	if err := t.Flush(); err != nil {
		return err
	}
	return r.reportShapes(w, slots)
}

// reportShapes prints how much of the fleet was used while the trace was played.
func (r *Result) reportShapes(w io.Writer, slots map[trace.Shape]int) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "\noffer\tarrivals\tran\tslots\tutilisation")
	span := float64((r.Took * time.Duration(r.Speed)).Microseconds())
	for _, shape := range trace.Shapes {
		var came, ran int
		var micros int64
		for _, o := range r.Outcomes {
			if o.Shape != shape {
				continue
			}
			came++
			if o.Running > 0 {
				ran++
			}
			n, err := BilledMicros(o.Instance)
			if err != nil {
				return err
			}
			micros += n
		}
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%.1f %%\n", market.Of(shape).Offer, came, ran, slots[shape],
			100*float64(micros)/span/float64(max(1, slots[shape])))
	}
	return t.Flush()
}

// Slots are the slices of each shape on the replay fleet.
func Slots() map[trace.Shape]int {
	return map[trace.Shape]int{trace.Whole: 20, trace.ThreeSevenths: 12, trace.Quarter: 24, trace.Half: 16}
}

// ReportInvoices prints usage and invoice of each organization.
func (r *Result) ReportInvoices(w io.Writer, invoices []Bill) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "\norganization\tinstances\thours billed\tinvoice\tlines\ttotal\t")
	for _, invoice := range invoices {
		i, instances := invoice.Organization, 0
		for _, o := range r.Outcomes {
			if o.Organization == i && len(o.Instance.Billed) > 0 {
				instances++
			}
		}
		micros, err := r.BilledMicros(i)
		if err != nil {
			return err
		}
		number, err := invoice.Number.Get()
		if err != nil {
			return fmt.Errorf("invoice of organization %d has no number: %w", i+1, err)
		}
		fmt.Fprintf(t, "%s\t%d\t%.3f\t%s\t%d\t%s %s\t\n", invoice.Buyer.Name, instances, float64(micros)/3.6e9, number,
			len(invoice.Lines), invoice.Total.Amount, invoice.Total.Currency)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "%d invoices finalized; on each the lines sum to the total, and the quantities to what its instances were billed\n", len(invoices))
	return err
}
