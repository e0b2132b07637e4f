package app_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/internal/app"
	"github.com/tranche-cloud/tranche/internal/clock"
	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/store"
	"github.com/tranche-cloud/tranche/internal/testkit/pgtest"
	"github.com/tranche-cloud/tranche/internal/units"
)

// fleet is a database with hosts and tenants, written as the owner would find it:
// without the API and the gateway, whose packages have tests of their own.
type fleet struct {
	app   *app.App
	store *store.Store
	owner *pgxpool.Pool
	clock *clock.Fake
}

func newFleet(t *testing.T) *fleet {
	t.Helper()
	base := pgtest.New(t)
	s, err := store.Open(t.Context(), base.AppDSN, 12, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	t.Cleanup(s.Close)
	f := &fleet{store: s, owner: base.OwnerPool(t)}
	f.clock = clock.NewFake(scalar[pgTime](t, f, `select clock_timestamp()`))
	f.app = app.New(app.Deps{Store: s, Clock: f.clock})
	return f
}

func (f *fleet) exec(t testing.TB, sql string, args ...any) {
	t.Helper()
	_, err := f.owner.Exec(context.Background(), sql, args...)
	require.NoError(t, err)
}

// scalar reads one value as the owner.
func scalar[T any](t testing.TB, f *fleet, sql string, args ...any) T {
	t.Helper()
	var v T
	require.NoError(t, f.owner.QueryRow(context.Background(), sql, args...).Scan(&v))
	return v
}

// buyer is an organization with one project.
type buyer struct {
	org     id.Org
	project id.Project
}

func (f *fleet) buyer(t testing.TB, name string) buyer {
	t.Helper()
	x := buyer{id.New[id.Org](), id.New[id.Project]()}
	f.exec(t, `insert into organizations (id, name, currency, created_at) values ($1, $2, 'USD', biz_now())`, x.org.UUID(), name)
	f.exec(t, `insert into quota_usage (org_id) values ($1)`, x.org.UUID())
	f.exec(t, `insert into projects (org_id, id, name, created_at) values ($1, $2, $3, biz_now())`, x.org.UUID(), x.project.UUID(), name)
	return x
}

// host adds a ready, live host whose GPUs are all of the device and mode.
func (f *fleet) host(t testing.TB, name string, gpus int, d gpu.Device, mode gpu.Mode) id.Host {
	t.Helper()
	h := id.New[id.Host]()
	hash, body, err := store.EncodeInventory(d)
	require.NoError(t, err)
	f.exec(t, `insert into gpu_inventories (hash, body) values ($1, $2) on conflict do nothing`, hash, body)
	f.exec(t, `insert into hosts (id, cell_id, pool_id, name, state, liveness, vcpu, ram_mib, public_key)
		values ($1, 'local-1', 'default', $2, 'ready', 'live', 1024, 4194304, '\x00')`, h.UUID(), name)
	for i := range gpus {
		f.exec(t, `insert into gpus (id, host_id, cell_id, uuid, ordinal, model, memory_mib, sm_count, units, inventory_hash,
			mode_desired, mode_observed) values ($1, $2, 'local-1', $3, $4, $5, $6, $7, $8, $9, $10, $10)`,
			id.New[id.GPU]().UUID(), h.UUID(), fmt.Sprintf("GPU-%s-%d", name, i), i, d.Model, int64(d.Memory), d.SMs,
			d.Units(mode), hash, mode.String())
	}
	return h
}

func (f *fleet) offer(t testing.TB, name, model string, mode gpu.Mode, profile string, count int) {
	t.Helper()
	sku := id.New[id.Key]()
	f.exec(t, `insert into skus (id, code, content_hash, gpu_model, mode, gpu_mode, profile, gpu_count, memory_mib,
		isolation_gpu, isolation_host, vcpu, ram_mib)
		values ($1, $2, decode(md5($2), 'hex'), $3, $4, $5, $6, $7, 1024, $8, 'shared_kernel', 2, 4096)`,
		sku.UUID(), name, model, string(mode.Kind), mode.String(), profile, count, string(mode.Isolation()))
	f.exec(t, `insert into offers (id, sku_id, pool_id, region_id) values ($1, $2, 'default', 'local')`, name, sku.UUID())
}

// create writes what the accepting transaction of a create leaves behind.
func (f *fleet) create(t testing.TB, x buyer, offer string) id.Instance {
	t.Helper()
	i, op := id.New[id.Instance](), id.New[id.Operation]()
	f.exec(t, `with o as (
			insert into operations (org_id, id, project_id, kind, subject_id, generation, created_at)
			values ($1, $2, $3, 'instance.create', $4, 1, biz_now())),
		n as (
			insert into instances (org_id, id, project_id, cell_id, pool_id, name, offer_id, sku_id, image, desired, status,
				operation_id, currency, created_at, accepted_at, intent_at, next_wake_at)
			select $1, $4, $3, 'local-1', 'default', $4::uuid::text, id, sku_id, 'img', 'running', 'queued', $2, 'USD',
				biz_now(), biz_now(), biz_now(), clock_timestamp() + interval '30s' from offers where id = $5)
		insert into quota_claims (org_id, instance_id, gpus) values ($1, $4, 1)`,
		x.org.UUID(), op.UUID(), x.project.UUID(), i.UUID(), offer)
	return i
}

// report writes what the gateway stores of a run, for every live assignment of the instance.
func (f *fleet) report(t testing.TB, i id.Instance, state, reason string) {
	t.Helper()
	f.exec(t, `insert into observed_slices (host_id, slice_key, assignment_id, fence, run, state, run_state, reason_code, session, sequence)
		select host_id, id::text, id, fence, run, 'present', $2, $3, 1, 1 from assignments
		where instance_id = $1 and state in ('claimed', 'applied')
		on conflict (host_id, slice_key) do update set run_state = $2, reason_code = $3`, i.UUID(), state, reason)
}

// acknowledge frees every releasing assignment of the instance, as the agent's
// tombstone does.
func (f *fleet) acknowledge(t testing.TB, i id.Instance) {
	t.Helper()
	rows, err := f.owner.Query(t.Context(), `select id, fence from assignments where instance_id = $1 and state = 'releasing'`, i.UUID())
	require.NoError(t, err)
	type ack struct {
		id    id.Assignment
		fence int64
	}
	var acks []ack
	for rows.Next() {
		var raw [16]byte
		var a ack
		require.NoError(t, rows.Scan(&raw, &a.fence))
		a.id = raw
		acks = append(acks, a)
	}
	require.NoError(t, rows.Err())
	for _, a := range acks {
		require.NoError(t, f.store.InSystem(t.Context(), "test", func(s *store.SystemTx) error {
			freed, err := s.FreeAssignment(t.Context(), a.id, a.fence)
			require.True(t, freed)
			return err
		}))
	}
}

func (f *fleet) advance(t testing.TB, i id.Instance) app.Outcome {
	t.Helper()
	out, err := f.app.Advance(t.Context(), i)
	require.NoError(t, err)
	return out
}

func (f *fleet) status(t testing.TB, i id.Instance) string {
	t.Helper()
	return scalar[string](t, f, `select status from instances where id = $1`, i.UUID())
}

// inParallel runs work for each element with at most n at once.
func inParallel[T any](t testing.TB, n int, list []T, work func(T) error) {
	t.Helper()
	var wg sync.WaitGroup
	var failed atomic.Value
	gate := make(chan struct{}, n)
	for _, x := range list {
		gate <- struct{}{}
		wg.Go(func() {
			defer func() { <-gate }()
			if err := work(x); err != nil {
				failed.Store(err)
			}
		})
	}
	wg.Wait()
	if err, ok := failed.Load().(error); ok {
		require.NoError(t, err)
	}
}

// h200 is the profile report of a real H200.
func h200() gpu.Device {
	d := gpu.Device{UUID: "GPU", Model: "H200-141", Name: "NVIDIA H200", Memory: 143771, SMs: 132}
	add := func(pid int, name string, compute, size, maximum, sms int, mem units.MiB, starts ...int) {
		p := gpu.Profile{ID: pid, Name: name, Compute: compute, MemoryUnits: size, Memory: mem, SMs: sms, MaxInstances: maximum,
			Engines: gpu.Engines{Copy: compute, Decode: compute, JPEG: compute}}
		for _, s := range starts {
			p.Placements = append(p.Placements, gpu.Placement{Start: s, Size: size})
		}
		d.Profiles = append(d.Profiles, p)
	}
	add(19, "1g.18gb", 1, 1, 7, 16, 16384, 0, 1, 2, 3, 4, 5, 6)
	add(15, "1g.35gb", 1, 2, 4, 26, 33280, 0, 2, 4, 6)
	add(14, "2g.35gb", 2, 2, 3, 32, 33280, 0, 2, 4)
	add(9, "3g.71gb", 3, 4, 2, 60, 71424, 0, 4)
	add(5, "4g.71gb", 4, 4, 1, 64, 71424, 0)
	add(0, "7g.141gb", 7, 8, 1, 132, 143360, 0)
	d.MemorySlices, d.ComputeUnits, d.Engines = gpu.Totals(d.Profiles)
	return d
}
