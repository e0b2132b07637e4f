package app_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/billing/ledger"
	"github.com/tranche-cloud/tranche/billing/payment"
	"github.com/tranche-cloud/tranche/internal/app"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/money"
	"github.com/tranche-cloud/tranche/internal/quota"
	"github.com/tranche-cloud/tranche/internal/store"
)

const statement = "bank_id,date,amount,currency,reference,payer\n"

func (w *paying) transfers(t *testing.T, lines ...string) app.StatementImport {
	t.Helper()
	got, err := w.ImportStatement(t.Context(), w.operator, "DE02120300000000202051", []byte(statement+strings.Join(lines, "\n")+"\n"))
	require.NoError(t, err)
	return got
}

func (w *paying) queue(t *testing.T) []store.StatementLine {
	t.Helper()
	got, err := w.ListStatementLines(t.Context(), w.operator, "queued", app.Page{Size: 50})
	require.NoError(t, err)
	return got.Items
}

func TestTransfersAreMatchedByRules(t *testing.T) {
	w := newPaying(t)
	a := w.invoice(t, 100_00)
	first := w.number()
	b := w.invoice(t, 50_00)
	got := w.transfers(t,
		"1,2026-12-10,100.00,USD,Invoice "+first+",Acme Inc",
		"2,2026-12-10,62.50,USD,"+w.number()+",Acme Inc", // overpaid
		"3,2026-12-11,-9.99,USD,bank fee,Bank",
		"4,2026-12-11,100.00,USD,"+first+",Acme Inc", // paid twice
	)
	require.Equal(t, app.StatementImport{Lines: 3, New: 3, Matched: 3, Debits: 1}, got)
	require.Zero(t, w.owed(t, a))
	require.Zero(t, w.owed(t, b))
	require.Equal(t, int64(262_50), w.books(t, ledger.Bank))
	require.Zero(t, w.books(t, ledger.Clearing))
	require.Equal(t, int64(-112_50), w.books(t, ledger.UnappliedCash), "what is over, and the second payment in full")
	require.Equal(t, 2, w.events(t, "invoice.paid"))
	before := w.journals(t)
	require.Equal(t, app.StatementImport{Lines: 1}, w.transfers(t, "1,2026-12-10,100.00,USD,Invoice "+first+",Acme Inc"))
	require.Equal(t, before, w.journals(t), "a statement may be sent again")

	_, err := w.ImportStatement(t.Context(), w.operator, "DE02120300000000202051", []byte(statement+"1,2026-12-10,101.00,USD,x,y\n"))
	require.Equal(t, "statement.mismatch", fault.CodeOf(err))
}

func TestDoubtfulTransfersWaitForAPerson(t *testing.T) {
	w := newPaying(t)
	ctx := t.Context()
	a := w.invoice(t, 100_00)
	first := w.number()
	b := w.invoice(t, 50_00)
	got := w.transfers(t,
		"1,2026-12-10,149.00,USD,"+first+" "+w.number()+",Acme Inc", // short
		"2,2026-12-10,100.00,EUR,"+first+",Acme Inc",                // another currency
		"3,2026-12-10,50.00,USD,thank you,A. Smith",                 // an amount alone
		"4,2026-12-10,1.00,USD,wrong address,Stranger",
	)
	require.Equal(t, 0, got.Matched)
	queue := w.queue(t)
	require.Len(t, queue, 4)
	line := func(bankID string) id.StatementLine {
		for _, l := range queue {
			if l.BankID == bankID {
				require.NotEmpty(t, l.Why)
				return l.ID
			}
		}
		t.Fatal("no such line")
		return id.StatementLine{}
	}
	require.Equal(t, int64(150_00), w.owed(t, a)+w.owed(t, b), "nothing is posted")
	found, err := w.StatementCandidates(ctx, w.operator, line("3"))
	require.NoError(t, err)
	require.Len(t, found, 1)
	require.Equal(t, b, found[0].Invoice)

	split := []payment.Allocation{{Invoice: a, Amount: dollars(100_00)}, {Invoice: b, Amount: dollars(49_00)}}
	match := func(bankID string, org id.Org, to ...payment.Allocation) error {
		_, err := w.MatchStatementLine(ctx, w.operator, line(bankID), org, to)
		return err
	}
	require.Equal(t, "request.invalid", fault.CodeOf(match("3", w.acme.Org, split...)), "more than the line")
	require.Equal(t, "payment.exceeds_due", fault.CodeOf(match("1", w.acme.Org, payment.Allocation{Invoice: b, Amount: dollars(50_01)})))
	stranger := w.tenant(t, "stranger", quota.Limits{})
	require.Equal(t, fault.NotFound, fault.KindOf(match("1", stranger.Org, split...)), "documents of another organization")
	require.Equal(t, "payment.currency", fault.CodeOf(match("2", w.acme.Org, payment.Allocation{Invoice: a, Amount: money.NewAmount(100_00, money.MustCurrency("EUR"))})))
	require.NoError(t, match("1", w.acme.Org, split...))
	require.Zero(t, w.owed(t, a))
	require.Equal(t, int64(1_00), w.owed(t, b))
	require.Equal(t, "state.conflict", fault.CodeOf(match("1", w.acme.Org, split...)))
	require.NoError(t, match("3", w.acme.Org))
	w.collect(t)
	require.Zero(t, w.owed(t, b), "the rest came out of unapplied cash")
	require.NoError(t, match("2", w.acme.Org), "in another currency it is unapplied cash of that currency")

	_, err = w.ReturnStatementLine(ctx, w.operator, line("4"), "")
	require.Equal(t, "request.invalid", fault.CodeOf(err))
	returned, err := w.ReturnStatementLine(ctx, w.operator, line("4"), "not a customer")
	require.NoError(t, err)
	require.Equal(t, "returned", returned.State)
	require.Empty(t, w.queue(t))
}

func TestBadStatementsImportNothing(t *testing.T) {
	w := newPaying(t)
	for name, text := range map[string]string{
		"empty":            "",
		"no column":        "bank_id,date,amount,currency,reference\n1,2026-12-10,1.00,USD,x\n",
		"no bank id":       statement + ",2026-12-10,1.00,USD,x,y\n",
		"bad date":         statement + "1,10.12.2026,1.00,USD,x,y\n",
		"unknown currency": statement + "1,2026-12-10,1.00,XXQ,x,y\n",
		"too many digits":  statement + "1,2026-12-10,1.001,USD,x,y\n",
		"nothing":          statement + "1,2026-12-10,0.00,USD,x,y\n",
		"words":            statement + "1,2026-12-10,one,USD,x,y\n",
		"half a line":      statement + "1,2026-12-10\n",
		"a good and a bad": statement + "1,2026-12-10,1.00,USD,x,y\n2,2026-12-10,-,USD,x,y\n",
	} {
		_, err := w.ImportStatement(t.Context(), w.operator, "DE1", []byte(text))
		require.Equal(t, "request.invalid", fault.CodeOf(err), name)
		require.NotEmpty(t, fault.From(err).Fields, name)
	}
	_, err := w.ImportStatement(t.Context(), w.operator, "", []byte(statement))
	require.Equal(t, "request.invalid", fault.CodeOf(err))
	_, err = w.ImportStatement(t.Context(), w.acme.Caller, "DE1", []byte(statement))
	require.Equal(t, fault.Forbidden, fault.KindOf(err))
	require.Zero(t, w.count(t, `select count(*) from statement_lines`))
}

func TestARefundOfATransferIsMadeByHand(t *testing.T) {
	w := newPaying(t)
	w.invoice(t, 10_00)
	w.transfers(t, "1,2026-12-10,15.00,USD,"+w.number()+",Acme Inc")
	require.NoError(t, w.refund(t, w.payments(t)[0], nil, false))
	require.Zero(t, w.books(t, ledger.UnappliedCash))
	require.Equal(t, int64(10_00), w.books(t, ledger.Bank)+w.books(t, ledger.Clearing))
	require.Zero(t, w.books(t, ledger.Clearing), "the bank is the one that has less")
}
