package app_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/csv"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/billing/ledger"
	"github.com/tranche-cloud/tranche/internal/app"
	"github.com/tranche-cloud/tranche/internal/clock"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/money"
	"github.com/tranche-cloud/tranche/internal/quota"
	"github.com/tranche-cloud/tranche/internal/store"
)

// post writes a journal as the system does.
func (b *billed) post(t *testing.T, j ledger.Journal) error {
	t.Helper()
	return b.Store.InSystem(t.Context(), "test", func(x *store.SystemTx) error { return x.Post(t.Context(), j) })
}

func TestCloseOfAMonth(t *testing.T) {
	b := newBilled(t)
	ctx := t.Context()
	c := b.tenant(t, "acme", quota.Limits{})
	b.used(t, c, "one", 10*time.Hour)
	late := b.tenant(t, "late", quota.Limits{})
	b.prepay(t, late, "money", 700)
	b.setClock(t, november.AddDate(0, 0, 9))
	require.NoError(t, b.AccrueAll(ctx))
	_, err := b.CloseMonth(ctx, b.operator, "2026-11")
	require.Equal(t, "state.conflict", fault.CodeOf(err), "it is not over")
	_, err = b.CloseMonth(ctx, b.operator, "november")
	require.Equal(t, fault.Invalid, fault.KindOf(err))
	_, err = b.GetClose(ctx, b.operator, "2026-11")
	require.Equal(t, fault.NotFound, fault.KindOf(err))

	b.setClock(t, november.AddDate(0, 1, 2))
	_, err = b.InvoiceOrganization(ctx, c.Org, "2026-11")
	require.NoError(t, err)
	closed, err := b.CloseMonth(ctx, b.operator, "2026-11")
	require.NoError(t, err)
	r := closed.Report
	require.Equal(t, []app.TrialRow{
		{Currency: "USD", Account: "bank", Opening: "0.00", Debits: "7.00", Credits: "0.00", Closing: "7.00"},
		{Currency: "USD", Account: "prepaid", Opening: "0.00", Debits: "0.00", Credits: "-7.00", Closing: "-7.00"},
		{Currency: "USD", Account: "receivable", Opening: "0.00", Debits: "4.90", Credits: "0.00", Closing: "4.90"},
		{Currency: "USD", Account: "revenue", Opening: "0.00", Debits: "4.90", Credits: "-9.80", Closing: "-4.90"},
		{Currency: "USD", Account: "tax", Opening: "0.00", Debits: "0.00", Credits: "0.00", Closing: "0.00"},
		{Currency: "USD", Account: "unbilled_receivable", Opening: "0.00", Debits: "4.90", Credits: "-4.90", Closing: "0.00"},
	}, r.TrialBalance)
	require.Len(t, r.OpenItems, 1)
	require.Equal(t, "4.90", r.Ageing[0].Buckets["0-30"])
	require.Equal(t, "4.90", r.Ageing[0].Total)
	require.Len(t, r.VAT, 1)
	require.Equal(t, "4.90", r.VAT[0].Base)
	require.Zero(t, r.Uninvoiced)
	for _, f := range r.RollForwards {
		if f.Account == "unbilled_receivable" {
			require.Equal(t, []app.Movement{{Kind: "accrual", Amount: "4.90"}, {Kind: "invoice_finalized", Amount: "-4.90"}}, f.Movements)
		}
	}

	text, err := b.JournalCSV(ctx, b.operator, "2026-11")
	require.NoError(t, err)
	rows, err := csv.NewReader(bytes.NewReader(text)).ReadAll()
	require.NoError(t, err)
	require.Len(t, rows, 1+r.Postings)
	var report []byte
	require.NoError(t, b.owner.QueryRow(ctx, `select report from month_closes`).Scan(&report))
	require.Equal(t, sha256.Sum256(append(report, text...)), closed.SHA256)

	again, err := b.CloseMonth(ctx, b.operator, "2026-11")
	require.NoError(t, err)
	require.Equal(t, closed, again, "a closed month stays as it is")

	e := ledger.Entry{Org: c.Org, Reference: [16]byte{7}, On: november.AddDate(0, 0, 20)}
	j, err := ledger.FeeCharged(e, cents(5))
	require.NoError(t, err)
	require.NoError(t, b.post(t, j))
	require.Equal(t, 1, b.count(t, `select count(*) from ledger_journals where kind = 'fee' and effective_on = '2026-12-01'`), "the next open day")
	require.Equal(t, "state.conflict", fault.CodeOf(b.post(t, j)), "a journal is written once")
	_, err = b.owner.Exec(ctx, `insert into ledger_journals (org_id, id, kind, reference_id, currency, effective_on)
		values ($1, gen_random_uuid(), 'x', gen_random_uuid(), 'USD', '2026-11-30')`, uuid.UUID(c.Org))
	require.ErrorContains(t, err, "closed")
	_, err = b.owner.Exec(ctx, `update month_closes set closed_by = 'me'`)
	require.ErrorContains(t, err, "immutable")

	b.setClock(t, november.AddDate(0, 3, 2))
	_, err = b.CloseMonth(ctx, b.operator, "2027-01")
	require.Equal(t, "state.conflict", fault.CodeOf(err), "months close in their order")
	december, err := b.CloseMonth(ctx, b.operator, "2026-12")
	require.NoError(t, err)
	for _, x := range december.Report.TrialBalance {
		if x.Account == "receivable" {
			require.Equal(t, "4.90", x.Opening)
		}
	}
}

// A process that died after the freeze: the month takes no posting, the next one is not
// closed before its report is there, and closing again makes it.
func TestCloseOfAFrozenMonth(t *testing.T) {
	b := newBilled(t)
	ctx := t.Context()
	c := b.tenant(t, "acme", quota.Limits{})
	b.prepay(t, c, "money", 700)
	b.setClock(t, november.AddDate(0, 2, 2))
	_, err := b.owner.Exec(ctx, `update ledger_books set closed_through = '2026-11-30'`)
	require.NoError(t, err)
	_, err = b.GetClose(ctx, b.operator, "2026-11")
	require.Equal(t, fault.NotFound, fault.KindOf(err))
	_, err = b.CloseMonth(ctx, b.operator, "2026-12")
	require.Equal(t, "state.conflict", fault.CodeOf(err))
	require.Contains(t, err.Error(), "2026-11")
	closed, err := b.CloseMonth(ctx, b.operator, "2026-11")
	require.NoError(t, err)
	require.Equal(t, "2026-11", closed.Period)
	_, err = b.CloseMonth(ctx, b.operator, "2026-12")
	require.NoError(t, err)
	require.Equal(t, 2, b.count(t, `select count(*) from audit_log where operation = 'finance.close'`))
}

// Two closes and a crowd that posts: nothing lands in the month after its report.
func TestCloseUnderACrowd(t *testing.T) {
	b := newBilled(t)
	c := b.tenant(t, "acme", quota.Limits{})
	b.setClock(t, november.AddDate(0, 1, 2))
	race(t, func(n int) error {
		if n%16 == 0 {
			_, err := b.CloseMonth(t.Context(), b.operator, "2026-11")
			return err
		}
		j, err := ledger.FeeCharged(ledger.Entry{Org: c.Org, Reference: [16]byte{byte(n)}, On: november.AddDate(0, 0, 20)}, cents(1))
		if err != nil {
			return err
		}
		return b.post(t, j)
	})
	closed, err := b.GetClose(t.Context(), b.operator, "2026-11")
	require.NoError(t, err)
	require.Equal(t, closed.Report.Postings, 2*b.count(t, `select count(*) from ledger_journals where effective_on < '2026-12-01'`))
	require.Equal(t, 60, b.count(t, `select count(*) from ledger_journals`))
}

func TestStartsHoldAPartOfTheWallet(t *testing.T) {
	w := newWorld(t, clock.Real())
	b := &billed{world: w}
	w.host(t, "a", 8)
	w.sell(t, wholeSpec("whole"), "40")
	c := b.prepaid(t, "acme", 250)
	w.exec(t, `update quota_usage set instances = 0 where org_id = $1`, uuid.UUID(c.Org))
	w.exec(t, `update organizations set quota_instances = 99, quota_gpus = 99`)
	w.exec(t, `insert into organization_price_books (org_id, price_book_id, during) select $1, id, '[2020-01-01,)' from price_books on conflict do nothing`, uuid.UUID(c.Org))
	create := func(name string) (app.Instance, error) {
		return b.CreateInstance(t.Context(), c.Caller, app.NewInstance{Project: c.project, Name: name, Offer: "whole", Image: "img"})
	}
	one, err := create("one") // 90 seconds of 40 an hour are 1.00
	require.NoError(t, err)
	_, err = create("two")
	require.NoError(t, err)
	require.Equal(t, "2.00", b.wallet(t, c).Held.Decimal())
	_, err = create("three")
	require.Equal(t, fault.OverBudget, fault.KindOf(err))
	require.Equal(t, "budget.exhausted", fault.CodeOf(err))
	require.Equal(t, 2, b.count(t, `select count(*) from instances`), "nothing is left of a refused create")

	_, err = b.StopInstance(t.Context(), c.Caller, c.project, one.ID, app.Match{})
	require.NoError(t, err)
	_, err = create("three")
	require.NoError(t, err, "a stopped one holds nothing")
	_, err = b.StartInstance(t.Context(), c.Caller, c.project, one.ID, app.Match{})
	require.Equal(t, "budget.exhausted", fault.CodeOf(err))

	_, err = b.CreateBudget(t.Context(), c.Caller, c.Org, app.NewBudget{Scope: app.KeyBudget, Key: c.Key, Amount: cents(250), Hard: true})
	require.NoError(t, err)
	b.prepay(t, c, "more", 10000)
	_, err = create("four")
	require.Equal(t, "budget.exhausted", fault.CodeOf(err), "the key's budget")
}

func TestGrantsExpireOnce(t *testing.T) {
	b := newBilled(t)
	c := b.tenant(t, "acme", quota.Limits{})
	b.setClock(t, november)
	expires := november.AddDate(0, 0, 5)
	g, err := b.CreateGrant(t.Context(), b.operator, c.Org, app.NewGrant{Name: "trial", Amount: cents(500), Expires: expires})
	require.NoError(t, err)
	require.Equal(t, map[ledger.Account]int64{ledger.Promo: -500, ledger.PromoExpense: 500}, b.balances(t, c.Org))
	for name, bad := range map[string]app.NewGrant{
		"past":     {Amount: cents(1), Expires: november.Add(-time.Second)},
		"nothing":  {Amount: cents(0)},
		"currency": {Amount: money.NewAmount(1, money.MustCurrency("EUR"))},
	} {
		_, err := b.CreateGrant(t.Context(), b.operator, c.Org, bad)
		require.Equal(t, fault.Invalid, fault.KindOf(err), name)
	}
	_, err = b.CreateGrant(t.Context(), b.operator, id.New[id.Org](), app.NewGrant{Amount: cents(1)})
	require.Equal(t, fault.NotFound, fault.KindOf(err))
	require.NoError(t, b.ExpireGrants(t.Context()))
	require.Equal(t, "5.00", b.wallet(t, c).Promo.Decimal(), "not yet")

	b.setClock(t, expires)
	race(t, func(int) error { return b.ExpireGrants(t.Context()) })
	require.Equal(t, map[ledger.Account]int64{ledger.Breakage: -500, ledger.PromoExpense: 500}, b.balances(t, c.Org))
	require.Equal(t, 1, b.count(t, `select count(*) from events where type = 'grant.expired'`))
	list, err := b.ListGrants(t.Context(), c.Caller, c.Org, app.Page{Size: 10})
	require.NoError(t, err)
	require.Len(t, list.Items, 1)
	require.Equal(t, g.Grant, list.Items[0].Grant)
	require.True(t, list.Items[0].Lapsed)
	b.rebuilt(t)
}

// A grant pays for the usage until it expires, also when the invoice comes later.
func TestPromoIsUsedByTheInvoice(t *testing.T) {
	b := newBilled(t)
	c := b.tenant(t, "acme", quota.Limits{})
	first, second := november.AddDate(0, 0, 2), november.AddDate(0, 0, 9)
	_, err := b.CreateGrant(t.Context(), b.operator, c.Org, app.NewGrant{Name: "trial", Amount: cents(500), Expires: november.AddDate(0, 0, 5)})
	require.NoError(t, err)
	_, err = b.CreateGrant(t.Context(), b.operator, c.Org, app.NewGrant{Name: "gift", Amount: cents(100), Priority: 1})
	require.NoError(t, err)
	for i, at := range []time.Time{first, second} {
		inst := b.instance(t, c, string(rune('a'+i)))
		require.True(t, b.start(t, c, inst, 1, at))
		require.True(t, b.stop(t, c, inst, metering.DeleteAccepted, metering.Facts{At: at.Add(4 * time.Hour)})) // 1.96
	}
	b.tickAt(t, second)
	require.Equal(t, "1.96", b.wallet(t, c).PromoHeld.Decimal())
	require.NoError(t, b.ExpireGrants(t.Context()))
	w := b.wallet(t, c)
	require.Equal(t, "2.96", w.Promo.Decimal(), "1.96 of the trial stay for the invoice")
	require.Equal(t, "1.00", w.Spendable.Decimal())

	b.setClock(t, november.AddDate(0, 1, 2))
	_, err = b.InvoiceOrganization(t.Context(), c.Org, "2026-11")
	require.NoError(t, err)
	require.Equal(t, map[ledger.Account]int64{
		ledger.Receivable: 96, ledger.Revenue: -392, ledger.PromoExpense: 600, ledger.Breakage: -304,
	}, b.balances(t, c.Org))
	require.Equal(t, "0.00", b.wallet(t, c).Promo.Decimal())
	b.rebuilt(t)
}

func TestTenantsChangeNoMoney(t *testing.T) {
	b := newBilled(t)
	ours, theirs := b.prepaid(t, "ours", 500), b.prepaid(t, "theirs", 500)
	conn, err := pgx.Connect(t.Context(), b.db.AppDSN)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close(context.WithoutCancel(t.Context()))) })
	_, err = conn.Exec(t.Context(), `select set_config('role', 'tranche_org', false), set_config('tranche.org_id', $1, false)`, uuid.UUID(ours.Org).String())
	require.NoError(t, err)
	var seen int
	for _, table := range []string{"wallets", "credit_grants", "ledger_journals"} {
		require.NoError(t, conn.QueryRow(t.Context(), `select count(*) from `+table+` where org_id = $1`, uuid.UUID(theirs.Org)).Scan(&seen))
		require.Zero(t, seen, table)
		require.NoError(t, conn.QueryRow(t.Context(), `select count(*) from `+table).Scan(&seen))
		require.Equal(t, 1, seen, table)
	}
	for _, sql := range []string{
		`update wallets set prepaid_minor = 1000000`, `update wallets set mode = 'postpaid'`, `update credit_grants set remaining_minor = amount_minor`,
		`delete from credit_uses`, `delete from wallet_claims`, `insert into budgets default values`, `delete from budgets`,
		`select * from coupons`, `select * from month_closes`, `update ledger_books set closed_through = '2020-01-01'`,
		`insert into ledger_postings default values`, `update period_funding set burned_minor = 0`,
	} {
		_, err := conn.Exec(t.Context(), sql)
		require.ErrorContains(t, err, "permission denied", sql)
	}
	_, err = b.owner.Exec(t.Context(), `update wallets set prepaid_minor = -1`)
	require.ErrorContains(t, err, "wallets_prepaid_not_negative")
	_, err = b.owner.Exec(t.Context(), `update credit_uses set amount_minor = 1`)
	require.True(t, err == nil || bytes.Contains([]byte(err.Error()), []byte("immutable")))
}
