package ubl

import (
	"fmt"
	"math/big"
	"strconv"
	"strings"

	"github.com/tranche-cloud/tranche/billing"
)

// Units of UN/ECE recommendation 20.
const (
	unitOne    = "C62"
	unitSecond = "SEC"
	unitByte   = "AD"
)

// line states a line by quantity and price where that gives its amount, and as one
// piece of its amount otherwise.
func (w writer) line(l billing.Line) (line, error) {
	x := line{
		ID: strconv.Itoa(l.No), Amount: w.amount(l.Amount), Period: days(l.During.From, l.During.To),
		Item: item{Name: orElse(l.Description, orElse(string(l.Key.Component), "usage")), Category: *categoryOf(l.Key.TaxCategory, l.TaxRatePPM), Properties: properties(l)},
	}
	if l.Corrects != nil {
		x.Note = fmt.Sprintf("Corrects invoice %s, line %d", l.Corrects.Number, l.Corrects.No)
	}
	if l.SKUCode != "" {
		x.Item.SKU = &partyID{l.SKUCode}
	}
	measured, err := w.measure(&x, l)
	if err != nil || measured {
		return x, err
	}
	quantity, price := int64(1), w.sign*l.Amount.Minor()
	if price < 0 {
		quantity, price = -1, -price
	}
	w.state(&x, strconv.FormatInt(quantity, 10), unitOne)
	x.Price.Amount = amount{w.v.Currency.Code(), w.minor(w.sign * price).Value}
	return x, nil
}

// measure states quantity, price and discounts; false where they do not give the
// amount: mean prices, packages, and amounts that stand for themselves.
func (w writer) measure(x *line, l billing.Line) (bool, error) {
	if l.Quantity == nil || l.Quantity.Sign() == 0 || l.Divisor <= 1 || l.Packages > 0 || l.Key.Pricing == billing.Spot {
		return false, nil
	}
	gross, err := l.UnitPrice.Times(l.Quantity, l.Divisor).Round()
	if err != nil {
		return false, fmt.Errorf("stating line %d: %w", l.No, err)
	}
	reduction := w.sign * (gross.Minor() - l.Amount.Minor())
	if reduction < 0 || reduction > 0 && len(l.Discounts) == 0 {
		return false, nil
	}
	unit, scale := unitOf(l.QuantityUnit)
	signed := new(big.Int).Mul(l.Quantity, big.NewInt(w.sign))
	w.state(x, decimal(signed, scale), unit)
	x.Price.Amount = amount{w.v.Currency.Code(), l.UnitPrice.Decimal()}
	x.Price.Base = &quantity{unit, decimal(big.NewInt(l.Divisor), scale)}
	if reduction > 0 {
		base := w.amount(gross)
		x.Allowances = []allowance{{ReasonCode: reasonDiscount, Reason: discounts(l), Amount: w.minor(w.sign * reduction), Base: &base}}
	}
	return true, nil
}

func (w writer) state(x *line, value, unit string) {
	q := &quantity{unit, value}
	if w.credit() {
		x.CreditedQuantity = q
		return
	}
	x.InvoicedQuantity = q
}

// unitOf returns the code of a quantity unit and how many decimals make one of it.
func unitOf(quantityUnit string) (code string, scale int) {
	switch quantityUnit {
	case "gpu_us", "ip_us":
		return unitSecond, 6
	case "byte":
		return unitByte, 0
	}
	return unitOne, 0
}

func discounts(l billing.Line) string {
	parts := make([]string, len(l.Discounts))
	for i, d := range l.Discounts {
		parts[i] = d.Name + " " + decimal(big.NewInt(d.PPM), 4) + " %"
	}
	return strings.Join(parts, ", ")
}

// properties says of a line what EN 16931 has no field for.
func properties(l billing.Line) []property {
	var out []property
	add := func(name, value string) {
		if value != "" {
			out = append(out, property{name, value})
		}
	}
	if l.Key.Component != "" && l.Key.Component != billing.UsageCharge {
		add("Component", string(l.Key.Component))
	}
	add("Project", l.ProjectName)
	add("Meter", string(l.Key.Meter))
	add("Isolation", l.Key.IsolationGPU)
	add("Host isolation", l.Key.IsolationHost)
	if l.Quantity != nil && l.Quantity.Sign() != 0 {
		add("Quantity", l.Quantity.String()+" "+l.QuantityUnit)
	}
	if l.Packages > 0 {
		add("Packages", fmt.Sprintf("%d × %s", l.Packages, l.PricedUnit))
	}
	if l.Key.Pricing == billing.Spot {
		add("Pricing", "spot, mean price "+l.UnitPrice.String())
	}
	if l.Simulated {
		add("Hardware", "simulated")
	}
	return out
}

// nothing is the one line of a document without any: the standard wants one.
func (w writer) nothing() line {
	c := categoryOf("O", 0)
	if len(w.v.Taxes) > 0 {
		c = categoryOf(w.v.Taxes[0].Category, w.v.Taxes[0].RatePPM)
	}
	x := line{ID: "1", Amount: w.minor(0), Item: item{Name: "No usage in this period", Category: *c}}
	w.state(&x, "1", unitOne)
	x.Price.Amount = w.minor(0)
	return x
}
