package app

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/billing/ledger"
	"github.com/tranche-cloud/tranche/billing/wallet"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/money"
	"github.com/tranche-cloud/tranche/internal/store"
)

// derived makes a key of content: the same parts make the same key.
func derived(parts ...any) [16]byte {
	text := make([]string, len(parts))
	for i, p := range parts {
		text[i] = fmt.Sprint(p)
	}
	h := sha256.Sum256([]byte(strings.Join(text, "\x1f")))
	return [16]byte(h[:16])
}

// fundedBy names what a document of usage is funded as.
func fundedBy(v billing.Invoice) store.FundedPeriod {
	return store.FundedPeriod{Period: metering.PeriodOf(v.Period.From), CloseNo: v.CloseNo}
}

// settleFunding pays a document, that is about to be finalized, out of the wallet:
// it uses the promotional grants of its lines for good, burns what the total still
// lacks, and takes the accrual of its month back. The billing account is locked; the
// wallet is locked here. It fails with state.conflict if a grant has less than the
// document takes of it: then the draft is to be made again.
func settleFunding(ctx context.Context, t *store.SystemTx, v billing.Invoice) (ledger.Funding, error) {
	if v.Kind != billing.UsageInvoice && v.Kind != "" {
		return ledger.Funding{}, nil
	}
	w, err := t.LockWallet(ctx, v.Org)
	if err != nil {
		return ledger.Funding{}, err
	}
	at, err := t.BusinessNow(ctx)
	if err != nil {
		return ledger.Funding{}, err
	}
	f, err := t.Funding(ctx, v.Org, fundedBy(v))
	if err != nil {
		return ledger.Funding{}, err
	}
	if err := usePromos(ctx, t, v, at); err != nil {
		return ledger.Funding{}, err
	}
	if err := burn(ctx, t, v, &f, at); err != nil {
		return ledger.Funding{}, err
	}
	out := ledger.Funding{Prepaid: money.NewAmount(f.Burned, v.Currency), Accrued: money.NewAmount(f.Accrued, v.Currency)}
	f.Invoice, f.Accrued = v.ID, 0
	keepExcess(&f, w.Mode)
	if err := t.SaveFunding(ctx, v.Org, f); err != nil {
		return ledger.Funding{}, err
	}
	return out, t.LookAtWalletSoon(ctx, v.Org)
}

// promosOf sums the promotional lines of a document by grant, in their order.
func promosOf(v billing.Invoice) ([]wallet.Use, error) {
	var uses []wallet.Use
	for _, l := range v.Lines {
		if l.Key.Component != billing.PromoCredit {
			continue
		}
		grant, err := id.Parse[id.Grant](l.Key.Reference)
		if err != nil {
			return nil, fmt.Errorf("reading the grant of line %d: %w", l.No, err)
		}
		n := -l.Amount.Minor()
		if n == 0 {
			continue
		}
		if i := slices.IndexFunc(uses, func(u wallet.Use) bool { return u.Grant == grant }); i >= 0 {
			uses[i].Amount = money.NewAmount(uses[i].Amount.Minor()+n, v.Currency)
			continue
		}
		uses = append(uses, wallet.Use{Grant: grant, Amount: money.NewAmount(n, v.Currency)})
	}
	return uses, nil
}

// usePromos takes what the lines of a document say of the grants, and ends the holds
// of its month.
func usePromos(ctx context.Context, t *store.SystemTx, v billing.Invoice, at time.Time) error {
	uses, err := promosOf(v)
	if err != nil {
		return err
	}
	f := fundedBy(v)
	if len(uses) == 0 {
		return endHolds(ctx, t, v.Org, f)
	}
	grants := make([]id.Grant, len(uses))
	for i, u := range uses {
		grants[i] = u.Grant
	}
	lots, err := t.Grants(ctx, v.Org, grants...)
	if err != nil {
		return err
	}
	for _, u := range uses {
		i := slices.IndexFunc(lots, func(l wallet.Lot) bool { return l.Grant == u.Grant && l.Kind == wallet.Promo })
		if i < 0 || lots[i].Remaining.Minor() < u.Amount.Minor() {
			return fault.New(fault.Conflict, "state.conflict", "A promotional grant was used up while the invoice was made.").Suggest("Run it again.")
		}
	}
	if err := t.MoveGrants(ctx, v.Org, wallet.Promo, f, store.UseInvoice, at, uses); err != nil {
		return err
	}
	return endHolds(ctx, t, v.Org, f)
}

// endHolds ends what a month took of grants until it had its document.
func endHolds(ctx context.Context, t *store.SystemTx, org id.Org, f store.FundedPeriod) error {
	if f.CloseNo != 0 {
		return nil
	}
	return t.SetHolds(ctx, org, f.Period, nil)
}

// burn moves prepaid lots so that they cover a document's total as far as they
// reach, and posts the step. The wallet is locked; the caller saves f.
func burn(ctx context.Context, t *store.SystemTx, v billing.Invoice, f *store.Funding, at time.Time) error {
	lots, err := t.LiveGrants(ctx, v.Org, wallet.Prepaid)
	if err != nil {
		return err
	}
	recorded, err := t.UsesOf(ctx, v.Org, wallet.Prepaid, f.FundedPeriod, v.Currency)
	if err != nil {
		return err
	}
	step, err := wallet.Burn(lots, recorded, v.Total, at)
	if err != nil {
		return err
	}
	f.Burned, f.Excess = step.Burned.Minor(), step.Excess.Minor()
	if len(step.Uses) == 0 {
		return nil
	}
	if err := t.MoveGrants(ctx, v.Org, wallet.Prepaid, f.FundedPeriod, store.UseBurn, at, step.Uses); err != nil {
		return err
	}
	f.BurnedRev++
	journal, err := ledger.Burned(ledger.Entry{
		Org: v.Org, Reference: derived("burn", v.Org, f.Period, f.CloseNo, f.BurnedRev), On: within(at, v.Period),
	}, step.Delta)
	if err != nil {
		return err
	}
	return t.Post(ctx, journal)
}

// within is the instant, or the last one of a period that it lies behind.
func within(at time.Time, p metering.Interval) time.Time {
	if at.Before(p.To) {
		return at
	}
	return p.To.Add(-time.Microsecond)
}

// carryFunding gives back what a month burned and takes back what was accrued for
// it: it is not invoiced, the next month's document holds its net.
func carryFunding(ctx context.Context, t *store.SystemTx, v billing.Invoice) error {
	if _, err := t.LockWallet(ctx, v.Org); err != nil {
		return err
	}
	at, err := t.BusinessNow(ctx)
	if err != nil {
		return err
	}
	f, err := t.Funding(ctx, v.Org, fundedBy(v))
	if err != nil {
		return err
	}
	none := v
	none.Total = money.NewAmount(0, v.Currency)
	if err := burn(ctx, t, none, &f, at); err != nil {
		return err
	}
	if err := accrue(ctx, t, v.Org, &f, money.NewAmount(0, v.Currency), within(at, v.Period)); err != nil {
		return err
	}
	f.Invoice = v.ID
	if err := t.SetHolds(ctx, v.Org, f.Period, nil); err != nil {
		return err
	}
	if err := t.SaveFunding(ctx, v.Org, f); err != nil {
		return err
	}
	return t.LookAtWalletSoon(ctx, v.Org)
}

// returnOrder is how a credit note gives money back.
type returnOrder struct {
	original billing.Invoice
	note     billing.Invoice // amounts negative
	full     bool            // nothing of the original stays: its promotional grants come back
	wallet   bool            // what was paid by other means goes to the wallet, too
}

// returnFunding gives back what a credit note takes off beyond what is still owed.
// What was written off comes first: it was never paid, the write-off becomes smaller.
// Then the lots that paid for the document, the last use first; then, if asked, what
// was paid otherwise as a new prepaid lot. The rest stays with the document, for a
// refund. The billing account is locked. Call it before the note is posted, and post
// the note with the result (ledger.ForCreditNote).
func returnFunding(ctx context.Context, t *store.SystemTx, o returnOrder) (ledger.Funding, error) {
	v := o.original
	if _, err := t.LockWallet(ctx, v.Org); err != nil {
		return ledger.Funding{}, err
	}
	at, err := t.BusinessNow(ctx)
	if err != nil {
		return ledger.Funding{}, err
	}
	settled, err := t.SettlementsOf(ctx, v.Org, v.Currency, []id.Invoice{v.ID})
	if err != nil {
		return ledger.Funding{}, err
	}
	s := settled[v.ID]
	due := v.Total.Minor() - s.Prepaid.Minor() - s.Paid.Minor() - s.Credited.Minor() - s.WrittenOff.Minor()
	over := max(-o.note.Total.Minor()-max(due, 0), 0)
	given := min(over, max(s.WrittenOff.Minor(), 0)) // never paid: there is less to give up, and nothing to give back
	if given > 0 {
		if err := recoverWritten(ctx, t, v.Org, id.Payment{}, v.ID, money.NewAmount(given, v.Currency), "credited", at); err != nil {
			return ledger.Funding{}, err
		}
	}
	over -= given
	back, err := returnUses(ctx, t, v, wallet.Prepaid, over, at)
	if err != nil {
		return ledger.Funding{}, err
	}
	out := ledger.Funding{Prepaid: money.NewAmount(back, v.Currency)}
	if rest := min(over-back, s.Paid.Minor()); o.wallet && rest > 0 {
		if err := creditLot(ctx, t, o, rest, at); err != nil {
			return ledger.Funding{}, err
		}
		out.Prepaid = money.NewAmount(back+rest, v.Currency)
	}
	if o.full {
		promo, err := returnUses(ctx, t, v, wallet.Promo, -1, at)
		if err != nil {
			return ledger.Funding{}, err
		}
		out.Promo = money.NewAmount(promo, v.Currency)
	}
	return out, t.LookAtWalletSoon(ctx, v.Org)
}

// returnAdvances gives the lots back what a document deducted as advances (gross),
// when it is cancelled. The wallet is locked.
func returnAdvances(ctx context.Context, t *store.SystemTx, v billing.Invoice, gross money.Amount) error {
	at, err := t.BusinessNow(ctx)
	if err != nil {
		return err
	}
	_, err = returnUses(ctx, t, v, wallet.Prepaid, gross.Minor(), at)
	return err
}

// returnUses gives up to most (negative: all) of what a document used of a kind of
// lots back, and returns how much.
func returnUses(ctx context.Context, t *store.SystemTx, v billing.Invoice, k wallet.Kind, most int64, at time.Time) (int64, error) {
	f := fundedBy(v)
	recorded, err := t.UsesOf(ctx, v.Org, k, f, v.Currency)
	if err != nil {
		return 0, err
	}
	used := int64(0)
	for _, u := range recorded {
		used += u.Amount.Minor()
	}
	if most >= 0 {
		used = min(used, most)
	}
	if used <= 0 {
		return 0, nil
	}
	uses, err := wallet.Unwind(recorded, money.NewAmount(used, v.Currency))
	if err != nil {
		return 0, err
	}
	if err := t.MoveGrants(ctx, v.Org, k, f, store.UseCredit, at, uses); err != nil {
		return 0, err
	}
	if k == wallet.Promo {
		return used, nil
	}
	held, err := t.Funding(ctx, v.Org, f)
	if err != nil {
		return 0, err
	}
	held.Burned -= used
	return used, t.SaveFunding(ctx, v.Org, held)
}

// creditLot makes a prepaid lot of what a credit note gives back.
func creditLot(ctx context.Context, t *store.SystemTx, o returnOrder, minor int64, at time.Time) error {
	_, err := t.InsertGrant(ctx, o.original.Org, store.NewLot{Lot: wallet.Lot{
		Grant: id.New[id.Grant](), Kind: wallet.Prepaid, Name: "Credit of " + o.original.Number, Priority: prepaidPriority,
		Amount: money.NewAmount(minor, o.original.Currency), Tax: money.NewAmount(0, o.original.Currency), Source: o.note.ID, CreatedAt: at,
	}})
	return err
}

// prepaidPriority is that of lots that were paid in: used after those that were not.
const prepaidPriority = 100

// prepayment is money that was paid into a wallet. Source is the payment: it counts
// once.
type prepayment struct {
	Org    id.Org
	Source [16]byte
	Gross  money.Amount
	From   ledger.Account
	Name   string
}

// receivePrepayment adds a payment to a wallet, and invoices it in advance where the
// issuer taxes at receipt. It reports false if it was added before. It fails with
// request.invalid for nothing, and for another currency than the organization's.
func (a *App) receivePrepayment(ctx context.Context, t *store.SystemTx, p prepayment) (bool, error) {
	if err := t.LockBillingAccount(ctx, p.Org); err != nil {
		return false, err
	}
	w, err := t.LockWallet(ctx, p.Org)
	if err != nil {
		return false, err
	}
	if err := positive(p.Gross, w.Prepaid.Currency()); err != nil {
		return false, err
	}
	at, err := t.BusinessNow(ctx)
	if err != nil {
		return false, err
	}
	if _, err := t.GrantOf(ctx, p.Org, p.Source); fault.KindOf(err) != fault.NotFound {
		return false, err
	}
	advance, err := a.IssueAdvance(ctx, t, p.Org, id.Payment(p.Source), p.Gross)
	if err != nil {
		return false, err
	}
	tax := money.NewAmount(0, p.Gross.Currency())
	if !advance.ID.IsZero() {
		tax = advance.TaxTotal
	}
	if p.Name == "" {
		p.Name = "Prepayment"
	}
	fresh, err := t.InsertGrant(ctx, p.Org, store.NewLot{Lot: wallet.Lot{
		Grant: id.New[id.Grant](), Kind: wallet.Prepaid, Name: p.Name, Priority: prepaidPriority, Amount: p.Gross, Tax: tax,
		Source: p.Source, CreatedAt: at,
	}})
	if err != nil || !fresh {
		return false, err
	}
	journal, err := ledger.PrepaymentReceived(ledger.Entry{Org: p.Org, Reference: p.Source, On: at}, p.From, p.Gross)
	if err != nil {
		return false, err
	}
	if err := t.Post(ctx, journal); err != nil {
		return false, err
	}
	return true, t.AppendEvent(ctx, store.Event{
		Org: p.Org, Type: "wallet.topped_up", Subject: p.Org, Data: map[string]any{"amount": p.Gross.Decimal(), "currency": p.Gross.Currency().Code()},
	})
}

// returnPrepayment takes money that was paid in out of a wallet again: a refund or
// chargeback of the payment Source, written once per Reference. What was spent
// already cannot be returned: it fails with state.conflict. The billing account is
// locked.
func (a *App) returnPrepayment(ctx context.Context, t *store.SystemTx, org id.Org, source, reference [16]byte, gross money.Amount, to ledger.Account) error {
	w, err := t.LockWallet(ctx, org)
	if err != nil {
		return err
	}
	if err := positive(gross, w.Prepaid.Currency()); err != nil {
		return err
	}
	lot, err := t.GrantOf(ctx, org, source)
	if err != nil {
		return err
	}
	if lot.Remaining.Minor() < gross.Minor() {
		return fault.New(fault.Conflict, "state.conflict", "Of that payment only "+lot.Remaining.String()+" are not spent.").
			Suggest("Return at most that.")
	}
	at, err := t.BusinessNow(ctx)
	if err != nil {
		return err
	}
	uses := []wallet.Use{{Grant: lot.Grant, Amount: gross}}
	if err := t.MoveGrants(ctx, org, wallet.Prepaid, store.FundedPeriod{Period: metering.PeriodOf(at)}, store.UseReturned, at, uses); err != nil {
		return err
	}
	if err := a.creditAdvance(ctx, t, org, id.Payment(source), gross); err != nil {
		return err
	}
	journal, err := ledger.PrepaymentReturned(ledger.Entry{Org: org, Reference: reference, On: at}, to, gross)
	if err != nil {
		return err
	}
	if err := t.Post(ctx, journal); err != nil {
		return err
	}
	return t.LookAtWalletSoon(ctx, org)
}

func positive(a money.Amount, c money.Currency) error {
	switch {
	case a.Currency() != c:
		return fault.New(fault.Invalid, "request.invalid", "The organization is billed in "+c.Code()+".").
			With(fault.Field{Pointer: "/currency", Code: "currency", Detail: "must be " + c.Code()})
	case a.Sign() <= 0:
		return fault.New(fault.Invalid, "request.invalid", "An amount is more than 0.").
			With(fault.Field{Pointer: "/amount", Code: "range", Detail: "must be more than 0"})
	}
	return nil
}
