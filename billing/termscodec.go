package billing

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"
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
		out["notice_free"] = []map[string]string{term{Micros: t.NoticeFree.Microseconds()}.fields()}
	}
	for _, part := range []struct {
		name  string
		items []term
	}{
		{"prices", each(t.Prices, priceTerm)}, {"discounts", each(t.Discounts, discountTerm)},
		{"reservations", each(t.Reservations, reservedTerm)}, {"free_quotas", each(t.FreeQuotas, quotaTerm)},
		{"minimums", each(t.Minimums, minimumTerm)}, {"caps", each(t.Caps, capTerm)},
		{"commitments", each(t.Commitments, committedTerm)}, {"fixed_discounts", each(t.FixedDiscounts, amountOffTerm)},
		{"promos", each(t.Promos, promoTerm)}, {"starts", each(t.Starts, startTerm)}, {"spot_series", each(t.SpotSeries, spotTerm)},
	} {
		if len(part.items) == 0 {
			continue
		}
		encoded := make([]json.RawMessage, len(part.items))
		for i, item := range part.items {
			text, err := json.Marshal(item.fields())
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

// term is every kind of term: each uses the fields it needs, in text.
type term struct {
	ID, Name, Meter, Family, SKU, Region, From, To, Quantity, Currency, Price, Minor, Party, Tiering, Size, Steps string

	PPM, Units, Micros, Hours, Priority int64

	Preempted bool
}

// texts and numbers are the fields by their names in the encoding.
func (j *term) texts() map[string]*string {
	return map[string]*string{
		"id": &j.ID, "name": &j.Name, "meter": &j.Meter, "family": &j.Family, "sku": &j.SKU, "region": &j.Region,
		"from": &j.From, "to": &j.To, "quantity": &j.Quantity, "currency": &j.Currency, "price": &j.Price, "minor": &j.Minor,
		"party": &j.Party, "tiering": &j.Tiering, "package_size": &j.Size, "steps": &j.Steps,
	}
}

func (j *term) numbers() map[string]*int64 {
	return map[string]*int64{"ppm": &j.PPM, "units": &j.Units, "us": &j.Micros, "hours": &j.Hours, "priority": &j.Priority}
}

// fields returns what is set.
func (j term) fields() map[string]string {
	out := map[string]string{}
	for name, v := range j.texts() {
		if *v != "" {
			out[name] = *v
		}
	}
	for name, v := range j.numbers() {
		if *v != 0 {
			out[name] = strconv.FormatInt(*v, 10)
		}
	}
	if j.Preempted {
		out["preempted"] = "true"
	}
	return out
}

// termFrom reads fields; one that is unknown belongs to a later version.
func termFrom(fields map[string]string) (j term, err error) {
	texts, numbers := j.texts(), j.numbers()
	for name, v := range fields {
		switch {
		case texts[name] != nil:
			*texts[name] = v
		case numbers[name] != nil:
			if *numbers[name], err = strconv.ParseInt(v, 10, 64); err != nil {
				return term{}, fmt.Errorf("reading %s: %w", name, err)
			}
		case name == "preempted":
			j.Preempted = v == "true"
		default:
			return term{}, fmt.Errorf("the field %.40q is unknown", name)
		}
	}
	return j, nil
}

func each[T any](items []T, to func(T) term) []term {
	out := make([]term, len(items))
	for i, item := range items {
		out[i] = to(item)
	}
	return out
}

func (j term) scoped(s Scope) term {
	j.Meter, j.Family = string(s.Meter), s.Family
	j.SKU = hexOf(s.SKU)
	return j
}

func (j term) during(i metering.Interval) term {
	j.From, j.To = instantText(i.From), instantText(i.To)
	return j
}

func (j term) amount(a money.Amount) term {
	if a != (money.Amount{}) {
		j.Minor, j.Currency = strconv.FormatInt(a.Minor(), 10), a.Currency().Code()
	}
	return j
}

func (j term) priced(p money.Price) term {
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

func priceTerm(p ContractPrice) term {
	j := term{ID: p.Contract.String(), Meter: string(p.Key.Meter), SKU: hexOf(p.Key.SKU)}.priced(p.Price).during(p.During)
	if p.Tiers.IsZero() {
		return j
	}
	j.Tiering = string(p.Tiers.Kind)
	if p.Tiers.PackageSize != nil {
		j.Size = p.Tiers.PackageSize.RatString()
	}
	steps := make([]string, len(p.Tiers.Steps))
	for i, s := range p.Tiers.Steps {
		if s.UpTo != nil {
			steps[i] = s.UpTo.RatString()
		}
		steps[i] += ":" + s.Price.Decimal()
	}
	j.Steps = strings.Join(steps, " ")
	return j
}

func discountTerm(d ScopedDiscount) term {
	return term{ID: d.Contract.String(), Name: d.Name, PPM: d.PPM}.scoped(d.Scope).during(d.During)
}

func reservedTerm(r ReservedCapacity) term {
	return term{ID: r.ID.String(), Name: r.Name, Family: r.Family, Region: r.Region, Units: r.Units}.during(r.During)
}

func quotaTerm(q FreeQuota) term {
	return term{ID: q.Contract.String(), Name: q.Name, Quantity: q.Quantity.String()}.scoped(q.Scope).during(q.During)
}

func minimumTerm(m Minimum) term {
	return term{Micros: m.Micros}.scoped(m.Scope).during(m.During)
}

func capTerm(k Cap) term {
	return term{ID: k.Contract.String(), Hours: k.Hours}.amount(k.Amount).scoped(k.Scope).during(k.During)
}

func committedTerm(m CommittedAmount) term {
	return term{ID: m.Contract.String(), Name: m.Name}.amount(m.Amount).scoped(m.Scope).during(m.During)
}

func amountOffTerm(d AmountOff) term {
	return term{ID: d.Contract.String(), Name: d.Name}.amount(d.Amount).scoped(d.Scope).during(d.During)
}

func promoTerm(p Promo) term {
	return term{ID: p.Grant.String(), Name: p.Name, Priority: int64(p.Priority), To: instantText(p.Expires)}.amount(p.Remaining).scoped(p.Scope)
}

func startTerm(s Start) term {
	return term{ID: hexOf(s.ID), To: instantText(s.Ended), Party: s.Party, Preempted: s.Preempted, Micros: s.Earlier}
}

func spotTerm(s SpotPrice) term {
	return term{Region: s.Region, SKU: hexOf(s.SKU)}.priced(s.Price).during(s.During)
}

// DecodeTerms reads what EncodeTerms wrote; any error is a document that is damaged.
func DecodeTerms(text []byte) (Terms, error) {
	var in map[string][]map[string]string
	if err := json.Unmarshal(text, &in); err != nil {
		return Terms{}, fmt.Errorf("decoding terms: %w", err)
	}
	d := &termsDecoder{}
	t := Terms{
		Prices: back(d, in["prices"], d.contractPrice), Discounts: back(d, in["discounts"], d.discount),
		Reservations: back(d, in["reservations"], d.reserved), FreeQuotas: back(d, in["free_quotas"], d.quota),
		Minimums: back(d, in["minimums"], d.minimum), Caps: back(d, in["caps"], d.cap),
		Commitments: back(d, in["commitments"], d.committed), FixedDiscounts: back(d, in["fixed_discounts"], d.amountOff),
		Promos: back(d, in["promos"], d.promo), Starts: back(d, in["starts"], d.start), SpotSeries: back(d, in["spot_series"], d.spot),
	}
	for _, free := range back(d, in["notice_free"], func(j term) int64 { return j.Micros }) {
		t.NoticeFree = time.Duration(free) * time.Microsecond
	}
	if d.err != nil {
		return Terms{}, fmt.Errorf("decoding terms: %w", d.err)
	}
	return t, nil
}

func back[T any](d *termsDecoder, items []map[string]string, from func(term) T) []T {
	var out []T
	for _, item := range items {
		j, err := termFrom(item)
		d.note(err)
		out = append(out, from(j))
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

func (d *termsDecoder) during(j term) metering.Interval {
	return metering.Interval{From: d.instant(j.From), To: d.instant(j.To)}
}

func (d *termsDecoder) scope(j term) Scope {
	return Scope{Meter: metering.Meter(j.Meter), Family: j.Family, SKU: d.raw(j.SKU)}
}

func (d *termsDecoder) amount(j term) money.Amount {
	if j.Minor == "" {
		return money.Amount{}
	}
	minor, err := strconv.ParseInt(j.Minor, 10, 64)
	d.note(err)
	return money.NewAmount(minor, d.currency(j))
}

func (d *termsDecoder) currency(j term) money.Currency {
	c, err := money.ParseCurrency(j.Currency)
	d.note(err)
	return c
}

func (d *termsDecoder) price(text string, j term) money.Price {
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

func (d *termsDecoder) contractPrice(j term) ContractPrice {
	p := ContractPrice{
		Contract: idFrom[id.Contract](d, j.ID), Key: PriceKey{SKU: d.raw(j.SKU), Meter: metering.Meter(j.Meter)},
		During: d.during(j), Price: d.price(j.Price, j), Tiers: Tiers{Kind: Tiering(j.Tiering), PackageSize: d.rat(j.Size)},
	}
	for _, s := range strings.Fields(j.Steps) {
		end, price, _ := strings.Cut(s, ":")
		p.Tiers.Steps = append(p.Tiers.Steps, Step{UpTo: d.rat(end), Price: d.price(price, j)})
	}
	return p
}

func (d *termsDecoder) discount(j term) ScopedDiscount {
	return ScopedDiscount{
		Contract: idFrom[id.Contract](d, j.ID), Discount: Discount{Name: j.Name, PPM: j.PPM}, Scope: d.scope(j), During: d.during(j),
	}
}

func (d *termsDecoder) reserved(j term) ReservedCapacity {
	return ReservedCapacity{
		ID: idFrom[id.Reservation](d, j.ID), Name: j.Name, Family: j.Family, Region: j.Region, Units: j.Units, During: d.during(j),
	}
}

func (d *termsDecoder) quota(j term) FreeQuota {
	q, ok := new(big.Int).SetString(j.Quantity, 10)
	if !ok {
		d.note(fmt.Errorf("the quantity %.40q is malformed", j.Quantity))
	}
	return FreeQuota{Contract: idFrom[id.Contract](d, j.ID), Name: j.Name, Scope: d.scope(j), Quantity: q, During: d.during(j)}
}

func (d *termsDecoder) minimum(j term) Minimum {
	return Minimum{Scope: d.scope(j), Micros: j.Micros, During: d.during(j)}
}

func (d *termsDecoder) cap(j term) Cap {
	return Cap{Contract: idFrom[id.Contract](d, j.ID), Scope: d.scope(j), Hours: j.Hours, Amount: d.amount(j), During: d.during(j)}
}

func (d *termsDecoder) committed(j term) CommittedAmount {
	return CommittedAmount{
		Contract: idFrom[id.Contract](d, j.ID), Name: j.Name, Scope: d.scope(j), Amount: d.amount(j), During: d.during(j),
	}
}

func (d *termsDecoder) amountOff(j term) AmountOff {
	return AmountOff(d.committed(j))
}

func (d *termsDecoder) promo(j term) Promo {
	return Promo{
		Grant: idFrom[id.Grant](d, j.ID), Name: j.Name, Priority: int(j.Priority), Expires: d.instant(j.To), Scope: d.scope(j), Remaining: d.amount(j),
	}
}

func (d *termsDecoder) start(j term) Start {
	return Start{ID: d.raw(j.ID), Ended: d.instant(j.To), Party: j.Party, Preempted: j.Preempted, Earlier: j.Micros}
}

func (d *termsDecoder) spot(j term) SpotPrice {
	return SpotPrice{Region: j.Region, SKU: d.raw(j.SKU), During: d.during(j), Price: d.price(j.Price, j)}
}
