package rating

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/big"
	"slices"
	"time"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/money"
)

// finish does the one division and the one rounding of a line.
func (l *line) finish() (billing.Line, error) {
	price, err := l.unitPrice()
	if err != nil {
		return billing.Line{}, fmt.Errorf("averaging a spot price: %w", err)
	}
	out := l.blank(l.key)
	out.Quantity, out.UnitPrice, out.Packages = l.sum.big(), price, l.packages
	out.Exact = money.NewExact(l.gross(), price.Currency()).Scale(l.factor())
	if out.Amount, err = out.Exact.Round(); err != nil {
		return billing.Line{}, fmt.Errorf("rounding a line of %s: %w", out.SKUCode, err)
	}
	out.Subjects, err = l.subjects(out.Amount)
	return out, err
}

// blank is the line without its figures.
func (l *line) blank(key billing.LineKey) billing.Line {
	out := billing.Line{
		Key: key, SKUCode: l.class.key.sku.Code, Description: l.describe(), ProjectName: l.project.name,
		QuantityUnit: l.class.unit.Quantity, PricedUnit: l.class.unit.Priced, Divisor: l.class.unit.Divisor,
		Simulated: l.simulated, During: metering.Between(time.UnixMicro(l.from), time.UnixMicro(l.to)),
	}
	if l.packaged() {
		out.PricedUnit = fmt.Sprintf("package of %s × %s", l.rate.tariff.sizeText, l.class.unit.Priced)
	}
	if l.rate != nil {
		out.Discounts = l.rate.discounts
	}
	return out
}

func (l *line) describe() string {
	text := l.class.key.sku.Name
	if l.key.Meter != metering.GPU {
		text += " (" + string(l.key.Meter) + ")"
	}
	switch {
	case l.cover != nil:
		text += ", " + l.cover.name
	case l.key.Pricing == billing.Spot:
		text += ", spot, mean price"
	case l.packaged():
		text += fmt.Sprintf(", %d packages", l.packages)
	case l.key.Tier > 0:
		text += fmt.Sprintf(", step %d", l.key.Tier)
	}
	return text
}

// subjects splits the rounded line by largest remainder, ties to the lower id.
func (l *line) subjects(amount money.Amount) ([]billing.Share, error) {
	out := make([]billing.Share, 0, len(l.shares))
	var buffer []byte
	for subject, s := range l.shares {
		slices.SortFunc(s.facts, compareFacts)
		buffer = buffer[:0]
		segments := int64(0)
		for i, f := range s.facts {
			if i == 0 || f.u.ID != s.facts[i-1].u.ID {
				segments++
			}
			buffer = f.append(buffer)
		}
		out = append(out, billing.Share{
			Subject: subject, Name: s.name, Quantity: s.sum.big(), Segments: segments, Hash: sha256.Sum256(buffer),
		})
	}
	return apportion(out, amount)
}

// apportion orders shares and gives each its part of the amount.
func apportion(shares []billing.Share, amount money.Amount) ([]billing.Share, error) {
	slices.SortFunc(shares, func(a, b billing.Share) int {
		return cmp.Or(bytes.Compare(a.Subject.ID[:], b.Subject.ID[:]), cmp.Compare(a.Subject.Kind, b.Subject.Kind))
	})
	weights, used := make([]*big.Int, len(shares)), false
	for i, s := range shares {
		weights[i] = s.Quantity
		if s.Quantity.Sign() < 0 {
			weights[i] = new(big.Int).Abs(s.Quantity)
		}
		used = used || s.Quantity.Sign() != 0
	}
	if !used && !amount.IsZero() {
		return nil, internal("A line of %s has no usage to share it.", amount)
	}
	sign := int64(amount.Sign())
	for i, part := range apportioned(new(big.Int).Abs(big.NewInt(amount.Minor())), weights) {
		shares[i].Amount = money.NewAmount(sign*part.Int64(), amount.Currency())
	}
	return shares, nil
}

func compareFacts(a, b fact) int {
	return cmp.Or(cmp.Compare(a.from, b.from), bytes.Compare(a.u.ID[:], b.u.ID[:]), cmp.Compare(a.to, b.to), cmp.Compare(a.units, b.units))
}

// append writes all that prices the part.
func (f fact) append(b []byte) []byte {
	b = append(b, f.u.ID[:]...)
	b = append(b, f.u.StartID[:]...)
	b = append(b, f.u.Slot[:]...)
	b = append(b, f.class.digest[:]...)
	b = binary.BigEndian.AppendUint64(b, uint64(f.from))
	b = binary.BigEndian.AppendUint64(b, uint64(f.to))
	b = binary.BigEndian.AppendUint64(b, uint64(f.units))
	if f.u.Started.IsZero() {
		return append(b, 0)
	}
	return binary.BigEndian.AppendUint64(append(b, 1), uint64(f.u.Started.UnixMicro()))
}

// finish rounds a derived line; its shares are those of the quantity it adds or
// takes off.
func (d *derived) finish() (billing.Line, error) {
	key := d.base.key
	key.Component, key.Reference = d.component, d.reference
	out := d.base.blank(key)
	price, err := d.base.unitPrice()
	if err != nil {
		return billing.Line{}, fmt.Errorf("averaging a spot price: %w", err)
	}
	out.Quantity, out.UnitPrice = d.sum, price
	switch d.component {
	case billing.MinimumCharge:
		out.Description = d.base.class.key.sku.Name + ", minimum charge"
	case billing.CapCredit:
		out.Description = d.base.class.key.sku.Name + ", beyond the monthly cap"
	}
	out.Exact = money.NewExact(d.gross, price.Currency()).Scale(d.base.factor())
	if out.Amount, err = out.Exact.Round(); err != nil {
		return billing.Line{}, fmt.Errorf("rounding a line of %s: %w", out.SKUCode, err)
	}
	for subject, q := range d.shares {
		out.Subjects = append(out.Subjects, billing.Share{Subject: subject, Name: d.base.shares[subject].name, Quantity: q})
	}
	out.Subjects, err = apportion(out.Subjects, out.Amount)
	return out, err
}
