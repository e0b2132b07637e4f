package focus

import (
	"fmt"
	"math/big"
)

// together checks what must hold over all rows.
func (c *checker) together(rows []Row) {
	c.oneEach(rows, ServiceName, ServiceCategory, "a service has one category")
	c.oneEach(rows, SkuPriceID, SkuID, "a price has one SKU")
	c.oneEach(rows, SkuPriceID, PricingUnit, "a price id stands for one unit")
	c.oneEach(rows, SkuPriceID, SkuPriceDetails, "a price id has one set of details")
	c.oneEach(rows, SkuID, SkuMeter, "a SKU has one meter")
	c.oneEach(rows, InvoiceID, BillingAccountID, "an invoice belongs to one billing account")
	c.oneEach(rows, InvoiceID, BillingCurrency, "an invoice has one currency")
	c.oneEach(rows, InvoiceID, InvoiceIssuerName, "an invoice has one issuer")
	c.oneEach(rows, ResourceID, ResourceType, "a resource has one type")
	c.oneEach(rows, SubAccountID, SubAccountType, "a sub account has one type")
	c.commitments(rows)
}

// oneEach checks that a key always comes with one value.
func (c *checker) oneEach(rows []Row, key, value Column, rule string) {
	first := map[string]string{}
	for i := range rows {
		k, v := rows[i][key], rows[i][value]
		if k == "" || v == "" {
			continue
		}
		if before, seen := first[k]; seen && before != v {
			c.found = append(c.found, Violation{i, value, rule, fmt.Sprintf("%s: %s and %s", k, before, v)})
			continue
		}
		first[k] = v
	}
}

// use is a commitment in one document.
type use struct{ document, commitment string }

type account struct {
	bought, cost, spread, quantity number
	uses                           int64
	purchased, left                bool
}

// commitments checks that what a commitment cost is spread over its use and what is
// left of it, and that its quantities add up.
func (c *checker) commitments(rows []Row) {
	accounts, order := map[use]*account{}, []use{}
	for i := range rows {
		r := &rows[i]
		if r[CommitmentDiscountID] == "" || r[CommitmentDiscountCategory] != "Usage" || r[ChargeClass] == correction {
			continue
		}
		c.row = r
		k := use{r[BillingPeriodStart] + r[InvoiceID], r[CommitmentDiscountID]}
		a := accounts[k]
		if a == nil {
			a = &account{bought: number{zero, 0}, cost: number{zero, 0}, spread: number{zero, 0}, quantity: number{zero, 0}}
			accounts[k], order = a, append(order, k)
		}
		a.uses++
		if r[ChargeCategory] == purchase {
			a.purchased = true
			a.cost = a.cost.plus(c.value(BilledCost)).plus(c.value(PrepaidApplied))
			a.bought = a.bought.plus(c.value(CommitmentDiscountQuantity))
			continue
		}
		a.left = a.left || r[CommitmentDiscountStatus] == unused
		a.spread = a.spread.plus(c.value(EffectiveCost))
		a.quantity = a.quantity.plus(c.value(CommitmentDiscountQuantity))
	}
	for _, k := range order {
		if a := accounts[k]; a.purchased {
			c.balanced(k, a)
		}
	}
}

// balanced allows for one cut of a quantity a row.
func (c *checker) balanced(k use, a *account) {
	bad := func(column Column, rule string, x, y number) {
		c.found = append(c.found, Violation{-1, column, rule, fmt.Sprintf("%s: %s and %s", k.commitment, x, y)})
	}
	if !a.cost.equal(a.spread) {
		bad(EffectiveCost, "the effective cost of used and unused is what the commitment cost", a.spread, a.cost)
	}
	off := number{new(big.Int).Sub(a.bought.at(scale), a.quantity.at(scale)), scale}
	if off.n.CmpAbs(big.NewInt(a.uses)) <= 0 {
		return
	}
	if off.n.Sign() > 0 && !a.left {
		bad(CommitmentDiscountStatus, "what a commitment has left is an unused row", a.bought, a.quantity)
		return
	}
	if off.n.Sign() > 0 || a.left {
		bad(CommitmentDiscountQuantity, "used and unused are what was bought", a.quantity, a.bought)
	}
}
