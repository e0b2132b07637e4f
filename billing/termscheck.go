package billing

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/money"
)

// Bounds of what anybody agrees on; what lies beyond is a mistake of input.
const (
	maxReservedUnits = 1_000_000
	maxMinimum       = 31 * 24 * time.Hour
	maxCapHours      = 31 * 24
	maxNoticeFree    = 24 * time.Hour
	maxQuotaBits     = 100
)

// Check fails with fault.Invalid, naming the field and what to do, for terms that
// overlap, are negative, empty, absurd or in another currency than c, and for a
// contract whose monthly cap lies below what it commits to.
func (t Terms) Check(c money.Currency) error {
	for _, check := range []func(money.Currency) error{
		t.checkPrices, t.checkDiscounts, t.checkReservations, t.checkQuotas, t.checkMinimums, t.checkCaps,
		t.checkAmounts, t.checkPromos, t.checkSpot,
	} {
		if err := check(c); err != nil {
			return err
		}
	}
	if t.NoticeFree < 0 || t.NoticeFree > maxNoticeFree {
		return refuse("/notice_free", "The free time of a preempted run lies between 0 and 24 hours.")
	}
	return nil
}

func (t Terms) checkPrices(c money.Currency) error {
	byKey := map[PriceKey][]placed{}
	for i, p := range t.Prices {
		at := fmt.Sprintf("/prices/%d", i)
		if err := checkDuring(at, p.During); err != nil {
			return err
		}
		if p.Price.Currency() != c {
			return refuse(at+"/price", fmt.Sprintf("A contract price is in another currency than %s.", c))
		}
		if _, err := metering.UnitOf(p.Key.Meter); err != nil {
			return refuse(at+"/meter", fmt.Sprintf("The meter %.32q is unknown.", string(p.Key.Meter)))
		}
		if !p.Tiers.IsZero() {
			if err := p.Tiers.Check(at+"/tiers", p.Key.Meter, c); err != nil {
				return err
			}
		}
		byKey[p.Key] = append(byKey[p.Key], placed{at, p.During})
	}
	for _, same := range byKey {
		if err := disjoint(same, "Two contract prices of one SKU and meter overlap."); err != nil {
			return err
		}
	}
	return nil
}

func (t Terms) checkDiscounts(money.Currency) error {
	for i, d := range t.Discounts {
		at := fmt.Sprintf("/discounts/%d", i)
		if err := checkScope(at, d.Scope, d.During); err != nil {
			return err
		}
		if d.PPM < 0 || d.PPM > million {
			return refuse(at+"/percent", "A discount lies between 0 and 100 percent.")
		}
	}
	return nil
}

func (t Terms) checkReservations(money.Currency) error {
	byID := map[[16]byte][]placed{}
	for i, r := range t.Reservations {
		at := fmt.Sprintf("/reservations/%d", i)
		if err := checkDuring(at, r.During); err != nil {
			return err
		}
		if r.ID.IsZero() || r.Family == "" {
			return refuse(at, "A reservation has an id and a SKU family.")
		}
		if r.Units < 1 || r.Units > maxReservedUnits {
			return refuse(at+"/units", fmt.Sprintf("A reservation is for 1 to %d units.", maxReservedUnits))
		}
		byID[r.ID] = append(byID[r.ID], placed{at, r.During})
	}
	for _, same := range byID {
		if err := disjoint(same, "One reservation is given twice for one time."); err != nil {
			return err
		}
	}
	return nil
}

func (t Terms) checkQuotas(money.Currency) error {
	for i, q := range t.FreeQuotas {
		at := fmt.Sprintf("/free_quotas/%d", i)
		if err := checkScope(at, q.Scope, q.During); err != nil {
			return err
		}
		if q.Scope.Meter == "" {
			return refuse(at+"/scope/meter", "A free quota names its meter: units of different meters do not add up.")
		}
		if q.Quantity == nil || q.Quantity.Sign() <= 0 || q.Quantity.BitLen() > maxQuotaBits {
			return refuse(at+"/quantity", "A free quota is a positive quantity.")
		}
	}
	return nil
}

func (t Terms) checkMinimums(money.Currency) error {
	for i, m := range t.Minimums {
		at := fmt.Sprintf("/minimums/%d", i)
		if err := checkScope(at, m.Scope, m.During); err != nil {
			return err
		}
		if m.Micros <= 0 || m.Micros > maxMinimum.Microseconds() {
			return refuse(at+"/seconds", "A minimum charge is for more than 0 seconds and at most 31 days.")
		}
	}
	for i, s := range t.Starts {
		if s.Earlier < 0 || s.Ended.IsZero() {
			return refuse(fmt.Sprintf("/starts/%d", i), "A start has ended and its earlier time is not negative.")
		}
	}
	return nil
}

func (t Terms) checkCaps(c money.Currency) error {
	for i, k := range t.Caps {
		at := fmt.Sprintf("/caps/%d", i)
		if err := checkScope(at, k.Scope, k.During); err != nil {
			return err
		}
		switch {
		case k.Amount == (money.Amount{}) && (k.Hours < 1 || k.Hours > maxCapHours):
			return refuse(at+"/hours", fmt.Sprintf("A monthly cap is 1 to %d hours.", maxCapHours))
		case k.Amount != (money.Amount{}) && k.Hours != 0:
			return refuse(at, "A monthly cap has hours or an amount, not both.")
		case k.Amount != (money.Amount{}):
			if err := checkAmount(at+"/amount", k.Amount, c); err != nil {
				return err
			}
		}
		for j, m := range t.Commitments {
			if k.below(m) {
				return refuse(at+"/amount", fmt.Sprintf("The contract commits to %s a month (/commitments/%d) and caps the month at %s.", m.Amount, j, k.Amount)).
					Suggest("Raise the cap to the committed amount at least, or commit to less.")
			}
		}
	}
	return nil
}

// below reports whether the cap makes the commitment of its contract impossible.
func (k Cap) below(m CommittedAmount) bool {
	return k.Amount != (money.Amount{}) && k.Contract == m.Contract && k.During.Overlaps(m.During) &&
		(k.Scope == Scope{} || k.Scope == m.Scope) && k.Amount.Minor() < m.Amount.Minor()
}

func (t Terms) checkAmounts(c money.Currency) error {
	for i, m := range t.Commitments {
		at := fmt.Sprintf("/commitments/%d", i)
		if err := cmp.Or(checkScope(at, m.Scope, m.During), checkAmount(at+"/amount", m.Amount, c)); err != nil {
			return err
		}
	}
	for i, d := range t.FixedDiscounts {
		at := fmt.Sprintf("/fixed_discounts/%d", i)
		if err := cmp.Or(checkScope(at, d.Scope, d.During), checkAmount(at+"/amount", d.Amount, c)); err != nil {
			return err
		}
	}
	return nil
}

func (t Terms) checkPromos(c money.Currency) error {
	seen := map[[16]byte]bool{}
	for i, p := range t.Promos {
		at := fmt.Sprintf("/promos/%d", i)
		if p.Grant.IsZero() || seen[p.Grant] {
			return refuse(at+"/grant", "Each promotional grant has an id and is given once.")
		}
		seen[p.Grant] = true
		if p.Remaining.Currency() != c || p.Remaining.Sign() < 0 {
			return refuse(at+"/remaining", fmt.Sprintf("What remains of a grant is not negative and in %s.", c))
		}
	}
	return nil
}

func (t Terms) checkSpot(c money.Currency) error {
	type series struct {
		region string
		sku    [16]byte
	}
	bySeries := map[series][]placed{}
	for i, s := range t.SpotSeries {
		at := fmt.Sprintf("/spot_series/%d", i)
		if err := checkDuring(at, s.During); err != nil {
			return err
		}
		if s.Price.Currency() != c {
			return refuse(at+"/price", fmt.Sprintf("A spot price is in another currency than %s.", c))
		}
		k := series{s.Region, s.SKU}
		bySeries[k] = append(bySeries[k], placed{at, s.During})
	}
	for _, same := range bySeries {
		if err := disjoint(same, "Two spot prices of one SKU and region overlap."); err != nil {
			return err
		}
	}
	return nil
}

func checkScope(at string, s Scope, during metering.Interval) error {
	if s.Meter != "" {
		if _, err := metering.UnitOf(s.Meter); err != nil {
			return refuse(at+"/scope/meter", fmt.Sprintf("The meter %.32q is unknown.", string(s.Meter)))
		}
	}
	return checkDuring(at, during)
}

func checkDuring(at string, during metering.Interval) error {
	if during.From.IsZero() || during.Empty() {
		return refuse(at+"/during", "A term begins at an instant and ends later, or has no end.")
	}
	return nil
}

func checkAmount(at string, a money.Amount, c money.Currency) error {
	if a.Currency() != c || a.Sign() <= 0 {
		return refuse(at, fmt.Sprintf("The amount is above 0 and in %s.", c))
	}
	return nil
}

// placed is an interval and the place of its term in the input.
type placed struct {
	at     string
	during metering.Interval
}

func disjoint(all []placed, detail string) error {
	slices.SortFunc(all, func(a, b placed) int {
		return cmp.Or(a.during.From.Compare(b.during.From), cmp.Compare(a.at, b.at))
	})
	for i := 1; i < len(all); i++ {
		if all[i-1].during.Overlaps(all[i].during) {
			return refuse(all[i].at+"/during", detail).
				Suggest("End one at the instant when the other begins (" + all[i-1].at + ").")
		}
	}
	return nil
}

// Matches reports whether the scope selects usage of a SKU on a meter.
func (s Scope) Matches(meter metering.Meter, family string, sku [16]byte) bool {
	return (s.Meter == "" || s.Meter == meter) && (s.Family == "" || s.Family == family) && (s.SKU == [16]byte{} || s.SKU == sku)
}
