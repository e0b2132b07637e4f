package api

import (
	"context"
	"time"

	"github.com/oapi-codegen/nullable"

	"github.com/tranche-cloud/tranche/internal/app"
	"github.com/tranche-cloud/tranche/internal/auth"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/money"
	"github.com/tranche-cloud/tranche/internal/page"
	"github.com/tranche-cloud/tranche/openapi/wire"
)

// Handlers answer the operations with the use cases of internal/app.
type Handlers struct {
	app   *app.App
	pages *page.Sealer
	keys  wire.JwkSet
}

// NewHandlers returns the product's handlers. Keys are the public keys that
// sign access tokens, as clients shall see them.
func NewHandlers(a *app.App, pages *page.Sealer, keys wire.JwkSet) *Handlers {
	return &Handlers{app: a, pages: pages, keys: keys}
}

func caller(ctx context.Context) app.Caller {
	c := callFrom(ctx)
	return app.Caller{Principal: c.principal, RequestID: c.id.String()}
}

// parse reads an id of a path. What is no id names nothing.
func parse[I interface{ ~[16]byte }, P interface {
	*I
	UnmarshalText([]byte) error
}](text string) (I, error) {
	var v I
	if text == "" || P(&v).UnmarshalText([]byte(text)) != nil {
		var none I
		return none, auth.NotFound()
	}
	return v, nil
}

// scope is what the page tokens of a call are bound to.
func scope(c *call) page.Scope {
	return page.Scope{Principal: c.principal.String(), Operation: c.op.id + " " + c.path, Filter: page.Filter(c.query)}
}

// pageOf reads the paging parameters of a list.
func (h *Handlers) pageOf(ctx context.Context, size *wire.PageSize, token *wire.PageToken) (app.Page, error) {
	var p app.Page
	var err error
	if size != nil {
		p.Size = int(*size)
	}
	if p.Size, err = page.Size(p.Size); err != nil || token == nil {
		return p, err
	}
	p.Cursor, err = h.pages.Open(scope(callFrom(ctx)), *token)
	return p, err
}

// listed makes the items and the next page token of a list; items are never nil.
func listed[T, W any](ctx context.Context, h *Handlers, l app.List[T], shape func(T) W) ([]W, *string, error) {
	items := make([]W, len(l.Items))
	for i, x := range l.Items {
		items[i] = shape(x)
	}
	token, err := h.pages.Seal(scope(callFrom(ctx)), l.Next)
	if err != nil || token == "" {
		return items, nil, err
	}
	return items, &token, nil
}

// The generated nullable type writes an unset value as the zero value; these
// always say null.

func orNull[T any](v *T) nullable.Nullable[T] {
	if v == nil {
		return nullable.NewNullNullable[T]()
	}
	return nullable.NewNullableWithValue(*v)
}

func textOrNull(s string) nullable.Nullable[string] {
	if s == "" {
		return nullable.NewNullNullable[string]()
	}
	return nullable.NewNullableWithValue(s)
}

func timeOrNull(t *time.Time) nullable.Nullable[wire.Timestamp] {
	if t == nil || t.IsZero() {
		return nullable.NewNullNullable[wire.Timestamp]()
	}
	return nullable.NewNullableWithValue(wire.At(*t))
}

// numberOrNull says null for 0, which stands for no limit or no promise.
func numberOrNull(n int) nullable.Nullable[int32] {
	if n == 0 {
		return nullable.NewNullNullable[int32]()
	}
	return nullable.NewNullableWithValue(int32(n))
}

func priceOf(p money.Price) wire.Price {
	return wire.Price{Amount: p.Decimal(), Currency: p.Currency().Code()}
}

func exactOf(e money.Exact) wire.Price {
	return wire.Price{Amount: e.Decimal(), Currency: e.Currency().Code()}
}

func moneyOf(a money.Amount) wire.Money {
	return wire.Money{Amount: a.Decimal(), Currency: a.Currency().Code()}
}

// currencyOf refuses a code that has the shape of a currency and is none.
func currencyOf(code string) (money.Currency, error) {
	c, err := money.ParseCurrency(code)
	if err != nil {
		return c, invalid(codeInvalid, "The currency is not supported.",
			fault.Field{Pointer: "/currency", Code: "unknown", Detail: "Use an ISO 4217 code."}).Because(err)
	}
	return c, nil
}

// texts never returns nil, so that an empty list is written as [].
func texts[T ~string](in []T) []string {
	out := make([]string, len(in))
	for i, s := range in {
		out[i] = string(s)
	}
	return out
}

func value[T any](p *T) T {
	var zero T
	if p == nil {
		return zero
	}
	return *p
}
