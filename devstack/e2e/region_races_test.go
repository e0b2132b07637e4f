package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/client"
	"github.com/tranche-cloud/tranche/devstack/internal/market"
	"github.com/tranche-cloud/tranche/devstack/internal/postgres"
	"github.com/tranche-cloud/tranche/devstack/internal/replay"
	"github.com/tranche-cloud/tranche/openapi/wire"
)

// TestRegion runs what needs no fault on one installation.
func TestRegion(t *testing.T) {
	r := open(t, append(market.Small(1),
		market.Host{Name: "many-1", GPUs: []market.GPUs{{Model: "A100-80", Mode: "mps:4x25", Count: 16}}}))
	t.Run("spine", func(t *testing.T) { spine(t, r) })
	t.Run("two organizations", func(t *testing.T) { twoOrganizations(t, r) })
	t.Run("one key one instance", func(t *testing.T) { oneKeyOneInstance(t, r) })
	t.Run("last slot", func(t *testing.T) { lastSlot(t, r) })
	t.Run("cordon", func(t *testing.T) { cordonRacesCreates(t, r) })
	t.Run("mode when empty", func(t *testing.T) { modeWhenEmpty(t, r) })
	t.Run("invoice", func(t *testing.T) { invoiceOfTheMonth(t, r) })
	r.clean(t, within(t, 30*time.Second))
}

// spine walks one tenant's path in all four modes.
func spine(t *testing.T, r *region) {
	ctx := within(t, time.Minute)
	_, err := r.OpenMonth(ctx, 600)
	require.NoError(t, err)
	b, c := r.buyer(t, ctx, "Spine")

	offers, err := client.Collect(c.Offers(ctx))
	require.NoError(t, err)
	require.Len(t, offers, len(market.Products))

	products := []market.Product{market.Whole, market.MIG, market.MPS, market.TimeSlice}
	instances, err := parallel(len(products), func(i int) (client.Instance, error) {
		created, err := c.CreateInstance(ctx, client.OnlyProject, wanted(products[i], string(products[i].Shape.Mode)))
		if err != nil {
			return created, err
		}
		return c.WaitInstance(ctx, b.Project, created.Id, wire.WaitStatusRunning)
	})
	require.NoError(t, err)
	for i, p := range products {
		require.Len(t, instances[i].Gpus, 1, "the running instance shows its slice")
		gpu := instances[i].Gpus[0]
		require.Equal(t, p.Shape.Mode, gpu.Mode)
		require.Equal(t, p.Shape.MemoryMib, gpu.MemoryMib)
		require.True(t, instances[i].Ready)
		require.True(t, instances[i].Simulated)
		require.Len(t, instances[i].Billed, 1)
	}

	first := instances[0].Id
	_, err = c.StopInstance(ctx, b.Project, first)
	require.NoError(t, err)
	stopped, err := c.WaitInstance(ctx, b.Project, first, wire.WaitStatusStopped)
	require.NoError(t, err)
	require.Empty(t, stopped.Gpus)
	cost := stopped.CostSoFar
	_, err = c.StartInstance(ctx, b.Project, first)
	require.NoError(t, err)
	running, err := c.WaitInstance(ctx, b.Project, first, wire.WaitStatusRunning)
	require.NoError(t, err)
	require.Len(t, running.Billed, 2)
	require.NotEqual(t, cost, running.CostSoFar)

	for _, i := range instances {
		_, err := c.DeleteInstance(ctx, b.Project, i.Id)
		require.NoError(t, err)
	}
	var billed int64
	for _, i := range instances {
		gone, err := c.WaitInstance(ctx, b.Project, i.Id, wire.WaitStatusDeleted)
		require.NoError(t, err)
		n, err := replay.BilledMicros(gone)
		require.NoError(t, err)
		require.Positive(t, n)
		billed += n
	}
	preview, err := c.PreviewInvoice(ctx, "")
	require.NoError(t, err)
	require.NoError(t, replay.CheckInvoice(preview, billed), "preview quantity is what was billed, to the microsecond")
	require.True(t, preview.Id.IsNull())

	live, err := client.Collect(c.Instances(ctx, b.Project, client.InstanceFilter{}))
	require.NoError(t, err)
	require.Empty(t, live)
}

// oneKeyOneInstance sends one create a thousand times at once.
func oneKeyOneInstance(t *testing.T, r *region) {
	ctx := within(t, time.Minute)
	b, c := r.buyer(t, ctx, "Once")
	answers, err := parallel(1000, func(int) (client.Instance, error) {
		for {
			answer, err := c.CreateInstance(ctx, b.Project, wanted(market.MPS, "only"), client.IdempotencyKey("the-one"))
			if client.CodeOf(err) != "idempotency.in_flight" {
				return answer, err
			}
		}
	})
	require.NoError(t, err)
	for _, a := range answers {
		require.Equal(t, answers[0].Id, a.Id)
	}
	require.Equal(t, 1, value[int](t, ctx, r, `select count(*) from instances i join organizations o on o.id = i.org_id where o.name = 'Once'`))
	remove(t, ctx, c, b, answers[0].Id)
}

// lastSlot lets 200 creates race for the only whole GPU.
func lastSlot(t *testing.T, r *region) {
	ctx := within(t, 100*time.Second)
	b, c := r.buyer(t, ctx, "Crowd")
	const crowd = 200
	created, err := parallel(crowd, func(i int) (client.Instance, error) {
		return c.CreateInstance(ctx, b.Project, wanted(market.Whole, fmt.Sprintf("crowd-%03d", i)))
	})
	require.NoError(t, err)
	codes := map[string]int{}
	outcomes, err := parallel(crowd, func(i int) (string, error) {
		operation, err := created[i].Operation.Get()
		if err != nil {
			return "", err
		}
		_, err = c.WaitOperation(ctx, operation.Id)
		var ended *client.OperationError
		if err != nil && !errors.As(err, &ended) {
			return "", err
		}
		return client.CodeOf(err), nil
	})
	require.NoError(t, err)
	winner := ""
	for i, code := range outcomes {
		codes[code]++
		if code == "" {
			winner = created[i].Id
		}
	}
	require.Equal(t, map[string]int{"": 1, "capacity.none": crowd - 1}, codes)
	running, err := client.Collect(c.Instances(ctx, b.Project, client.InstanceFilter{Status: wire.InstanceStatusRunning}))
	require.NoError(t, err)
	require.Len(t, running, 1)
	failed, err := client.Collect(c.Instances(ctx, b.Project, client.InstanceFilter{Status: wire.InstanceStatusFailed}))
	require.NoError(t, err)
	require.Len(t, failed, crowd-1)
	require.Empty(t, failed[0].Billed, "a failed create costs nothing")
	remove(t, ctx, c, b, winner)
}

// cordonRacesCreates cordons a host while 64 creates could go to it.
func cordonRacesCreates(t *testing.T, r *region) {
	ctx := within(t, time.Minute)
	b, c := r.buyer(t, ctx, "Cordon")
	admin := r.Admin()
	host := hostNamed(t, ctx, admin, "many-1")
	var cordoned time.Time
	instances, err := parallel(65, func(i int) (client.Instance, error) {
		if i == 64 {
			_, err := admin.CordonHost(ctx, host.Id, client.IfGeneration(host.Generation))
			cordoned = time.Now()
			return client.Instance{}, err
		}
		return c.CreateInstance(ctx, b.Project, wanted(market.MPS, fmt.Sprintf("race-%02d", i)))
	})
	require.NoError(t, err)
	for _, i := range instances[:64] {
		operation, err := i.Operation.Get()
		require.NoError(t, err)
		if _, err := c.WaitOperation(ctx, operation.Id); err != nil {
			require.Equal(t, "capacity.none", client.CodeOf(err), err)
		}
	}
	late := value[int](t, ctx, r, `select count(*) from assignments a join hosts h on h.id = a.host_id
		where h.name = 'many-1' and a.ordered_at > $1`, cordoned)
	require.Zero(t, late, "nothing is sold on a cordoned host")
	for _, i := range instances[:64] {
		_, err := c.DeleteInstance(ctx, b.Project, i.Id)
		require.NoError(t, err)
	}
	for _, i := range instances[:64] {
		_, err := c.WaitInstance(ctx, b.Project, i.Id, wire.WaitStatusDeleted)
		require.NoError(t, err)
	}
	_, err = admin.UncordonHost(ctx, host.Id)
	require.NoError(t, err)
}

// invoiceOfTheMonth finalizes what the other tests used, while the worker is killed.
func invoiceOfTheMonth(t *testing.T, r *region) {
	ctx := within(t, time.Minute)
	worker, err := r.Process("worker")
	require.NoError(t, err)
	conn, err := pgx.Connect(ctx, r.Postgres.DSN(postgres.Superuser, "tranche"))
	require.NoError(t, err)
	killed := make(chan error, 1)
	go func() {
		runs := 0
		for err := error(nil); runs == 0 && err == nil; {
			err = conn.QueryRow(ctx, `select count(*) from invoice_runs`).Scan(&runs)
		}
		killed <- errors.Join(worker.Signal(syscall.SIGKILL), conn.Close(context.WithoutCancel(ctx)))
	}()
	run, err := r.CloseMonth(ctx)
	require.NoError(t, err)
	require.NoError(t, <-killed)
	require.NoError(t, worker.WaitReady(ctx))
	require.Equal(t, len(run.Invoices), value[int](t, ctx, r, `select count(distinct org_id) from invoices where status = 'open'`), "one each")
	require.Equal(t, len(run.Invoices), value[int](t, ctx, r, `select count(*) from ledger_journals where kind = 'invoice_finalized'`), "posted once")
	require.NotEmpty(t, run.Invoices)
	numbers := map[string]bool{}
	for _, i := range run.Invoices {
		numbers[i.Number] = true
	}
	require.Len(t, numbers, len(run.Invoices), "each invoice has a number of its own")
	again, err := r.CloseMonth(ctx)
	require.NoError(t, err, "the next month is empty")
	require.Empty(t, again.Invoices)
}

func hostNamed(t *testing.T, ctx context.Context, admin client.Admin, name string) client.Host {
	t.Helper()
	hosts, err := client.Collect(admin.Hosts(ctx))
	require.NoError(t, err)
	for _, h := range hosts {
		if h.Name == name {
			return h
		}
	}
	t.Fatalf("no host %s", name)
	return client.Host{}
}

func remove(t *testing.T, ctx context.Context, c *client.Client, b market.Buyer, id string) {
	t.Helper()
	_, err := c.DeleteInstance(ctx, b.Project, id)
	require.NoError(t, err)
	_, err = c.WaitInstance(ctx, b.Project, id, wire.WaitStatusDeleted)
	require.NoError(t, err)
}
