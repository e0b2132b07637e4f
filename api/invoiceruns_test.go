package api_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A run begins in one transaction and does its work later: many at once answer the one
// run, though the pool of the test has eight connections.
func TestManyInvoiceRunsAtOnceDoNotWaitForEachOther(t *testing.T) {
	l := newLive(t)
	_, err := l.db.OwnerPool(t).Exec(t.Context(), `update business_clock set base_real = clock_timestamp(), base_business = '2026-12-15'`)
	require.NoError(t, err)
	var wg sync.WaitGroup
	statuses := make([]int, 24)
	for n := range statuses {
		wg.Go(func() {
			statuses[n] = l.call(t, l.operator, "POST", "/v1/admin/invoice-runs", map[string]any{"period": "2026-10"}).status
		})
	}
	wg.Wait()
	for _, status := range statuses {
		require.Equal(t, 202, status)
	}
	require.Equal(t, 1, l.count(t, `select count(*) from invoice_runs`))
}

// A run is answered as running; whoever asks with wait gets its end.
func TestAnInvoiceRunIsWaitedFor(t *testing.T) {
	l := newLive(t)
	l.jump(t, time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC))
	l.fleet(t, 1)
	acme := l.tenant(t, "Acme")
	l.ranAnHour(t, acme)
	l.jump(t, time.Date(2026, 12, 3, 0, 0, 0, 0, time.UTC))
	begun := l.must(t, 202, l.operator, "POST", "/v1/admin/invoice-runs", map[string]any{"period": "2026-11"})
	require.Equal(t, "running", begun.text("status"))
	require.Equal(t, "/v1/admin/invoice-runs/2026-11", begun.header.Get("Location"))
	started := time.Now()
	require.Equal(t, "running", l.must(t, 200, l.operator, "GET", begun.header.Get("Location")+"?wait=1s", nil).text("status"))
	require.GreaterOrEqual(t, time.Since(started), time.Second)
	l.refusal(t, "request.invalid", l.operator, "GET", begun.header.Get("Location")+"?wait=61s", nil)
	var wg sync.WaitGroup
	wg.Go(func() { l.advance(t, "2026-11") })
	require.Equal(t, "succeeded", l.must(t, 200, l.operator, "GET", begun.header.Get("Location")+"?wait=30s", nil).text("status"))
	wg.Wait()
	again := l.must(t, 202, l.operator, "POST", "/v1/admin/invoice-runs", map[string]any{"period": "2026-11"})
	require.Equal(t, "succeeded", again.text("status"), "nothing is left to do")
}
