package api

import (
	"context"
	"math/big"
	"strings"
	"time"

	"github.com/oapi-codegen/nullable"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/internal/app"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/internal/money"
	"github.com/tranche-cloud/tranche/internal/units"
	"github.com/tranche-cloud/tranche/openapi/wire"
)

// GetPriceRules answers GET /v1/prices.
func (h *Handlers) GetPriceRules(ctx context.Context, req GetPriceRulesRequestObject) (GetPriceRulesResponseObject, error) {
	c := caller(ctx)
	p, err := h.app.PricePreview(ctx, c, c.Org, app.PriceRequest{
		Offer: req.Params.Offer, PriorityClass: string(value(req.Params.PriorityClass)),
	})
	if err != nil {
		return nil, err
	}
	return GetPriceRules200JSONResponse{
		Offer: p.Offer, Sku: p.SKU, Family: p.Family, Region: p.Region, Currency: p.Currency.Code(), At: wire.At(p.At),
		Rules: each(p.Rules, priceRuleOf), Lock: priceLockOf(p.Lock), Next: pricedVersionOf(p.Next),
	}, nil
}

// CreatePricePreview answers POST /v1/projects/{project}/price-previews.
func (h *Handlers) CreatePricePreview(ctx context.Context, req CreatePricePreviewRequestObject) (CreatePricePreviewResponseObject, error) {
	in, err := newPriceRequest(*req.Body)
	if err != nil {
		return nil, err
	}
	c := caller(ctx)
	var out CreatePricePreview200JSONResponse
	again, err := h.once(ctx, func(ctx context.Context) (visit, error) {
		p, err := h.app.PricePreview(ctx, c, c.Org, in)
		if err != nil {
			return nil, err
		}
		out.Body = pricePreviewOf(p)
		return out.VisitCreatePricePreviewResponse, nil
	})
	return either[CreatePricePreviewResponseObject](out, again, err)
}

func newPriceRequest(b wire.PricePreviewCreate) (app.PriceRequest, error) {
	if (b.Offer == nil) == (b.Shape == nil) {
		return app.PriceRequest{}, invalid(codeInvalid, "A preview is of an offer or of a shape.",
			fault.Field{Pointer: "/offer", Code: "required", Detail: "Give either offer or shape."})
	}
	in := app.PriceRequest{
		Offer: value(b.Offer), Count: int64(value(b.Instances)), Hours: value(b.Hours),
		PriorityClass: string(value(b.PriorityClass)), StopBehavior: string(value(b.StopBehavior)),
	}
	if s := b.Shape; s != nil {
		in.Shape = &app.PriceShape{
			Model: s.GpuModel, Mode: gpu.Kind(s.Mode), Profile: value(s.Profile), Memory: units.MiB(value(s.MemoryMib)),
			SMPercent: int(value(s.SmPercent)), Count: int(value(s.Count)), Region: value(s.Region),
		}
	}
	return in, nil
}

func pricePreviewOf(p app.PricePreview) wire.PricePreview {
	return wire.PricePreview{
		Offer: p.Offer, Sku: p.SKU, Family: p.Family, Region: p.Region, Currency: p.Currency.Code(), At: wire.At(p.At),
		Rules: each(p.Rules, priceRuleOf), Lock: priceLockOf(p.Lock), Next: pricedVersionOf(p.Next),
		Estimate: wire.PriceEstimate{
			Instances: int32(p.Estimate.Count), Hours: p.Estimate.Hours, From: wire.At(p.Estimate.During.From), To: wire.At(p.Estimate.During.To),
			Exact: exactOf(p.Estimate.Exact), Amount: moneyOf(p.Estimate.Amount),
		},
	}
}

func priceLockOf(l *billing.Lock) nullable.Nullable[wire.PriceLock] {
	if l == nil {
		return nullable.NewNullNullable[wire.PriceLock]()
	}
	return nullable.NewNullableWithValue(wire.PriceLock{PriceVersion: l.Version.String(), PricePerHour: priceOf(l.Price)})
}

func pricedVersionOf(v *app.PricedVersion) nullable.Nullable[wire.PricedVersion] {
	if v == nil {
		return nullable.NewNullNullable[wire.PricedVersion]()
	}
	return nullable.NewNullableWithValue(wire.PricedVersion{
		PriceVersion: v.ID.String(), Version: int32(v.Number), EffectiveFrom: wire.At(v.EffectiveFrom), Rules: each(v.Rules, priceRuleOf),
	})
}

// priceRuleOf shows a rule; a state without a meter is free.
func priceRuleOf(r billing.PriceRule) wire.PriceRule {
	out := wire.PriceRule{
		State: wire.ChargeState(r.State), Meter: textOrNull(string(r.Meter)), PricedUnit: textOrNull(r.PricedUnit),
		Price: orNull[wire.Price](nil), Net: orNull[wire.Price](nil), Source: orNull[wire.PriceSource](nil),
		Tiers: tiersOf(r.Tiers), Discounts: each(r.Discounts, lineDiscountOf),
		PriceVersion: textOrNull(r.PriceVersion.String()), Contract: textOrNull(r.Contract), MinimumS: int32(r.Minimum / time.Second),
		CapHours: int32(r.CapHours), NoticeFreeS: int32(r.NoticeFree / time.Second),
	}
	if r.Meter != "" {
		price, net, source := priceOf(r.Price), exactOf(r.Net), wire.PriceSource(r.Source)
		out.Price, out.Net, out.Source = orNull(&price), orNull(&net), orNull(&source)
	}
	return out
}

func lineDiscountOf(d billing.Discount) wire.LineDiscount {
	return wire.LineDiscount{Name: d.Name, Rate: rateOf(d.PPM)}
}

func tiersOf(t billing.Tiers) nullable.Nullable[wire.PriceTiers] {
	if t.IsZero() {
		return nullable.NewNullNullable[wire.PriceTiers]()
	}
	return nullable.NewNullableWithValue(wire.PriceTiers{
		Kind: wire.Tiering(t.Kind), PackageSize: orAbsent(quantityText(t.PackageSize)),
		Steps: each(t.Steps, func(s billing.Step) wire.PriceStep {
			return wire.PriceStep{UpTo: orAbsent(quantityText(s.UpTo)), Price: s.Price.Decimal()}
		}),
	})
}

// quantityText writes a quantity of priced units without trailing zeros, "" for none.
func quantityText(r *big.Rat) string {
	if r == nil {
		return ""
	}
	if r.IsInt() {
		return r.Num().String()
	}
	return strings.TrimRight(r.FloatString(money.PriceDecimals), "0")
}
