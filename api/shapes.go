package api

import (
	"context"
	"fmt"
	"time"

	"github.com/oapi-codegen/nullable"

	"github.com/tranche-cloud/tranche/internal/app"
	"github.com/tranche-cloud/tranche/internal/auth"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/money"
	"github.com/tranche-cloud/tranche/openapi/wire"
)

// payer is the caller of an operation that commits money of the whole organization.
// It fails with auth.forbidden for a key that is confined to a project.
func payer(ctx context.Context) (app.Caller, error) {
	c := caller(ctx)
	if c.Projects != nil {
		return c, fault.New(fault.Forbidden, "auth.forbidden", "This concerns the whole organization, and the key is confined to a project.").
			Suggest("Use a key of the whole organization.")
	}
	return c, nil
}

// inside is the operator's caller within an organization, for verbs that read what is
// the caller's own.
func inside(ctx context.Context, o id.Org) app.Caller {
	c := caller(ctx)
	c.Org = o
	return c
}

// named reads an id of a body. It fails with request.invalid.
func named[I interface{ ~[16]byte }, P interface {
	*I
	UnmarshalText([]byte) error
}](text, pointer string) (I, error) {
	v, err := parse[I, P](text)
	if err != nil {
		return v, invalid(codeInvalid, "The request names something that is no id.",
			fault.Field{Pointer: pointer, Code: "format", Detail: "An id as the API shows it."})
	}
	return v, nil
}

// parse2 reads two ids of a path.
func parse2[A, B interface{ ~[16]byte }, PA interface {
	*A
	UnmarshalText([]byte) error
}, PB interface {
	*B
	UnmarshalText([]byte) error
}](first, second string) (A, B, error) {
	a, err := parse[A, PA](first)
	if err != nil {
		var none B
		return a, none, err
	}
	b, err := parse[B, PB](second)
	return a, b, err
}

// each shapes a list, which is never nil.
func each[T, W any](in []T, shape func(T) W) []W {
	out := make([]W, len(in))
	for i, x := range in {
		out[i] = shape(x)
	}
	return out
}

// orAbsent leaves the zero value out.
func orAbsent[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

// instantOf is the zero time for an instant that is not given.
func instantOf(t *wire.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return instant(&t.Time)
}

// endOf says null for an interval without an end.
func endOf(i metering.Interval) nullable.Nullable[wire.Timestamp] { return timeOrNull(&i.To) }

// dateOrNull writes a calendar day.
func dateOrNull(t time.Time) nullable.Nullable[string] {
	if t.IsZero() {
		return nullable.NewNullNullable[string]()
	}
	return nullable.NewNullableWithValue(t.Format(time.DateOnly))
}

// moneyOrNull says null for the zero Amount, which has no currency.
func moneyOrNull(a money.Amount) nullable.Nullable[wire.Money] {
	if a.Currency().IsZero() {
		return nullable.NewNullNullable[wire.Money]()
	}
	return nullable.NewNullableWithValue(moneyOf(a))
}

// moneyIn shows an amount that may lack its currency, as zero of the document's.
func moneyIn(a money.Amount, c money.Currency) wire.Money {
	return moneyOf(money.NewAmount(a.Minor(), c))
}

// maxMinor bounds an amount of a request, in minor units: the books hold nine times as
// much in one posting.
const maxMinor = 1_000_000_000_000_000

// amountIn reads an amount of a request. It fails with request.invalid for an unknown
// currency, for more decimals than it has and for an absurd amount.
func amountIn(m wire.MoneyInput, pointer string) (money.Amount, error) {
	c, err := money.ParseCurrency(m.Currency)
	if err != nil {
		return money.Amount{}, invalid(codeInvalid, "The currency is not supported.",
			fault.Field{Pointer: pointer + "/currency", Code: "unknown", Detail: "Use an ISO 4217 code."}).Because(err)
	}
	a, err := money.ReadAmount(m.Amount, c)
	if err != nil {
		return a, invalid(codeInvalid, "The amount cannot be kept in its currency.",
			fault.Field{Pointer: pointer + "/amount", Code: "format", Detail: fmt.Sprintf("A decimal with at most the %d digits that %s has.", c.Exponent(), c.Code())}).Because(err)
	}
	if a.Minor() > maxMinor {
		return a, invalid(codeInvalid, "The amount is absurd.",
			fault.Field{Pointer: pointer + "/amount", Code: "maximum", Detail: "At most " + money.NewAmount(maxMinor, c).Decimal() + "."})
	}
	return a, nil
}

// periodIn refuses a text of the path that names no month.
func periodIn(text string) (string, error) {
	if _, err := metering.ParsePeriod(text); err != nil {
		return "", auth.NotFound()
	}
	return text, nil
}
