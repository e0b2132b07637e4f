package app_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/internal/app"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/quota"
	"github.com/tranche-cloud/tranche/internal/store"
)

// late is an instance with two runs, of which everything may arrive late: the first is
// ended by a fault of ours, the second by the tenant, over the end of the month.
type late struct {
	*billed
	customer customer
	inst     id.Instance
	host     id.Host
	asg      [2]id.Assignment
	from, to [2]time.Time // what is true of the runs
}

func newLate(t *testing.T) *late {
	t.Helper()
	b := newBilled(t)
	l := &late{billed: b, customer: b.tenant(t, "acme", quota.Limits{}), host: id.New[id.Host]()}
	l.inst = b.instance(t, l.customer, "late")
	b.exec(t, `insert into hosts (id, cell_id, pool_id, name, state, liveness, public_key) values ($1, 'local-1', 'default', 'h', 'ready', 'live', 'k')`, uuid.UUID(l.host))
	end := november.AddDate(0, 1, 0)
	l.from = [2]time.Time{end.Add(-6 * time.Hour), end.Add(-2*time.Hour + 17*time.Microsecond)}
	l.to = [2]time.Time{end.Add(-4*time.Hour - 3*time.Microsecond), end.Add(3 * time.Hour)}
	for i := range l.asg {
		l.asg[i] = id.New[id.Assignment]()
		b.exec(t, `insert into assignments (org_id, id, instance_id, run, host_id, cell_id, state, ordered_at, ordered_biz)
			values ($1, $2, $3, $4, $5, 'local-1', 'released', clock_timestamp(), $6)`,
			uuid.UUID(l.customer.Org), uuid.UUID(l.asg[i]), uuid.UUID(l.inst), i+1, uuid.UUID(l.host), l.from[i].Add(-time.Second))
	}
	b.setClock(t, end.Add(20*time.Hour))
	return l
}

// forget returns to before anything arrived.
func (l *late) forget(t *testing.T) {
	for _, table := range []string{"usage_segments", "usage_exclusions", "run_proofs"} {
		l.exec(t, "delete from "+table)
	}
}

func (l *late) in(t *testing.T, do func(context.Context, *store.SystemTx) error) {
	t.Helper()
	require.NoError(t, l.Store.InSystem(t.Context(), "test", func(x *store.SystemTx) error { return do(t.Context(), x) }))
}

// begins is the first report of a run.
func (l *late) begins(t *testing.T, run int) {
	l.in(t, func(ctx context.Context, x *store.SystemTx) error {
		_, _, err := x.ProveRun(ctx, store.RunProof{
			Org: l.customer.Org, Assignment: l.asg[run], Instance: l.inst, Run: run + 1, Host: l.host, StartedAt: l.from[run], LastProof: l.from[run],
		})
		if err != nil {
			return err
		}
		_, err = x.OpenSegment(ctx, store.OpenSegment{
			Org: l.customer.Org, Instance: l.inst, Assignment: l.asg[run], Run: run + 1, At: l.from[run], Reason: "process_started",
		})
		return err
	})
}

func (l *late) ends(t *testing.T, run int, event metering.Event) {
	l.in(t, func(ctx context.Context, x *store.SystemTx) error {
		if _, _, err := x.EndRun(ctx, l.asg[run], l.to[run]); err != nil {
			return err
		}
		_, err := x.CloseByEvent(ctx, l.customer.Org, l.inst, event, metering.Facts{At: l.to[run], FirstSymptom: l.to[run], LastProof: l.to[run]})
		return err
	})
}

// silent closes what is open at the last proof that is known by now.
func (l *late) silent(t *testing.T, run int) {
	l.in(t, func(ctx context.Context, x *store.SystemTx) error {
		at, found, err := x.LastProof(ctx, l.asg[run])
		if err != nil || !found {
			return err
		}
		_, err = x.CloseByEvent(ctx, l.customer.Org, l.inst, metering.Silence, metering.Facts{LastProof: at})
		return err
	})
}

// arrival is one message of a run, which cannot come before its time.
type arrival struct {
	run    int
	before time.Time
	do     func()
}

// arrivals are the messages of both runs: what the control plane itself sees keeps its
// order; evidence comes after the first report of its run, in pieces, twice, at any
// time, and claims more than is true.
func (l *late) arrivals(t *testing.T, r *rand.Rand) []arrival {
	var plan []arrival
	for run, event := range []metering.Event{metering.OurFault, metering.DeleteAccepted} {
		plan = append(plan, arrival{run, l.from[run].Add(time.Second), func() { l.begins(t, run) }})
		if r.IntN(2) == 0 {
			plan = append(plan, arrival{run, l.from[run].Add(time.Duration(r.Int64N(90)) * time.Minute), func() { l.silent(t, run) }})
		}
		plan = append(plan, arrival{run, l.to[run].Add(time.Duration(r.Int64N(50)) * time.Minute), func() { l.ends(t, run, event) }})
	}
	for run := range 2 {
		begun := slices.IndexFunc(plan, func(a arrival) bool { return a.run == run }) + 1
		for from := l.from[run]; from.Before(l.to[run]); {
			to := from.Add(time.Duration(1+r.Int64N(50*60*1e6)) * time.Microsecond)
			piece := metering.Between(from.Add(-time.Duration(r.Int64N(1e6))*time.Microsecond), to)
			for range 1 + r.IntN(2) {
				plan = slices.Insert(plan, begun+r.IntN(len(plan)+1-begun), arrival{-1, to, func() {
					require.NoError(t, l.TakeEvidence(t.Context(), []app.Evidence{{Assignment: l.asg[run], On: []metering.Interval{piece}}}))
				}})
			}
			from = to
		}
	}
	return plan
}

// content is what is billed, without ids and without how it was cut.
func (l *late) content(t *testing.T) string {
	var out []string
	require.NoError(t, l.Store.InOrg(t.Context(), l.customer.Org, func(x *store.OrgTx) error {
		u, err := x.UsageOf(t.Context(), l.customer.Org, store.UsageFilter{})
		if err != nil {
			return err
		}
		byStart := map[string][]metering.Interval{}
		for _, s := range u.Segments {
			k := fmt.Sprintf("%x run %d %s %s", s.StartID, s.Run, s.SKU.Code, metering.PeriodOf(s.During.From))
			require.False(t, s.During.Open())
			byStart[k] = append(byStart[k], s.During)
		}
		for _, k := range slices.Sorted(maps.Keys(byStart)) {
			for _, i := range metering.Union(byStart[k]) {
				out = append(out, fmt.Sprintf("%s %d %d", k, i.From.UnixMicro(), i.To.UnixMicro()))
			}
		}
		return nil
	}))
	for _, period := range []string{"2026-11", "2026-12"} {
		v, err := l.PreviewInvoice(t.Context(), l.customer.Caller, period)
		require.NoError(t, err)
		out = append(out, period+" "+hex.EncodeToString(v.ContentHash[:]))
	}
	return strings.Join(out, "\n")
}

// truth is the usage part of the content as it happened.
func (l *late) truth() string {
	var out []string
	for run := range 2 {
		for _, i := range metering.Months(metering.Between(l.from[run], l.to[run]), time.Time{}) {
			start := metering.StartID(metering.Subject{Kind: "instance", ID: l.inst}, run+1)
			out = append(out, fmt.Sprintf("%x run %d %s %s %d %d", start, run+1, slice, metering.PeriodOf(i.From), i.From.UnixMicro(), i.To.UnixMicro()))
		}
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

// Any order, repetition and delay of evidence within the grace leads to one content and
// one content hash. The seed of each order is printed.
func TestEvidenceInAnyOrderIsOneContent(t *testing.T) {
	l := newLate(t)
	seed := uint64(time.Now().UnixNano())
	var want string
	for n := range 25 {
		r := rand.New(rand.NewPCG(seed, uint64(n)))
		l.forget(t)
		var now time.Time
		for _, arrive := range l.arrivals(t, r) {
			if arrive.before.After(now) {
				now = arrive.before
				l.setClock(t, now)
			}
			arrive.do()
		}
		l.setClock(t, november.AddDate(0, 1, 0).Add(20*time.Hour))
		got := l.content(t)
		if n == 0 {
			want = got
			require.Equal(t, l.truth(), strings.Join(strings.Split(got, "\n")[:3], "\n"), "seed %d order %d", seed, n)
		}
		require.Equal(t, want, got, "seed %d order %d", seed, n)
	}
	sum := sha256.Sum256([]byte(want))
	t.Logf("25 orders from seed %d: one content %x", seed, sum[:8])
}
