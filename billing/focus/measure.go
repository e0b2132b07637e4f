package focus

import (
	"math/big"
	"strconv"
	"strings"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/money"
)

// lineKind is how a line is stated.
type lineKind int

const (
	amountAlone lineKind = iota
	metered              // quantity × price
	advance              // money for later
)

func kindOf(l *billing.Line) lineKind {
	switch l.Key.Component {
	case billing.AdvancePaid, billing.AdvanceOffset:
		return advance
	case billing.MinimumCharge, billing.CapCredit, billing.Commitment, billing.FixedDiscount, billing.PromoCredit, billing.CarryOver:
		return amountAlone
	}
	if l.Quantity == nil || l.Quantity.Sign() == 0 || l.Divisor <= 1 || len(l.Subjects) == 0 {
		return amountAlone
	}
	return metered
}

// measure states usage, what covered it, and purchases of reservations.
func (e Export) measure(r *Row, x charge, p part) {
	l := x.line
	s := serviceOf(string(l.Key.Meter))
	quantity := p.take(x.quantity())
	r[ChargeCategory], r[ChargeFrequency], r[PricingCategory] = usage, usageBased, standard
	if l.Key.Pricing == billing.Spot {
		r[PricingCategory] = dynamic
	}
	priced := divided(quantity, l.Divisor)
	r[PricingUnit] = s.priced
	if packaged(l) {
		priced = x.packages(p)
		r[PricingUnit] = packageUnit(l.PricedUnit, s.priced)
	}
	contracted := number{l.UnitPrice.Pico(), money.PriceDecimals}
	list := contracted
	if e.in.ListPrices != nil {
		if price, ok := e.in.ListPrices(*l); ok {
			list = number{price.Pico(), money.PriceDecimals}
		}
	}
	contracted = discounted(contracted, l.Discounts)
	r[PricingQuantity] = priced.String()
	r[ListUnitPrice], r[ContractedUnitPrice] = list.String(), contracted.String()
	r[ListCost], r[ContractedCost] = list.times(priced).String(), contracted.times(priced).String()
	r[SkuID], r[SkuMeter], r[SkuPriceID] = skuID(l), s.meter, priceID(l)
	r[SkuPriceDetails] = priceDetails(l)
	switch {
	case x.unused != nil:
		e.commit(r, x.unused.id, x.unused.share.Name, unused, priced)
		r[PricingCategory] = committed
	case reserves(l):
		r[ChargeCategory], r[ChargeFrequency] = purchase, recurring
		e.commit(r, resourceID(x.share.Subject), x.share.Name, "", priced)
	default:
		r[ConsumedQuantity], r[ConsumedUnit] = consumed(quantity, l.QuantityUnit).String(), s.consumed
		if covering := coveredBy(l); covering != "" {
			e.commit(r, covering, "", used, priced)
			r[PricingCategory] = committed
		}
	}
}

func (x charge) quantity() *big.Int {
	if x.unused != nil {
		return x.unused.left
	}
	return x.share.Quantity
}

// packages is the row's share of the packages of its line, by amount.
func (x charge) packages(p part) number {
	l := x.line
	n := p.take(new(big.Int).Mul(big.NewInt(l.Packages), pow10(scale)))
	of, whole := x.share.Quantity, l.Quantity
	if !l.Amount.IsZero() {
		of, whole = big.NewInt(x.share.Amount.Minor()), big.NewInt(l.Amount.Minor())
	}
	n = new(big.Int).Mul(n, of)
	return number{n.Quo(n, whole), scale}
}

// packageUnit is what a package holds: 100 GPU-Hours.
func packageUnit(priced, unit string) string {
	size, _, _ := strings.Cut(strings.TrimPrefix(priced, "package of "), " ")
	return size + " " + unit
}

// discounted is a price less its discounts, cut to the decimals of prices.
func discounted(price number, discounts []billing.Discount) number {
	for _, d := range discounts {
		price = price.times(number{big.NewInt(1_000_000 - d.PPM), 6})
	}
	return price.cut(scale)
}

// consumed is time in seconds, and bytes as they are.
func consumed(quantity *big.Int, unit string) number {
	if strings.HasSuffix(unit, "_us") {
		return number{quantity, 6}
	}
	return number{quantity, 0}
}

// commit says which reservation a row belongs to.
func (e Export) commit(r *Row, reservation, name, status string, quantity number) {
	r[CommitmentDiscountID], r[CommitmentDiscountCategory], r[CommitmentDiscountType] = reservation, "Usage", "Reservation"
	r[CommitmentDiscountName] = word(orElse(e.in.Commitments[reservation], name))
	r[CommitmentDiscountStatus], r[CommitmentDiscountQuantity], r[CommitmentDiscountUnit] = status, quantity.String(), "GPU-Hours"
	r[CapacityReservationID], r[CapacityReservationStatus] = reservation, status
}

// skuID names what a price is for: one meter of a SKU.
func skuID(l *billing.Line) string {
	if l.SKUCode == "" {
		return string(l.Key.Meter)
	}
	if l.Key.Meter == metering.GPU {
		return l.SKUCode
	}
	return l.SKUCode + "/" + string(l.Key.Meter)
}

// priceID names an entry of price lists. It must mean the same over time and for every
// account, so it holds no version, contract or amount: x_PriceVersion has the version.
func priceID(l *billing.Line) string {
	name := skuID(l)
	if l.Key.Tier > 0 {
		name += "/tier-" + strconv.Itoa(l.Key.Tier)
	}
	if l.Key.Pricing == billing.Spot {
		name += "/spot"
	}
	return name
}

func priceDetails(l *billing.Line) string {
	values := map[string]any{}
	for k, v := range map[string]string{"InstanceType": l.SKUCode, "x_IsolationGpu": l.Key.IsolationGPU, "x_IsolationHost": l.Key.IsolationHost} {
		if v != "" {
			values[k] = v
		}
	}
	if l.Key.Tier > 0 {
		values["x_Tier"] = strconv.Itoa(l.Key.Tier) // numbers would be amounts of one pricing unit
	}
	if len(values) == 0 {
		return ""
	}
	return flat(values)
}
