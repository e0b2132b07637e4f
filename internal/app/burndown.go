package app

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"time"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/billing/wallet"
	"github.com/tranche-cloud/tranche/internal/auth"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/money"
	"github.com/tranche-cloud/tranche/internal/store"
)

const (
	// walletBatch is how many wallets one round looks at.
	walletBatch = 200
	// tickMost and tickLeast bound the business time between two looks at a wallet
	// that runs down: half of what it lasts.
	tickMost  = time.Minute
	tickLeast = 2 * time.Second
	// tickHard is that of a hard budget.
	tickHard = 10 * time.Second
	// outageAfter is the business time without a look after which what a wallet
	// lacks counts as the excess of an outage.
	outageAfter = time.Minute
	// systemRequest marks what the control plane asks of itself.
	systemRequest = "budget"
)

// BurnDown looks at the wallets and budgets whose time has come: it burns what was
// used, tells thresholds, tops up, and stops what a wallet or a hard budget does not
// pay for any more. It takes one transaction an organization. One organization in
// trouble keeps no other from it.
func (a *App) BurnDown(ctx context.Context) error {
	var due []id.Org
	err := a.Store.InSystem(ctx, "look for wallets to burn", func(t *store.SystemTx) (err error) {
		due, err = t.WalletsDue(ctx, walletBatch)
		return err
	})
	if err != nil {
		return err
	}
	for _, org := range due {
		if failed := a.lookAtWallet(ctx, org); failed != nil {
			err = errors.Join(err, fmt.Errorf("burning down %s: %w", org, failed))
			if ctx.Err() != nil {
				return err
			}
			err = errors.Join(err, a.Store.InSystem(ctx, "postpone a wallet", func(t *store.SystemTx) error {
				return t.PostponeWallet(ctx, org, tickHard)
			}))
		}
	}
	return errors.Join(err, a.orderTopUps(ctx))
}

// lookAtWallet is a tick of one organization, and the stops that follow from it.
func (a *App) lookAtWallet(ctx context.Context, org id.Org) error {
	var k *tick
	err := a.Store.InSystem(ctx, "burn down a wallet", func(t *store.SystemTx) (err error) {
		k, err = a.tick(ctx, t, org)
		return err
	})
	if err != nil {
		return err
	}
	for _, i := range k.stop {
		if _, failed := a.StopInstance(ctx, systemCaller(org), i.Project, i.ID, Match{}); failed != nil && fault.KindOf(failed) != fault.Conflict {
			err = errors.Join(err, failed)
		}
	}
	return err
}

// systemCaller is the control plane itself, acting for an organization.
func systemCaller(org id.Org) Caller {
	return Caller{Principal: auth.Principal{Kind: auth.Org, Org: org}, RequestID: systemRequest}
}

// tick is one look at a wallet.
type tick struct {
	org     id.Org
	now     time.Time
	w       store.Wallet
	running billing.Invoice // the bill of the running month
	held    int64           // of promotional grants, by months without documents
	excess  int64
	taxPPM  int64
	stop    []store.RunningInstance
}

// tick burns down, judges budgets and decides what is to be stopped.
func (a *App) tick(ctx context.Context, t *store.SystemTx, org id.Org) (*tick, error) {
	k := &tick{org: org}
	var err error
	if k.w, err = t.LockWallet(ctx, org); err != nil {
		return nil, err
	}
	if k.now, err = t.BusinessNow(ctx); err != nil {
		return nil, err
	}
	if err := t.DropWalletClaims(ctx, org); err != nil {
		return nil, err
	}
	months, err := openMonths(ctx, t, org, k.now)
	if err != nil {
		return nil, err
	}
	for _, month := range months {
		if err := a.tickMonth(ctx, t, k, month); err != nil {
			return nil, err
		}
	}
	outage := k.excess
	if k.w, err = t.Wallet(ctx, org); err != nil { // as burned
		return nil, err
	}
	k.w.PromoHeld, k.w.TaxPPM = money.NewAmount(k.held, k.w.Promo.Currency()), k.taxPPM
	hard, err := a.judgeBudgets(ctx, t, k)
	if err != nil {
		return nil, err
	}
	exhausted, err := a.judgeWallet(ctx, t, k, outage)
	if err != nil {
		return nil, err
	}
	if err := a.considerTopUp(ctx, t, k); err != nil {
		return nil, err
	}
	next, err := nextTick(ctx, t, k, hard)
	if err != nil {
		return nil, err
	}
	return k, t.SaveWalletTick(ctx, org, store.WalletTick{
		PromoHeld: k.w.PromoHeld, TaxPPM: k.taxPPM, At: k.now, Next: next, Exhausted: exhausted,
	})
}

// tickMonth burns for one month, unless it has its document.
func (a *App) tickMonth(ctx context.Context, t *store.SystemTx, k *tick, month metering.Interval) error {
	period := metering.PeriodOf(month.From)
	billed, err := t.BilledPeriod(ctx, k.org, period)
	if err != nil || billed {
		return err
	}
	v, err := a.bill(ctx, t, k.org, month, k.now)
	if err != nil {
		return err
	}
	if !k.now.Before(month.From) && k.now.Before(month.To) {
		k.running, k.taxPPM = v, taxOf(v)
	}
	uses, err := promosOf(v)
	if err != nil {
		return err
	}
	if err := t.SetHolds(ctx, k.org, period, uses); err != nil {
		return err
	}
	for _, u := range uses {
		k.held += u.Amount.Minor()
	}
	f, err := t.Funding(ctx, k.org, store.FundedPeriod{Period: period})
	if err != nil {
		return err
	}
	before := f
	if err := burn(ctx, t, v, &f, k.now); err != nil {
		return err
	}
	if grew := f.Excess - before.Excess; grew > 0 && k.unwatched() {
		f.Outage += grew
	}
	keepExcess(&f, k.w.Mode)
	k.excess += f.Excess
	if f == before {
		return nil
	}
	return t.SaveFunding(ctx, k.org, f)
}

// keepExcess keeps what a wallet lacks: of who pays by invoice it lacks nothing.
func keepExcess(f *store.Funding, m wallet.Mode) {
	if m != wallet.PrepaidMode {
		f.Excess = 0
	}
	f.Outage = min(f.Outage, f.Excess)
}

// unwatched reports whether nobody looked for so long that what came about since
// could not be stopped in time.
func (k *tick) unwatched() bool {
	return !k.w.TickedAt.IsZero() && k.now.Sub(k.w.TickedAt) > outageAfter+tickLeast
}

// taxOf is the highest rate of a document.
func taxOf(v billing.Invoice) (ppm int64) {
	for _, x := range v.Taxes {
		ppm = max(ppm, x.RatePPM)
	}
	return ppm
}

// judgeWallet decides whether a prepaid wallet is exhausted, and what is to be
// stopped then.
func (a *App) judgeWallet(ctx context.Context, t *store.SystemTx, k *tick, excess int64) (bool, error) {
	if k.w.Mode != wallet.PrepaidMode {
		return false, nil
	}
	spendable, err := k.w.Spendable()
	if err != nil {
		return false, err
	}
	if excess == 0 && spendable.Rat().Sign() > 0 {
		return false, nil
	}
	running, err := t.RunningInstances(ctx, k.org, id.Project{}, id.Key{})
	if err != nil {
		return false, err
	}
	k.stop = append(k.stop, running...)
	if !k.w.ExhaustedAt.IsZero() {
		return true, nil
	}
	return true, t.AppendEvent(ctx, store.Event{Org: k.org, Type: "budget.exhausted", Subject: k.org, Data: map[string]any{
		"scope": "wallet", "stopping": len(running), "owed_minor": excess, "currency": k.w.Prepaid.Currency().Code(),
	}})
}

// nextTick is when to look again: at half of what the wallet lasts at the price of
// what runs, sooner under a hard budget.
func nextTick(ctx context.Context, t *store.SystemTx, k *tick, hard bool) (time.Time, error) {
	wait := tickMost
	if hard {
		wait = tickHard
	}
	if k.w.Mode != wallet.PrepaidMode {
		return k.now.Add(wait), nil
	}
	claims, err := t.WalletClaims(ctx, k.org, k.w.Prepaid.Currency(), id.Instance{})
	if err != nil {
		return time.Time{}, err
	}
	held, err := claimed(k.w.Prepaid.Currency(), claims)
	if err != nil || held.Rat().Sign() == 0 {
		return k.now.Add(wait), err
	}
	spendable, err := k.w.Spendable()
	if err != nil {
		return time.Time{}, err
	}
	lasts := new(big.Rat).Quo(spendable.Rat(), held.Rat())
	lasts.Mul(lasts, new(big.Rat).SetInt64(int64(wallet.Reserve+wallet.StopTime)/2))
	if lasts.Cmp(new(big.Rat).SetInt64(int64(wait))) < 0 {
		half, _ := new(big.Int).QuoRem(lasts.Num(), lasts.Denom(), new(big.Int))
		wait = max(time.Duration(half.Int64()), tickLeast)
	}
	return k.now.Add(wait), nil
}

// claimed sums claims on a wallet.
func claimed(c money.Currency, claims []store.WalletClaim) (money.Exact, error) {
	sum := money.ZeroExact(c)
	for _, x := range claims {
		next, err := sum.Add(x.Amount)
		if err != nil {
			return money.Exact{}, err
		}
		sum = next
	}
	return sum, nil
}
