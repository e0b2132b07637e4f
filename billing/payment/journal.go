package payment

import (
	"time"

	"github.com/tranche-cloud/tranche/billing/ledger"
	"github.com/tranche-cloud/tranche/internal/money"
)

// ChargebackAgainst ends a lost dispute against another account than what a document
// owes: money that paid for none (UnappliedCash), or that is lost (WriteOff).
func ChargebackAgainst(e ledger.Entry, from ledger.Account, amount money.Amount) (ledger.Journal, error) {
	held, err := amount.Neg()
	if err != nil {
		return ledger.Journal{}, err
	}
	y, m, d := e.On.UTC().Date()
	j := ledger.Journal{
		Org: e.Org, Kind: ledger.ChargebackLoss, Reference: e.Reference, Currency: amount.Currency(), EffectiveOn: midnight(y, m, d),
		Postings: []ledger.Posting{{Account: from, Amount: amount}, {Account: ledger.Disputes, Amount: held}},
	}
	return j, j.Check()
}

// RefundLost books a refund of money that was spent already as a loss: the refund
// itself takes it from unapplied cash. A negative amount takes the loss back.
func RefundLost(e ledger.Entry, amount money.Amount) (ledger.Journal, error) {
	back, err := amount.Neg()
	if err != nil {
		return ledger.Journal{}, err
	}
	y, m, d := e.On.UTC().Date()
	j := ledger.Journal{
		Org: e.Org, Kind: ledger.RefundLoss, Reference: e.Reference, Currency: amount.Currency(), EffectiveOn: midnight(y, m, d),
		Postings: []ledger.Posting{{Account: ledger.WriteOff, Amount: amount}, {Account: ledger.UnappliedCash, Amount: back}},
	}
	return j, j.Check()
}

func midnight(y int, m time.Month, d int) time.Time { return time.Date(y, m, d, 0, 0, 0, 0, time.UTC) }
