package rating

import (
	"bytes"
	"cmp"
	"math/big"
	"slices"
	"time"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
)

// Use is a part of a segment in a line.
type Use struct {
	Segment     id.Segment
	Subject     metering.Subject
	SubjectName string
	During      metering.Interval
	Units       int64
	Quantity    *big.Int
}

// Trace returns the parts of segments that a usage or covered line of the inputs is
// the sum of, ordered by subject and time: Σ Quantity is the line's. A line that is
// derived from others has none. It fails like Rate.
func Trace(in Inputs, key billing.LineKey) ([]Use, error) {
	e, err := newEngine(&in, in.Period)
	if err != nil {
		return nil, err
	}
	key.TaxCategory = billing.OutsideScope // rating knows no other
	var out []Use
	err = e.run(func(c charge) error {
		if c.packages > 0 || c.key() != key {
			return nil
		}
		out = append(out, Use{
			Segment: c.u.ID, Subject: c.u.Subject, SubjectName: c.u.SubjectName, Units: c.units,
			During: metering.Between(time.UnixMicro(c.from), time.UnixMicro(c.to)), Quantity: c.quantity().big(),
		})
		return nil
	})
	slices.SortFunc(out, func(a, b Use) int {
		return cmp.Or(bytes.Compare(a.Subject.ID[:], b.Subject.ID[:]), cmp.Compare(a.Subject.Kind, b.Subject.Kind),
			a.During.From.Compare(b.During.From), a.During.To.Compare(b.During.To), cmp.Compare(a.Units, b.Units))
	})
	return out, err
}

// key is the key of the line that a charge belongs to.
func (c charge) key() billing.LineKey {
	if c.cover != nil {
		return coveredKey(c)
	}
	key := c.rate.key
	key.Tier = c.tier
	return key
}
