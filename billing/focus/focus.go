// Package focus owns the cost and usage export by the FOCUS specification, version
// 1.2: rows of charges as CSV and Parquet, and a check of every rule of it that
// applies. The same documents give the same bytes.
//
// It does not own documents (billing) or what resources are called today: names are
// those of the time of the charge, as documents carry them.
//
// A row is one resource of one line. Σ BilledCost of a document is its total less the
// prepaid balance applied; Σ EffectiveCost is its total, where what was bought before
// or ahead (advances, reservations) is spread over what used it. A row that the prepaid
// balance paid in part is two rows, by largest remainder. Reservations are purchases of
// EffectiveCost 0; what they covered and what stayed unused carries their cost.
// Quantities are cut to 12 decimals, and list and contracted cost are exactly the
// emitted quantity × price: only billed and effective cost are money of documents.
package focus

import (
	"encoding/csv"
	"fmt"
	"io"
	"iter"
	"time"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/money"
)

// Input is what one organization is charged with.
type Input struct {
	Invoices    []billing.Invoice // in the order of the export; carried ones are left out: a later one has their amount
	TopUps      []TopUp           // payments into the prepaid balance that no advance invoice is for
	Org         id.Org            // of the top-ups; with invoices theirs counts
	Account     string            // the organization's name; "" means the buyer's
	Provider    string            // the operator's brand; "" means the seller's name
	Resources   map[metering.Subject]Resource
	Commitments map[string]string                      // names of reservations and contracts by LineKey.Reference
	ListPrices  func(billing.Line) (money.Price, bool) // see ListPrices; nil: the price of the line
}

// Resource is what a document does not say of a resource. Empty fields are null.
type Resource struct {
	Region, RegionName, Zone string
	Labels                   map[string]string
}

// TopUp is a payment into the prepaid balance.
type TopUp struct {
	ID     id.Grant
	At     time.Time
	Amount money.Amount
}

// Export is documents ready to be exported.
type Export struct {
	in        Input
	documents []charges
}

// New splits the documents into charges. It fails with money.ErrRange, and with
// money.ErrMismatch where a document mixes currencies.
func New(in Input) (Export, error) {
	e := Export{in: in}
	for _, v := range in.Invoices {
		if v.State == billing.Carried {
			continue
		}
		c, err := chargesOf(v)
		if err != nil {
			return Export{}, fmt.Errorf("exporting invoice %s: %w", v.ID, err)
		}
		e.documents = append(e.documents, c)
	}
	return e, nil
}

// Rows returns the rows in the order of documents, lines and resources; top-ups last.
func (e Export) Rows() iter.Seq[Row] {
	return func(yield func(Row) bool) {
		for _, c := range e.documents {
			for r := range e.rows(c) {
				if !yield(r) {
					return
				}
			}
		}
		for _, t := range e.in.TopUps {
			if !yield(e.topUp(t)) {
				return
			}
		}
	}
}

// WriteCSV writes a head and the rows; null is an empty cell.
func WriteCSV(w io.Writer, rows iter.Seq[Row]) error {
	out := csv.NewWriter(w)
	head := make([]string, columns)
	for c := range columns {
		head[c] = c.String()
	}
	if err := out.Write(head); err != nil {
		return fmt.Errorf("writing FOCUS rows: %w", err)
	}
	for r := range rows {
		if err := out.Write(r[:]); err != nil {
			return fmt.Errorf("writing FOCUS rows: %w", err)
		}
	}
	out.Flush()
	if err := out.Error(); err != nil {
		return fmt.Errorf("writing FOCUS rows: %w", err)
	}
	return nil
}
