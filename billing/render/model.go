package render

import (
	"encoding/hex"
	"fmt"
	"math/big"
	"strings"
	"time"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/money"
)

// model is what the page and the PDF show, as text of the document's language.
type model struct {
	locale        locale
	Lang          string
	Kind, Title   string
	State, Number string
	Unfinal       bool
	Simulated     bool
	Facts         []fact // beside the title: number, dates, references
	Seller, Buyer party
	Bank          []fact
	From, To      string // instants of the period, half-open
	Currency      string
	Lines         []line
	Sums          []sum
	Mentions      []string
	DueLabel, Due string
	ID, Hash      string
}

type fact struct{ Label, Value string }

type party struct {
	Name    string
	Address []string
	TaxID   string
}

type line struct {
	No                          int
	Component                   string // "" for plain usage
	Description, SKU, Project   string
	IsolationGPU, IsolationHost string
	During                      string
	Quantity, Measured, Exact   string // priced units, seconds, integer; "" for none
	UnitPrice, Per              string
	Discounts                   []string
	Corrects                    string
	Tax, Amount                 string
	Simulated                   bool
	Measure                     string
	Shares                      []share
}

type share struct{ Name, ID, Measured, Formula, Before, Amount string }

// sum is a row under the lines.
type sum struct {
	Label, Note, Value string
	Strong             bool
}

const instantLayout = "2006-01-02T15:04:05.000000Z"

// modelOf says what a document shows. An original is as the document was when it was
// issued; a copy adds what happened since.
func modelOf(v billing.Invoice, original bool) model {
	l := localeOf(v.Locale)
	m := model{
		locale: l, Lang: l.tag, Kind: l.T(string(kindOf(v))), State: l.T(string(v.State)), Number: v.Number,
		Unfinal: v.State != billing.Open, Simulated: v.Simulated(),
		Seller: partyOf(v.Seller), Buyer: partyOf(v.Buyer),
		From: v.Period.From.Format(instantLayout), To: v.Period.To.Format(instantLayout),
		Currency: v.Currency.Code(), ID: v.ID.String(), Hash: hex.EncodeToString(v.ContentHash[:]),
	}
	m.Title = m.Kind + " " + v.Number
	if m.Unfinal {
		m.Title = m.Kind + " (" + m.State + ")"
	}
	m.Facts = factsOf(v, l)
	m.Bank = bankOf(v, l)
	for _, x := range v.Lines {
		m.Lines = append(m.Lines, lineOf(v, x, l))
	}
	m.Sums = sumsOf(v, l, original)
	last := m.Sums[len(m.Sums)-1]
	m.DueLabel, m.Due = last.Label, last.Value
	m.Mentions = mentionsOf(v, l)
	return m
}

func kindOf(v billing.Invoice) billing.Kind {
	if v.Kind == "" {
		return billing.UsageInvoice
	}
	return v.Kind
}

func partyOf(p billing.Party) party {
	out := party{Name: p.Name, Address: append([]string(nil), p.Address...), TaxID: p.TaxID}
	if p.Country != "" {
		out.Address = append(out.Address, p.Country)
	}
	return out
}

func factsOf(v billing.Invoice, l locale) []fact {
	var out []fact
	add := func(label, value string) {
		if value != "" {
			out = append(out, fact{l.T(label), value})
		}
	}
	add("number", v.Number)
	issued := l.day(v.FinalizedAt)
	if issued == "" {
		issued = l.T("not-issued")
	}
	add("issued", issued)
	if kindOf(v) == billing.AdvanceInvoice {
		add("receipt", l.day(v.TaxPoint))
	} else {
		add("period", l.day(v.Period.From)+" "+l.T("to")+" "+l.day(v.Period.To.Add(-time.Microsecond)))
		if !v.TaxPoint.IsZero() {
			add("supply", l.day(v.TaxPoint.Add(-time.Microsecond)))
		}
	}
	add("corrects", l.reference(v.Corrects))
	add("replaces", l.reference(v.Replaces))
	add("reason", v.Reason)
	if kindOf(v) != billing.CreditNote {
		add("due-on", l.day(v.DueOn))
	}
	return out
}

func (l locale) reference(r *billing.DocumentRef) string {
	if r == nil {
		return ""
	}
	if r.Issued.IsZero() {
		return r.Number
	}
	return r.Number + " " + l.T("of-date") + " " + l.day(r.Issued)
}

func bankOf(v billing.Invoice, l locale) []fact {
	b := v.Seller.Bank
	if b == nil || kindOf(v) == billing.CreditNote {
		return nil
	}
	var out []fact
	for _, f := range []fact{{l.T("holder"), b.Holder}, {"IBAN", b.IBAN}, {"BIC", b.BIC}, {l.T("bank-name"), b.Name}, {l.T("reference"), v.Number}} {
		if f.Value != "" {
			out = append(out, f)
		}
	}
	return out
}

func lineOf(v billing.Invoice, x billing.Line, l locale) line {
	m := line{
		No: x.No, Description: x.Description, SKU: x.SKUCode, Project: x.ProjectName,
		IsolationGPU: l.isolation(x.Key.IsolationGPU), IsolationHost: l.isolation(x.Key.IsolationHost),
		Tax: taxLabel(x.Key.TaxCategory, x.TaxRatePPM, l), Amount: l.number(x.Amount.Decimal()), Simulated: x.Simulated,
	}
	if c := x.Key.Component; c != "" && c != billing.UsageCharge {
		m.Component = l.T("component." + string(c))
	}
	if p := x.Key.Pricing; p == billing.Spot || p == billing.Reserved {
		m.Component = strings.TrimPrefix(m.Component+", "+l.T("pricing."+string(p)), ", ")
	}
	if !x.During.From.IsZero() && !x.During.To.IsZero() && x.During != v.Period {
		m.During = x.During.From.UTC().Format("2006-01-02 15:04:05") + " – " + x.During.To.UTC().Format("2006-01-02 15:04:05") + " UTC"
	}
	if x.Corrects != nil {
		m.Corrects = fmt.Sprintf("%s, %s %d", x.Corrects.Number, l.T("of-line"), x.Corrects.No)
	}
	for _, d := range x.Discounts {
		m.Discounts = append(m.Discounts, fmt.Sprintf("%s: %s -%s", l.T("discount"), d.Name, percent(d.PPM, l)))
	}
	if measured(x) {
		m.quantities(x, l)
	}
	return m
}

// measured reports whether a line has a quantity and a price, beyond its amount.
func measured(x billing.Line) bool {
	return x.Quantity != nil && x.Quantity.Sign() != 0 && x.Divisor > 1
}

func (m *line) quantities(x billing.Line, l locale) {
	m.Quantity = l.number(pricedUnits(x.Quantity, x.Divisor)) + " " + l.unit(x.PricedUnit, true)
	if x.Packages > 0 {
		m.Quantity = fmt.Sprintf("%d × %s", x.Packages, x.PricedUnit)
	}
	m.Exact = x.Quantity.String() + " " + x.QuantityUnit
	m.Measure = l.measure(x.QuantityUnit)
	m.Measured = l.number(seconds(x.Quantity, x.QuantityUnit)) + " " + m.Measure
	m.UnitPrice, m.Per = l.number(x.UnitPrice.Decimal()), l.unit(x.PricedUnit, false)
	factor, err := billing.Factor(x.Discounts)
	plain := err == nil && x.Packages == 0 && x.Key.Pricing != billing.Spot
	for _, s := range x.Subjects {
		row := share{
			Name: s.Name, ID: subjectID(s), Measured: l.number(seconds(s.Quantity, x.QuantityUnit)), Amount: l.number(s.Amount.Decimal()),
		}
		if plain {
			row.Formula = "× " + l.number(x.UnitPrice.Decimal()) + " / " + l.number(seconds(big.NewInt(x.Divisor), x.QuantityUnit))
			for _, d := range x.Discounts {
				row.Formula += " × " + percent(1_000_000-d.PPM, l)
			}
			row.Before = l.number(x.UnitPrice.Times(s.Quantity, x.Divisor).Scale(factor).Decimal())
		}
		m.Shares = append(m.Shares, row)
	}
}

func subjectID(s billing.Share) string {
	switch s.Subject.Kind {
	case "reservation":
		return id.Reservation(s.Subject.ID).String()
	case "instance", "":
		return id.Instance(s.Subject.ID).String()
	}
	return s.Subject.Kind + " " + hex.EncodeToString(s.Subject.ID[:])
}

func (l locale) isolation(level string) string {
	if texts, ok := captions["isolation."+level]; ok {
		return texts[l.at]
	}
	return strings.ReplaceAll(level, "_", " ")
}

func (l locale) measure(unit string) string {
	if texts, ok := captions["measure."+unit]; ok {
		return texts[l.at]
	}
	return unit
}

func taxLabel(category string, ppm int64, l locale) string { return category + " " + percent(ppm, l) }

func sumsOf(v billing.Invoice, l locale, original bool) []sum {
	out := []sum{{Label: l.T("net"), Value: l.number(v.Subtotal.Decimal())}}
	for _, t := range v.Taxes {
		s := sum{
			Label: fmt.Sprintf(l.T("tax-of"), t.Category, percent(t.RatePPM, l), l.number(t.Base.Decimal())),
			Note:  t.Note, Value: l.number(t.Amount.Decimal()),
		}
		if t.Category != "S" && captions["tax."+t.Category][l.at] != "" {
			s.Note = strings.TrimSuffix(l.T("tax."+t.Category)+". "+t.Note, " ")
		}
		out = append(out, s)
	}
	out = append(out,
		sum{Label: l.T("tax-total"), Value: l.number(v.TaxTotal.Decimal())},
		sum{Label: l.T("total"), Value: l.number(v.Total.Decimal()) + " " + v.Currency.Code(), Strong: true})
	less := func(key string, a money.Amount) {
		if !a.IsZero() {
			out = append(out, sum{Label: l.T(key), Value: l.number(a.Exact().Scale(big.NewRat(-1, 1)).Decimal())})
		}
	}
	due := payable(v)
	less("prepaid", v.Settlement.Prepaid)
	if !original {
		less("paid", v.Settlement.Paid)
		less("credited", v.Settlement.Credited)
		less("written-off", v.Settlement.WrittenOff)
		due = v.Due.Decimal()
	}
	label := l.T("amount-due")
	if kindOf(v) == billing.CreditNote {
		label = l.T("amount-back")
	}
	return append(out, sum{Label: label, Value: l.number(due) + " " + v.Currency.Code(), Strong: true})
}

// payable is what the document asks for when it is issued.
func payable(v billing.Invoice) string {
	return v.Total.Exact().Rat().Sub(v.Total.Exact().Rat(), v.Settlement.Prepaid.Exact().Rat()).FloatString(v.Currency.Exponent())
}

func mentionsOf(v billing.Invoice, l locale) []string {
	var out []string
	if v.State != billing.Open {
		out = append(out, l.T("unfinal"))
	}
	out = append(out, v.Notes...)
	if v.Simulated() {
		out = append(out, l.T("sim-note"))
	}
	return out
}

// pricedUnits is a quantity in the unit that has the price, cut to six decimals.
func pricedUnits(quantity *big.Int, divisor int64) string {
	return cut(new(big.Int).Mul(quantity, big.NewInt(million)), big.NewInt(divisor))
}

// seconds is an exact quantity with microseconds as seconds; bytes stay bytes.
func seconds(quantity *big.Int, unit string) string {
	if !strings.HasSuffix(unit, "_us") {
		return quantity.String()
	}
	text := cut(quantity, big.NewInt(1))
	return strings.TrimSuffix(strings.TrimRight(text, "0"), ".")
}

const million = 1_000_000

// cut writes micro / by millionths with six decimals, cut toward zero.
func cut(micro, by *big.Int) string {
	q := new(big.Int).Quo(micro, by)
	whole, rest := new(big.Int).QuoRem(new(big.Int).Abs(q), big.NewInt(million), new(big.Int))
	sign := ""
	if q.Sign() < 0 {
		sign = "-"
	}
	return fmt.Sprintf("%s%s.%06d", sign, whole, rest)
}

// percent writes parts per million: 190000 is 19 %.
func percent(ppm int64, l locale) string {
	text := fmt.Sprintf("%d.%04d", ppm/10_000, ppm%10_000)
	return l.number(strings.TrimSuffix(strings.TrimRight(text, "0"), ".")) + " %"
}
