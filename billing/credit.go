package billing

import (
	"fmt"
	"math/big"
	"time"

	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/money"
)

// LineCredit is what a credit note takes off one line of a document.
type LineCredit struct {
	No       int           // of the line
	Net      *money.Amount // positive; nil: all that is left of the line
	Quantity *big.Int      // that is not charged after all, nil: the amount stands for itself
	Subjects []Share       // whose quantity it is; Amount is set by Credit
}

// Creditable is what credit notes may still take off a document.
type Creditable struct {
	Lines map[int]money.Amount // by line number, with the line's sign
	Net   money.Amount
	Gross money.Amount
}

// CreditLeft returns what is left to credit of a document after its notes. It fails
// with money.ErrRange or money.ErrMismatch.
func CreditLeft(original Invoice, notes []Invoice) (Creditable, error) {
	left := Creditable{Lines: map[int]money.Amount{}, Net: original.Subtotal, Gross: original.Total}
	for _, l := range original.Lines {
		left.Lines[l.No] = l.Amount
	}
	var err error
	for _, n := range notes {
		for _, l := range n.Lines {
			if l.Corrects == nil {
				continue
			}
			if left.Lines[l.Corrects.No], err = left.Lines[l.Corrects.No].Add(l.Amount); err != nil {
				return Creditable{}, fmt.Errorf("adding up credits: %w", err)
			}
		}
		if left.Net, err = left.Net.Add(n.Subtotal); err != nil {
			return Creditable{}, fmt.Errorf("adding up credits: %w", err)
		}
		if left.Gross, err = left.Gross.Add(n.Total); err != nil {
			return Creditable{}, fmt.Errorf("adding up credits: %w", err)
		}
	}
	return left, nil
}

// Spread splits a net amount over the lines of a document that have something left,
// by largest remainder. It fails with credit.exceeds beyond what is left.
func Spread(original Invoice, notes []Invoice, net money.Amount) ([]LineCredit, error) {
	left, err := CreditLeft(original, notes)
	if err != nil {
		return nil, err
	}
	if net.Currency() != original.Currency || net.Sign() <= 0 {
		return nil, refuse("/net", fmt.Sprintf("A credit is a positive amount of %s.", original.Currency))
	}
	if net.Minor() > left.Net.Minor() {
		return nil, exceeds(net, left.Net)
	}
	var weights []*big.Rat
	var of []int
	for _, l := range original.Lines {
		if rest := left.Lines[l.No]; rest.Sign() > 0 {
			weights, of = append(weights, rest.Exact().Rat()), append(of, l.No)
		}
	}
	parts, err := money.Apportion(net, weights)
	if err != nil {
		return nil, fmt.Errorf("spreading a credit: %w", err)
	}
	var out []LineCredit
	for i := range parts {
		if !parts[i].IsZero() {
			out = append(out, LineCredit{No: of[i], Net: &parts[i]})
		}
	}
	return out, nil
}

// Credit returns the draft of a credit note on an open document after its earlier
// notes; without what it takes back all that is left. Its amounts are negative, its
// parties, rates and tax point those of the document. The tax of a group is
// round(credited base so far × rate) − tax credited so far, so that the notes of a
// document never sum to more than it, and to exactly it when nothing is left.
//
// It fails with credit.exceeds where a line, a group or the total has less left,
// with credit.nothing where nothing is, and with fault.Invalid for a line that does
// not exist, comes twice or has no positive amount.
func Credit(original Invoice, notes []Invoice, what []LineCredit) (Invoice, error) {
	if original.State != Open || original.Kind == CreditNote {
		return Invoice{}, fault.New(fault.Conflict, "state.conflict", "Only an open invoice is credited.")
	}
	left, err := CreditLeft(original, notes)
	if err != nil {
		return Invoice{}, err
	}
	v := noteOn(original)
	if len(what) == 0 {
		what = rest(original, left)
		if len(what) == 0 || left.Net.IsZero() && left.Gross.IsZero() && !left.deducts(original) {
			return Invoice{}, fault.New(fault.Conflict, "credit.nothing", "Nothing of the invoice is left to credit.")
		}
	} else if err := checkCredits(original, left, what); err != nil {
		return Invoice{}, err
	}
	for _, c := range what {
		l, err := original.correction(c, len(v.Lines)+1)
		if err != nil {
			return Invoice{}, err
		}
		v.Lines = append(v.Lines, l)
	}
	if v, err = v.creditTaxes(original, notes); err != nil {
		return Invoice{}, err
	}
	return v.totalled()
}

// deducts reports whether advances that the document deducts are not given back yet:
// then there is something to credit, though it comes to nothing.
func (left Creditable) deducts(original Invoice) bool {
	for _, l := range original.Lines {
		if l.Key.Component == AdvanceOffset && !left.Lines[l.No].IsZero() {
			return true
		}
	}
	return false
}

// rest is everything that is left, discounts and other negative lines included.
func rest(original Invoice, left Creditable) []LineCredit {
	var out []LineCredit
	for _, l := range original.Lines {
		if r := left.Lines[l.No]; !r.IsZero() {
			out = append(out, LineCredit{No: l.No, Net: &r})
		}
	}
	return out
}

func checkCredits(original Invoice, left Creditable, what []LineCredit) error {
	total := money.NewAmount(0, original.Currency)
	seen := map[int]bool{}
	for i, c := range what {
		at := fmt.Sprintf("/lines/%d", i)
		r, known := left.Lines[c.No]
		switch {
		case !known:
			return refuse(at+"/line", fmt.Sprintf("The invoice has no line %d.", c.No))
		case seen[c.No]:
			return refuse(at+"/line", fmt.Sprintf("Line %d is named twice.", c.No))
		}
		seen[c.No] = true
		if c.Net == nil {
			what[i].Net, c.Net = &r, &r
		}
		if c.Net.Currency() != original.Currency || c.Net.Sign() <= 0 {
			return refuse(at+"/net", fmt.Sprintf("A credit is a positive amount of %s.", original.Currency))
		}
		if c.Net.Minor() > r.Minor() {
			return exceeds(*c.Net, r)
		}
		var err error
		if total, err = total.Add(*c.Net); err != nil {
			return fmt.Errorf("adding up a credit: %w", err)
		}
	}
	if total.Minor() > left.Net.Minor() {
		return exceeds(total, left.Net)
	}
	return nil
}

func exceeds(want, left money.Amount) error {
	return fault.New(fault.Conflict, "credit.exceeds", fmt.Sprintf("A credit of %s is more than the %s that are left.", want, left)).
		Suggest("Read the invoice and its credit notes, and credit what is left.")
}

// correction is the line of a credit note for a line of the document.
func (v Invoice) correction(c LineCredit, no int) (Line, error) {
	i := c.No - 1
	if i < 0 || i >= len(v.Lines) || v.Lines[i].No != c.No {
		return Line{}, broken("line %d of invoice %s is not where it belongs", c.No, v.ID)
	}
	of := v.Lines[i]
	amount, err := c.Net.Neg()
	if err != nil {
		return Line{}, fmt.Errorf("crediting line %d: %w", c.No, err)
	}
	l := Line{
		No: no, Key: of.Key, SKUCode: of.SKUCode, Description: of.Description, ProjectName: of.ProjectName,
		Quantity: new(big.Int), Divisor: 1, QuantityUnit: of.QuantityUnit, PricedUnit: of.PricedUnit, UnitPrice: of.UnitPrice,
		TaxRatePPM: of.TaxRatePPM, Exact: amount.Exact(), Amount: amount, Simulated: of.Simulated, During: of.During,
		Corrects: &LineRef{Invoice: v.ID, Number: v.Number, No: of.No},
	}
	l.Key.Component = Correction
	l.Key.Reference = string(of.Key.Component)
	if c.Quantity == nil {
		return l, nil
	}
	l.Quantity, l.Divisor, l.Discounts, l.Subjects = c.Quantity, of.Divisor, of.Discounts, c.Subjects
	weights := make([]*big.Rat, len(c.Subjects))
	for n, s := range c.Subjects {
		weights[n] = new(big.Rat).SetInt(s.Quantity)
	}
	if len(weights) == 0 {
		return l, nil
	}
	parts, err := money.Apportion(amount, weights)
	if err != nil {
		return Line{}, fmt.Errorf("sharing a credit of line %d: %w", c.No, err)
	}
	for n := range parts {
		l.Subjects[n].Amount = parts[n]
	}
	return l, nil
}

// creditTaxes sets the taxes of a note by what was credited of each group so far.
func (v Invoice) creditTaxes(original Invoice, notes []Invoice) (Invoice, error) {
	bases, _, err := v.bases()
	if err != nil {
		return Invoice{}, err
	}
	for _, t := range original.Taxes {
		g := group{t.Category, t.RatePPM}
		base, touched := bases[g]
		if !touched {
			continue
		}
		base0, tax0 := money.NewAmount(0, v.Currency), money.NewAmount(0, v.Currency)
		for _, n := range notes {
			for _, x := range n.Taxes {
				if (group{x.Category, x.RatePPM}) != g {
					continue
				}
				if base0, err = base0.Add(x.Base); err != nil {
					return Invoice{}, fmt.Errorf("adding up credited bases: %w", err)
				}
				if tax0, err = tax0.Add(x.Amount); err != nil {
					return Invoice{}, fmt.Errorf("adding up credited taxes: %w", err)
				}
			}
		}
		amount, err := creditTax(t, base, base0, tax0)
		if err != nil {
			return Invoice{}, err
		}
		v.Taxes = append(v.Taxes, Tax{Category: t.Category, RatePPM: t.RatePPM, Base: base, Amount: amount, Note: t.Note})
	}
	return v, nil
}

// creditTax is the tax of base on top of what was credited before; all credited
// values are negative. The note that leaves nothing takes what is left of the tax.
func creditTax(t Tax, base, base0, tax0 money.Amount) (money.Amount, error) {
	so, err := base.Add(base0)
	if err != nil {
		return money.Amount{}, fmt.Errorf("adding up credited bases: %w", err)
	}
	rest, err := t.Base.Add(so)
	if err != nil {
		return money.Amount{}, fmt.Errorf("adding up credited bases: %w", err)
	}
	if t.Base.Sign() > 0 && rest.Sign() < 0 {
		return money.Amount{}, exceeds(base, t.Base)
	}
	upTo, err := taxOf(so, t.RatePPM)
	if rest.IsZero() {
		upTo, err = t.Amount.Neg()
	}
	if err != nil {
		return money.Amount{}, fmt.Errorf("taxing a credit: %w", err)
	}
	return upTo.Sub(tax0)
}

// CreditLines returns the draft of a credit note made of differences: lines that say
// which line of the document they change, negative on the whole. What is left to
// credit bounds it: beyond that the amounts, not the quantities, are cut. It fails like
// Credit.
func CreditLines(original Invoice, notes []Invoice, lines []Line) (Invoice, error) {
	left, err := CreditLeft(original, notes)
	if err != nil {
		return Invoice{}, err
	}
	v := noteOn(original)
	net := money.NewAmount(0, v.Currency)
	for i, l := range lines {
		if l.Corrects == nil || l.Corrects.No < 1 || l.Corrects.No > len(original.Lines) {
			return Invoice{}, broken("a difference corrects no line of invoice %s", original.ID)
		}
		of := original.Lines[l.Corrects.No-1]
		l.No, l.Key.TaxCategory, l.TaxRatePPM = i+1, of.Key.TaxCategory, of.TaxRatePPM
		v.Lines = append(v.Lines, l)
		if net, err = net.Add(l.Amount); err != nil {
			return Invoice{}, fmt.Errorf("adding up differences: %w", err)
		}
	}
	if -net.Minor() > left.Net.Minor() {
		if v.Lines, err = cutTo(v.Lines, left.Net); err != nil {
			return Invoice{}, err
		}
	}
	v.Lines = v.normal()
	if v, err = v.creditTaxes(original, notes); err != nil {
		return Invoice{}, err
	}
	return v.totalled()
}

// cutTo gives the lines the amounts of what is left, in proportion to their size.
func cutTo(lines []Line, left money.Amount) ([]Line, error) {
	most, err := left.Neg()
	if err != nil {
		return nil, fmt.Errorf("cutting a credit: %w", err)
	}
	weights := make([]*big.Rat, len(lines))
	for i, l := range lines {
		weights[i] = new(big.Rat).Abs(l.Amount.Exact().Rat())
	}
	parts, err := money.Apportion(most, weights)
	if err != nil {
		return nil, fmt.Errorf("cutting a credit: %w", err)
	}
	out := make([]Line, len(lines))
	for i, l := range lines {
		l.Exact, l.Amount = parts[i].Exact(), parts[i]
		shares := make([]*big.Rat, len(l.Subjects))
		for n, s := range l.Subjects {
			shares[n] = new(big.Rat).SetInt(new(big.Int).Abs(s.Quantity))
		}
		if len(shares) > 0 {
			amounts, err := money.Apportion(parts[i], shares)
			if err != nil {
				return nil, fmt.Errorf("cutting a credit: %w", err)
			}
			l.Subjects = append([]Share(nil), l.Subjects...)
			for n := range l.Subjects {
				l.Subjects[n].Amount = amounts[n]
			}
		}
		out[i] = l
	}
	return out, nil
}

// noteOn is an empty credit note on a document.
func noteOn(original Invoice) Invoice {
	return Invoice{
		Kind: CreditNote, State: Draft, Org: original.Org, Issuer: original.Issuer, Locale: original.Locale,
		Corrects: &DocumentRef{ID: original.ID, Number: original.Number, Issued: original.FinalizedAt},
		TaxPoint: original.TaxPoint, Period: original.Period, CloseNo: original.CloseNo, Currency: original.Currency,
		Seller: original.Seller, Buyer: original.Buyer, Notes: original.Notes,
	}
}

// Advance returns the draft of an advance invoice for a prepayment: the gross that
// was received holds its tax, round(gross × r / (1 + r)).
func Advance(v Invoice, gross money.Amount, category string, ratePPM int64, note string, payment id.Payment) (Invoice, error) {
	tax, err := gross.Exact().Scale(big.NewRat(ratePPM, million+ratePPM)).Round()
	if err != nil {
		return Invoice{}, fmt.Errorf("taxing an advance: %w", err)
	}
	net, err := gross.Sub(tax)
	if err != nil {
		return Invoice{}, fmt.Errorf("taxing an advance: %w", err)
	}
	v.Kind, v.State, v.Currency = AdvanceInvoice, Draft, gross.Currency()
	v.Period = metering.Between(v.TaxPoint, v.TaxPoint.Add(time.Microsecond))
	v.Lines = []Line{{
		No: 1, Key: LineKey{Component: AdvancePaid, Reference: payment.String(), TaxCategory: category}, TaxRatePPM: ratePPM,
		Description: caption(AdvancePaid, v.Locale), Exact: net.Exact(), Amount: net,
	}}
	v.Lines = v.normal()
	v.Taxes = []Tax{{Category: category, RatePPM: ratePPM, Base: net, Amount: tax, Note: note}}
	return v.totalled()
}

// captions are the descriptions of lines that no usage names.
var captions = map[Component]map[string]string{
	AdvancePaid:   {"en": "Prepayment", "de": "Vorauszahlung", "zh": "预付款"},
	AdvanceOffset: {"en": "Less prepayment %s", "de": "Abzüglich Vorauszahlung %s", "zh": "减去预付款 %s"},
	CarryOver:     {"en": "Amount carried over from %s", "de": "Übertrag aus %s", "zh": "结转自 %s"},
}

func caption(c Component, locale string) string {
	if text, ok := captions[c][locale]; ok {
		return text
	}
	return captions[c]["en"]
}
