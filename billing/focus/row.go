package focus

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"iter"
	"math/big"
	"strconv"
	"strings"
	"time"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/money"
)

// rows makes the rows of a document; a charge with two payers is two.
func (e Export) rows(c charges) iter.Seq[Row] {
	return func(yield func(Row) bool) {
		groups := map[group]*related{}
		for _, x := range c.rows {
			for _, part := range x.parts() {
				r := e.row(c, x, part, groups)
				if !yield(r) {
					return
				}
			}
		}
	}
}

// part is the share of a charge that one payer bears.
type part struct {
	funding           string
	billed, effective int64
	prepaid           int64
	of, whole         int64 // the part's share of the charge's quantity; whole 0: all of it
	rest              bool  // it has what the other part leaves of the quantity
}

// parts splits a charge by who pays it.
func (x charge) parts() []part {
	if x.prepaid == 0 {
		return []part{{funding: byInvoice, billed: x.billed, effective: x.effective}}
	}
	paid := part{funding: byPrepaid, effective: min(x.effective, x.prepaid), prepaid: x.prepaid, of: x.prepaid, whole: x.billed}
	if x.prepaid < 0 {
		paid.effective = max(x.effective, x.prepaid)
	}
	if x.prepaid == x.billed {
		paid.effective, paid.whole = x.effective, 0
		return []part{paid}
	}
	return []part{paid, {
		funding: byInvoice, billed: x.billed - x.prepaid, effective: x.effective - paid.effective, of: x.prepaid, whole: x.billed, rest: true,
	}}
}

// take is the part's share of an integer quantity; the parts sum to it.
func (p part) take(n *big.Int) *big.Int {
	if p.whole == 0 {
		return n
	}
	first := new(big.Int).Mul(n, big.NewInt(p.of))
	first.Quo(first, big.NewInt(p.whole))
	if p.rest {
		return first.Sub(n, first)
	}
	return first
}

// group is what is taxed together.
type group struct {
	category string
	rate     int64 // parts per million
}

// related sums what a tax is calculated on.
type related struct{ list, contracted number }

func (e Export) row(c charges, x charge, p part, groups map[group]*related) Row {
	v := c.v
	r := e.document(v)
	r[Funding] = p.funding
	r[BilledCost], r[EffectiveCost] = minor(p.billed, v.Currency).String(), minor(p.effective, v.Currency).String()
	if p.prepaid != 0 {
		r[PrepaidApplied] = minor(p.prepaid, v.Currency).String()
	}
	if v.Kind == billing.CreditNote {
		r[ChargeClass] = correction
	}
	if x.tax != nil {
		taxRow(&r, x, p, groups[group{x.tax.Category, x.tax.RatePPM}])
		return r
	}
	e.describe(&r, v, x)
	switch kindOf(x.line) {
	case metered:
		e.measure(&r, x, p)
	case advance:
		aheadRow(&r, x, p, v.Currency)
	default:
		flatRow(&r, x, p, v.Currency)
	}
	if x.line.Key.Component == billing.Adjustment {
		r[ChargeClass] = correction
	}
	relate(groups, x, r)
	return r
}

// relate adds a row to what its tax is calculated on. The purchase of a reservation
// does not count: what it covers does.
func relate(groups map[group]*related, x charge, r Row) {
	if reserves(x.line) && x.unused == nil {
		return
	}
	k := group{x.line.Key.TaxCategory, x.line.TaxRatePPM}
	if groups[k] == nil {
		groups[k] = &related{number{new(big.Int), 0}, number{new(big.Int), 0}}
	}
	list, _ := parse(r[ListCost])
	contracted, _ := parse(r[ContractedCost])
	groups[k].list, groups[k].contracted = groups[k].list.plus(list), groups[k].contracted.plus(contracted)
}

// document is what all rows of a document have.
func (e Export) document(v billing.Invoice) Row {
	var r Row
	begin, end := v.Period.From, v.Period.To
	if v.Kind == billing.AdvanceInvoice {
		begin, end = month(v.Period.From)
	}
	r[BillingAccountID], r[BillingAccountName] = v.Org.String(), word(orElse(e.in.Account, v.Buyer.Name))
	r[BillingCurrency] = v.Currency.Code()
	r[BillingPeriodStart], r[BillingPeriodEnd] = second(begin), second(end)
	r[ChargePeriodStart], r[ChargePeriodEnd] = charged(v.Period)
	r[InvoiceID] = v.Number
	r[InvoiceIssuerName] = v.Seller.Name
	r[ProviderName] = orElse(e.in.Provider, v.Seller.Name)
	r[PublisherName] = r[ProviderName]
	s := serviceOf("")
	r[ServiceName], r[ServiceCategory], r[ServiceSubcategory] = s.name, s.category, s.subcategory
	return r
}

// month is the calendar month of an instant, UTC.
func month(at time.Time) (begin, end time.Time) {
	begin = time.Date(at.UTC().Year(), at.UTC().Month(), 1, 0, 0, 0, 0, time.UTC)
	return begin, begin.AddDate(0, 1, 0)
}

// second writes an instant in whole seconds.
func second(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05Z") }

// charged is an interval in whole seconds that holds it, never empty.
func charged(i metering.Interval) (from, to string) {
	begin, end := i.From.Truncate(time.Second), i.To.Truncate(time.Second)
	if end.Before(i.To) || !end.After(begin) {
		end = end.Add(time.Second)
	}
	return second(begin), second(end)
}

// word is text that says something, "" otherwise.
func word(s string) string {
	if strings.TrimSpace(s) == "" {
		return ""
	}
	return s
}

func orElse(text, otherwise string) string {
	if word(text) == "" {
		return otherwise
	}
	return text
}

// describe says what a row is about: line, resource, project and SKU.
func (e Export) describe(r *Row, v billing.Invoice, x charge) {
	l := x.line
	s := serviceOf(string(l.Key.Meter))
	r[ServiceName], r[ServiceCategory], r[ServiceSubcategory] = s.name, s.category, s.subcategory
	r[ChargeDescription] = word(l.Description)
	r[Component], r[InvoiceLine] = string(l.Key.Component), strconv.Itoa(l.No)
	r[IsolationGPU], r[IsolationHost] = l.Key.IsolationGPU, l.Key.IsolationHost
	if !l.Key.PriceVersion.IsZero() {
		r[PriceVersion] = l.Key.PriceVersion.String()
	}
	if l.Simulated {
		r[Simulated] = "true"
	}
	if l.Corrects != nil {
		r[Corrects] = fmt.Sprintf("%s/%d", l.Corrects.Number, l.Corrects.No)
	} else if v.Corrects != nil {
		r[Corrects] = v.Corrects.Number
	}
	if !l.Key.Project.IsZero() {
		r[SubAccountID], r[SubAccountName], r[SubAccountType] = l.Key.Project.String(), word(l.ProjectName), "Project"
	}
	if !l.During.From.IsZero() && !l.During.To.IsZero() {
		r[ChargePeriodStart], r[ChargePeriodEnd] = charged(l.During)
	}
	share := x.share
	if x.unused != nil {
		share = x.unused.share
	}
	if share == nil {
		return
	}
	r[ResourceID], r[ResourceType] = resourceID(share.Subject), s.resource
	if name := word(share.Name); name != r[ResourceID] {
		r[ResourceName] = name
	}
	if x.unused == nil {
		r[SegmentsHash] = hex.EncodeToString(share.Hash[:])
	}
	known := e.in.Resources[share.Subject]
	r[AvailabilityZone], r[RegionID] = word(known.Zone), word(known.Region)
	if r[RegionID] != "" {
		r[RegionName] = orElse(known.RegionName, known.Region)
	}
	r[Tags] = tags(known.Labels)
}

func resourceID(s metering.Subject) string {
	switch s.Kind {
	case "instance", "":
		return id.Instance(s.ID).String()
	case "reservation":
		return id.Reservation(s.ID).String()
	}
	return s.Kind + "_" + hex.EncodeToString(s.ID[:])
}

// tags are labels as a flat object; a label without a value is true. "" for none.
func tags(labels map[string]string) string {
	if len(labels) == 0 {
		return ""
	}
	values := make(map[string]any, len(labels))
	for k, v := range labels {
		if values[k] = v; v == "" {
			values[k] = true
		}
	}
	return flat(values)
}

// flat writes an object with sorted keys.
func flat(values map[string]any) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(values); err != nil {
		panic(err) // strings, numbers and booleans always encode
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// topUp is a payment into the prepaid balance: it costs nothing until it is used.
func (e Export) topUp(t TopUp) Row {
	v := billing.Invoice{Org: e.in.Org, Currency: t.Amount.Currency(), Period: metering.Between(t.At, t.At.Add(time.Second)), Kind: billing.AdvanceInvoice}
	if len(e.in.Invoices) > 0 {
		v.Org, v.Seller, v.Buyer = e.in.Invoices[0].Org, e.in.Invoices[0].Seller, e.in.Invoices[0].Buyer
	}
	v.Seller.Name = orElse(v.Seller.Name, e.in.Provider)
	l := billing.Line{Amount: t.Amount, Description: "Prepaid balance", Key: billing.LineKey{Component: billing.AdvancePaid, Reference: t.ID.String()}}
	r := e.row(charges{v: v}, charge{line: &l, billed: t.Amount.Minor()}, part{funding: byInvoice, billed: t.Amount.Minor()}, map[group]*related{})
	r[InvoiceLine] = ""
	return r
}

// aheadRow is an advance or its deduction, in units of the currency.
func aheadRow(r *Row, x charge, p part, c money.Currency) {
	r[ChargeCategory], r[ChargeFrequency], r[PricingCategory] = purchase, oneTime, standard
	amount := minor(p.billed+p.prepaid, c)
	one := number{big.NewInt(1), 0}
	r[PricingQuantity], r[PricingUnit] = amount.String(), "Credits"
	r[ListUnitPrice], r[ContractedUnitPrice] = one.String(), one.String()
	r[ListCost], r[ContractedCost] = amount.String(), amount.String()
	r[SkuID], r[SkuMeter], r[SkuPriceID] = "prepayment", "Prepayment", "prepayment/"+c.Code()
	r[ChargeDescription] = orElse(x.line.Description, "Prepayment")
}

// flatRow is an amount that stands for itself.
func flatRow(r *Row, x charge, p part, c money.Currency) {
	r[ChargeFrequency] = recurring
	r[ChargeCategory] = adjustment
	switch x.line.Key.Component {
	case billing.PromoCredit, billing.FixedDiscount:
		r[ChargeCategory] = credit
	case billing.Commitment:
		r[CommitmentDiscountID], r[CommitmentDiscountCategory] = orElse(x.line.Key.Reference, "commitment"), "Spend"
		r[CommitmentDiscountType], r[CommitmentDiscountName] = "Committed Spend", word(x.line.Description)
	}
	r[ListCost] = minor(p.effective, c).String()
	r[ContractedCost] = r[ListCost]
}

// taxRow is a tax; its costs are those of the charges that it is on.
func taxRow(r *Row, x charge, p part, on *related) {
	r[ChargeCategory], r[ChargeFrequency] = tax, recurring
	r[ChargeDescription] = orElse(x.tax.Note, "Tax "+x.tax.Category+" "+number{big.NewInt(x.tax.RatePPM), 4}.String()+" %")
	rate := number{p.take(big.NewInt(x.tax.RatePPM)), 6}
	if on == nil {
		on = &related{number{new(big.Int), 0}, number{new(big.Int), 0}}
	}
	r[ListCost], r[ContractedCost] = on.list.times(rate).cut(scale).String(), on.contracted.times(rate).cut(scale).String()
}
