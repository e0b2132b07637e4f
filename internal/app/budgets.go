package app

import (
	"context"
	"slices"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/billing/wallet"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/money"
	"github.com/tranche-cloud/tranche/internal/store"
)

// The scopes of budgets.
const (
	OrganizationBudget = "organization"
	ProjectBudget      = "project"
	KeyBudget          = "key" // of what the key created
)

// maxBudgets bounds the budgets of an organization.
const maxBudgets = 100

// Budget is what something should cost at most in a calendar month, net, with what
// the running month came to.
type Budget = store.Budget

// NewBudget asks for a budget. Thresholds nil: 50, 80 and 100 percent.
type NewBudget struct {
	Name       string
	Scope      string
	Project    id.Project // of a project's
	Key        id.Key     // of a key's
	Amount     money.Amount
	Thresholds []int
	Hard       bool // stops what runs at Amount, and refuses starts
}

// CreateBudget watches what an organization, one of its projects or keys costs. It
// fails with request.invalid and resource.not_found.
func (a *App) CreateBudget(ctx context.Context, c Caller, org id.Org, in NewBudget) (Budget, error) {
	if in.Thresholds == nil {
		in.Thresholds = slices.Clone(wallet.DefaultThresholds)
	}
	b := Budget{
		ID: id.New[id.Budget](), Name: in.Name, Scope: in.Scope, Project: in.Project, Key: in.Key, Spent: money.NewAmount(0, in.Amount.Currency()),
		Budget: wallet.Budget{Amount: in.Amount, Thresholds: in.Thresholds, Hard: in.Hard},
	}
	if err := checkScope(b); err != nil {
		return Budget{}, err
	}
	err := a.Store.InSystem(ctx, "create a budget", func(t *store.SystemTx) error {
		w, err := t.LockWallet(ctx, org)
		if err != nil {
			return err
		}
		if err := b.Check(w.Prepaid.Currency()); err != nil {
			return err
		}
		if !b.Project.IsZero() {
			if _, err := t.Project(ctx, org, b.Project); err != nil {
				return err
			}
		}
		if err := ownKey(ctx, t, org, b.Key); err != nil {
			return err
		}
		have, err := t.Budgets(ctx, org)
		if err != nil {
			return err
		}
		if len(have) >= maxBudgets {
			return fault.New(fault.OverQuota, "quota.exceeded", "An organization has 100 budgets at most.").Suggest("Delete one of them.")
		}
		if err := t.InsertBudget(ctx, org, b, c.actor()); err != nil {
			return err
		}
		if err := t.LookAtWalletSoon(ctx, org); err != nil {
			return err
		}
		return t.Audit(ctx, c.audit(org, "budget.create", b.ID.String()))
	})
	return b, err
}

// ownKey refuses a key of somebody else, or of nobody, as what cannot be seen.
func ownKey(ctx context.Context, t *store.SystemTx, org id.Org, k id.Key) error {
	if k.IsZero() {
		return nil
	}
	found, err := t.Credential(ctx, k)
	if err != nil {
		return err
	}
	if found.Org != org {
		return store.NotFound()
	}
	return nil
}

func checkScope(b Budget) error {
	bad := func(pointer, detail string) error {
		return fault.New(fault.Invalid, "request.invalid", "The budget is not valid: "+detail+".").
			With(fault.Field{Pointer: pointer, Code: "value", Detail: detail})
	}
	switch {
	case b.Scope != OrganizationBudget && b.Scope != ProjectBudget && b.Scope != KeyBudget:
		return bad("/scope", "must be organization, project or key")
	case (b.Scope == ProjectBudget) == b.Project.IsZero():
		return bad("/project", "is given for a budget of a project, and only then")
	case (b.Scope == KeyBudget) == b.Key.IsZero():
		return bad("/key", "is given for a budget of a key, and only then")
	}
	return nil
}

// ListBudgets lists the budgets of an organization.
func (a *App) ListBudgets(ctx context.Context, _ Caller, org id.Org) (out []Budget, err error) {
	err = a.Store.InOrg(ctx, org, func(t *store.OrgTx) error {
		out, err = t.Budgets(ctx, org)
		return err
	})
	return out, err
}

// GetBudget reads a budget. It fails with resource.not_found.
func (a *App) GetBudget(ctx context.Context, _ Caller, org id.Org, b id.Budget) (out Budget, err error) {
	err = a.Store.InOrg(ctx, org, func(t *store.OrgTx) error {
		out, err = t.Budget(ctx, org, b)
		return err
	})
	return out, err
}

// BudgetChange changes a budget; nil leaves as it is.
type BudgetChange struct {
	Name       *string
	Amount     *money.Amount
	Thresholds []int
	Hard       *bool
}

// UpdateBudget changes a budget. Thresholds that were told this month are not told
// again. It fails with request.invalid and resource.not_found.
func (a *App) UpdateBudget(ctx context.Context, c Caller, org id.Org, budget id.Budget, in BudgetChange) (b Budget, err error) {
	err = a.Store.InSystem(ctx, "change a budget", func(t *store.SystemTx) error {
		w, err := t.LockWallet(ctx, org)
		if err != nil {
			return err
		}
		if b, err = t.Budget(ctx, org, budget); err != nil {
			return err
		}
		if in.Name != nil {
			b.Name = *in.Name
		}
		if in.Amount != nil {
			b.Amount = *in.Amount
		}
		if in.Thresholds != nil {
			b.Thresholds = in.Thresholds
		}
		if in.Hard != nil {
			b.Hard = *in.Hard
		}
		if err := b.Check(w.Prepaid.Currency()); err != nil {
			return err
		}
		if err := t.UpdateBudget(ctx, org, b); err != nil {
			return err
		}
		if err := t.LookAtWalletSoon(ctx, org); err != nil {
			return err
		}
		return t.Audit(ctx, c.audit(org, "budget.update", b.ID.String()))
	})
	return b, err
}

// DeleteBudget ends a budget. It fails with resource.not_found.
func (a *App) DeleteBudget(ctx context.Context, c Caller, org id.Org, b id.Budget) error {
	return a.Store.InSystem(ctx, "delete a budget", func(t *store.SystemTx) error {
		if err := t.DeleteBudget(ctx, org, b); err != nil {
			return err
		}
		return t.Audit(ctx, c.audit(org, "budget.delete", b.String()))
	})
}

// judgeBudgets stores what the running month costs in each scope, tells thresholds
// once and adds what hard budgets stop. It reports whether there is a hard one.
func (a *App) judgeBudgets(ctx context.Context, t *store.SystemTx, k *tick) (hard bool, err error) {
	budgets, err := t.Budgets(ctx, k.org)
	if err != nil || len(budgets) == 0 {
		return false, err
	}
	period := metering.PeriodOf(k.now)
	told, err := t.ToldThresholds(ctx, k.org, period)
	if err != nil {
		return false, err
	}
	makers, err := makersOf(ctx, t, k.org, budgets)
	if err != nil {
		return false, err
	}
	for _, b := range budgets {
		hard = hard || b.Hard
		b.Period, b.Spent = period, spent(k.running, b, makers)
		if b.Spent.Currency().IsZero() {
			b.Spent = money.NewAmount(0, b.Amount.Currency())
		}
		if err := t.SaveSpent(ctx, k.org, b, k.now); err != nil {
			return hard, err
		}
		for _, threshold := range b.Reached(b.Spent, told[b.ID]) {
			if err := tellThreshold(ctx, t, k, b, threshold); err != nil {
				return hard, err
			}
		}
		if !b.Exhausted(b.Spent) {
			continue
		}
		running, err := t.RunningInstances(ctx, k.org, b.Project, b.Key)
		if err != nil {
			return hard, err
		}
		k.stop = append(k.stop, running...)
	}
	return hard, nil
}

func tellThreshold(ctx context.Context, t *store.SystemTx, k *tick, b Budget, threshold int) error {
	fresh, err := t.TellThreshold(ctx, k.org, b, threshold, k.now)
	if err != nil || !fresh {
		return err
	}
	return t.AppendEvent(ctx, store.Event{Org: k.org, Project: b.Project, Type: "budget.threshold", Subject: b.ID, Data: map[string]any{
		"name": b.Name, "scope": b.Scope, "period": b.Period, "percent": threshold, "amount": b.Amount.Decimal(),
		"spent": b.Spent.Decimal(), "currency": b.Amount.Currency().Code(), "hard": b.Hard,
	}})
}

func makersOf(ctx context.Context, t *store.SystemTx, org id.Org, budgets []Budget) (map[id.Instance]id.Key, error) {
	var keys []id.Key
	for _, b := range budgets {
		if !b.Key.IsZero() {
			keys = append(keys, b.Key)
		}
	}
	if len(keys) == 0 {
		return nil, nil
	}
	return t.InstancesOfKeys(ctx, org, keys)
}

// spent is what a bill comes to in the scope of a budget, net.
func spent(v billing.Invoice, b Budget, makers map[id.Instance]id.Key) money.Amount {
	if b.Scope == OrganizationBudget {
		return v.Subtotal
	}
	minor := int64(0)
	for _, l := range v.Lines {
		switch {
		case b.Scope == ProjectBudget && l.Key.Project == b.Project:
			minor += l.Amount.Minor()
		case b.Scope == KeyBudget:
			for _, s := range l.Subjects {
				if makers[id.Instance(s.Subject.ID)] == b.Key {
					minor += s.Amount.Minor()
				}
			}
		}
	}
	return money.NewAmount(minor, v.Currency)
}
