package rating

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/internal/metering"
)

// document records what a result was made from: engine, period, terms, the prices
// that were used, and a digest over every part of a segment in a fixed order. With
// the segments, which never change once closed, it is enough to rate again and to
// see what differs.
func document(e *engine, b *bill, res Result) (text string, hash [32]byte, err error) {
	in := e.in
	var w strings.Builder
	fmt.Fprintf(&w, "engine %s\nperiod %d %d\nover %t\ncurrency %s\n", Engine, in.Period.From.UnixMicro(), in.Period.To.UnixMicro(), !in.At.Before(in.Period.To), in.Currency)
	discounts := slices.Clone(in.Discounts)
	slices.SortFunc(discounts, func(a, b billing.Discount) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.PPM, b.PPM))
	})
	for _, d := range discounts {
		fmt.Fprintf(&w, "discount %q %d\n", d.Name, d.PPM)
	}
	if err := writeTerms(&w, e); err != nil {
		return "", hash, err
	}
	for _, l := range res.Lines {
		fmt.Fprintf(&w, "price %d %q %q %q %q %q %q %d %s %d\n", l.No, l.Key.Component, l.SKUCode, l.Key.Meter, l.Key.PriceVersion, l.Key.Reference,
			l.Key.Variant, l.Key.Tier, l.UnitPrice.Decimal(), l.Divisor)
	}
	for _, l := range b.sorted() {
		if l.rate != nil && l.rate.tariff.tiered() && l.key.Tier == 1 {
			fmt.Fprintf(&w, "tiers %q %q %q\n%s", l.class.key.sku.Code, l.key.PriceVersion, l.key.Variant, l.rate.tariff)
		}
		writeSpot(&w, l)
	}
	h := sha256.New()
	for _, l := range res.Lines {
		for _, s := range l.Subjects {
			h.Write(s.Subject.ID[:])
			h.Write(s.Hash[:])
		}
	}
	fmt.Fprintf(&w, "segments %d %x\n", res.Segments, h.Sum(nil))
	return w.String(), sha256.Sum256([]byte(w.String())), nil
}

// writeSpot records the prices of a spot line by a digest, quantity by price.
func writeSpot(w *strings.Builder, l *line) {
	if len(l.byPrice) == 0 {
		return
	}
	var parts []string
	for p, q := range l.byPrice {
		parts = append(parts, fmt.Sprintf("%s %s\n", p, q.big()))
	}
	slices.Sort(parts)
	fmt.Fprintf(w, "spot %q %d %x\n", l.class.key.sku.Code, len(parts), sha256.Sum256([]byte(strings.Join(parts, ""))))
}

// writeTerms records the terms that touch the period. Starts are many and go in as
// a digest; spot prices are recorded where they were used.
func writeTerms(w *strings.Builder, e *engine) error {
	t, period := e.in.Terms, e.in.Period
	used := billing.Terms{
		Prices:         touching(t.Prices, period, func(v billing.ContractPrice) metering.Interval { return v.During }),
		Discounts:      touching(t.Discounts, period, func(v billing.ScopedDiscount) metering.Interval { return v.During }),
		Reservations:   touching(t.Reservations, period, func(v billing.ReservedCapacity) metering.Interval { return v.During }),
		FreeQuotas:     touching(t.FreeQuotas, period, func(v billing.FreeQuota) metering.Interval { return v.During }),
		Caps:           touching(t.Caps, period, func(v billing.Cap) metering.Interval { return v.During }),
		Commitments:    touching(t.Commitments, period, func(v billing.CommittedAmount) metering.Interval { return v.During }),
		FixedDiscounts: touching(t.FixedDiscounts, period, func(v billing.AmountOff) metering.Interval { return v.During }),
		Minimums:       t.Minimums, Promos: t.Promos, NoticeFree: t.NoticeFree,
	}
	text, err := billing.EncodeTerms(used)
	if err != nil {
		return fmt.Errorf("recording terms: %w", err)
	}
	if string(text) != "{}" {
		fmt.Fprintf(w, "terms %s\n", text)
	}
	if len(t.Minimums) == 0 && t.NoticeFree == 0 {
		return nil
	}
	n, digest := e.digestStarts()
	fmt.Fprintf(w, "starts %d %x\n", n, digest)
	return nil
}

// digestStarts is over the starts that ended in the window, by id.
func (e *engine) digestStarts() (n int, digest []byte) {
	var starts []*billing.Start
	for i := range e.in.Terms.Starts {
		s := &e.in.Terms.Starts[i]
		if ended := s.Ended.UnixMicro(); ended > e.lo && ended <= e.hi {
			starts = append(starts, s)
		}
	}
	slices.SortFunc(starts, func(a, b *billing.Start) int {
		return cmp.Or(bytes.Compare(a.ID[:], b.ID[:]), a.Ended.Compare(b.Ended), cmp.Compare(a.Party, b.Party), cmp.Compare(a.Earlier, b.Earlier))
	})
	h := sha256.New()
	for _, s := range starts {
		b := binary.BigEndian.AppendUint64(slices.Clone(s.ID[:]), uint64(s.Ended.UnixMicro()))
		b = binary.BigEndian.AppendUint64(b, uint64(s.Earlier))
		b = append(b, byte(boolInt(s.Preempted)))
		h.Write(append(append(b, s.Party...), 0))
	}
	return len(starts), h.Sum(nil)
}

func touching[T any](all []T, period metering.Interval, of func(T) metering.Interval) []T {
	var out []T
	for _, v := range all {
		if of(v).Overlaps(period) {
			out = append(out, v)
		}
	}
	return out
}
