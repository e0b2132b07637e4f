package app

import (
	"context"

	"github.com/tranche-cloud/tranche/billing/wallet"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/money"
	"github.com/tranche-cloud/tranche/internal/store"
)

// admission is what a start may keep of the wallet; claim it once the instance is
// there.
type admission struct {
	claim store.WalletClaim
	held  bool // the organization has a wallet that restrains it
}

// admitStart fails with budget.exhausted unless the wallet of a prepaid organization and
// every hard budget in whose scope the start lies cover its first minute and its
// stop. Organizations without wallet and budgets pass.
func (a *App) admitStart(ctx context.Context, t *store.OrgTx, c Caller, p id.Project, i id.Instance, perHour money.Price) (admission, error) {
	out := admission{claim: store.WalletClaim{Instance: i, Project: p, Key: c.Key}}
	if err := mayStart(ctx, t); err != nil {
		return out, err
	}
	w, there, err := t.LockOwnWallet(ctx)
	if err != nil || !there {
		return out, err
	}
	budgets, err := t.Budgets(ctx, c.Org)
	if err != nil {
		return out, err
	}
	budgets = hardOnes(budgets, p, c.Key)
	if w.Mode != wallet.PrepaidMode && len(budgets) == 0 {
		return out, nil
	}
	out.claim.Amount, out.held = wallet.Hold(perHour), true
	claims, err := t.WalletClaims(ctx, c.Org, w.Prepaid.Currency(), i)
	if err != nil {
		return out, err
	}
	if w.Mode == wallet.PrepaidMode {
		held, err := claimed(w.Prepaid.Currency(), claims)
		if err != nil {
			return out, err
		}
		spendable, err := w.Spendable()
		if err != nil {
			return out, err
		}
		if err := wallet.Admit(spendable, held, out.claim.Amount); err != nil {
			return out, err
		}
	}
	now, err := t.BusinessNow(ctx)
	if err != nil {
		return out, err
	}
	for _, b := range budgets {
		if err := admitTo(b, claims, out.claim.Amount, metering.PeriodOf(now)); err != nil {
			return out, err
		}
	}
	return out, nil
}

// hardOnes filters the hard budgets that restrain a project and key.
func hardOnes(budgets []Budget, p id.Project, k id.Key) (out []Budget) {
	for _, b := range budgets {
		if b.Hard && (b.Project.IsZero() || b.Project == p) && (b.Key.IsZero() || b.Key == k) {
			out = append(out, b)
		}
	}
	return out
}

// admitTo refuses what a hard budget does not cover beside what runs in its scope.
func admitTo(b Budget, claims []store.WalletClaim, hold money.Exact, period string) error {
	needed := hold
	for _, x := range claims {
		if b.Scope == ProjectBudget && x.Project != b.Project || b.Scope == KeyBudget && x.Key != b.Key {
			continue
		}
		sum, err := needed.Add(x.Amount)
		if err != nil {
			return err
		}
		needed = sum
	}
	left := b.Amount.Exact()
	if b.Period == period {
		rest, err := left.Sub(b.Spent.Exact())
		if err != nil {
			return err
		}
		left = rest
	}
	if left.Cmp(needed) >= 0 {
		return nil
	}
	return fault.New(fault.OverBudget, "budget.exhausted", "The budget "+b.ID.String()+" of this month does not cover the first minute: "+
		left.Decimal()+" of "+needed.String()+" are left.").
		Suggest("Raise the budget, stop something, or wait for the next month.")
}

// keep writes what an admitted start keeps, and who made the instance.
func (s admission) keep(ctx context.Context, t *store.OrgTx, i id.Instance, made bool) error {
	if made && !s.claim.Key.IsZero() {
		if err := t.NoteMaker(ctx, i, s.claim.Key); err != nil {
			return err
		}
	}
	if !s.held {
		return nil
	}
	s.claim.Instance = i
	if err := t.ClaimWallet(ctx, s.claim); err != nil {
		return err
	}
	return t.LookAtWalletSoon(ctx, t.Org())
}
