package app_test

import (
	"encoding/json"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/internal/app"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/quota"
	"github.com/tranche-cloud/tranche/internal/store"
)

// Any bucket size and any grouping shows one sum, of one project and of all.
func TestUsageSumsAreEqual(t *testing.T) {
	b := newBilled(t)
	c := b.tenant(t, "acme", quota.Limits{})
	second, err := b.CreateProject(t.Context(), b.operator, c.Org, "second")
	require.NoError(t, err)
	seed := uint64(time.Now().UnixNano())
	r := rand.New(rand.NewPCG(seed, 7))
	var records []store.UsageRecord
	total, inSecond := new(big.Int), new(big.Int)
	for _, base := range b.records(c, 300) {
		from := november.Add(time.Duration(base.Seq)*20*time.Minute + time.Duration(r.Int64N(1e6))*time.Microsecond)
		base.During = metering.Between(from, from.Add(time.Duration(1+r.Int64N(19*60*1e6))*time.Microsecond))
		base.Units = 1 + r.Int64N(4)
		base.SubjectName = []string{"a", "b"}[r.IntN(2)]
		base.Labels = json.RawMessage([]string{`{"team":"red"}`, `{"team":"blue","x":"y"}`, `{}`}[r.IntN(3)])
		quantity := metering.Quantity(base.Units, base.During)
		if r.IntN(3) == 0 {
			base.Project = second.ID
			inSecond.Add(inSecond, quantity)
		}
		total.Add(total, quantity)
		records = append(records, base)
	}
	_, err = b.IngestSegments(t.Context(), records)
	require.NoError(t, err)
	b.setClock(t, november.AddDate(0, 1, 1))
	sum := func(project id.Project, q app.UsageQuery) (*big.Int, string) {
		q.From, q.To = november, november.AddDate(0, 1, 0)
		quantity, exact := new(big.Int), new(big.Rat)
		p := app.Page{Size: 37}
		for {
			list, err := b.OrganizationUsage(t.Context(), c.Caller, q, p)
			if !project.IsZero() {
				list, err = b.Usage(t.Context(), c.Caller, project, q, p)
			}
			require.NoError(t, err)
			for _, i := range list.Items {
				quantity.Add(quantity, i.Quantity)
				exact.Add(exact, i.Exact.Rat())
				require.Len(t, i.Group, len(q.GroupBy))
			}
			if p.Cursor = list.Next; p.Cursor == "" {
				return quantity, exact.FloatString(12)
			}
		}
	}
	wantAll, money := sum(id.Project{}, app.UsageQuery{})
	require.Equal(t, total, wantAll, "seed %d", seed)
	for _, bucket := range []metering.Bucket{metering.NoBucket, metering.Hour, metering.Day, metering.Month} {
		got, shown := sum(id.Project{}, app.UsageQuery{Bucket: bucket})
		require.Equal(t, total, got, "seed %d %s", seed, bucket)
		require.Equal(t, money, shown, "seed %d %s", seed, bucket)
	}
	for _, by := range [][]string{
		{"project"}, {"instance"}, {"name", "label:team"}, {"sku", "isolation", "pricing"}, {"meter", "region", "label:none"}, {"label:x"},
	} {
		got, _ := sum(id.Project{}, app.UsageQuery{GroupBy: by, Bucket: metering.Day})
		require.Equal(t, total, got, "seed %d %v", seed, by)
		got, _ = sum(second.ID, app.UsageQuery{GroupBy: by})
		require.Equal(t, inSecond, got, "seed %d %v", seed, by)
	}
	red, err := b.OrganizationUsage(t.Context(), c.Caller, app.UsageQuery{GroupBy: []string{"label:team"}, From: november}, app.Page{Size: 10})
	require.NoError(t, err)
	require.Equal(t, []string{"", "blue", "red"}, []string{red.Items[0].Group["label:team"], red.Items[1].Group["label:team"], red.Items[2].Group["label:team"]})
	for _, bad := range [][]string{{"mood"}, {"label:"}, {"sku", "sku"}} {
		_, err := b.OrganizationUsage(t.Context(), c.Caller, app.UsageQuery{GroupBy: bad}, app.Page{Size: 1})
		require.Equal(t, "request.invalid", fault.CodeOf(err), "%v", bad)
	}
	other := b.tenant(t, "emca", quota.Limits{})
	none, err := b.OrganizationUsage(t.Context(), other.Caller, app.UsageQuery{From: november}, app.Page{Size: 10})
	require.NoError(t, err)
	require.Empty(t, none.Items, "of another organization")
}

// B29: what was used thirty seconds ago counts now.
func TestB29TheRunningMinuteCounts(t *testing.T) {
	b := newBilled(t)
	c := b.tenant(t, "acme", quota.Limits{})
	inst := b.instance(t, c, "one")
	b.setClock(t, november.Add(30*time.Second))
	require.True(t, b.start(t, c, inst, 1, november))
	list, err := b.Usage(t.Context(), c.Caller, c.project, app.UsageQuery{}, app.Page{Size: 10})
	require.NoError(t, err)
	require.Len(t, list.Items, 1)
	require.GreaterOrEqual(t, list.Items[0].Quantity.Int64(), int64(30_000_000))
}

// B38: a page of a list never skips what ties.
func TestB38PagesSkipNoTies(t *testing.T) {
	b := newBilled(t)
	c := b.tenant(t, "acme", quota.Limits{})
	for range 3 {
		rec := b.records(c, 1)
		_, err := b.IngestSegments(t.Context(), rec)
		require.NoError(t, err)
	}
	b.exec(t, `update usage_segments set recorded_at = $1`, november)
	b.setClock(t, november.AddDate(0, 0, 3))
	seen := map[string]bool{}
	p := app.Page{Size: 2}
	for {
		list, err := b.Usage(t.Context(), c.Caller, c.project, app.UsageQuery{From: november, GroupBy: []string{"instance"}}, p)
		require.NoError(t, err)
		for _, i := range list.Items {
			seen[i.Group["instance"]] = true
		}
		if p.Cursor = list.Next; p.Cursor == "" {
			break
		}
	}
	require.Len(t, seen, 3)
}

// B24, B25: a year of daily seals and runs makes twelve months, once.
func TestB24AYearHasTwelveMonths(t *testing.T) {
	b := newBilled(t)
	c := b.tenant(t, "acme", quota.Limits{})
	inst := b.instance(t, c, "one")
	b.setClock(t, november.Add(time.Second))
	require.True(t, b.start(t, c, inst, 1, november))
	for day := range 366 {
		b.setClock(t, november.AddDate(0, 0, day).Add(25*time.Hour))
		_, err := b.SealDue(t.Context())
		require.NoError(t, err)
	}
	require.True(t, b.stop(t, c, inst, metering.DeleteAccepted, metering.Facts{At: november.AddDate(1, 0, 0)}))
	require.Equal(t, 12, b.count(t, `select count(*) from usage_segments where upper(during) > lower(during) + interval '1 minute'`))
	require.Equal(t, 365*24*3600, b.count(t, `select sum(extract(epoch from upper(during) - lower(during)))::bigint from billable_segments where subject_id = $1`, uuid.UUID(inst)))
}
