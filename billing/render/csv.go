package render

import (
	"bytes"
	"encoding/csv"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/tranche-cloud/tranche/billing"
)

var lineColumns = []string{
	"document", "number", "kind", "state", "issued_on", "period_start", "period_end", "currency", "line", "component", "description",
	"sku", "project_id", "project", "meter", "isolation_gpu", "isolation_host", "pricing", "price_version", "tier", "reference",
	"usage_start", "usage_end", "quantity", "quantity_unit", "priced_quantity", "priced_unit", "unit_price", "packages", "discounts",
	"tax_category", "tax_rate_percent", "amount", "simulated", "corrects_number", "corrects_line", "content_hash",
}

// LinesCSV renders the lines of a document, one a record after a head; a copy.
// Decimals have a point and no grouping in every locale, instants are UTC. Text that a
// spreadsheet would take for a formula gets an apostrophe in front.
func LinesCSV(v billing.Invoice) ([]byte, error) {
	records := [][]string{lineColumns}
	for _, l := range v.Lines {
		correctsNumber, correctsLine := "", ""
		if l.Corrects != nil {
			correctsNumber, correctsLine = l.Corrects.Number, strconv.Itoa(l.Corrects.No)
		}
		quantity, priced, price := "", "", ""
		if measured(l) {
			quantity, priced, price = l.Quantity.String(), pricedUnits(l.Quantity, l.Divisor), l.UnitPrice.Decimal()
		}
		records = append(records, append(documentCells(v),
			strconv.Itoa(l.No), string(l.Key.Component), inert(l.Description), inert(l.SKUCode), l.Key.Project.String(), inert(l.ProjectName),
			string(l.Key.Meter), l.Key.IsolationGPU, l.Key.IsolationHost, string(l.Key.Pricing), l.Key.PriceVersion.String(),
			strconv.Itoa(l.Key.Tier), inert(l.Key.Reference), instant(l.During.From), instant(l.During.To), quantity, l.QuantityUnit, priced,
			l.PricedUnit, price, strconv.FormatInt(l.Packages, 10), inert(discountText(l)), l.Key.TaxCategory, rate(l.TaxRatePPM),
			l.Amount.Decimal(), strconv.FormatBool(l.Simulated), inert(correctsNumber), correctsLine, hex.EncodeToString(v.ContentHash[:])))
	}
	return encode(v, records)
}

var subjectColumns = []string{
	"document", "number", "kind", "state", "issued_on", "period_start", "period_end", "currency", "line", "description", "sku",
	"subject_kind", "subject_id", "subject", "quantity", "quantity_unit", "unit_price", "priced_unit", "discounts", "segments", "amount",
	"segments_hash",
}

// SubjectsCSV renders what each resource has in each line, one a record; a copy.
// Amounts are the share of the rounded line and sum to it. Otherwise it is as LinesCSV.
func SubjectsCSV(v billing.Invoice) ([]byte, error) {
	records := [][]string{subjectColumns}
	for _, l := range v.Lines {
		for _, s := range l.Subjects {
			records = append(records, append(documentCells(v),
				strconv.Itoa(l.No), inert(l.Description), inert(l.SKUCode), s.Subject.Kind, subjectID(s), inert(s.Name), s.Quantity.String(),
				l.QuantityUnit, l.UnitPrice.Decimal(), l.PricedUnit, inert(discountText(l)), strconv.FormatInt(s.Segments, 10),
				s.Amount.Decimal(), hex.EncodeToString(s.Hash[:])))
		}
	}
	return encode(v, records)
}

func documentCells(v billing.Invoice) []string {
	issued := ""
	if !v.FinalizedAt.IsZero() {
		issued = v.FinalizedAt.UTC().Format(time.DateOnly)
	}
	return []string{
		v.ID.String(), inert(v.Number), string(kindOf(v)), string(v.State), issued, instant(v.Period.From), instant(v.Period.To), v.Currency.Code(),
	}
}

// inert keeps text from being a formula: spreadsheets evaluate cells that begin with
// one of these characters.
func inert(text string) string {
	if text != "" && strings.ContainsRune("=+-@\t\r\n＝＋－＠", []rune(text)[0]) {
		return "'" + text
	}
	return text
}

func discountText(l billing.Line) string {
	var parts []string
	for _, d := range l.Discounts {
		parts = append(parts, d.Name+" "+rate(d.PPM)+"%")
	}
	return strings.Join(parts, "; ")
}

// rate writes parts per million as percent, 190000 is 19.
func rate(ppm int64) string {
	return strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%d.%04d", ppm/10_000, ppm%10_000), "0"), ".")
}

// instant writes an instant, "" for none.
func instant(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(instantLayout)
}

func encode(v billing.Invoice, records [][]string) ([]byte, error) {
	var out bytes.Buffer
	w := csv.NewWriter(&out)
	w.UseCRLF = true
	if err := w.WriteAll(records); err != nil {
		return nil, fmt.Errorf("writing invoice %s as CSV: %w", v.ID, err)
	}
	return out.Bytes(), nil
}
