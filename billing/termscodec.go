package billing

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/big"
	"slices"
	"time"

	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/money"
)

// EncodeTerms writes terms as JSON, to be kept with a document: promises change after
// a month is closed. Equal terms, in any order, make equal bytes.
func EncodeTerms(t Terms) ([]byte, error) {
	out := map[string]any{}
	if t.NoticeFree != 0 {
		out["notice_free_us"] = t.NoticeFree.Microseconds()
	}
	for _, part := range []struct {
		name  string
		items []termJSON
	}{
		{"prices", each(t.Prices, priceJSON)}, {"discounts", each(t.Discounts, discountJSON)},
		{"reservations", each(t.Reservations, reservedJSON)}, {"free_quotas", each(t.FreeQuotas, quotaJSON)},
		{"minimums", each(t.Minimums, minimumJSON)}, {"caps", each(t.Caps, capJSON)},
		{"commitments", each(t.Commitments, committedJSON)}, {"fixed_discounts", each(t.FixedDiscounts, amountOffJSON)},
		{"promos", each(t.Promos, promoJSON)}, {"starts", each(t.Starts, startJSON)}, {"spot_series", each(t.SpotSeries, spotJSON)},
	} {
		if len(part.items) == 0 {
			continue
		}
		encoded := make([]json.RawMessage, len(part.items))
		for i, item := range part.items {
			text, err := json.Marshal(item)
			if err != nil {
				return nil, fmt.Errorf("encoding %s: %w", part.name, err)
			}
			encoded[i] = text
		}
		slices.SortFunc(encoded, func(a, b json.RawMessage) int { return bytes.Compare(a, b) })
		out[part.name] = encoded
	}
	text, err := json.Marshal(out)
	if err != nil {
		return nil, fmt.Errorf("encoding terms: %w", err)
	}
	return text, nil
}

// termJSON is every kind of term: each uses the fields it needs.
type termJSON struct {
	ID        string     `json:"id,omitempty"`
	Name      string     `json:"name,omitempty"`
	Meter     string     `json:"meter,omitempty"`
	Family    string     `json:"family,omitempty"`
	SKU       string     `json:"sku,omitempty"`
	Region    string     `json:"region,omitempty"`
	From      string     `json:"from,omitempty"`
	To        string     `json:"to,omitempty"`
	PPM       int64      `json:"ppm,omitempty"`
	Units     int64      `json:"units,omitempty"`
	Micros    int64      `json:"us,omitempty"`
	Hours     int64      `json:"hours,omitempty"`
	Priority  int        `json:"priority,omitempty"`
	Quantity  string     `json:"quantity,omitempty"`
	Currency  string     `json:"currency,omitempty"`
	Price     string     `json:"price,omitempty"`
	Minor     *int64     `json:"minor,omitempty"`
	Party     string     `json:"party,omitempty"`
	Preempted bool       `json:"preempted,omitempty"`
	Tiering   string     `json:"tiering,omitempty"`
	Size      string     `json:"package_size,omitempty"`
	Steps     []stepJSON `json:"steps,omitempty"`
}

type stepJSON struct {
	UpTo  string `json:"up_to,omitempty"`
	Price string `json:"price"`
}

func each[T any](items []T, to func(T) termJSON) []termJSON {
	out := make([]termJSON, len(items))
	for i, item := range items {
		out[i] = to(item)
	}
	return out
}

func (j termJSON) scoped(s Scope) termJSON {
	j.Meter, j.Family = string(s.Meter), s.Family
	j.SKU = hexOf(s.SKU)
	return j
}

func (j termJSON) during(i metering.Interval) termJSON {
	j.From, j.To = instantText(i.From), instantText(i.To)
	return j
}

func (j termJSON) amount(a money.Amount) termJSON {
	if a != (money.Amount{}) {
		minor := a.Minor()
		j.Minor, j.Currency = &minor, a.Currency().Code()
	}
	return j
}

func (j termJSON) priced(p money.Price) termJSON {
	j.Price, j.Currency = p.Decimal(), p.Currency().Code()
	return j
}

func instantText(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return metering.Instant(t).Format(time.RFC3339Nano)
}

func hexOf(b [16]byte) string {
	if b == ([16]byte{}) {
		return ""
	}
	return hex.EncodeToString(b[:])
}

func priceJSON(p ContractPrice) termJSON {
	j := termJSON{ID: p.Contract.String(), Meter: string(p.Key.Meter), SKU: hexOf(p.Key.SKU)}.priced(p.Price).during(p.During)
	if p.Tiers.IsZero() {
		return j
	}
	j.Tiering = string(p.Tiers.Kind)
	if p.Tiers.PackageSize != nil {
		j.Size = p.Tiers.PackageSize.RatString()
	}
	for _, s := range p.Tiers.Steps {
		step := stepJSON{Price: s.Price.Decimal()}
		if s.UpTo != nil {
			step.UpTo = s.UpTo.RatString()
		}
		j.Steps = append(j.Steps, step)
	}
	return j
}

func discountJSON(d ScopedDiscount) termJSON {
	return termJSON{ID: d.Contract.String(), Name: d.Name, PPM: d.PPM}.scoped(d.Scope).during(d.During)
}

func reservedJSON(r ReservedCapacity) termJSON {
	return termJSON{ID: r.ID.String(), Name: r.Name, Family: r.Family, Region: r.Region, Units: r.Units}.during(r.During)
}

func quotaJSON(q FreeQuota) termJSON {
	return termJSON{ID: q.Contract.String(), Name: q.Name, Quantity: q.Quantity.String()}.scoped(q.Scope).during(q.During)
}

func minimumJSON(m Minimum) termJSON {
	return termJSON{Micros: m.Micros}.scoped(m.Scope).during(m.During)
}

func capJSON(k Cap) termJSON {
	return termJSON{ID: k.Contract.String(), Hours: k.Hours}.amount(k.Amount).scoped(k.Scope).during(k.During)
}

func committedJSON(m CommittedAmount) termJSON {
	return termJSON{ID: m.Contract.String(), Name: m.Name}.amount(m.Amount).scoped(m.Scope).during(m.During)
}

func amountOffJSON(d AmountOff) termJSON {
	return termJSON{ID: d.Contract.String(), Name: d.Name}.amount(d.Amount).scoped(d.Scope).during(d.During)
}

func promoJSON(p Promo) termJSON {
	return termJSON{ID: p.Grant.String(), Name: p.Name, Priority: p.Priority, To: instantText(p.Expires)}.amount(p.Remaining).scoped(p.Scope)
}

func startJSON(s Start) termJSON {
	return termJSON{ID: hexOf(s.ID), To: instantText(s.Ended), Party: s.Party, Preempted: s.Preempted, Micros: s.Earlier}
}

func spotJSON(s SpotPrice) termJSON {
	return termJSON{Region: s.Region, SKU: hexOf(s.SKU)}.priced(s.Price).during(s.During)
}

// DecodeTerms reads what EncodeTerms wrote; any error is a document that is damaged.
func DecodeTerms(text []byte) (Terms, error) {
	var in struct {
		NoticeFree     int64      `json:"notice_free_us"`
		Prices         []termJSON `json:"prices"`
		Discounts      []termJSON `json:"discounts"`
		Reservations   []termJSON `json:"reservations"`
		FreeQuotas     []termJSON `json:"free_quotas"`
		Minimums       []termJSON `json:"minimums"`
		Caps           []termJSON `json:"caps"`
		Commitments    []termJSON `json:"commitments"`
		FixedDiscounts []termJSON `json:"fixed_discounts"`
		Promos         []termJSON `json:"promos"`
		Starts         []termJSON `json:"starts"`
		SpotSeries     []termJSON `json:"spot_series"`
	}
	if err := json.Unmarshal(text, &in); err != nil {
		return Terms{}, fmt.Errorf("decoding terms: %w", err)
	}
	d := &termsDecoder{}
	t := Terms{
		NoticeFree: time.Duration(in.NoticeFree) * time.Microsecond,
		Prices:     back(in.Prices, d.contractPrice), Discounts: back(in.Discounts, d.discount),
		Reservations: back(in.Reservations, d.reserved), FreeQuotas: back(in.FreeQuotas, d.quota),
		Minimums: back(in.Minimums, d.minimum), Caps: back(in.Caps, d.cap),
		Commitments: back(in.Commitments, d.committed), FixedDiscounts: back(in.FixedDiscounts, d.amountOff),
		Promos: back(in.Promos, d.promo), Starts: back(in.Starts, d.start), SpotSeries: back(in.SpotSeries, d.spot),
	}
	if d.err != nil {
		return Terms{}, fmt.Errorf("decoding terms: %w", d.err)
	}
	return t, nil
}

func back[T any](items []termJSON, from func(termJSON) T) []T {
	var out []T
	for _, item := range items {
		out = append(out, from(item))
	}
	return out
}

// termsDecoder remembers the first error.
type termsDecoder struct{ err error }

func (d *termsDecoder) note(err error) {
	if d.err == nil {
		d.err = err
	}
}

func idFrom[I interface{ ~[16]byte }, P interface {
	*I
	UnmarshalText([]byte) error
}](d *termsDecoder, text string) I {
	var v I
	d.note(P(&v).UnmarshalText([]byte(text)))
	return v
}

func (d *termsDecoder) raw(text string) (b [16]byte) {
	if text == "" {
		return b
	}
	got, err := hex.DecodeString(text)
	if err != nil || len(got) != len(b) {
		d.note(fmt.Errorf("the id %.40q is malformed", text))
		return b
	}
	return [16]byte(got)
}

func (d *termsDecoder) instant(text string) time.Time {
	if text == "" {
		return time.Time{}
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	d.note(err)
	return metering.Instant(t)
}

func (d *termsDecoder) during(j termJSON) metering.Interval {
	return metering.Interval{From: d.instant(j.From), To: d.instant(j.To)}
}

func (d *termsDecoder) scope(j termJSON) Scope {
	return Scope{Meter: metering.Meter(j.Meter), Family: j.Family, SKU: d.raw(j.SKU)}
}

func (d *termsDecoder) amount(j termJSON) money.Amount {
	if j.Minor == nil {
		return money.Amount{}
	}
	return money.NewAmount(*j.Minor, d.currency(j))
}

func (d *termsDecoder) currency(j termJSON) money.Currency {
	c, err := money.ParseCurrency(j.Currency)
	d.note(err)
	return c
}

func (d *termsDecoder) price(text string, j termJSON) money.Price {
	p, err := money.ParsePrice(text, d.currency(j))
	d.note(err)
	return p
}

func (d *termsDecoder) rat(text string) *big.Rat {
	if text == "" {
		return nil
	}
	r, ok := new(big.Rat).SetString(text)
	if !ok {
		d.note(fmt.Errorf("the number %.40q is malformed", text))
	}
	return r
}

func (d *termsDecoder) contractPrice(j termJSON) ContractPrice {
	p := ContractPrice{
		Contract: idFrom[id.Contract](d, j.ID), Key: PriceKey{SKU: d.raw(j.SKU), Meter: metering.Meter(j.Meter)},
		During: d.during(j), Price: d.price(j.Price, j), Tiers: Tiers{Kind: Tiering(j.Tiering), PackageSize: d.rat(j.Size)},
	}
	for _, s := range j.Steps {
		p.Tiers.Steps = append(p.Tiers.Steps, Step{UpTo: d.rat(s.UpTo), Price: d.price(s.Price, j)})
	}
	return p
}

func (d *termsDecoder) discount(j termJSON) ScopedDiscount {
	return ScopedDiscount{
		Contract: idFrom[id.Contract](d, j.ID), Discount: Discount{Name: j.Name, PPM: j.PPM}, Scope: d.scope(j), During: d.during(j),
	}
}

func (d *termsDecoder) reserved(j termJSON) ReservedCapacity {
	return ReservedCapacity{
		ID: idFrom[id.Reservation](d, j.ID), Name: j.Name, Family: j.Family, Region: j.Region, Units: j.Units, During: d.during(j),
	}
}

func (d *termsDecoder) quota(j termJSON) FreeQuota {
	q, ok := new(big.Int).SetString(j.Quantity, 10)
	if !ok {
		d.note(fmt.Errorf("the quantity %.40q is malformed", j.Quantity))
	}
	return FreeQuota{Contract: idFrom[id.Contract](d, j.ID), Name: j.Name, Scope: d.scope(j), Quantity: q, During: d.during(j)}
}

func (d *termsDecoder) minimum(j termJSON) Minimum {
	return Minimum{Scope: d.scope(j), Micros: j.Micros, During: d.during(j)}
}

func (d *termsDecoder) cap(j termJSON) Cap {
	return Cap{Contract: idFrom[id.Contract](d, j.ID), Scope: d.scope(j), Hours: j.Hours, Amount: d.amount(j), During: d.during(j)}
}

func (d *termsDecoder) committed(j termJSON) CommittedAmount {
	return CommittedAmount{
		Contract: idFrom[id.Contract](d, j.ID), Name: j.Name, Scope: d.scope(j), Amount: d.amount(j), During: d.during(j),
	}
}

func (d *termsDecoder) amountOff(j termJSON) AmountOff {
	return AmountOff(d.committed(j))
}

func (d *termsDecoder) promo(j termJSON) Promo {
	return Promo{
		Grant: idFrom[id.Grant](d, j.ID), Name: j.Name, Priority: j.Priority, Expires: d.instant(j.To), Scope: d.scope(j), Remaining: d.amount(j),
	}
}

func (d *termsDecoder) start(j termJSON) Start {
	return Start{ID: d.raw(j.ID), Ended: d.instant(j.To), Party: j.Party, Preempted: j.Preempted, Earlier: j.Micros}
}

func (d *termsDecoder) spot(j termJSON) SpotPrice {
	return SpotPrice{Region: j.Region, SKU: d.raw(j.SKU), During: d.during(j), Price: d.price(j.Price, j)}
}
