package rating

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"fmt"
	"math/big"
	"slices"
	"strings"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/money"
)

// Billed is a line of a live document of the period, and where it stands.
type Billed struct {
	Ref  billing.LineRef
	Line billing.Line
}

// Adjust makes the lines for usage that arrived after its month was billed: what the
// period costs with it, at the original prices, terms and pools, less what was
// billed. in holds all usage of the period, late or not, and the terms as they were;
// billed holds every line of the period's live documents, earlier adjustments too;
// what rating does not make, such as advances and carried amounts, stays out of it.
// Each key that differs makes one line, which may be negative and names the line it
// changes. The key's Variant carries the original component and variant. It fails
// like Rate, and with money.ErrMismatch if a billed line is in another currency.
func Adjust(in Inputs, billed []Billed) (Result, error) {
	res, err := Rate(in)
	if err != nil {
		return Result{}, err
	}
	diffs := map[billing.LineKey]*difference{}
	for _, l := range res.Lines {
		differenceOf(diffs, adjustmentKey(l.Key), in.Currency).now(l)
	}
	for _, b := range billed {
		if b.Line.Key.Component.Order() > billing.Adjustment.Order() {
			continue // amounts carried over and advances are no usage
		}
		if err := differenceOf(diffs, adjustmentKey(b.Line.Key), in.Currency).before(b); err != nil {
			return Result{}, fmt.Errorf("comparing with line %d: %w", b.Line.No, err)
		}
	}
	res.Lines = nil
	for key, d := range diffs {
		line, changed, err := d.line(key)
		if err != nil {
			return Result{}, err
		}
		if changed {
			res.Lines = append(res.Lines, line)
		}
	}
	slices.SortFunc(res.Lines, func(x, y billing.Line) int {
		return cmp.Or(cmp.Compare(flatness(x), flatness(y)),
			compareKeys(x.Key, y.Key, x.SKUCode, y.SKUCode, x.During.From.UnixMicro(), y.During.From.UnixMicro()))
	})
	var w strings.Builder
	w.WriteString(res.Document)
	for i := range res.Lines {
		l := &res.Lines[i]
		l.No = i + 1
		fmt.Fprintf(&w, "adjusts %q %q %q %d %s %d\n", l.SKUCode, l.Key.Reference, l.Key.Variant, l.Key.Tier, l.Quantity, l.Amount.Minor())
	}
	res.Document = w.String()
	res.DocumentHash = sha256.Sum256([]byte(res.Document))
	return res, nil
}

// flatness puts lines without a project last.
func flatness(l billing.Line) int { return boolInt(l.Key.Meter == "") }

// adjustmentKey is the key of the adjustment of a line; of an adjustment its own.
func adjustmentKey(k billing.LineKey) billing.LineKey {
	if k.Component != billing.Adjustment {
		k.Variant = string(k.Component) + "/" + k.Variant
		k.Component = billing.Adjustment
	}
	k.TaxCategory = billing.OutsideScope // decided when the document is made
	return k
}

// difference is what one key is now and what was billed of it.
type difference struct {
	sample   billing.Line
	rated    bool
	ref      *billing.LineRef
	quantity *big.Int
	amount   money.Amount
	shares   map[metering.Subject]*billing.Share
}

func differenceOf(all map[billing.LineKey]*difference, key billing.LineKey, c money.Currency) *difference {
	d := all[key]
	if d == nil {
		d = &difference{quantity: new(big.Int), amount: money.NewAmount(0, c), shares: map[metering.Subject]*billing.Share{}}
		all[key] = d
	}
	return d
}

func (d *difference) now(l billing.Line) {
	d.sample, d.rated = l, true
	d.quantity.Set(l.Quantity)
	d.amount = l.Amount
	for _, s := range l.Subjects {
		s.Quantity = new(big.Int).Set(s.Quantity)
		d.shares[s.Subject] = &s
	}
}

func (d *difference) before(b Billed) (err error) {
	l := b.Line
	if !d.rated && d.sample.Quantity == nil {
		d.sample = l
	}
	if d.ref == nil || l.Key.Component != billing.Adjustment {
		d.ref = &b.Ref
	}
	if l.Quantity != nil {
		d.quantity.Sub(d.quantity, l.Quantity)
	}
	if d.amount, err = d.amount.Sub(l.Amount); err != nil {
		return err
	}
	for _, s := range l.Subjects {
		mine := d.shares[s.Subject]
		if mine == nil {
			mine = &billing.Share{Subject: s.Subject, Name: s.Name, Quantity: new(big.Int), Amount: money.NewAmount(0, s.Amount.Currency()), Hash: s.Hash}
			d.shares[s.Subject] = mine
		}
		mine.Quantity.Sub(mine.Quantity, s.Quantity)
		mine.Segments -= s.Segments
		if mine.Amount, err = mine.Amount.Sub(s.Amount); err != nil {
			return err
		}
	}
	return nil
}

// line is the adjustment; false if nothing changed.
func (d *difference) line(key billing.LineKey) (billing.Line, bool, error) {
	out := d.sample
	out.Key, out.Corrects, out.Packages = key, d.ref, 0
	out.Quantity, out.Amount, out.Exact = d.quantity, d.amount, d.amount.Exact()
	out.Description = "late usage: " + strings.TrimPrefix(out.Description, "late usage: ")
	out.Subjects = nil
	for _, s := range d.shares {
		if s.Quantity.Sign() == 0 && s.Amount.IsZero() {
			continue
		}
		out.Subjects = append(out.Subjects, *s)
	}
	slices.SortFunc(out.Subjects, func(a, b billing.Share) int {
		return cmp.Or(bytes.Compare(a.Subject.ID[:], b.Subject.ID[:]), cmp.Compare(a.Subject.Kind, b.Subject.Kind))
	})
	return out, len(out.Subjects) > 0 || d.quantity.Sign() != 0 || !d.amount.IsZero(), nil
}
