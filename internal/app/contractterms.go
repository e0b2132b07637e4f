package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/big"
	"regexp"
	"strings"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/money"
	"github.com/tranche-cloud/tranche/internal/store"
)

// termReader turns the terms of a request into rows; the first refusal wins.
type termReader struct {
	skus     map[string][16]byte
	currency money.Currency
	terms    []store.ContractTerm
}

// read checks the terms field by field. It fails with offer.unknown and
// request.invalid.
func (in ContractTerms) read(ctx context.Context, t skusOf, currency money.Currency) ([]store.ContractTerm, error) {
	if n := in.count(); n == 0 || n > maxPrices {
		return nil, refused("", "rule", fmt.Sprintf("A contract has 1 to %d terms.", maxPrices))
	}
	prices, err := readPrices(ctx, t, currency, in.Prices, "/prices")
	if err != nil {
		return nil, err
	}
	skus, err := t.SKUsOfOffers(ctx, in.offers())
	if err != nil {
		return nil, err
	}
	r := &termReader{skus: skus, currency: currency}
	for _, p := range prices {
		r.terms = append(r.terms, store.ContractTerm{
			Kind: store.PriceTerm, Offer: p.offer, Scope: billing.Scope{Meter: p.key.Meter, SKU: p.key.SKU}, Price: p.price, Tiers: p.tiers,
		})
	}
	for _, read := range []func(ContractTerms) error{r.discounts, r.quotas, r.minimums, r.caps, r.amounts} {
		if err := read(in); err != nil {
			return nil, err
		}
	}
	return r.terms, nil
}

func (in ContractTerms) count() int {
	return len(in.Prices) + len(in.Discounts) + len(in.FreeQuotas) + len(in.Minimums) + len(in.Caps) + len(in.Commitments) + len(in.FixedDiscounts)
}

// offers lists the offers that scopes name.
func (in ContractTerms) offers() (out []string) {
	add := func(s TermScope) {
		if s.Offer != "" {
			out = append(out, s.Offer)
		}
	}
	for _, d := range in.Discounts {
		add(d.Scope)
	}
	for _, q := range in.FreeQuotas {
		add(q.Scope)
	}
	for _, m := range in.Minimums {
		add(m.Scope)
	}
	for _, c := range in.Caps {
		add(c.Scope)
	}
	for _, a := range append(append([]ContractAmount(nil), in.Commitments...), in.FixedDiscounts...) {
		add(a.Scope)
	}
	return out
}

// families are written as the GPU model and the mode.
var families = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}/(whole|mig|mps|timeslice)$`)

func (r *termReader) scope(in TermScope, pointer string) (billing.Scope, error) {
	out := billing.Scope{Meter: in.Meter, Family: in.Family}
	if in.Meter != "" {
		if _, err := metering.UnitOf(in.Meter); err != nil {
			return out, refused(pointer+"/meter", "enum", fmt.Sprintf("The meter %.32q is unknown.", string(in.Meter)))
		}
	}
	if in.Family != "" && !families.MatchString(in.Family) {
		return out, refused(pointer+"/family", "format", "A family is a GPU model and a mode, such as H200-141/mig.")
	}
	if in.Offer == "" {
		return out, nil
	}
	sku, ok := r.skus[in.Offer]
	if !ok {
		return out, unknownOffer(pointer+"/offer", in.Offer)
	}
	if in.Family != "" {
		return out, refused(pointer+"/family", "rule", "A scope names an offer or a family, not both.")
	}
	out.SKU = sku
	return out, nil
}

// add appends a term whose name, if it has one, and scope are read first.
func (r *termReader) add(kind store.TermKind, name *string, in TermScope, pointer string, fill func(*store.ContractTerm) error) error {
	term := store.ContractTerm{Kind: kind, Offer: in.Offer}
	if name != nil {
		if err := checkTermName(*name, pointer+"/name"); err != nil {
			return err
		}
		term.Name = strings.TrimSpace(*name)
	}
	var err error
	if term.Scope, err = r.scope(in, pointer+"/scope"); err != nil {
		return err
	}
	if err := fill(&term); err != nil {
		return err
	}
	r.terms = append(r.terms, term)
	return nil
}

func (r *termReader) discounts(in ContractTerms) error {
	for i, d := range in.Discounts {
		at := fmt.Sprintf("/discounts/%d", i)
		err := r.add(store.DiscountTerm, &d.Name, d.Scope, at, func(t *store.ContractTerm) (err error) {
			t.PPM, err = readPercent(d.Percent, at+"/percent")
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// readPercent reads a percentage above 0 and up to 100 as parts per million.
func readPercent(text, pointer string) (int64, error) {
	bad := refused(pointer, "range", "A discount is a decimal above 0 and at most 100 percent, with at most 4 places.")
	value, err := readQuantity(text, pointer)
	if err != nil {
		return 0, bad.Because(err)
	}
	value.Mul(value, big.NewRat(partsPerPercent, 1))
	if !value.IsInt() || value.Cmp(big.NewRat(100*partsPerPercent, 1)) > 0 {
		return 0, bad
	}
	return value.Num().Int64(), nil
}

func (r *termReader) quotas(in ContractTerms) error {
	for i, q := range in.FreeQuotas {
		at := fmt.Sprintf("/free_quotas/%d", i)
		q.Scope.Meter = cmp.Or(q.Scope.Meter, metering.GPU)
		err := r.add(store.FreeQuotaTerm, &q.Name, q.Scope, at, func(t *store.ContractTerm) error {
			quantity, err := readQuantity(q.Quantity, at+"/quantity")
			if err != nil {
				return err
			}
			per, err := perUnit(q.Scope.Meter)
			if err != nil {
				return err
			}
			if quantity.Mul(quantity, per); !quantity.IsInt() {
				return refused(at+"/quantity", "rule", "The quantity is not a whole number of the meter's smallest units.")
			}
			t.Quantity = quantity.Num()
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *termReader) minimums(in ContractTerms) error {
	for i, m := range in.Minimums {
		at := fmt.Sprintf("/minimums/%d", i)
		err := r.add(store.MinimumTerm, nil, m.Scope, at, func(t *store.ContractTerm) error {
			if m.Seconds < 1 || m.Seconds > maxMinimum {
				return refused(at+"/seconds", "range", fmt.Sprintf("A minimum is 1 to %d seconds.", maxMinimum))
			}
			if m.Scope.Meter != "" && m.Scope.Meter != metering.GPU {
				return refused(at+"/scope/meter", "rule", "A minimum is of the gpu meter.")
			}
			t.Micros = m.Seconds * microsPerSecond
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *termReader) caps(in ContractTerms) error {
	for i, c := range in.Caps {
		at := fmt.Sprintf("/caps/%d", i)
		err := r.add(store.CapTerm, nil, c.Scope, at, func(t *store.ContractTerm) (err error) {
			if (c.Hours == 0) == (c.Amount == "") {
				return refused(at+"/hours", "rule", "A cap is either hours of a slot or an amount.")
			}
			if c.Amount != "" {
				t.Amount, err = r.amount(c.Amount, at+"/amount")
				return err
			}
			if t.Hours = c.Hours; c.Hours < 1 || c.Hours > hoursOfMonth {
				return refused(at+"/hours", "range", fmt.Sprintf("A cap is 1 to %d hours.", hoursOfMonth))
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *termReader) amounts(in ContractTerms) error {
	for _, list := range []struct {
		kind    store.TermKind
		pointer string
		items   []ContractAmount
	}{{store.CommitmentTerm, "/commitments", in.Commitments}, {store.FixedDiscountTerm, "/fixed_discounts", in.FixedDiscounts}} {
		for i, a := range list.items {
			at := fmt.Sprintf("%s/%d", list.pointer, i)
			err := r.add(list.kind, &a.Name, a.Scope, at, func(t *store.ContractTerm) (err error) {
				t.Amount, err = r.amount(a.Amount, at+"/amount")
				return err
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// maxAmount bounds an amount of a contract, in minor units.
const maxAmount = 1_000_000_000_000_000

func (r *termReader) amount(text, pointer string) (money.Amount, error) {
	amount, err := money.ReadAmount(text, r.currency)
	switch {
	case errors.Is(err, money.ErrRange), err == nil && amount.Minor() > maxAmount:
		return amount, refused(pointer, "range", "The amount is too large.").Because(err)
	case err != nil:
		return amount, refused(pointer, "format", fmt.Sprintf("The amount is not a decimal with at most %d places.", r.currency.Exponent())).Because(err)
	case amount.Minor() <= 0:
		return amount, refused(pointer, "range", "The amount is not above zero.")
	}
	return amount, nil
}

func presentContract(r store.Contract) Contract {
	out := Contract{
		ID: r.ID, Org: r.Org, Name: r.Name, Currency: r.Currency, During: r.During, CreatedBy: r.CreatedBy, CreatedAt: r.CreatedAt,
		CancelledAt: r.CancelledAt, EndedBy: r.EndedBy,
	}
	for _, t := range r.Terms {
		out.present(t)
	}
	return out
}

func (in *ContractTerms) present(t store.ContractTerm) {
	scope := TermScope{Meter: t.Scope.Meter, Family: t.Scope.Family, Offer: t.Offer}
	switch t.Kind {
	case store.PriceTerm:
		in.Prices = append(in.Prices, presentPrice(t.Offer, t.Scope.Meter, t.Price, t.Tiers))
	case store.DiscountTerm:
		in.Discounts = append(in.Discounts, ContractDiscount{Name: t.Name, Scope: scope, Percent: quantityText(big.NewRat(t.PPM, partsPerPercent))})
	case store.FreeQuotaTerm:
		quantity := new(big.Rat).SetInt(t.Quantity)
		if per, err := perUnit(t.Scope.Meter); err == nil {
			quantity.Quo(quantity, per)
		}
		in.FreeQuotas = append(in.FreeQuotas, ContractQuota{Name: t.Name, Scope: scope, Quantity: quantityText(quantity)})
	case store.MinimumTerm:
		in.Minimums = append(in.Minimums, ContractMinimum{Scope: scope, Seconds: t.Micros / microsPerSecond})
	case store.CapTerm:
		shown := ContractCap{Scope: scope, Hours: t.Hours}
		if t.Hours == 0 {
			shown.Amount = t.Amount.Decimal()
		}
		in.Caps = append(in.Caps, shown)
	case store.CommitmentTerm:
		in.Commitments = append(in.Commitments, ContractAmount{Name: t.Name, Scope: scope, Amount: t.Amount.Decimal()})
	case store.FixedDiscountTerm:
		in.FixedDiscounts = append(in.FixedDiscounts, ContractAmount{Name: t.Name, Scope: scope, Amount: t.Amount.Decimal()})
	}
}
