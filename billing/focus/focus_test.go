package focus_test

import (
	"bytes"
	"encoding/csv"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/billing/focus"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/money"
	"github.com/tranche-cloud/tranche/internal/testkit/golden"
	"github.com/tranche-cloud/tranche/internal/testkit/situations"
)

// rows exports documents to Parquet and reads them back.
func rows(t situations.T, in focus.Input) []focus.Row {
	t.Helper()
	e, err := focus.New(in)
	require.NoError(t, err)
	var file bytes.Buffer
	require.NoError(t, focus.WriteParquet(&file, e.Rows()))
	back, err := focus.ReadParquet(bytes.NewReader(file.Bytes()), int64(file.Len()))
	require.NoError(t, err)
	require.Equal(t, slices.Collect(e.Rows()), back, "Parquet gives back what was written")
	return back
}

func total(rows []focus.Row, c focus.Column, of func(focus.Row) bool) *big.Rat {
	sum := new(big.Rat)
	for _, r := range rows {
		if r[c] == "" || !of(r) {
			continue
		}
		n, _ := new(big.Rat).SetString(r[c])
		sum.Add(sum, n)
	}
	return sum
}

func every(focus.Row) bool { return true }

// advances is what lines of a document are money for later, and the tax on it: it is
// billed here and costs elsewhere.
func advances(v billing.Invoice) *big.Rat {
	sum := new(big.Rat)
	if v.Kind == billing.AdvanceInvoice {
		return v.Total.Exact().Rat()
	}
	for _, l := range v.Lines {
		if l.Key.Component != billing.AdvanceOffset {
			continue
		}
		tax, _ := l.Amount.Exact().Scale(big.NewRat(l.TaxRatePPM, 1_000_000)).Round()
		sum.Add(sum, l.Amount.Exact().Rat())
		sum.Add(sum, tax.Exact().Rat())
	}
	return sum
}

// adds checks that a document's rows sum to what it asks for and to what it costs.
func adds(t situations.T, v billing.Invoice, rows []focus.Row) {
	t.Helper()
	due := new(big.Rat).Sub(v.Total.Exact().Rat(), v.Settlement.Prepaid.Exact().Rat())
	require.Equal(t, due.RatString(), total(rows, focus.BilledCost, every).RatString(), "Σ BilledCost = total − prepaid applied")
	cost := new(big.Rat).Sub(v.Total.Exact().Rat(), advances(v))
	require.Equal(t, cost.RatString(), total(rows, focus.EffectiveCost, every).RatString(), "Σ EffectiveCost = total")
}

func TestEverySituationKeepsEveryRule(t *testing.T) {
	for _, s := range situations.All(t) {
		t.Run(s.Name, func(t *testing.T) {
			got := rows(t, focus.Input{Invoices: []billing.Invoice{s.Invoice}})
			require.Empty(t, focus.Check(got))
			adds(t, s.Invoice, got)
			var file bytes.Buffer
			require.NoError(t, focus.WriteCSV(&file, slices.Values(got)))
			golden.Assert(t, s.Name+".csv", file.Bytes())
		})
	}
}

func TestAllDocumentsTogetherKeepEveryRule(t *testing.T) {
	in := focus.Input{TopUps: []focus.TopUp{{ID: situations.ID[id.Grant](7), At: situations.Start.Add(time.Hour + time.Microsecond), Amount: money.NewAmount(5000, money.MustCurrency("EUR"))}}}
	for _, s := range situations.All(t) {
		if s.Invoice.State == billing.Open {
			in.Invoices = append(in.Invoices, s.Invoice)
		}
	}
	got := rows(t, in)
	for _, v := range in.Invoices {
		of := slices.DeleteFunc(slices.Clone(got), func(r focus.Row) bool { return r[focus.InvoiceID] != v.Number })
		adds(t, v, of)
	}
	// The test documents share resources and prices that real ones would not.
	found := slices.DeleteFunc(focus.Check(got), func(v focus.Violation) bool { return v.Row >= 0 && v.Detail != "" && strings.Contains(v.Detail, ": ") })
	require.Empty(t, found)
	last := got[len(got)-1]
	require.Equal(t, "Purchase", last[focus.ChargeCategory])
	require.Equal(t, "50", last[focus.BilledCost])
	require.Equal(t, "0", last[focus.EffectiveCost])
	require.Equal(t, "", last[focus.InvoiceID])
}

// The same documents give the same bytes, in both formats.
func TestExportingAgainGivesTheSameBytes(t *testing.T) {
	make := func() (parquet, text []byte) {
		var a, b bytes.Buffer
		e, err := focus.New(focus.Input{Invoices: []billing.Invoice{situations.Named(t, "reservation"), situations.Named(t, "promo-prepaid")}})
		require.NoError(t, err)
		require.NoError(t, focus.WriteParquet(&a, e.Rows()))
		require.NoError(t, focus.WriteCSV(&b, e.Rows()))
		return a.Bytes(), b.Bytes()
	}
	p, c := make()
	again, text := make()
	require.Equal(t, p, again)
	require.Equal(t, c, text)
}

func only(rows []focus.Row, c focus.Column, value string) []focus.Row {
	return slices.DeleteFunc(slices.Clone(rows), func(r focus.Row) bool { return r[c] != value })
}

func TestAReservationIsSpreadOverItsUse(t *testing.T) {
	v := situations.Named(t, "reservation")
	got := rows(t, focus.Input{Invoices: []billing.Invoice{v}, Commitments: map[string]string{situations.ID[id.Reservation](200).String(): "base load 2026"}})
	bought := only(got, focus.ChargeCategory, "Purchase")
	require.Len(t, bought, 1)
	require.Equal(t, "216", bought[0][focus.BilledCost])
	require.Equal(t, "0", bought[0][focus.EffectiveCost])
	require.Equal(t, "Recurring", bought[0][focus.ChargeFrequency])
	require.Equal(t, "base load 2026", bought[0][focus.CommitmentDiscountName])
	used, unused := only(got, focus.CommitmentDiscountStatus, "Used"), only(got, focus.CommitmentDiscountStatus, "Unused")
	require.Len(t, used, 2)
	require.Len(t, unused, 1)
	require.Equal(t, "120", used[0][focus.EffectiveCost], "400 of 720 hours of 216.00")
	require.Equal(t, "30", used[1][focus.EffectiveCost])
	require.Equal(t, "66", unused[0][focus.EffectiveCost], "220 of 720 hours")
	require.Equal(t, "219.999999999722", unused[0][focus.PricingQuantity])
	require.Equal(t, "", unused[0][focus.ConsumedQuantity])
}

func TestWhatThePrepaidBalancePaidIsARowOfItsOwn(t *testing.T) {
	got := rows(t, focus.Input{Invoices: []billing.Invoice{situations.Named(t, "promo-prepaid")}})
	paid := only(got, focus.Funding, "prepaid")
	require.Len(t, paid, 3, "two resources and the tax")
	require.Equal(t, "30", total(paid, focus.PrepaidApplied, every).RatString())
	require.Equal(t, "30", total(paid, focus.EffectiveCost, every).RatString())
	usage := only(got, focus.ChargeCategory, "Usage")
	require.Equal(t, "40", total(usage, focus.PricingQuantity, every).RatString(), "quantities are split, too")
	require.Equal(t, "144000", total(usage, focus.ConsumedQuantity, every).RatString())
	promo := only(got, focus.ChargeCategory, "Credit")
	require.Len(t, promo, 1)
	require.Equal(t, "-20", promo[0][focus.BilledCost])
	require.Equal(t, "-20", promo[0][focus.EffectiveCost])
}

func TestAnAdvanceCostsWhereItIsUsed(t *testing.T) {
	both := []billing.Invoice{situations.Named(t, "advance"), situations.Named(t, "advance-deducted")}
	got := rows(t, focus.Input{Invoices: both})
	require.Equal(t, total(got, focus.BilledCost, every).RatString(), total(got, focus.EffectiveCost, every).RatString(), "over both documents")
	require.Equal(t, "29631/100", total(got, focus.BilledCost, every).RatString(), "249.00 and 19 %")
}

func TestDiscountsAndListPrices(t *testing.T) {
	v := situations.Named(t, "discounts")
	got := rows(t, focus.Input{Invoices: []billing.Invoice{v}, ListPrices: func(billing.Line) (money.Price, bool) {
		return money.MustPrice("3", v.Currency), true
	}})
	require.Equal(t, "3", got[0][focus.ListUnitPrice])
	require.Equal(t, "2.12895", got[0][focus.ContractedUnitPrice], "2.49 × 90 % × 95 %")
	require.Equal(t, "30", got[0][focus.ListCost])
	require.Equal(t, "21.2895", got[0][focus.ContractedCost])
}

func TestACreditNoteCorrects(t *testing.T) {
	for _, r := range rows(t, focus.Input{Invoices: []billing.Invoice{situations.Named(t, "credit-note")}}) {
		require.Equal(t, "Correction", r[focus.ChargeClass])
		require.True(t, r[focus.ChargeCategory] == "Tax" || strings.HasPrefix(r[focus.Corrects], "TR-2026-000001/"))
		require.True(t, strings.HasPrefix(r[focus.BilledCost], "-"))
	}
}

func TestWhatIsKnownOfAResource(t *testing.T) {
	v := situations.Named(t, "plain-usage")
	subject := v.Lines[0].Subjects[0].Subject
	got := rows(t, focus.Input{Invoices: []billing.Invoice{v}, Account: "Acme", Provider: "Sliced", Resources: map[metering.Subject]focus.Resource{
		subject: {Region: "eu-1", Zone: "eu-1a", Labels: map[string]string{"team": `a"b`, "batch": "", "&": "<"}},
	}})
	require.Empty(t, focus.Check(got))
	require.Equal(t, `{"&":"<","batch":true,"team":"a\"b"}`, got[0][focus.Tags])
	require.Equal(t, "eu-1", got[0][focus.RegionID])
	require.Equal(t, "eu-1", got[0][focus.RegionName])
	require.Equal(t, "eu-1a", got[0][focus.AvailabilityZone])
	require.Equal(t, "Acme", got[0][focus.BillingAccountName])
	require.Equal(t, "Sliced", got[0][focus.ProviderName])
	require.Equal(t, "Tranche Cloud GmbH", got[0][focus.InvoiceIssuerName])
	require.Equal(t, "true", got[0][focus.Simulated])
	require.Equal(t, "", got[1][focus.RegionID])
}

func TestAPreviewHasNoInvoiceAndACarriedDocumentNoRow(t *testing.T) {
	for _, r := range rows(t, focus.Input{Invoices: []billing.Invoice{situations.Named(t, "preview")}}) {
		require.Empty(t, r[focus.InvoiceID])
	}
	v := situations.Named(t, "plain-usage")
	v.State = billing.Carried
	require.Empty(t, rows(t, focus.Input{Invoices: []billing.Invoice{v}}))
}

// The columns are those of FOCUS 1.2, in PascalCase, ours behind them.
func TestTheHeadHasTheColumns(t *testing.T) {
	var file bytes.Buffer
	require.NoError(t, focus.WriteCSV(&file, slices.Values([]focus.Row{})))
	head, err := csv.NewReader(&file).Read()
	require.NoError(t, err)
	for _, mandatory := range []string{
		"BilledCost", "EffectiveCost", "ListCost", "ContractedCost", "BillingAccountId", "BillingAccountName", "BillingCurrency",
		"BillingPeriodStart", "BillingPeriodEnd", "ChargePeriodStart", "ChargePeriodEnd", "ChargeCategory", "ChargeClass", "ChargeDescription",
		"InvoiceIssuerName", "ProviderName", "PublisherName", "PricingQuantity", "PricingUnit", "ServiceCategory", "ServiceName",
		"ConsumedQuantity", "ConsumedUnit", "ListUnitPrice", "ContractedUnitPrice", "PricingCategory", "ResourceId", "ResourceName", "ResourceType",
		"RegionId", "RegionName", "SkuId", "SkuMeter", "SkuPriceId", "SkuPriceDetails", "SubAccountId", "SubAccountName", "SubAccountType",
		"CommitmentDiscountId", "CommitmentDiscountCategory", "CommitmentDiscountName", "CommitmentDiscountType", "CommitmentDiscountStatus",
		"CommitmentDiscountQuantity", "CommitmentDiscountUnit", "CapacityReservationId", "CapacityReservationStatus", "Tags",
		"InvoiceId", "ChargeFrequency", "AvailabilityZone", "ServiceSubcategory",
	} {
		require.Contains(t, head, mandatory)
	}
	ours := false
	for _, name := range head {
		custom := strings.HasPrefix(name, "x_")
		require.False(t, ours && !custom, "%s stands behind our columns", name)
		ours = ours || custom
		require.Regexp(t, `^(x_)?[A-Z][A-Za-z]+$`, name)
	}
}

// Any document keeps every rule, whatever its currency.
func TestAnyDocumentKeepsEveryRule(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		v := situations.Random(rt, "EUR", "JPY", "KWD", "CLF")
		got := rows(rt, focus.Input{Invoices: []billing.Invoice{v}})
		require.Empty(rt, focus.Check(got))
		adds(rt, v, got)
		for _, l := range v.Lines {
			quantity := total(got, focus.ConsumedQuantity, func(r focus.Row) bool { return r[focus.InvoiceLine] == big.NewInt(int64(l.No)).String() })
			if quantity.Sign() != 0 && strings.HasSuffix(l.QuantityUnit, "_us") {
				require.Equal(rt, new(big.Rat).SetFrac(l.Quantity, big.NewInt(1_000_000)).RatString(), quantity.RatString(), "no second is lost")
			}
		}
	})
}
