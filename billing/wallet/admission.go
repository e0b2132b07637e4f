package wallet

import (
	"math/big"
	"time"

	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/money"
)

const (
	// Reserve is how much running time a start holds of a wallet, business time.
	Reserve = 60 * time.Second
	// StopTime is what a stop may take at most until the meter ends, business time.
	StopTime = 30 * time.Second
)

const million = 1_000_000

// Spendable is what a wallet can buy, net: promotional grants as they are, prepaid
// money without the tax that will be due on it (ratePPM, parts per million).
func Spendable(promo, prepaid money.Amount, ratePPM int64) (money.Exact, error) {
	net := prepaid.Exact().Scale(big.NewRat(million, million+ratePPM))
	return promo.Exact().Add(net)
}

// Hold is what a start keeps of a wallet: Reserve and StopTime of its price an
// hour, before any discount.
func Hold(perHour money.Price) money.Exact {
	return perHour.Times(big.NewInt(int64(Reserve+StopTime)), int64(time.Hour))
}

// Admit fails with budget.exhausted unless spendable covers what other instances
// hold and the new hold.
func Admit(spendable, held, hold money.Exact) error {
	needed, err := held.Add(hold)
	if err != nil {
		return err
	}
	if spendable.Cmp(needed) >= 0 {
		return nil
	}
	return fault.New(fault.OverBudget, "budget.exhausted",
		"The prepaid balance does not cover the first minute: "+spendable.Decimal()+" of "+needed.String()+" are left.").
		Suggest("Add to the balance, or stop something.")
}

// AutoTopUp is a standing order to pay in when the balance runs low. The zero value
// is none.
type AutoTopUp struct {
	Threshold  money.Amount // pays in when the prepaid balance is below
	Amount     money.Amount
	MonthlyMax money.Amount // of all automatic top-ups of a calendar month
}

// Check refuses orders that cannot work. It fails with fault.Invalid.
func (t AutoTopUp) Check(c money.Currency) error {
	for pointer, a := range map[string]money.Amount{"/threshold": t.Threshold, "/amount": t.Amount, "/monthly_max": t.MonthlyMax} {
		if a.Currency() != c {
			return invalid(pointer, "currency", "must be in "+c.Code()+", the currency of the organization")
		}
	}
	switch {
	case t.Threshold.Sign() < 0:
		return invalid("/threshold", "range", "must not be negative")
	case t.Amount.Sign() <= 0:
		return invalid("/amount", "range", "must be more than 0")
	case t.MonthlyMax.Minor() < t.Amount.Minor():
		return invalid("/monthly_max", "range", "must be at least the amount")
	}
	return nil
}

// Due reports whether to pay in now: paid is what the month's automatic top-ups
// came to, those under way included.
func (t AutoTopUp) Due(balance, paid money.Amount) bool {
	return t.Amount.Sign() > 0 && balance.Minor() < t.Threshold.Minor() && paid.Minor() <= t.MonthlyMax.Minor()-t.Amount.Minor()
}

func invalid(pointer, code, detail string) error {
	return fault.New(fault.Invalid, "request.invalid", "The request is not valid: "+pointer[1:]+" "+detail+".").
		With(fault.Field{Pointer: pointer, Code: code, Detail: detail})
}
