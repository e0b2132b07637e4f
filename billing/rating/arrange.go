package rating

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/money"
)

// forever is the end of what has not ended.
const forever = math.MaxInt64

// place is where a segment stands in the fixed order: subject, meter, start.
type place struct {
	hi, lo      uint64 // of the subject's id
	kind, meter uint8
	from        int64
	index       int32
}

// arranged returns usage without duplicates and empty segments, ordered by subject,
// meter and start. Pieces of one segment that do not overlap are all kept.
func arranged(all []Usage) ([]*Usage, error) {
	places, err := placesOf(all)
	if err != nil {
		return nil, err
	}
	if !slices.IsSortedFunc(places, comparePlaces) {
		slices.SortFunc(places, comparePlaces)
	}
	out := make([]*Usage, 0, len(places))
	var last place
	for _, p := range places {
		u := &all[p.index]
		if n := len(out); n > 0 && last.hi == p.hi && last.lo == p.lo && last.kind == p.kind && last.meter == p.meter {
			before := out[n-1]
			if before.ID == u.ID && alike(before, u) {
				continue
			}
			if before.During.Overlaps(u.During) {
				if before.ID == u.ID {
					return nil, internal("The usage segment %s is given in two versions.", u.ID)
				}
				return nil, internal("The usage segments %s and %s overlap.", before.ID, u.ID)
			}
		}
		out, last = append(out, u), p
	}
	return out, nil
}

func placesOf(all []Usage) ([]place, error) {
	places := make([]place, 0, len(all))
	var kinds []string
	var meters []metering.Meter
	for i := range all {
		u := &all[i]
		if u.During.Empty() {
			continue
		}
		if u.Units < 0 {
			return nil, internal("The usage segment %s has %d units.", u.ID, u.Units)
		}
		if u.Units > maxUnits {
			return nil, fmt.Errorf("%w: the usage segment %s has %d units", money.ErrRange, u.ID, u.Units)
		}
		p := place{
			hi: binary.BigEndian.Uint64(u.Subject.ID[:8]), lo: binary.BigEndian.Uint64(u.Subject.ID[8:]),
			from: u.During.From.UnixMicro(), index: int32(i),
		}
		p.kind, kinds = rank(kinds, u.Subject.Kind)
		p.meter, meters = rank(meters, u.Meter)
		places = append(places, p)
	}
	return places, nil
}

// rank numbers the few different kinds and meters as they come.
func rank[T comparable](known []T, v T) (uint8, []T) {
	if i := slices.Index(known, v); i >= 0 {
		return uint8(i), known
	}
	return uint8(len(known)), append(known, v)
}

func comparePlaces(a, b place) int {
	if a.hi != b.hi {
		return cmp.Compare(a.hi, b.hi)
	}
	if a.lo != b.lo {
		return cmp.Compare(a.lo, b.lo)
	}
	if a.kind != b.kind {
		return cmp.Compare(a.kind, b.kind)
	}
	if a.meter != b.meter {
		return cmp.Compare(a.meter, b.meter)
	}
	return cmp.Compare(a.from, b.from)
}

// alike reports whether two records of one segment say the same, names apart: a
// subject may be renamed between two deliveries.
func alike(a, b *Usage) bool {
	same := a.Subject == b.Subject && a.Meter == b.Meter && a.Project == b.Project && a.StartID == b.StartID &&
		a.Units == b.Units && a.During.From.Equal(b.During.From) && a.During.To.Equal(b.During.To) &&
		a.SKU == b.SKU && a.Book == b.Book && a.Pricing == b.Pricing && a.Simulated == b.Simulated &&
		a.Region == b.Region && a.Slot == b.Slot && a.Started.Equal(b.Started)
	if !same || (a.Lock == nil) != (b.Lock == nil) {
		return false
	}
	return a.Lock == nil || *a.Lock == *b.Lock
}

// micros returns the bounds of an interval; an open end is forever.
func micros(i metering.Interval) (from, to int64) {
	if i.Open() {
		return i.From.UnixMicro(), forever
	}
	return i.From.UnixMicro(), i.To.UnixMicro()
}
