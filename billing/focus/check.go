package focus

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tranche-cloud/tranche/internal/money"
)

// Violation is a rule of FOCUS 1.2 that a row, or rows together, break.
type Violation struct {
	Row    int // index, -1 for rows together
	Column Column
	Rule   string // what must hold
	Detail string
}

// String writes the violation for people.
func (v Violation) String() string {
	return fmt.Sprintf("row %d, %s: %s (%s)", v.Row, v.Column, v.Rule, v.Detail)
}

// Check returns every breach of the rules of FOCUS 1.2 that apply to the columns of the
// export: types and formats, nulls, allowed values, how columns depend on each other,
// and what must hold over all rows. Rows are of any number of documents.
func Check(rows []Row) []Violation {
	c := &checker{}
	for i := range rows {
		c.at, c.row = i, &rows[i]
		c.formats()
		c.periods()
		c.charge()
		c.pricing()
		c.consumption()
		c.costs()
		c.commitment()
		c.dependents()
	}
	c.at = -1
	c.together(rows)
	return c.found
}

type checker struct {
	at    int
	row   *Row
	found []Violation
}

func (c *checker) want(ok bool, column Column, rule string) {
	if ok {
		return
	}
	detail := ""
	if c.at >= 0 {
		detail = fmt.Sprintf("%.80q", c.row[column])
	}
	c.found = append(c.found, Violation{c.at, column, rule, detail})
}

func (c *checker) null(column Column) bool { return c.row[column] == "" }

// corrects reports whether the row corrects what was invoiced: many rules do not bind it.
func (c *checker) corrects() bool { return c.row[ChargeClass] == correction }

func (c *checker) is(category string) bool { return c.row[ChargeCategory] == category }

// value is the number of a column; 0 for null and for what is no number.
func (c *checker) value(column Column) number {
	n, ok := parse(c.row[column])
	if !ok {
		return number{zero, 0}
	}
	return n
}

func (c *checker) periods() {
	c.want(c.row[BillingPeriodStart] < c.row[BillingPeriodEnd], BillingPeriodEnd, "the billing period ends, exclusively, after its start")
	c.want(c.row[ChargePeriodStart] < c.row[ChargePeriodEnd], ChargePeriodEnd, "the charge period ends, exclusively, after its start")
	_, err := money.ParseCurrency(c.row[BillingCurrency])
	c.want(err == nil, BillingCurrency, "a national currency by ISO 4217")
}

func (c *checker) charge() {
	c.want(!c.is(purchase) || c.row[ChargeFrequency] != usageBased, ChargeFrequency, "a purchase is not usage-based")
	for s, category := range subcategories {
		if c.row[ServiceSubcategory] == s {
			c.want(c.row[ServiceCategory] == category, ServiceSubcategory, "a subcategory has one parent category")
		}
	}
	_, known := subcategories[c.row[ServiceSubcategory]]
	c.want(known || c.null(ServiceSubcategory), ServiceSubcategory, "an allowed value")
}

var subcategories = map[string]string{
	"Other (Compute)": "Compute", "Block Storage": "Storage", "Network Infrastructure": "Networking", "Network Connectivity": "Networking",
}

// pricing checks what a price has and where there is none.
func (c *checker) pricing() {
	priced := []Column{PricingQuantity, PricingUnit, ListUnitPrice, ContractedUnitPrice, PricingCategory, SkuID, SkuPriceID, SkuMeter}
	for _, column := range priced {
		if c.is(tax) {
			c.want(c.null(column), column, "null for a tax")
		}
		if (c.is(usage) || c.is(purchase)) && !c.corrects() {
			c.want(!c.null(column), column, "not null for usage and purchases")
		}
	}
	c.want(c.null(PricingQuantity) == c.null(PricingUnit), PricingUnit, "null exactly where the quantity is")
	c.want(c.null(PricingUnit) || unitFormat(c.row[PricingUnit]), PricingUnit, "the unit format")
	for _, column := range []Column{ListUnitPrice, ContractedUnitPrice} {
		c.want(c.value(column).n.Sign() >= 0, column, "not negative")
	}
	c.want(c.null(SkuPriceDetails) || !c.null(SkuPriceID), SkuPriceDetails, "null where the price id is")
	c.want(c.null(SkuPriceID) || !c.null(SkuID), SkuPriceID, "null where the SKU is")
	c.want(c.null(SkuMeter) || !c.null(SkuID), SkuMeter, "null where the SKU is")
}

var timeUnits = []string{"Hours", "Seconds"}

// unitFormat accepts plural units, <singular>-<plural time> and a quantity in front.
func unitFormat(unit string) bool {
	size, rest, ok := strings.Cut(unit, " ")
	if !ok {
		rest = unit
	} else if _, number := parse(size); !number {
		return false
	}
	base, time, compound := strings.Cut(rest, "-")
	if compound {
		return slices.Contains([]string{"GPU", "GiB", "MiB", "Address"}, base) && slices.Contains(timeUnits, time)
	}
	return slices.Contains([]string{"GiB", "B", "Credits"}, base)
}

func (c *checker) consumption() {
	must := c.is(usage) && c.row[CommitmentDiscountStatus] != unused
	if !must {
		c.want(c.null(ConsumedQuantity), ConsumedQuantity, "null for what is no usage, or an unused commitment")
	}
	if must && !c.corrects() {
		c.want(c.value(ConsumedQuantity).n.Sign() > 0, ConsumedQuantity, "positive for usage")
	}
	c.want(c.null(ConsumedQuantity) == c.null(ConsumedUnit), ConsumedUnit, "null exactly where the quantity is")
	c.want(c.null(ConsumedUnit) || unitFormat(c.row[ConsumedUnit]), ConsumedUnit, "the unit format")
}

// costs checks that costs are quantity × price, and what costs nothing.
func (c *checker) costs() {
	for _, pair := range [][2]Column{{ListCost, ListUnitPrice}, {ContractedCost, ContractedUnitPrice}} {
		cost, price := pair[0], pair[1]
		switch {
		case !c.null(price) && !c.null(PricingQuantity):
			product := c.value(price).times(c.value(PricingQuantity))
			c.want(c.corrects() || product.equal(c.value(cost)), cost, "unit price × pricing quantity, exactly")
		case c.is(credit), c.is(adjustment) && c.row[Funding] == byInvoice:
			c.want(c.value(cost).equal(c.value(BilledCost)), cost, "the billed cost of a charge that no other is related to")
		}
	}
	future := c.is(purchase) && !c.corrects()
	c.want(!future || c.value(EffectiveCost).n.Sign() == 0, EffectiveCost, "0 for a purchase that covers future charges")
	if c.is(credit) || c.is(adjustment) && c.row[Funding] == byInvoice {
		c.want(c.value(EffectiveCost).equal(c.value(BilledCost)), EffectiveCost, "the billed cost of a charge that no other is related to")
	}
	if c.row[Funding] == byPrepaid {
		c.want(c.value(BilledCost).n.Sign() == 0, BilledCost, "0 for what a prepaid purchase covers")
		c.want(c.value(PrepaidApplied).n.Sign() > 0 || c.corrects() && c.value(PrepaidApplied).n.Sign() != 0, PrepaidApplied, "what the prepaid balance paid")
	} else {
		c.want(c.null(PrepaidApplied), PrepaidApplied, "null for what the invoice asks for")
	}
	if c.is(credit) {
		c.want(c.corrects() || c.value(BilledCost).n.Sign() <= 0, BilledCost, "a credit is not positive")
	}
	if currency, err := money.ParseCurrency(c.row[BillingCurrency]); err == nil {
		for _, column := range []Column{BilledCost, EffectiveCost, PrepaidApplied} {
			c.want(c.value(column).scale <= currency.Exponent(), column, "whole minor units of the currency")
		}
	}
}

func (c *checker) commitment() {
	has := !c.null(CommitmentDiscountID)
	for _, column := range []Column{CommitmentDiscountCategory, CommitmentDiscountType} {
		c.want(has == !c.null(column), column, "null exactly where the commitment is")
	}
	for _, column := range []Column{CommitmentDiscountName, CommitmentDiscountStatus, CommitmentDiscountQuantity} {
		c.want(has || c.null(column), column, "null where the commitment is")
	}
	c.want(!has || !c.is(usage) || !c.null(CommitmentDiscountStatus), CommitmentDiscountStatus, "not null for usage under a commitment")
	c.want(c.null(CommitmentDiscountQuantity) == c.null(CommitmentDiscountUnit), CommitmentDiscountUnit, "null exactly where the quantity is")
	c.want(c.null(CommitmentDiscountUnit) || unitFormat(c.row[CommitmentDiscountUnit]), CommitmentDiscountUnit, "the unit format")
	if has && !c.corrects() && (c.is(usage) || c.is(purchase)) {
		c.want(c.value(CommitmentDiscountQuantity).n.Sign() > 0, CommitmentDiscountQuantity, "positive for usage and purchases of a commitment")
	} else if !c.corrects() {
		c.want(c.null(CommitmentDiscountQuantity), CommitmentDiscountQuantity, "null in all other cases")
	}
	status := c.row[CommitmentDiscountStatus]
	if status != "" {
		c.want(c.row[PricingCategory] == committed, PricingCategory, "Committed for what a commitment covers")
		c.want(c.value(BilledCost).n.Sign() == 0, BilledCost, "0 for what a commitment covers, and for its unused part")
	} else {
		c.want(c.row[PricingCategory] != committed, PricingCategory, "Committed only for what a commitment covers")
	}
	capacity := !c.null(CapacityReservationID)
	c.want(capacity || c.null(CapacityReservationStatus), CapacityReservationStatus, "null where the reservation is")
	c.want(!capacity || !c.is(usage) || !c.null(CapacityReservationStatus), CapacityReservationStatus, "not null for usage of a reservation")
}

// dependents checks columns that are null together.
func (c *checker) dependents() {
	for _, pair := range [][2]Column{{RegionName, RegionID}, {ResourceType, ResourceID}, {SubAccountType, SubAccountID}} {
		c.want(c.null(pair[0]) == c.null(pair[1]), pair[0], "null exactly where its id is")
	}
	for _, pair := range [][2]Column{{ResourceName, ResourceID}, {SubAccountName, SubAccountID}, {AvailabilityZone, RegionID}} {
		c.want(c.null(pair[0]) || !c.null(pair[1]), pair[0], "null where its id is")
	}
	c.want(c.row[ResourceName] != c.row[ResourceID] || c.null(ResourceID), ResourceName, "no repetition of the id")
}
