package app_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/quota"
)

// TestAnInvoiceRunSurvivesItsWorkers is a run that two workers do at once and that
// is killed again and again, anywhere: what comes out is what a preview promised.
func TestAnInvoiceRunSurvivesItsWorkers(t *testing.T) {
	const seed = 20261130
	b := newBilled(t)
	promised := map[string]string{}
	for n := range 12 {
		c := b.tenant(t, fmt.Sprintf("tenant %d", n), quota.Limits{Instances: 9, GPUs: 9})
		for k := range 1 + n%3 {
			b.used(t, c, fmt.Sprintf("i%d", k), time.Duration(n*37+k+1)*time.Minute+time.Microsecond)
		}
		b.setClock(t, november.AddDate(0, 1, 3))
		v, err := b.PreviewInvoice(t.Context(), c.Caller, "2026-11")
		require.NoError(t, err)
		promised[c.Org.String()] = fmt.Sprintf("%x", v.ContentHash)
		b.setClock(t, november)
	}
	b.setClock(t, november.AddDate(0, 1, 3))
	run, err := b.CreateInvoiceRun(t.Context(), b.operator, "2026-11")
	require.NoError(t, err)
	require.Equal(t, "running", run.Status)

	t.Logf("seed %d", seed)
	var wg sync.WaitGroup
	kills := make([]int, 2)
	for worker := range kills {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(worker)))
			for b.count(t, `select count(*) from invoice_runs where status = 'running'`) > 0 {
				// The longer it takes, the longer a worker lives: a slow machine comes to an end, too.
				patience := time.Duration(1+kills[worker]/8) * 60 * time.Millisecond
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(r.Int64N(int64(patience))))
				if _, err := b.AdvanceInvoiceRun(ctx, id.Request(run.ID)); err != nil {
					kills[worker]++
				}
				cancel()
			}
		})
	}
	wg.Wait()
	t.Logf("killed %v times", kills)

	after, err := b.GetInvoiceRun(t.Context(), b.operator, "2026-11")
	require.NoError(t, err)
	require.Equal(t, "succeeded", after.Status, "%+v", after.Problem)
	require.Len(t, after.Invoices, len(promised))
	require.Equal(t, len(promised), b.count(t, `select max(last) from invoice_numbers`), "gapless")
	require.Equal(t, len(promised), b.count(t, `select count(*) from ledger_journals where kind = 'invoice_finalized'`))
	require.Zero(t, b.count(t, `select count(*) from invoices where status <> 'open'`), "no draft is left")
	for _, v := range after.Invoices {
		var hash string
		require.NoError(t, b.owner.QueryRow(t.Context(), `select encode(content_hash, 'hex') from invoices where id = $1`, [16]byte(v.ID)).Scan(&hash))
		require.Equal(t, promised[v.Org.String()], hash)
	}

	again, err := b.CreateInvoiceRun(t.Context(), b.operator, "2026-11")
	require.NoError(t, err)
	require.Equal(t, after, again, "a second run of the month has nothing left to do")
}
