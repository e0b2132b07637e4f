package ledger

import (
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/money"
)

// Accrued is what a day adds to what was earned and is on no document yet: the
// preview's net less what was accrued before, so it may be negative.
func Accrued(e Entry, net money.Amount) (Journal, error) {
	return e.build(Accrual, net.Currency()).debit(Unbilled, net).credit(Revenue, net).done()
}

// Burned is what a tick takes from a prepaid balance: negative where the preview
// became smaller.
func Burned(e Entry, gross money.Amount) (Journal, error) {
	return e.build(Burn, gross.Currency()).debit(Prepaid, gross).credit(PrepaidUsed, gross).done()
}

// PrepaymentReceived turns money that came in by an account (Clearing, Bank or
// UnappliedCash) into prepaid balance. Its tax, where an advance invoice was
// issued for it, is posted by that (ForInvoice).
func PrepaymentReceived(e Entry, from Account, gross money.Amount) (Journal, error) {
	return e.build(PrepaymentIn, gross.Currency()).debit(from, gross).credit(Prepaid, gross).done()
}

// PrepaymentReturned gives prepaid balance back by an account.
func PrepaymentReturned(e Entry, to Account, gross money.Amount) (Journal, error) {
	return e.build(PrepaymentOut, gross.Currency()).debit(Prepaid, gross).credit(to, gross).done()
}

// GrantIssued gives a promotional grant.
func GrantIssued(e Entry, amount money.Amount) (Journal, error) {
	return e.build(GrantGiven, amount.Currency()).debit(PromoExpense, amount).credit(Promo, amount).done()
}

// GrantExpired turns what is left of a grant, on Promo or Prepaid, into breakage.
func GrantExpired(e Entry, of Account, left money.Amount) (Journal, error) {
	return e.build(GrantEnded, left.Currency()).debit(of, left).credit(Breakage, left).done()
}

// Paid is money from a customer: applied to a document, the rest to none yet.
func Paid(e Entry, inv id.Invoice, applied, unapplied money.Amount) (Journal, error) {
	total, err := applied.Add(unapplied)
	if err != nil {
		return Journal{}, err
	}
	return e.build(Payment, applied.Currency()).about(inv).
		debit(Clearing, total).credit(Receivable, applied).creditIf(UnappliedCash, unapplied).done()
}

// UnappliedUsed applies money that came in before to a document.
func UnappliedUsed(e Entry, inv id.Invoice, amount money.Amount) (Journal, error) {
	return e.build(UnappliedUse, amount.Currency()).about(inv).debit(UnappliedCash, amount).credit(Receivable, amount).done()
}

// Overpaid turns what a document was paid beyond what is owed into money that pays
// for no document yet.
func Overpaid(e Entry, inv id.Invoice, amount money.Amount) (Journal, error) {
	return e.build(UnappliedCollected, amount.Currency()).about(inv).debit(Receivable, amount).credit(UnappliedCash, amount).done()
}

// Refunded gives money back: that of a document (Receivable) or of none
// (UnappliedCash).
func Refunded(e Entry, from Account, inv id.Invoice, amount money.Amount) (Journal, error) {
	return e.build(Refund, amount.Currency()).about(inv).debit(from, amount).credit(Clearing, amount).done()
}

// FeeCharged is what a provider keeps of the money.
func FeeCharged(e Entry, amount money.Amount) (Journal, error) {
	return e.build(Fee, amount.Currency()).debit(Fees, amount).credit(Clearing, amount).done()
}

// ChargebackOpened is money that a provider takes back while a dispute lasts.
func ChargebackOpened(e Entry, amount money.Amount) (Journal, error) {
	return e.build(ChargebackOpening, amount.Currency()).debit(Disputes, amount).credit(Clearing, amount).done()
}

// ChargebackWon is the money of a dispute that was won.
func ChargebackWon(e Entry, amount money.Amount) (Journal, error) {
	return e.build(ChargebackWin, amount.Currency()).debit(Clearing, amount).credit(Disputes, amount).done()
}

// ChargebackLost makes the customer owe what the dispute took.
func ChargebackLost(e Entry, inv id.Invoice, amount money.Amount) (Journal, error) {
	return e.build(ChargebackLoss, amount.Currency()).about(inv).debit(Receivable, amount).credit(Disputes, amount).done()
}

// WrittenOff gives up what a document is owed.
func WrittenOff(e Entry, inv id.Invoice, amount money.Amount) (Journal, error) {
	return e.build(WriteOffKind, amount.Currency()).about(inv).debit(WriteOff, amount).credit(Receivable, amount).done()
}

// Recovered takes a write-off back, before the payment that came after all.
func Recovered(e Entry, inv id.Invoice, amount money.Amount) (Journal, error) {
	return e.build(Recovery, amount.Currency()).about(inv).debit(Receivable, amount).credit(WriteOff, amount).done()
}

// Deposited is money that a provider paid out to the bank.
func Deposited(e Entry, amount money.Amount) (Journal, error) {
	return e.build(Deposit, amount.Currency()).debit(Bank, amount).credit(Clearing, amount).done()
}
