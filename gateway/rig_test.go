package gateway_test

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/gateway"
	"github.com/tranche-cloud/tranche/internal/agentlink/ca"
	"github.com/tranche-cloud/tranche/internal/app"
	"github.com/tranche-cloud/tranche/internal/auth"
	"github.com/tranche-cloud/tranche/internal/clock"
	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/internal/host"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/instance"
	"github.com/tranche-cloud/tranche/internal/money"
	"github.com/tranche-cloud/tranche/internal/offer"
	"github.com/tranche-cloud/tranche/internal/quota"
	"github.com/tranche-cloud/tranche/internal/store"
	"github.com/tranche-cloud/tranche/internal/testkit/pgtest"
	"github.com/tranche-cloud/tranche/internal/units"
	"github.com/tranche-cloud/tranche/nodeagent"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv/sim"
	"github.com/tranche-cloud/tranche/nodeagent/simhost"
	"github.com/tranche-cloud/tranche/nodeagent/spool"
	"github.com/tranche-cloud/tranche/nodeagent/watch"
)

// patience bounds every wait; a test that is right waits milliseconds.
const patience = 20 * time.Second

// rig is a whole control plane in one process, on a database of its own, with a
// gateway and a worker that carries out what the outbox asks for.
type rig struct {
	*app.App
	db       pgtest.Database
	owner    *pgxpool.Pool
	gateway  *gateway.Gateway
	url      string
	operator app.Caller
	tenant   app.Caller
	project  id.Project
}

func newRig(t *testing.T) *rig {
	t.Helper()
	ctx := t.Context()
	db := pgtest.New(t)
	st, err := store.Open(ctx, db.AppDSN, 10, testLog())
	require.NoError(t, err)
	t.Cleanup(st.Close)
	keys := t.TempDir()
	require.NoError(t, ca.Init(keys, time.Now().AddDate(0, -1, 0)))
	authority, err := ca.Open(keys)
	require.NoError(t, err)
	hasher, err := auth.NewHasher(bytes.Repeat([]byte{1}, 32))
	require.NoError(t, err)
	box, err := auth.NewBox(bytes.Repeat([]byte{2}, 32))
	require.NoError(t, err)
	r := &rig{db: db, owner: db.OwnerPool(t), App: app.New(app.Deps{
		Store: st, Clock: clock.Real(), Hasher: hasher, Box: box, Dev: true, Log: testLog(),
		TrustRoot: authority.Trust(), Authority: authority,
	})}
	key, err := r.CreateOperator(ctx, "root")
	require.NoError(t, err)
	r.operator = r.caller(t, key.Secret)
	r.serve(t)
	r.work(t)
	return r
}

func testLog() *slog.Logger {
	if os.Getenv("TRANCHE_TEST_LOG") == "" {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

func (r *rig) caller(t *testing.T, secret auth.Secret) app.Caller {
	t.Helper()
	got, err := r.Authenticate(t.Context(), secret.Reveal())
	require.NoError(t, err)
	return app.Caller{Principal: got.Principal, RequestID: "test"}
}

// lastPort is the one given out last, so that tests beside each other get different ones.
var lastPort atomic.Int64

// freeAddr finds a free port in the range that tests may use.
func freeAddr(t *testing.T) string {
	t.Helper()
	for range 4000 {
		port := 20000 + os.Getpid()%8000 + int(lastPort.Add(1))
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err == nil {
			require.NoError(t, l.Close())
			return l.Addr().String()
		}
	}
	t.Fatal("no free port")
	return ""
}

// serve starts the gateway; it ends with the test.
func (r *rig) serve(t *testing.T) {
	t.Helper()
	g, err := gateway.New(t.Context(), gateway.Config{App: r.App, Listen: freeAddr(t), Log: testLog()})
	require.NoError(t, err)
	r.gateway, r.url = g, "https://"+g.Addr()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- g.Run(ctx) }()
	t.Cleanup(func() { cancel(); require.NoError(t, <-done) })
}

// work plays the worker: it carries out what the outbox asks for.
func (r *rig) work(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				r.relay(ctx)
			}
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
}

func (r *rig) relay(ctx context.Context) {
	rows, err := r.ClaimOutbox(ctx, 50, time.Minute)
	if err != nil {
		return
	}
	var sent []int64
	for _, row := range rows {
		sent = append(sent, row.ID)
		if h, err := id.Parse[id.Host](row.Key); err == nil {
			_, _ = r.AdvanceHost(ctx, h)
		}
		if i, err := id.Parse[id.Instance](row.Key); err == nil {
			_, _ = r.Advance(ctx, i)
		}
	}
	_ = r.SettleOutbox(ctx, sent, nil, 0)
}

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	require.Eventually(t, ok, patience, 5*time.Millisecond, what)
}

// count runs a query for one number as the owner of the tables.
func (r *rig) count(t *testing.T, sql string, args ...any) int {
	t.Helper()
	var n int
	require.NoError(t, r.owner.QueryRow(context.Background(), sql, args...).Scan(&n))
	return n
}

func (r *rig) exec(t *testing.T, sql string, args ...any) {
	t.Helper()
	_, err := r.owner.Exec(context.Background(), sql, args...)
	require.NoError(t, err)
}

// token makes a join token for any number of hosts.
func (r *rig) token(t *testing.T, approve bool) string {
	t.Helper()
	_, secret, err := r.CreateJoinToken(t.Context(), r.operator, app.NewJoinToken{MaxHosts: 100, AutoApprove: approve})
	require.NoError(t, err)
	return secret.Reveal()
}

// machine is one simulated host with its agent in this process.
type machine struct {
	simhost.Host
	name   string
	dir    string
	boot   string
	token  string
	url    string
	keeper *nodeagent.Keeper
	// watch, if it is to be watched, is made by the start; hung is a GPU that does not
	// answer it.
	watched bool
	watch   *watch.Watch
	hung    hungGPU
	stop    func()
}

// hungGPU is a GPU whose health is not answered until it is let go.
type hungGPU struct {
	gpudrv.Driver
	uuid  string
	until chan struct{}
}

func (h hungGPU) Health(ctx context.Context, uuid string) (gpudrv.Health, error) {
	if uuid == h.uuid {
		<-h.until
	}
	return h.Driver.Health(ctx, uuid)
}

func mode(text string) gpu.Mode {
	m, err := gpu.ParseMode(text)
	if err != nil {
		panic(err)
	}
	return m
}

// fleetHost has one GPU of each mode.
func fleetHost(name string) sim.FleetHost {
	return sim.FleetHost{Name: name, VCPU: 64, RAM: 512 * units.GiB, GPUs: []sim.FleetGPU{
		{Model: "H100-80", Mode: gpu.WholeMode(), Count: 1},
		{Model: "H200-141", Mode: gpu.MIGMode(), Count: 1},
		{Model: "A100-80", Mode: mode("mps:4x25"), Count: 1},
		{Model: "A100-80", Mode: mode("timeslice:2"), Count: 1},
	}}
}

func (r *rig) machine(t *testing.T, name, token string) *machine {
	t.Helper()
	m := &machine{name: name, dir: filepath.Join(t.TempDir(), name), boot: "boot-1", token: token, url: r.url}
	m.start(t)
	t.Cleanup(func() { m.stop() })
	return m
}

// start runs a new process of the agent on what is in the data folder.
func (m *machine) start(t *testing.T) {
	t.Helper()
	var err error
	m.Host, err = simhost.Open(t.Context(), simhost.Config{
		Dir: m.dir, Host: fleetHost(m.name), MachineBoot: m.boot, Clock: clock.Real(), Log: testLog(),
	})
	require.NoError(t, err)
	m.keeper, err = nodeagent.NewKeeper(t.Context(), m.Host.Host)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	cfg := nodeagent.Config{
		Name: m.name, Dir: m.dir, Gateway: m.url, MachineID: "m-" + m.name, Version: "test",
		Token: func() (string, error) { return m.token, nil }, Clock: clock.Real(), Log: testLog(),
	}
	rest := func() {}
	if m.watched {
		cfg.Spool, rest = m.startWatch(t, ctx)
	}
	agent, err := nodeagent.New(cfg, m.keeper)
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() { done <- agent.Run(ctx) }()
	m.stop = func() {
		cancel()
		<-done
		rest()
		require.NoError(t, m.keeper.Close())
		require.NoError(t, m.Sim.Close())
		m.stop = func() {}
	}
}

// startWatch runs what looks after the host's GPUs until ctx ends; rest waits for it.
func (m *machine) startWatch(t *testing.T, ctx context.Context) (_ *spool.Spool, rest func()) {
	t.Helper()
	s, err := spool.Open(spool.Config{
		Path: filepath.Join(m.dir, "spool.log"), BootID: m.BootID, Uptime: nodeagent.Uptime, Now: time.Now,
	})
	require.NoError(t, err)
	m.hung.Driver = m.Sim
	m.watch, err = watch.New(watch.Config{
		Host: m.Host.Host, Keeper: m.keeper, Driver: m.hung, Spool: s, MetricsListen: watch.NoMetrics,
		Every: 50 * time.Millisecond, HungAfter: 3 * time.Second, MPSProof: m.Sim.Probe,
	})
	require.NoError(t, err)
	require.NoError(t, m.watch.Register(ctx))
	done := make(chan error, 1)
	go func() { done <- m.watch.Run(ctx) }()
	return s, func() {
		require.NoError(t, <-done)
		require.NoError(t, s.Close())
	}
}

// ready waits until a host is sold from and returns its id.
func (r *rig) ready(t *testing.T, name string) id.Host {
	t.Helper()
	var h app.Host
	eventually(t, name+" is ready and live", func() bool {
		h = r.host(t, name)
		return h.State == host.Ready && h.Liveness == host.Live
	})
	return h.ID
}

// host reads a host by name; zero if there is none.
func (r *rig) host(t *testing.T, name string) app.Host {
	t.Helper()
	list, err := r.ListHosts(t.Context(), r.operator, app.HostFilter{}, app.Page{Size: 100})
	require.NoError(t, err)
	for _, h := range list.Items {
		if h.Name == name {
			return h
		}
	}
	return app.Host{}
}

// sell makes an organization and an offer for each mode of fleetHost.
func (r *rig) sell(t *testing.T) {
	t.Helper()
	ctx, usd := t.Context(), money.MustCurrency("USD")
	r.exec(t, `update pools set tenancy = 'shared'`)
	o, err := r.CreateOrganization(ctx, r.operator, app.NewOrganization{
		Name: "Acme", Currency: usd, Quota: quota.Limits{Instances: 100, GPUs: 100},
	})
	require.NoError(t, err)
	p, err := r.CreateProject(ctx, r.operator, o.ID, "default")
	require.NoError(t, err)
	r.project = p.ID
	k, err := r.CreateAPIKey(ctx, r.operator, o.ID, app.NewKey{Name: "main"})
	require.NoError(t, err)
	r.tenant = r.caller(t, k.Secret)
	prices := app.NewPriceBook{Name: "list", Currency: usd}
	for name, s := range map[string]struct {
		kind  gpu.Kind
		shape offer.Shape
	}{
		"whole":     {gpu.Whole, offer.Shape{Model: "H100-80", Memory: 80000}},
		"mig":       {gpu.MIG, offer.Shape{Model: "H200-141", Profile: "1g.18gb", Memory: 16384}},
		"mps":       {gpu.MPS, offer.Shape{Model: "A100-80", Profile: "4x25", Memory: 20000}},
		"timeslice": {gpu.TimeSlice, offer.Shape{Model: "A100-80", Profile: "2", Memory: 40000}},
	} {
		s.shape.Count, s.shape.VCPU, s.shape.RAM = 1, 2, 4096
		_, err := r.PutOffer(ctx, r.operator, app.OfferSpec{ID: name, Kind: s.kind, Shape: s.shape, Enabled: true})
		require.NoError(t, err)
		prices.Prices = append(prices.Prices, app.OfferPrice{Offer: name, PerHour: "1.5"})
	}
	_, err = r.CreatePriceBook(ctx, r.operator, prices)
	require.NoError(t, err)
	r.exec(t, `insert into organization_price_books (org_id, price_book_id, during)
		select $1, id, '[2020-01-01,)' from price_books
		on conflict do nothing`, o.ID.UUID())
}

func (r *rig) create(t *testing.T, name, offerID string) id.Instance {
	t.Helper()
	i, err := r.CreateInstance(t.Context(), r.tenant, app.NewInstance{Project: r.project, Name: name, Offer: offerID, Image: "img:1"})
	require.NoError(t, err)
	return i.ID
}

func (r *rig) get(t *testing.T, i id.Instance) app.Instance {
	t.Helper()
	got, err := r.GetInstance(t.Context(), r.tenant, r.project, i, app.Wait{})
	require.NoError(t, err)
	return got
}

// reaches waits for a status.
func (r *rig) reaches(t *testing.T, i id.Instance, want instance.Status) app.Instance {
	t.Helper()
	var got app.Instance
	eventually(t, i.String()+" becomes "+string(want), func() bool {
		got = r.get(t, i)
		return got.Status == want
	})
	return got
}

// fallsSilent lets 100 seconds pass for the host of an instance, and again while a
// proof that was under way when its agent ended is still being written.
func (r *rig) fallsSilent(t *testing.T, i id.Instance) {
	t.Helper()
	eventually(t, i.String()+" is interrupted", func() bool {
		r.exec(t, `update host_liveness set last_proof_at = last_proof_at - interval '100 seconds'`)
		r.exec(t, `update liveness_writers set since = since - interval '100 seconds'`)
		require.NoError(t, r.WatchLiveness(t.Context()))
		return r.get(t, i).Status == instance.Interrupted
	})
}
