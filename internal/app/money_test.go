package app_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/billing/ledger"
	"github.com/tranche-cloud/tranche/billing/wallet"
	"github.com/tranche-cloud/tranche/internal/app"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/money"
	"github.com/tranche-cloud/tranche/internal/quota"
)

// crowd is how many clients race.
const crowd = 64

func cents(n int64) money.Amount { return money.NewAmount(n, money.MustCurrency("USD")) }

// prepaid is a tenant that pays from its wallet, with a balance.
func (b *billed) prepaid(t *testing.T, name string, balance int64) customer {
	t.Helper()
	c := b.tenant(t, name, quota.Limits{})
	require.NoError(t, b.SetMoneyMode(t.Context(), b.operator, c.Org, wallet.PrepaidMode))
	if balance > 0 {
		b.prepay(t, c, "first", balance)
	}
	return c
}

func (b *billed) prepay(t *testing.T, c customer, reference string, amount int64) {
	t.Helper()
	fresh, err := b.RecordPrepayment(t.Context(), b.operator, c.Org, app.Prepayment{Reference: reference, Amount: cents(amount)})
	require.NoError(t, err)
	require.True(t, fresh)
}

func (b *billed) wallet(t *testing.T, c customer) app.Wallet {
	t.Helper()
	w, err := b.GetWallet(t.Context(), c.Caller, c.Org)
	require.NoError(t, err)
	return w
}

// tickAt moves the business clock and lets the loop look at every wallet.
func (b *billed) tickAt(t *testing.T, at time.Time) {
	t.Helper()
	b.setClock(t, at)
	b.exec(t, `update wallets set next_tick_at = 'epoch'`)
	require.NoError(t, b.BurnDown(t.Context()))
}

// balances sums the ledger of an organization by account.
func (b *billed) balances(t *testing.T, org id.Org) map[ledger.Account]int64 {
	t.Helper()
	rows, err := b.LedgerAccounts(t.Context(), b.operator, org, november.AddDate(1, 0, 0))
	require.NoError(t, err)
	out, sum := map[ledger.Account]int64{}, int64(0)
	for _, r := range rows {
		sum += r.Balance.Minor()
		if !r.Balance.IsZero() {
			out[r.Account] = r.Balance.Minor()
		}
	}
	require.Zero(t, sum, "the ledger sums to nothing")
	return out
}

// rebuilt asserts that wallets are what their entries and the ledger say (B47).
func (b *billed) rebuilt(t *testing.T) {
	t.Helper()
	found, _, err := b.Audit(t.Context(), time.Hour)
	require.NoError(t, err)
	for _, i := range found {
		if i.ID == "I5" {
			require.Empty(t, i.Offences)
		}
	}
	require.Zero(t, b.count(t, `select count(*) from period_funding f where burned_minor <> coalesce((select sum(u.amount_minor) from credit_uses u
		where u.org_id = f.org_id and u.period = f.period and u.close_no = f.close_no and u.kind = 'prepaid' and u.reason in ('burn', 'credit')), 0)`), "months")
}

func TestWalletBurnsDownAndStops(t *testing.T) {
	b := newBilled(t)
	c := b.prepaid(t, "acme", 100)
	inst := b.instance(t, c, "one")
	from := november.AddDate(0, 0, 1)
	require.True(t, b.start(t, c, inst, 1, from))

	b.tickAt(t, from.Add(time.Hour))
	require.Equal(t, "0.51", b.wallet(t, c).Prepaid.Decimal())
	b.tickAt(t, from.Add(90*time.Minute)) // 0.735 is 0.74
	require.Equal(t, "0.26", b.wallet(t, c).Prepaid.Decimal())
	b.tickAt(t, from.Add(90*time.Minute))
	require.Equal(t, "0.26", b.wallet(t, c).Prepaid.Decimal(), "a second look changes nothing")
	require.Equal(t, map[ledger.Account]int64{ledger.Bank: 100, ledger.Prepaid: -26, ledger.PrepaidUsed: -74}, b.balances(t, c.Org))
	require.Equal(t, 1, b.count(t, `select count(*) from instances where desired = 'running'`))

	empty := from.Add(7347 * time.Second) // when 1.00 is used
	b.tickAt(t, empty.Add(30*time.Second))
	require.Equal(t, 1, b.count(t, `select count(*) from instances where desired = 'stopped'`), "the hard stop")
	require.Equal(t, 1, b.count(t, `select count(*) from events where type = 'budget.exhausted' and org_id = $1`, uuid.UUID(c.Org)))
	used := b.segments(t, c, inst)
	require.Len(t, used, 1)
	require.False(t, used[0].Open(), "the meter ends with the stop")
	require.LessOrEqual(t, used[0].To.Sub(empty), time.Minute, "the overshoot")
	w := b.wallet(t, c)
	require.Equal(t, "0.00", w.Prepaid.Decimal())
	require.False(t, w.ExhaustedAt.IsZero())

	b.tickAt(t, empty.Add(time.Hour))
	require.Equal(t, 1, b.count(t, `select count(*) from events where type = 'budget.exhausted'`), "told once")
	b.prepay(t, c, "second", 500)
	b.tickAt(t, empty.Add(2*time.Hour))
	require.True(t, b.wallet(t, c).ExhaustedAt.IsZero())
	b.rebuilt(t)
}

func TestExcessOfAnOutageIsShownApart(t *testing.T) {
	b := newBilled(t)
	c := b.prepaid(t, "acme", 100)
	inst := b.instance(t, c, "one")
	from := november.AddDate(0, 0, 1)
	require.True(t, b.start(t, c, inst, 1, from))
	b.tickAt(t, from.Add(time.Hour))
	b.tickAt(t, from.Add(11*time.Hour)) // nobody looked for ten hours
	w := b.wallet(t, c)
	require.Len(t, w.Overruns, 1)
	require.Equal(t, "4.39", w.Overruns[0].Excess.Decimal(), "11 hours are 5.39")
	require.Equal(t, "4.39", w.Overruns[0].Outage.Decimal())
	require.Equal(t, "0.00", w.Prepaid.Decimal())
}

// B45, B48: a bill that becomes smaller gives back just that.
func TestBurnGivesBack(t *testing.T) {
	b := newBilled(t)
	c := b.prepaid(t, "acme", 1000)
	inst := b.instance(t, c, "one")
	from := november.AddDate(0, 0, 1)
	require.True(t, b.start(t, c, inst, 1, from))
	b.tickAt(t, from.Add(10*time.Hour))
	require.Equal(t, "5.10", b.wallet(t, c).Prepaid.Decimal())
	require.True(t, b.stop(t, c, inst, metering.OurFault, metering.Facts{FirstSymptom: from.Add(2 * time.Hour), LastProof: from.Add(10 * time.Hour)}))
	b.tickAt(t, from.Add(11*time.Hour))
	require.Equal(t, "9.02", b.wallet(t, c).Prepaid.Decimal(), "2 hours are 0.98")
	b.rebuilt(t)
}

func TestInvoiceIsPaidFromTheWallet(t *testing.T) {
	b := newBilled(t)
	c := b.prepaid(t, "acme", 300)
	b.used(t, c, "one", 10*time.Hour)
	b.tickAt(t, november.AddDate(0, 0, 1).Add(time.Hour))
	b.setClock(t, november.AddDate(0, 0, 3))
	require.NoError(t, b.AccrueAll(t.Context()))
	require.Equal(t, map[ledger.Account]int64{
		ledger.Bank: 300, ledger.Prepaid: -251, ledger.PrepaidUsed: -49, ledger.Unbilled: 490, ledger.Revenue: -490,
	}, b.balances(t, c.Org))
	require.NoError(t, b.AccrueAll(t.Context()))
	require.Equal(t, 1, b.count(t, `select count(*) from ledger_journals where kind = 'accrual'`), "once a day, and nothing new")

	b.setClock(t, november.AddDate(0, 1, 2))
	_, err := b.InvoiceOrganization(t.Context(), c.Org, "2026-11")
	require.NoError(t, err)
	require.Equal(t, map[ledger.Account]int64{ledger.Bank: 300, ledger.Receivable: 190, ledger.Revenue: -490}, b.balances(t, c.Org))
	b.rebuilt(t)

	b.prepay(t, c, "more", 1000)
	b.tickAt(t, november.AddDate(0, 1, 3))
	require.Equal(t, "10.00", b.wallet(t, c).Prepaid.Decimal(), "what is on a document is not burned again")
}

// B41: one credit is never used twice.
func TestB41OneCreditOnTwoInvoices(t *testing.T) {
	b := newBilled(t)
	c := b.prepaid(t, "acme", 50)
	for i, m := range []time.Time{november.AddDate(0, 0, 1), november.AddDate(0, 1, 1)} {
		inst := b.instance(t, c, fmt.Sprint("i", i))
		require.True(t, b.start(t, c, inst, 1, m))
		require.True(t, b.stop(t, c, inst, metering.DeleteAccepted, metering.Facts{At: m.Add(48 * time.Minute)})) // 0.392 is 0.39
	}
	b.setClock(t, november.AddDate(0, 2, 2))
	errs := make(chan error, 2)
	for _, period := range []string{"2026-11", "2026-12"} {
		go func() {
			_, err := b.InvoiceOrganization(t.Context(), c.Org, period)
			errs <- err
		}()
	}
	require.NoError(t, <-errs)
	require.NoError(t, <-errs)
	require.Equal(t, map[ledger.Account]int64{ledger.Bank: 50, ledger.Receivable: 28, ledger.Revenue: -78}, b.balances(t, c.Org))
	require.Equal(t, 2, b.count(t, `select count(*) from credit_uses`), "39 and 11")
	b.rebuilt(t)
}

// B47: a crowd pays in, burns and invoices at once: the balance is never below 0,
// every entry counts once, and wallets are what their entries say.
func TestB47WalletsUnderACrowd(t *testing.T) {
	b := newBilled(t)
	c := b.prepaid(t, "acme", 0)
	b.used(t, c, "one", 20*time.Hour) // 9.80
	b.setClock(t, november.AddDate(0, 1, 2))
	race(t, func(n int) error {
		switch n % 4 {
		case 0, 1: // eight payments, each told four times
			_, err := b.RecordPrepayment(t.Context(), b.operator, c.Org, app.Prepayment{Reference: fmt.Sprint("payment ", n%8), Amount: cents(100)})
			return err
		case 2:
			b.exec(t, `update wallets set next_tick_at = 'epoch'`)
			return b.BurnDown(t.Context())
		}
		if n != 3 {
			return b.AccrueAll(t.Context())
		}
		_, err := b.InvoiceOrganization(t.Context(), c.Org, "2026-11")
		return err
	})
	require.Equal(t, 4, b.count(t, `select count(*) from credit_grants`))
	require.Equal(t, 1, b.count(t, `select count(*) from invoices where status = 'open'`))
	b.rebuilt(t)
	books := b.balances(t, c.Org)
	require.Equal(t, int64(400), books[ledger.Bank])
	require.Equal(t, int64(-980), books[ledger.Revenue])
	require.Zero(t, books[ledger.PrepaidUsed])
	require.Equal(t, int64(580), books[ledger.Receivable]+books[ledger.Prepaid], "what came late stays in the wallet")
}

func race(t *testing.T, do func(n int) error) {
	t.Helper()
	errs := make([]error, crowd)
	var all sync.WaitGroup
	for n := range crowd {
		all.Go(func() { errs[n] = do(n) })
	}
	all.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
}

func TestCouponsUnderACrowd(t *testing.T) {
	b := newBilled(t)
	c := b.tenant(t, "acme", quota.Limits{})
	require.NoError(t, b.CreateCoupon(t.Context(), b.operator, app.Coupon{Code: "WELCOME", Name: "Welcome", Amount: cents(500), MaxUses: 10, GrantDays: 30}))
	require.Equal(t, "name.taken", fault.CodeOf(b.CreateCoupon(t.Context(), b.operator, app.Coupon{Code: "WELCOME", Amount: cents(1), MaxUses: 1})))
	require.Equal(t, "request.invalid", fault.CodeOf(b.CreateCoupon(t.Context(), b.operator, app.Coupon{Code: "OVER", Amount: cents(1), MaxUses: 1, ValidUntil: november.AddDate(-1, 0, 0)})))
	var won, had sync.Map
	race(t, func(n int) error {
		_, err := b.RedeemCoupon(t.Context(), c.Caller, "welcome ")
		if fault.CodeOf(err) == "coupon.used" {
			had.Store(n, true)
			return nil
		}
		won.Store(n, true)
		return err
	})
	require.Equal(t, 1, size(&won), "an organization has a coupon once")
	require.Equal(t, crowd-1, size(&had))
	require.Equal(t, "5.00", b.wallet(t, c).Promo.Decimal())

	others := make([]customer, crowd)
	for n := range others {
		others[n] = b.tenant(t, fmt.Sprint("org ", n), quota.Limits{})
	}
	var late sync.Map
	race(t, func(n int) error {
		_, err := b.RedeemCoupon(t.Context(), others[n].Caller, "WELCOME")
		if fault.CodeOf(err) == "coupon.invalid" {
			late.Store(n, true)
			return nil
		}
		return err
	})
	require.Equal(t, crowd-9, size(&late), "ten uses")
	require.Equal(t, 10, b.count(t, `select count(*) from credit_grants`))
	b.rebuilt(t)
	_, err := b.RedeemCoupon(t.Context(), c.Caller, "nothing")
	require.Equal(t, "coupon.invalid", fault.CodeOf(err))
}

func size(m *sync.Map) (n int) {
	m.Range(func(any, any) bool { n++; return true })
	return n
}

// provider takes top-ups and remembers them.
type provider struct {
	mu     sync.Mutex
	orders map[[16]byte]money.Amount
	fail   error
}

func (p *provider) ChargeTopUp(_ context.Context, _ id.Org, key [16]byte, a money.Amount) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fail == nil {
		p.orders[key] = a
	}
	return p.fail
}

func TestAutoTopUpUnderACrowd(t *testing.T) {
	b := newBilled(t)
	p := &provider{orders: map[[16]byte]money.Amount{}, fail: fault.New(fault.Unavailable, "service.unavailable", "away")}
	b.App.TopUps = p
	c := b.prepaid(t, "acme", 400)
	order := wallet.AutoTopUp{Threshold: cents(500), Amount: cents(2000), MonthlyMax: cents(3000)}
	require.NoError(t, b.SetAutoTopUp(t.Context(), c.Caller, c.Org, order))
	require.Error(t, b.BurnDown(t.Context()), "the provider is away")
	p.fail = nil
	race(t, func(int) error {
		b.exec(t, `update wallets set next_tick_at = 'epoch'`)
		return b.BurnDown(t.Context())
	})
	require.Len(t, p.orders, 1, "one order, whatever the number of ticks")
	require.Equal(t, 1, b.count(t, `select count(*) from top_ups where status = 'ordered'`))
	require.Equal(t, order, b.wallet(t, c).AutoTopUp)
	order.Amount = cents(0)
	require.Equal(t, fault.Invalid, fault.KindOf(b.SetAutoTopUp(t.Context(), c.Caller, c.Org, order)))
}

func TestBudgetsTellOnceAndStop(t *testing.T) {
	b := newBilled(t)
	c := b.tenant(t, "acme", quota.Limits{})
	soft, err := b.CreateBudget(t.Context(), c.Caller, c.Org, app.NewBudget{Name: "soft", Scope: app.OrganizationBudget, Amount: cents(100)})
	require.NoError(t, err)
	hard, err := b.CreateBudget(t.Context(), c.Caller, c.Org, app.NewBudget{Scope: app.ProjectBudget, Project: c.project, Amount: cents(98), Hard: true, Thresholds: []int{100}})
	require.NoError(t, err)
	key, err := b.CreateBudget(t.Context(), c.Caller, c.Org, app.NewBudget{Scope: app.KeyBudget, Key: c.Key, Amount: cents(40)})
	require.NoError(t, err)
	other := b.tenant(t, "globex", quota.Limits{})
	for _, k := range []id.Key{other.Key, id.New[id.Key]()} {
		_, err = b.CreateBudget(t.Context(), c.Caller, c.Org, app.NewBudget{Scope: app.KeyBudget, Key: k, Amount: cents(40)})
		require.Equal(t, "resource.not_found", fault.CodeOf(err), "of another, and of nobody")
	}
	inst, from := b.instance(t, c, "one"), november.AddDate(0, 0, 1)
	b.exec(t, `insert into instance_keys (org_id, instance_id, key_id) values ($1, $2, $3)`, uuid.UUID(c.Org), uuid.UUID(inst), uuid.UUID(c.Key))
	require.True(t, b.start(t, c, inst, 1, from))
	told := func() int { return b.count(t, `select count(*) from events where type = 'budget.threshold'`) }

	b.tickAt(t, from.Add(time.Hour))
	require.Equal(t, 3, told(), "0.49 is 100 percent of the key's and less than half of the others")
	b.tickAt(t, from.Add(62*time.Minute))
	require.Equal(t, 4, told())
	b.tickAt(t, from.Add(63*time.Minute))
	require.Equal(t, 4, told(), "once a month and threshold")
	got, err := b.GetBudget(t.Context(), c.Caller, c.Org, soft.ID)
	require.NoError(t, err)
	require.Equal(t, "0.51", got.Spent.Decimal())
	require.Equal(t, 1, b.count(t, `select count(*) from instances where desired = 'running'`))

	b.tickAt(t, from.Add(2*time.Hour))
	require.Equal(t, 1, b.count(t, `select count(*) from instances where desired = 'stopped'`), "the hard budget of the project")
	require.Equal(t, 6, told(), "80 of the soft one, 100 of the hard one")
	list, err := b.ListBudgets(t.Context(), c.Caller, c.Org)
	require.NoError(t, err)
	require.Len(t, list, 3)

	more := cents(1000)
	hard, err = b.UpdateBudget(t.Context(), c.Caller, c.Org, hard.ID, app.BudgetChange{Amount: &more})
	require.NoError(t, err)
	require.Equal(t, more, hard.Amount)
	require.NoError(t, b.DeleteBudget(t.Context(), c.Caller, c.Org, key.ID))
	require.Equal(t, fault.NotFound, fault.KindOf(b.DeleteBudget(t.Context(), c.Caller, c.Org, key.ID)))
	for name, bad := range map[string]app.NewBudget{
		"scope":    {Scope: "world", Amount: cents(1)},
		"project":  {Scope: app.ProjectBudget, Amount: cents(1)},
		"key":      {Scope: app.OrganizationBudget, Key: c.Key, Amount: cents(1)},
		"amount":   {Scope: app.OrganizationBudget, Amount: cents(-1)},
		"currency": {Scope: app.OrganizationBudget, Amount: money.NewAmount(1, money.MustCurrency("EUR"))},
	} {
		_, err := b.CreateBudget(t.Context(), c.Caller, c.Org, bad)
		require.Equal(t, fault.Invalid, fault.KindOf(err), name)
	}
	_, err = b.CreateBudget(t.Context(), c.Caller, c.Org, app.NewBudget{Scope: app.ProjectBudget, Project: id.New[id.Project](), Amount: cents(1)})
	require.Equal(t, fault.NotFound, fault.KindOf(err))
}
