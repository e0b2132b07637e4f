package payment

import (
	"fmt"

	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/money"
)

// counting says how a card provider counts a currency: the exponent of its integer
// amounts, and the step that every amount must be a multiple of, in its own units.
type counting struct {
	exponent int
	step     int64
}

// counted is the table of currencies that card providers take, apart from ISO 4217:
// ISK and UGX are charged with two decimals that are always 00, and of three
// decimals the last is always 0 (docs.stripe.com/currencies). A currency that is not
// here cannot be charged.
var counted = func() map[string]counting {
	table := map[string]counting{"ISK": {2, 100}, "UGX": {2, 100}}
	for _, c := range []string{
		"BIF", "CLP", "DJF", "GNF", "JPY", "KMF", "KRW", "PYG", "RWF", "VND", "VUV", "XAF", "XOF", "XPF",
	} {
		table[c] = counting{0, 1}
	}
	for _, c := range []string{"BHD", "JOD", "KWD", "OMR", "TND"} {
		table[c] = counting{3, 10}
	}
	for _, c := range []string{
		"AED", "ARS", "AUD", "BGN", "BRL", "CAD", "CHF", "CNY", "COP", "CZK", "DKK", "EGP", "EUR", "GBP", "GEL", "HKD",
		"HUF", "IDR", "ILS", "INR", "KES", "KZT", "MAD", "MXN", "MYR", "NGN", "NOK", "NZD", "PEN", "PHP", "PKR", "PLN",
		"QAR", "RON", "RSD", "SAR", "SEK", "SGD", "THB", "TRY", "TWD", "UAH", "USD", "UYU", "UZS", "ZAR",
	} {
		table[c] = counting{2, 1}
	}
	return table
}()

// ProviderUnits writes an amount as card providers count it: UGX 2000 is 200000,
// KWD 1.235 is 1235. It fails with payment.currency for a currency they do not take
// and with money.ErrRange.
func ProviderUnits(a money.Amount) (int64, error) {
	c, ok := counted[a.Currency().Code()]
	if !ok {
		return 0, unknownCurrency(a.Currency().Code())
	}
	factor := pow10(c.exponent - a.Currency().Exponent())
	units := a.Minor() * factor
	if units/factor != a.Minor() {
		return 0, fmt.Errorf("counting %s for a provider: %w", a, money.ErrRange)
	}
	return units, nil
}

// FromProvider reads an amount as a card provider counts it; code is ISO 4217 in
// upper case. It fails with payment.currency for a currency that is unknown, and with
// payment.amount for units that are no whole minor units of ours.
func FromProvider(units int64, code string) (money.Amount, error) {
	currency, err := money.ParseCurrency(code)
	c, ok := counted[code]
	if err != nil || !ok {
		return money.Amount{}, unknownCurrency(code)
	}
	factor := pow10(c.exponent - currency.Exponent())
	if units%factor != 0 {
		return money.Amount{}, fault.New(fault.Unprocessable, "payment.amount",
			fmt.Sprintf("%d provider units are no whole amount of %s.", units, code)).
			Suggest("Look at the payment at the provider: it was not made by this system.")
	}
	return money.NewAmount(units/factor, currency), nil
}

// Chargeable cuts an amount to what card providers can charge: KWD 1.235 is charged
// as 1.230 and 0.005 is left. It fails with payment.currency.
func Chargeable(a money.Amount) (charge, left money.Amount, err error) {
	c, ok := counted[a.Currency().Code()]
	if !ok {
		return money.Amount{}, money.Amount{}, unknownCurrency(a.Currency().Code())
	}
	step := max(1, c.step/pow10(c.exponent-a.Currency().Exponent()))
	rest := a.Minor() % step
	return money.NewAmount(a.Minor()-rest, a.Currency()), money.NewAmount(rest, a.Currency()), nil
}

// pow10 is 10ⁿ; every exponent of the table is at least the currency's own.
func pow10(n int) int64 {
	p := int64(1)
	for range n {
		p *= 10
	}
	return p
}

func unknownCurrency(code string) error {
	return fault.New(fault.Unprocessable, "payment.currency", fmt.Sprintf("Card providers take no payments in %q.", code)).
		Suggest("Pay by bank transfer, or bill in another currency.")
}
