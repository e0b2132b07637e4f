// Package wallet owns how balances are spent: in which order lots of prepaid money
// and promotional grants are used, how a running bill burns them down, what may
// still be started, when a budget warns or stops and when to top up. Pure; amounts
// are whole minor units, prepaid lots are gross, promotional ones net.
//
// It does not own postings (billing/ledger), what usage costs (billing/rating) or
// storage (internal/store).
package wallet

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/money"
)

// Mode says how an organization pays.
type Mode string

// The modes.
const (
	Postpaid    Mode = "postpaid" // by invoice
	PrepaidMode Mode = "prepaid"  // from its wallet: what runs stops when that is empty
)

// Kind is what a lot is.
type Kind string

// The kinds of lots.
const (
	Promo   Kind = "promo"   // given away: reduces the net, used by lines of documents
	Prepaid Kind = "prepaid" // paid in: pays the gross, burned while usage runs
)

// Lot is a grant of a wallet: money that was paid in or given.
type Lot struct {
	Grant     id.Grant
	Kind      Kind
	Name      string
	Priority  int       // lower first
	Expires   time.Time // zero: never; usable before
	Scope     billing.Scope
	Amount    money.Amount // as granted
	Remaining money.Amount // 0 to Amount
	Tax       money.Amount // of a prepaid lot that an advance invoice taxed: part of Amount
	Source    [16]byte     // the payment, coupon or credit that made it
	Lapsed    bool         // expired and booked as such
	CreatedAt time.Time
}

// usable reports whether a lot can be spent at an instant.
func (l Lot) usable(at time.Time) bool {
	return !l.Lapsed && l.Remaining.Sign() > 0 && (l.Expires.IsZero() || at.Before(l.Expires))
}

// Ordered returns lots in the order of their use: priority, earliest expiry, id.
func Ordered(lots []Lot) []Lot {
	out := slices.Clone(lots)
	slices.SortFunc(out, func(a, b Lot) int {
		return cmp.Or(cmp.Compare(a.Priority, b.Priority), compareExpiry(a.Expires, b.Expires), bytes.Compare(a.Grant[:], b.Grant[:]))
	})
	return out
}

func compareExpiry(a, b time.Time) int {
	switch {
	case a.IsZero() && b.IsZero():
		return 0
	case a.IsZero():
		return 1
	case b.IsZero():
		return -1
	}
	return a.Compare(b)
}

// Use is a movement of a lot: positive takes from it, negative gives back.
type Use struct {
	Grant  id.Grant
	Amount money.Amount
}

// take uses lots in their order until want is covered; left is what none covers.
func take(lots []Lot, want money.Amount, at time.Time) (uses []Use, left money.Amount, err error) {
	left = want
	for _, l := range Ordered(lots) {
		if left.Sign() <= 0 {
			break
		}
		if !l.usable(at) {
			continue
		}
		part := l.Remaining
		if part.Minor() > left.Minor() {
			part = left
		}
		if left, err = left.Sub(part); err != nil {
			return nil, left, fmt.Errorf("using a lot: %w", err)
		}
		uses = append(uses, Use{Grant: l.Grant, Amount: part})
	}
	return uses, left, nil
}

// Unwind gives an amount back to where it came from: by the recorded uses, the last
// one first, whatever the order of use would be today. It fails with fault.Internal
// for more than was used.
func Unwind(recorded []Use, back money.Amount) ([]Use, error) {
	open := netted(recorded)
	var uses []Use
	left := back
	for i := len(open) - 1; i >= 0 && left.Sign() > 0; i-- {
		part := open[i].Amount
		if part.Minor() > left.Minor() {
			part = left
		}
		if part.IsZero() {
			continue
		}
		n, err := part.Neg()
		if err != nil {
			return nil, fmt.Errorf("giving back: %w", err)
		}
		if left, err = left.Sub(part); err != nil {
			return nil, fmt.Errorf("giving back: %w", err)
		}
		uses = append(uses, Use{Grant: open[i].Grant, Amount: n})
	}
	if left.Sign() > 0 {
		return nil, broken("%s are to go back of which %s were never used", back, left)
	}
	return uses, nil
}

// netted replays recorded movements: what is left of each positive one, after the
// negative ones took from the last of their lot.
func netted(recorded []Use) []Use {
	var open []Use
	for _, u := range recorded {
		if u.Amount.Sign() > 0 {
			open = append(open, u)
			continue
		}
		back := -u.Amount.Minor()
		for i := len(open) - 1; i >= 0 && back > 0; i-- {
			if open[i].Grant != u.Grant {
				continue
			}
			part := min(open[i].Amount.Minor(), back)
			open[i].Amount = money.NewAmount(open[i].Amount.Minor()-part, open[i].Amount.Currency())
			back -= part
		}
	}
	return open
}

// Step is what a tick does: the movements of lots, their sum, what is burned of the
// period after it, and the part of the bill that no lot covers: that is owed.
type Step struct {
	Uses   []Use
	Delta  money.Amount // Σ Uses, negative where the bill became smaller
	Burned money.Amount
	Excess money.Amount // ≥ 0
}

// Burn moves lots so that a period's bill is covered as far as they reach: total is
// its gross after promotional grants now, recorded what earlier ticks used for it.
// The sum of all steps depends on the last total alone, whatever ticks came between,
// unless a lot ran dry or expired on the way. A total below 0 burns nothing.
func Burn(lots []Lot, recorded []Use, total money.Amount, at time.Time) (Step, error) {
	c := total.Currency()
	if total.Sign() < 0 {
		total = money.NewAmount(0, c)
	}
	burned, err := sum(c, recorded)
	if err != nil {
		return Step{}, err
	}
	want, err := total.Sub(burned)
	if err != nil {
		return Step{}, fmt.Errorf("burning: %w", err)
	}
	s := Step{Excess: money.NewAmount(0, c)}
	if want.Sign() >= 0 {
		s.Uses, s.Excess, err = take(lots, want, at)
	} else {
		s.Uses, err = Unwind(recorded, money.NewAmount(-want.Minor(), c))
	}
	if err != nil {
		return Step{}, err
	}
	if s.Delta, err = sum(c, s.Uses); err != nil {
		return Step{}, err
	}
	s.Burned, err = burned.Add(s.Delta)
	return s, err
}

func sum(c money.Currency, uses []Use) (money.Amount, error) {
	amounts := make([]money.Amount, len(uses))
	for i, u := range uses {
		amounts[i] = u.Amount
	}
	total, err := money.Sum(c, amounts...)
	if err != nil {
		return money.Amount{}, fmt.Errorf("summing uses: %w", err)
	}
	return total, nil
}

func broken(format string, args ...any) error {
	return fault.New(fault.Internal, "internal", "A wallet does not add up.").Because(fmt.Errorf(format, args...))
}
