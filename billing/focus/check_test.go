package focus_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/billing/focus"
	"github.com/tranche-cloud/tranche/internal/testkit/situations"
)

// The check sees each breach: a spoiled cell is reported at its column.
func TestTheCheckSeesEachBreach(t *testing.T) {
	reservation, promo := exported(t, "reservation"), exported(t, "promo-prepaid")
	is := func(c focus.Column, value string) func(focus.Row) bool {
		return func(r focus.Row) bool { return r[c] == value }
	}
	usage, bought, taxed := is(focus.CommitmentDiscountStatus, "Used"), is(focus.ChargeCategory, "Purchase"), is(focus.ChargeCategory, "Tax")
	left, credit := is(focus.CommitmentDiscountStatus, "Unused"), is(focus.ChargeCategory, "Credit")
	for name, c := range map[string]struct {
		rows   []focus.Row
		which  func(focus.Row) bool
		column focus.Column
		value  string
		at     focus.Column
	}{
		"a null cost":                     {reservation, usage, focus.BilledCost, "", focus.BilledCost},
		"an exponent":                     {reservation, usage, focus.EffectiveCost, "1e+2", focus.EffectiveCost},
		"thousands":                       {reservation, usage, focus.EffectiveCost, "1,000", focus.EffectiveCost},
		"a plus":                          {reservation, usage, focus.EffectiveCost, "+1", focus.EffectiveCost},
		"thirteen decimals":               {reservation, usage, focus.PricingQuantity, "1.0000000000001", focus.PricingQuantity},
		"fractions of seconds":            {reservation, usage, focus.ChargePeriodStart, "2026-11-01T00:00:00.5Z", focus.ChargePeriodStart},
		"a zone":                          {reservation, usage, focus.ChargePeriodEnd, "2026-12-01T00:00:00+01:00", focus.ChargePeriodEnd},
		"no such day":                     {reservation, usage, focus.BillingPeriodEnd, "2026-13-01T00:00:00Z", focus.BillingPeriodEnd},
		"an empty charge period":          {reservation, usage, focus.ChargePeriodEnd, "2026-11-01T00:00:00Z", focus.ChargePeriodEnd},
		"an empty billing period":         {reservation, usage, focus.BillingPeriodEnd, "2026-11-01T00:00:00Z", focus.BillingPeriodEnd},
		"an unknown currency":             {reservation, usage, focus.BillingCurrency, "eur", focus.BillingCurrency},
		"an unknown category":             {reservation, usage, focus.ChargeCategory, "usage", focus.ChargeCategory},
		"an unknown class":                {reservation, usage, focus.ChargeClass, "correction", focus.ChargeClass},
		"a usage-based purchase":          {reservation, bought, focus.ChargeFrequency, "Usage-Based", focus.ChargeFrequency},
		"a purchase that costs":           {reservation, bought, focus.EffectiveCost, "1", focus.EffectiveCost},
		"a placeholder":                   {reservation, usage, focus.ResourceName, "N/A", focus.ResourceName},
		"blank text":                      {reservation, usage, focus.SubAccountName, "  ", focus.SubAccountName},
		"a name without its id":           {reservation, usage, focus.SubAccountID, "", focus.SubAccountName},
		"a region without a name":         {reservation, usage, focus.RegionID, "eu", focus.RegionName},
		"the id as a name":                {reservation, usage, focus.ResourceName, "ID", focus.ResourceName},
		"usage without a quantity":        {reservation, usage, focus.PricingQuantity, "", focus.PricingQuantity},
		"usage without a list price":      {reservation, usage, focus.ListUnitPrice, "", focus.ListUnitPrice},
		"usage without a SKU":             {reservation, usage, focus.SkuID, "", focus.SkuID},
		"usage that consumed nothing":     {reservation, usage, focus.ConsumedQuantity, "0", focus.ConsumedQuantity},
		"a unit without a quantity":       {reservation, usage, focus.ConsumedQuantity, "", focus.ConsumedUnit},
		"unused that was consumed":        {reservation, left, focus.ConsumedQuantity, "1", focus.ConsumedQuantity},
		"a unit of another form":          {reservation, usage, focus.PricingUnit, "gpu hours", focus.PricingUnit},
		"a negative price":                {reservation, bought, focus.ListUnitPrice, "-0.3", focus.ListUnitPrice},
		"list cost off by a grain":        {reservation, bought, focus.ListCost, "216.000000000001", focus.ListCost},
		"contracted cost off":             {reservation, bought, focus.ContractedCost, "215", focus.ContractedCost},
		"a tax with a price":              {reservation, taxed, focus.ListUnitPrice, "1", focus.ListUnitPrice},
		"a tax with a SKU":                {reservation, taxed, focus.SkuID, "tax", focus.SkuID},
		"covered usage billed again":      {reservation, usage, focus.BilledCost, "1", focus.BilledCost},
		"covered usage as standard":       {reservation, usage, focus.PricingCategory, "Standard", focus.PricingCategory},
		"a commitment without a status":   {reservation, usage, focus.CommitmentDiscountStatus, "", focus.CommitmentDiscountStatus},
		"a commitment without a quantity": {reservation, usage, focus.CommitmentDiscountQuantity, "", focus.CommitmentDiscountQuantity},
		"a commitment without a type":     {reservation, usage, focus.CommitmentDiscountType, "", focus.CommitmentDiscountType},
		"a status without a reservation":  {reservation, usage, focus.CapacityReservationID, "", focus.CapacityReservationStatus},
		"a reservation spread in part":    {reservation, usage, focus.EffectiveCost, "119", focus.EffectiveCost},
		"used beyond what was bought":     {reservation, left, focus.CommitmentDiscountQuantity, "300", focus.CommitmentDiscountQuantity},
		"one service in two categories":   {reservation, left, focus.ServiceCategory, "Storage", focus.ServiceCategory},
		"a subcategory elsewhere":         {reservation, left, focus.ServiceSubcategory, "Block Storage", focus.ServiceSubcategory},
		"an object in an object":          {reservation, usage, focus.Tags, `{"a":{"b":1}}`, focus.Tags},
		"a key twice":                     {reservation, usage, focus.Tags, `{"a":1,"a":2}`, focus.Tags},
		"a list":                          {reservation, usage, focus.Tags, `[1]`, focus.Tags},
		"a price without its SKU":         {promo, usageRow, focus.SkuPriceID, "", focus.SkuPriceDetails},
		"two units of one price":          {promo, usageRow, focus.PricingUnit, "GPU-Seconds", focus.PricingUnit},
		"two meters of one SKU":           {promo, usageRow, focus.SkuMeter, "Time", focus.SkuMeter},
		"two details of one price":        {promo, usageRow, focus.SkuPriceDetails, `{"a":1}`, focus.SkuPriceDetails},
		"an invoice of two accounts":      {promo, usageRow, focus.BillingAccountID, "org_other", focus.BillingAccountID},
		"a credit that costs otherwise":   {promo, credit, focus.EffectiveCost, "-19", focus.EffectiveCost},
		"a positive credit":               {promo, credit, focus.BilledCost, "20", focus.BilledCost},
		"prepaid usage billed again":      {promo, is(focus.Funding, "prepaid"), focus.BilledCost, "1", focus.BilledCost},
		"half a cent":                     {promo, usageRow, focus.EffectiveCost, "0.005", focus.EffectiveCost},
	} {
		rows := slices.Clone(c.rows)
		i := slices.IndexFunc(rows, c.which)
		require.GreaterOrEqual(t, i, 0, name)
		if c.value == "ID" {
			c.value = rows[i][focus.ResourceID]
		}
		rows[i][c.column] = c.value
		found := focus.Check(rows)
		require.True(t, slices.ContainsFunc(found, func(v focus.Violation) bool { return v.Column == c.at }), "%s: %v", name, found)
		require.NotEmpty(t, found[0].String())
	}
	unbalanced := slices.DeleteFunc(slices.Clone(reservation), left)
	require.True(t, slices.ContainsFunc(focus.Check(unbalanced), func(v focus.Violation) bool { return v.Column == focus.CommitmentDiscountStatus }), "an unused row is required")
}

func usageRow(r focus.Row) bool { return r[focus.ChargeCategory] == "Usage" }

func exported(t *testing.T, name string) []focus.Row {
	t.Helper()
	got := rows(t, focus.Input{Invoices: []billing.Invoice{situations.Named(t, name)}})
	require.Empty(t, focus.Check(got))
	return got
}
