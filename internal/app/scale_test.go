package app_test

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/store"
)

var (
	scaleOrgs     = flag.Int("scale-orgs", 16, "organizations of the invoice run at scale; make billing-check asks for 1,000")
	scaleSegments = flag.Int("scale-segments", 8000, "segments of the invoice run at scale; make billing-check asks for 5,000,000")
)

// enough is from how many segments on the ratio to the peer says something.
const enough = 1_000_000

// TestInvoiceRunAtScale invoices many organizations in one run and compares every
// line with what SQL sums, and the time with a GROUP BY over the same rows.
func TestInvoiceRunAtScale(t *testing.T) {
	b := newBilled(t)
	b.loadUsage(t, *scaleOrgs, *scaleSegments)
	b.setClock(t, november.AddDate(0, 1, 3))
	peer := b.groupBy(t)

	began := time.Now()
	run := id.New[id.Request]()
	require.NoError(t, b.Store.InSystem(t.Context(), "test", func(x *store.SystemTx) error {
		_, _, err := x.BeginInvoiceRun(t.Context(), run, "2026-11", "test")
		return err
	}))
	for {
		out, err := b.AdvanceInvoiceRun(t.Context(), run)
		require.NoError(t, err)
		if out.Done {
			break
		}
	}
	took, peak := time.Since(began), peakMiB(t)
	ratio := took.Seconds() / peer.Seconds()
	fmt.Printf("invoice run: %d organizations, %d segments: %s, GROUP BY %s, ratio %.2f, peak of the process %d MiB\n",
		*scaleOrgs, *scaleSegments, took.Round(time.Millisecond), peer.Round(time.Millisecond), ratio, peak)

	require.Equal(t, *scaleOrgs, b.count(t, `select count(*) from invoices where status = 'open' and kind = 'usage'`))
	wrong := b.count(t, `
		with owed as (
		  select org_id, round(sum(units * (extract(epoch from upper(during) - lower(during)) * 1000000)::numeric) * 0.49 / 3600000000, 2) as amount
		  from usage_segments group by 1, project_id)
		select count(*) from (select org_id, sum(amount * 100)::bigint as minor from owed group by 1) o
		full join (select org_id, subtotal_minor as minor from invoices) i using (org_id) where o.minor is distinct from i.minor`)
	require.Zero(t, wrong, "organizations whose invoice is not the exact sum, rounded once a line")
	if *scaleSegments >= enough {
		require.LessOrEqual(t, ratio, 3.0)
		require.LessOrEqual(t, peak, 512)
	}
}

// loadUsage writes closed segments of November straight into the tables. What guards
// each row against others is put aside for it: five million would take a quarter of
// an hour.
func (b *billed) loadUsage(t *testing.T, orgs, segments int) {
	t.Helper()
	const perInstance = 100
	for _, c := range []string{"no_overlap", "org", "sku", "book", "version", "project"} {
		b.exec(t, `alter table usage_segments drop constraint usage_segments_`+c)
	}
	b.exec(t, `create temp table many as select n, gen_random_uuid() as org, gen_random_uuid() as project from generate_series(1, $1::int) n`, orgs)
	b.exec(t, `insert into organizations (id, name, currency, created_at) select org, 'many ' || n, 'USD', clock_timestamp() from many`)
	b.exec(t, `insert into billing_accounts (org_id, currency) select org, 'USD' from many on conflict do nothing`)
	b.exec(t, `insert into projects (org_id, id, name, created_at) select org, project, 'default', clock_timestamp() from many`)
	b.exec(t, `
		insert into usage_segments (org_id, id, subject_kind, subject_id, project_id, meter, start_id, seq, run, units, sku_id, sku_snapshot,
		  price_book_id, region, isolation_gpu, isolation_host, subject_name, open_reason, close_reason, fault_party, simulated, billing_period, during)
		select m.org, gen_random_uuid(), 'instance', s.subject, m.project, 'gpu', s.subject, k, 1, 1 + (k % 2), $1, '{}',
		  $2, 'local', 'partitioned', 'shared_kernel', 'i' || s.i, 'process_started', 'stop_release', 'tenant', true, '2026-11',
		  tstzrange(timestamptz '2026-11-01' + k * interval '7 hours', timestamptz '2026-11-01' + k * interval '7 hours'
		    + ((hashint4(k + 1000 * s.i)::bigint & 16777215) * 1000 + 1) * interval '1 microsecond')
		from many m cross join lateral (
		  select i, gen_random_uuid() as subject from generate_series(1, $3::int) i) s
		cross join generate_series(1, $4::int) k`, b.sku, [16]byte(b.book.ID), max(1, segments/orgs/perInstance), min(perInstance, segments/orgs))
	b.exec(t, `analyze usage_segments`)
}

// groupBy is the peer: the least that any invoice run has to do with the rows.
func (b *billed) groupBy(t *testing.T) time.Duration {
	t.Helper()
	const peer = `select count(*) from (
		select org_id, project_id, subject_id, sku_id, sum(units * (extract(epoch from upper(during) - lower(during)) * 1000000)::bigint) as quantity
		from usage_segments where billing_period = '2026-11' group by 1, 2, 3, 4) g`
	b.count(t, peer) // both find the rows in memory
	began := time.Now()
	b.count(t, peer)
	return time.Since(began)
}

// peakMiB is the most memory this process ever had resident.
func peakMiB(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile("/proc/self/status")
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, err := strconv.Atoi(strings.Fields(rest)[0])
			require.NoError(t, err)
			return kib / 1024
		}
	}
	t.Fatal("the system does not say how much memory was used")
	return 0
}
