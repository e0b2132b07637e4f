package api_test

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// Each run needs a second connection while its key holds the first; the pool of the
// test has eight.
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
		require.Contains(t, []int{202, 409}, status)
	}
	require.Contains(t, statuses, 202)
}
