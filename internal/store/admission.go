package store

import (
	"context"
	"fmt"
	"math/big"
	"time"

	"github.com/google/uuid"

	"github.com/tranche-cloud/tranche/billing/wallet"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/money"
	"github.com/tranche-cloud/tranche/internal/store/internal/db"
)

// WalletClaim is what an instance that shall run keeps of a wallet.
type WalletClaim struct {
	Instance id.Instance
	Project  id.Project
	Key      id.Key
	Amount   money.Exact
}

// WalletClaims lists the claims of instances that shall run, but for one.
func (t *tx) WalletClaims(ctx context.Context, org id.Org, c money.Currency, without id.Instance) ([]WalletClaim, error) {
	rows, err := t.q.WalletClaims(ctx, t.raw, uuid.UUID(org), uuid.UUID(without))
	if err != nil {
		return nil, mapError(err)
	}
	out := make([]WalletClaim, len(rows))
	for i, r := range rows {
		price, err := money.ParsePrice(r.Amount, c)
		if err != nil {
			return nil, fmt.Errorf("reading a claim on a wallet: %w", err)
		}
		out[i] = WalletClaim{
			Instance: id.Instance(r.InstanceID), Project: id.Project(r.ProjectID), Key: id.Key(r.KeyID), Amount: price.Times(big.NewInt(1), 1),
		}
	}
	return out, nil
}

// ClaimWallet keeps a part of the wallet for an instance; the wallet is locked.
func (t *OrgTx) ClaimWallet(ctx context.Context, c WalletClaim) error {
	return mapError(t.q.ClaimWallet(ctx, t.raw, db.ClaimWalletParams{
		OrgID: uuid.UUID(t.org), InstanceID: uuid.UUID(c.Instance), ProjectID: uuid.UUID(c.Project), KeyID: uuid.UUID(c.Key),
		Amount: c.Amount.Decimal(),
	}))
}

// DropWalletClaims gives back what instances kept that shall not run any more.
func (t *SystemTx) DropWalletClaims(ctx context.Context, org id.Org) error {
	return mapError(t.q.DropWalletClaims(ctx, t.raw, uuid.UUID(org)))
}

// NoteMaker remembers which key made an instance.
func (t *OrgTx) NoteMaker(ctx context.Context, i id.Instance, k id.Key) error {
	return mapError(t.q.NoteMaker(ctx, t.raw, db.NoteMakerParams{OrgID: uuid.UUID(t.org), InstanceID: uuid.UUID(i), KeyID: uuid.UUID(k)}))
}

// InstancesOfKeys tells which instances keys made.
func (t *tx) InstancesOfKeys(ctx context.Context, org id.Org, keys []id.Key) (map[id.Instance]id.Key, error) {
	rows, err := t.q.InstancesOfKeys(ctx, t.raw, uuid.UUID(org), uuids(keys))
	if err != nil {
		return nil, mapError(err)
	}
	out := make(map[id.Instance]id.Key, len(rows))
	for _, r := range rows {
		out[id.Instance(r.InstanceID)] = id.Key(r.KeyID)
	}
	return out, nil
}

// RunningInstance is an instance that shall run.
type RunningInstance struct {
	ID      id.Instance
	Project id.Project
}

// RunningInstances lists what shall run: of an organization, of one project (not
// zero), or made by one key (not zero).
func (t *SystemTx) RunningInstances(ctx context.Context, org id.Org, p id.Project, k id.Key) ([]RunningInstance, error) {
	rows, err := t.q.RunningInstances(ctx, t.raw, db.RunningInstancesParams{OrgID: uuid.UUID(org), ProjectID: nullable(p), KeyID: nullable(k)})
	if err != nil {
		return nil, mapError(err)
	}
	out := make([]RunningInstance, len(rows))
	for i, r := range rows {
		out[i] = RunningInstance{id.Instance(r.ID), id.Project(r.ProjectID)}
	}
	return out, nil
}

// TopUps is what the automatic top-ups of a month came to, those under way included.
type TopUps struct {
	Paid     money.Amount
	UnderWay bool
	FailedAt time.Time // of the newest that failed
}

// TopUpsOf reads them.
func (t *SystemTx) TopUpsOf(ctx context.Context, org id.Org, period string, c money.Currency) (TopUps, error) {
	r, err := t.q.TopUpsOfMonth(ctx, t.raw, period, uuid.UUID(org))
	return TopUps{Paid: money.NewAmount(r.AmountMinor, c), UnderWay: r.UnderWay > 0, FailedAt: r.FailedAt.UTC()}, mapError(err)
}

// TopUp is an automatic payment into a wallet. ID is what the payment's key is made of.
type TopUp struct {
	Org    id.Org
	ID     [16]byte
	Amount money.Amount
}

// InsertTopUp orders a top-up. The database lets one be under way at a time.
func (t *SystemTx) InsertTopUp(ctx context.Context, u TopUp, period string, at time.Time) error {
	return mapError(t.q.InsertTopUp(ctx, t.raw, db.InsertTopUpParams{
		OrgID: uuid.UUID(u.Org), TopUpID: u.ID, Period: period, AmountMinor: u.Amount.Minor(), Currency: u.Amount.Currency().Code(), At: at,
	}))
}

// PendingTopUps lists up to size top-ups that no provider was asked for yet.
func (t *SystemTx) PendingTopUps(ctx context.Context, size int) ([]TopUp, error) {
	rows, err := t.q.PendingTopUps(ctx, t.raw, int32(size))
	if err != nil {
		return nil, mapError(err)
	}
	out := make([]TopUp, len(rows))
	for i, r := range rows {
		a, err := amountIn(r.AmountMinor, r.Currency)
		if err != nil {
			return nil, err
		}
		out[i] = TopUp{Org: id.Org(r.OrgID), ID: r.ID, Amount: a}
	}
	return out, nil
}

// MarkTopUp moves a top-up on: ordered, done or failed. It reports false if it had
// ended already.
func (t *SystemTx) MarkTopUp(ctx context.Context, org id.Org, topUp [16]byte, status string) (bool, error) {
	n, err := t.q.MarkTopUp(ctx, t.raw, db.MarkTopUpParams{Status: status, OrgID: uuid.UUID(org), TopUpID: topUp})
	return n == 1, mapError(err)
}

// Coupon is a code that gives each organization a promotional grant once.
type Coupon struct {
	Code       string
	Name       string
	Amount     money.Amount
	Priority   int
	ValidUntil time.Time // zero: no end
	GrantDays  int       // 0: the grant does not expire
	MaxUses    int
}

// InsertCoupon stores a coupon.
func (t *SystemTx) InsertCoupon(ctx context.Context, c Coupon, by string) error {
	p := db.InsertCouponParams{
		Code: c.Code, Name: c.Name, AmountMinor: c.Amount.Minor(), Currency: c.Amount.Currency().Code(), Priority: int32(c.Priority),
		ValidUntil: timeOrNil(c.ValidUntil), MaxUses: int32(c.MaxUses), CreatedBy: by,
	}
	if c.GrantDays > 0 {
		days := int32(c.GrantDays)
		p.GrantDays = &days
	}
	return mapError(t.q.InsertCoupon(ctx, t.raw, p))
}

// UseCoupon takes one use of a coupon for an organization. It fails with
// coupon.invalid for a code that does not exist, is over or is used up, and with
// coupon.used for an organization that had it.
func (t *SystemTx) UseCoupon(ctx context.Context, org id.Org, code string, grant id.Grant, at time.Time) (Coupon, error) {
	r, err := t.q.UseCoupon(ctx, t.raw, code)
	if mapped := mapError(err); fault.KindOf(mapped) == fault.NotFound && mapped != nil {
		return Coupon{}, fault.New(fault.Unprocessable, "coupon.invalid", "There is no such coupon, or it is over or used up.").
			Suggest("Check the code.").With(fault.Field{Pointer: "/code", Code: "coupon.invalid", Detail: "cannot be used"})
	} else if mapped != nil {
		return Coupon{}, mapped
	}
	a, err := amountIn(r.AmountMinor, r.Currency)
	if err != nil {
		return Coupon{}, err
	}
	c := Coupon{Code: code, Name: r.Name, Amount: a, Priority: int(r.Priority)}
	if r.GrantDays != nil {
		c.GrantDays = int(*r.GrantDays)
	}
	return c, mapError(t.q.NoteCouponUse(ctx, t.raw, db.NoteCouponUseParams{OrgID: uuid.UUID(org), Code: code, GrantID: uuid.UUID(grant), At: at}))
}

// Budget is a budget with what it came to.
type Budget struct {
	wallet.Budget
	ID      id.Budget
	Name    string
	Scope   string     // organization, project, key
	Project id.Project // of a project's
	Key     id.Key     // of a key's
	Period  string     // Spent is of; "" never looked at
	Spent   money.Amount
}

// InsertBudget stores a budget.
func (t *tx) InsertBudget(ctx context.Context, org id.Org, b Budget, by string) error {
	return mapError(t.q.InsertBudget(ctx, t.raw, db.InsertBudgetParams{
		OrgID: uuid.UUID(org), BudgetID: uuid.UUID(b.ID), Name: b.Name, Scope: b.Scope, ProjectID: nullable(b.Project),
		KeyID: nullable(b.Key), AmountMinor: b.Amount.Minor(), Currency: b.Amount.Currency().Code(), Thresholds: int32s(b.Thresholds),
		Hard: b.Hard, CreatedBy: by,
	}))
}

func int32s(in []int) []int32 {
	out := make([]int32, len(in))
	for i, n := range in {
		out[i] = int32(n)
	}
	return out
}

// Budgets lists the budgets of an organization.
func (t *tx) Budgets(ctx context.Context, org id.Org) ([]Budget, error) {
	rows, err := t.q.ListBudgets(ctx, t.raw, uuid.UUID(org))
	if err != nil {
		return nil, mapError(err)
	}
	out := make([]Budget, len(rows))
	for i, r := range rows {
		if out[i], err = budgetFrom(r); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Budget reads one. It fails with resource.not_found.
func (t *tx) Budget(ctx context.Context, org id.Org, b id.Budget) (Budget, error) {
	r, err := t.q.GetBudget(ctx, t.raw, uuid.UUID(org), uuid.UUID(b))
	if err != nil {
		return Budget{}, mapError(err)
	}
	return budgetFrom(r)
}

func budgetFrom(r db.Budget) (Budget, error) {
	c, err := money.ParseCurrency(r.Currency)
	if err != nil {
		return Budget{}, fmt.Errorf("reading budget %s: %w", r.ID, err)
	}
	b := Budget{
		ID: id.Budget(r.ID), Name: r.Name, Scope: r.Scope, Project: orZero[id.Project](r.ProjectID), Key: orZero[id.Key](r.KeyID),
		Period: r.Period, Spent: money.NewAmount(r.SpentMinor, c),
		Budget: wallet.Budget{Amount: money.NewAmount(r.AmountMinor, c), Hard: r.Hard},
	}
	for _, n := range r.Thresholds {
		b.Thresholds = append(b.Thresholds, int(n))
	}
	return b, nil
}

// UpdateBudget changes name, amount, thresholds and hardness. It fails with
// resource.not_found.
func (t *tx) UpdateBudget(ctx context.Context, org id.Org, b Budget) error {
	n, err := t.q.UpdateBudget(ctx, t.raw, db.UpdateBudgetParams{
		OrgID: uuid.UUID(org), BudgetID: uuid.UUID(b.ID), Name: b.Name, AmountMinor: b.Amount.Minor(),
		Thresholds: int32s(b.Thresholds), Hard: b.Hard,
	})
	if err == nil && n == 0 {
		return NotFound()
	}
	return mapError(err)
}

// DeleteBudget removes a budget and what it told. It fails with resource.not_found.
func (t *tx) DeleteBudget(ctx context.Context, org id.Org, b id.Budget) error {
	n, err := t.q.DeleteBudget(ctx, t.raw, uuid.UUID(org), uuid.UUID(b))
	if err == nil && n == 0 {
		return NotFound()
	}
	return mapError(err)
}

// SaveSpent stores what a budget came to in a month.
func (t *SystemTx) SaveSpent(ctx context.Context, org id.Org, b Budget, at time.Time) error {
	return mapError(t.q.SaveSpent(ctx, t.raw, db.SaveSpentParams{
		Period: b.Period, SpentMinor: b.Spent.Minor(), At: at, OrgID: uuid.UUID(org), BudgetID: uuid.UUID(b.ID),
	}))
}

// ToldThresholds lists which thresholds of budgets were told in a month.
func (t *tx) ToldThresholds(ctx context.Context, org id.Org, period string) (map[id.Budget][]int, error) {
	rows, err := t.q.BudgetAlerts(ctx, t.raw, uuid.UUID(org), period)
	if err != nil {
		return nil, mapError(err)
	}
	out := map[id.Budget][]int{}
	for _, r := range rows {
		out[id.Budget(r.BudgetID)] = append(out[id.Budget(r.BudgetID)], int(r.Threshold))
	}
	return out, nil
}

// TellThreshold notes that a threshold is told. It reports false if it was before.
func (t *SystemTx) TellThreshold(ctx context.Context, org id.Org, b Budget, threshold int, at time.Time) (bool, error) {
	n, err := t.q.InsertBudgetAlert(ctx, t.raw, db.InsertBudgetAlertParams{
		OrgID: uuid.UUID(org), BudgetID: uuid.UUID(b.ID), Period: b.Period, Threshold: int32(threshold), SpentMinor: b.Spent.Minor(), At: at,
	})
	return n == 1, mapError(err)
}
