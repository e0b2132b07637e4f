package app_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/internal/agentlink"
	"github.com/tranche-cloud/tranche/internal/app"
	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/internal/host"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/instance"
	"github.com/tranche-cloud/tranche/internal/quota"
	"github.com/tranche-cloud/tranche/internal/store"
)

// reachable gives every host an address, an SSH gateway and three ports.
func (s shop) reachable(t *testing.T) {
	t.Helper()
	s.exec(t, `update hosts set reach_address = '192.0.2.7', reach_ssh_port = 22, reach_ssh_host_key = 'ssh-ed25519 AAAA',
		reach_first_port = 30000, reach_last_port = 30002`)
}

func (s shop) hostOf(t *testing.T) id.Host {
	t.Helper()
	var h [16]byte
	require.NoError(t, s.db.OwnerPool(t).QueryRow(t.Context(), `select id from hosts`).Scan(&h))
	return h
}

// publish creates and places an instance with ports.
func (s shop) publish(t *testing.T, name string, ports ...app.Port) id.Instance {
	t.Helper()
	wish := s.wish(name)
	wish.Ports = ports
	i, err := s.CreateInstance(t.Context(), s.acme.Caller, wish)
	require.NoError(t, err)
	_, err = s.Advance(t.Context(), i.ID)
	require.NoError(t, err)
	return i.ID
}

// Ports are leased with the claim, told to host and tenant, and freed on evidence.
func TestPortsAreLeasedWithTheClaim(t *testing.T) {
	s := newShop(t, quota.Limits{Instances: 10, GPUs: 10})
	s.reachable(t)
	one := s.publish(t, "one", app.Port{Container: 8080, Protocol: "tcp"}, app.Port{Container: 53, Protocol: "udp"})
	d, err := s.Desired(t.Context(), s.hostOf(t))
	require.NoError(t, err)
	require.Equal(t, []agentlink.Port{
		{Container: 8080, Host: 30000, Protocol: "tcp"}, {Container: 53, Host: 30001, Protocol: "udp"},
	}, d.Orders[0].Ports)
	var at map[id.Instance]store.Endpoints
	require.NoError(t, s.Store.InOrg(t.Context(), s.acme.org.ID, func(tx *store.OrgTx) (err error) {
		at, err = tx.EndpointsOf(t.Context(), []id.Instance{one})
		return err
	}))
	require.Equal(t, "192.0.2.7", at[one].Address)
	require.Equal(t, 22, at[one].SSHPort)
	require.Len(t, at[one].Ports, 2)

	two := s.publish(t, "two", app.Port{Container: 80, Protocol: "tcp"})
	require.Equal(t, instance.Preparing, s.get(t, two).Status)
	three := s.publish(t, "three", app.Port{Container: 80, Protocol: "tcp"})
	require.Equal(t, instance.Failed, s.get(t, three).Status, "the range is exhausted")
	op := s.operation(t, s.get(t, three).Operation.ID)
	require.Equal(t, "capacity.none", op.Problem.Code)
	require.Contains(t, op.Problem.Suggestion, "ports")
	require.Equal(t, 3, s.count(t, `select count(distinct port) from host_ports`))

	_, err = s.DeleteInstance(t.Context(), s.acme.Caller, s.acme.project, one, appMatchAny)
	require.NoError(t, err)
	require.Equal(t, 3, s.count(t, `select count(*) from host_ports`), "not free before the proof")
	s.settle(t, one)
	require.Equal(t, 1, s.count(t, `select count(*) from host_ports`))
	four := s.publish(t, "four", app.Port{Container: 80, Protocol: "tcp"}, app.Port{Container: 81, Protocol: "tcp"})
	require.Equal(t, instance.Preparing, s.get(t, four).Status)
}

// Many creates at once never lease a port twice.
func TestPortsAreLeasedOnceUnderContention(t *testing.T) {
	s := newShop(t, quota.Limits{Instances: 20, GPUs: 20})
	s.reachable(t)
	s.exec(t, `update hosts set reach_last_port = 30020`)
	var made []id.Instance
	for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
		wish := s.wish(name)
		wish.Ports = []app.Port{{Container: 1, Protocol: "tcp"}, {Container: 2, Protocol: "tcp"}}
		i, err := s.CreateInstance(t.Context(), s.acme.Caller, wish)
		require.NoError(t, err)
		made = append(made, i.ID)
	}
	inParallel(t, 6, made, func(i id.Instance) error {
		for {
			out, err := s.Advance(t.Context(), i)
			if err != nil || !out.Again {
				return err
			}
		}
	})
	require.Equal(t, 12, s.count(t, `select count(distinct port) from host_ports`))
	require.Equal(t, 12, s.count(t, `select count(*) from host_ports where port between 30000 and 30011`))
}

// A host without an address or ports takes no instance that publishes any.
func TestPortsNeedAHostThatHasThem(t *testing.T) {
	s := newShop(t, quota.Limits{Instances: 10, GPUs: 10})
	require.Equal(t, instance.Failed, s.get(t, s.publish(t, "one", app.Port{Container: 80, Protocol: "tcp"})).Status)
	require.Equal(t, instance.Preparing, s.get(t, s.publish(t, "two")).Status)
}

// Ill GPUs and hosts that ask to be left alone take no work; a host below a floor
// keeps to one organization.
func TestWhatAHostSaysDecidesWhatItTakes(t *testing.T) {
	s := newShop(t, quota.Limits{Instances: 10, GPUs: 10})
	s.exec(t, `update pools set tenancy = 'shared'`)
	other := s.world.tenant(t, "Other", quota.Limits{Instances: 10, GPUs: 10})
	s.exec(t, `insert into organization_price_books (org_id, price_book_id, during)
		select $1, price_book_id, during from organization_price_books where org_id = $2 on conflict do nothing`,
		other.org.ID.UUID(), s.acme.org.ID.UUID())
	place := func(c customer, name string) instance.Status {
		t.Helper()
		wish := s.wish(name)
		wish.Project = c.project
		i, err := s.CreateInstance(t.Context(), c.Caller, wish)
		require.NoError(t, err)
		_, err = s.Advance(t.Context(), i.ID)
		require.NoError(t, err)
		got, err := s.GetInstance(t.Context(), c.Caller, c.project, i.ID, app.Wait{})
		require.NoError(t, err)
		return got.Status
	}
	for _, ill := range []string{"degraded", "failed", "resetting", "quarantined"} {
		s.exec(t, `update gpus set health = $1`, ill)
		require.Equal(t, instance.Failed, place(s.acme, ill))
	}
	s.exec(t, `update gpus set health = 'healthy'`)
	for _, condition := range []string{"cordon", "failed"} {
		s.exec(t, `update hosts set condition = $1, condition_cause = 'two GPUs hung'`, condition)
		require.Equal(t, instance.Failed, place(s.acme, "host-"+condition))
	}
	h, err := s.GetHost(t.Context(), s.operator, s.hostOf(t))
	require.NoError(t, err)
	require.Contains(t, h.Reason, "two GPUs hung")
	s.exec(t, `update hosts set condition = '', below_floor = '{runc 1.1.5 < 1.2.0}'`)
	require.Equal(t, instance.Preparing, place(s.acme, "mine"))
	require.Equal(t, instance.Failed, place(other, "theirs"))
	require.Equal(t, instance.Preparing, place(s.acme, "mine-too"))
	s.exec(t, `update hosts set below_floor = '{}'`)
	require.Equal(t, instance.Preparing, place(other, "theirs-later"))
}

// What an inventory says of health is told to operators when it changes.
func TestHealthIsToldWhenItChanges(t *testing.T) {
	w := newShop(t, quota.Limits{}).world.withAgents(t)
	joined, _ := w.joinHost(t, "b", true)
	s := w.session(t, joined.Host, "boot")
	in := inventory("GPU-1", "GPU-2")
	in.Runtime, in.Reach = "containerd", agentlink.Reach{Address: "h", SSHPort: 22, FirstPort: 30000, LastPort: 30100}
	tell := func() {
		t.Helper()
		require.NoError(t, w.RecordInventory(t.Context(), s, in))
	}
	events := func(kind string) int { return w.count(t, `select count(*) from events where type = $1`, kind) }
	tell()
	in.GPUs[0].Health, in.GPUs[0].HealthCause = "failed", "XID_79"
	tell()
	tell()
	require.Equal(t, 1, events("gpu.unhealthy"))
	require.Equal(t, 1, w.count(t, `select count(*) from gpus where health = 'failed' and health_cause = 'XID_79'`))
	in.GPUs[0].Health, in.GPUs[0].HealthCause = "healthy", ""
	tell()
	require.Equal(t, 1, events("gpu.healthy"))
	in.Condition, in.ConditionCause, in.BelowFloor = agentlink.ConditionCordon, "LIB_MISMATCH", []string{"kernel"}
	tell()
	tell()
	require.Equal(t, 1, events("host.condition"))
	in.Condition, in.ConditionCause, in.BelowFloor = agentlink.ConditionGood, "", nil
	in.GPUs[1].ModeState, in.GPUs[1].ModeProblem = "switching", "processes"
	tell()
	require.Equal(t, 2, events("host.condition"))
	h, err := w.GetHost(t.Context(), w.operator, joined.Host)
	require.NoError(t, err)
	require.Empty(t, h.Reason)
	require.Equal(t, "containerd", h.Runtime)
	require.Equal(t, 30100, h.Reach.LastPort)
	require.Equal(t, 1, w.count(t, `select count(*) from gpus where mode_state = 'switching' and mode_problem = 'processes'`))
	in.GPUs[1].ModeState, in.GPUs[1].ModeProblem, in.GPUs[1].Desired = "settled", "", gpu.WholeMode()
	tell()
	require.Equal(t, 1, w.count(t, `select count(*) from gpus where mode_state = 'failed' and mode_desired = 'whole' and mode_observed = 'mig'`),
		"a difference is not sold")
}

// A mode change is ordered when its GPU is empty, and takes no new work before.
func TestAModeOrderIsDueOnAnEmptyGPU(t *testing.T) {
	s := newShop(t, quota.Limits{Instances: 20, GPUs: 20})
	s.exec(t, `delete from gpus where ordinal > 0`)
	one := s.publish(t, "one")
	h := s.hostOf(t)
	var raw [16]byte
	require.NoError(t, s.db.OwnerPool(t).QueryRow(t.Context(), `select id from gpus`).Scan(&raw))
	g := id.GPU(raw)
	in := func(fn func(*store.SystemTx) error) error {
		return s.Store.InSystem(t.Context(), "test", fn)
	}
	var m store.ModeChange
	mps, err := gpu.ParseMode("mps:4x25")
	require.NoError(t, err)
	n := store.NewModeChange{ID: id.New[id.Operation](), GPU: g, Mode: mps, Policy: store.WhenEmpty, RequestedBy: "op"}
	require.NoError(t, in(func(tx *store.SystemTx) (err error) {
		m, err = tx.InsertModeChange(t.Context(), n)
		return err
	}))
	n.ID = id.New[id.Operation]()
	require.ErrorContains(t, in(func(tx *store.SystemTx) error {
		_, err := tx.InsertModeChange(t.Context(), n)
		return err
	}), "under way")
	m.Status = host.ModeSwitching
	early := m
	require.ErrorContains(t, in(func(tx *store.SystemTx) error { return tx.SaveModeChange(t.Context(), &early) }), "not empty")
	require.Equal(t, instance.Failed, s.get(t, s.publish(t, "two")).Status, "cordoned")
	_, err = s.DeleteInstance(t.Context(), s.acme.Caller, s.acme.project, one, appMatchAny)
	require.NoError(t, err)
	s.settle(t, one)
	require.NoError(t, in(func(tx *store.SystemTx) error { return tx.SaveModeChange(t.Context(), &m) }))
	d, err := s.Desired(t.Context(), h)
	require.NoError(t, err)
	require.Equal(t, []agentlink.ModeOrder{{GPU: m.UUID, Mode: mps, Epoch: 1}}, d.Modes)
	m.Status, m.Problem = host.ModeFailed, instance.Problem{Code: "IN_USE", Detail: "dcgm"}
	require.NoError(t, in(func(tx *store.SystemTx) error { return tx.SaveModeChange(t.Context(), &m) }))
	d, err = s.Desired(t.Context(), h)
	require.NoError(t, err)
	require.Empty(t, d.Modes)
	require.Equal(t, 1, s.count(t, `select count(*) from gpus where not cordoned and mode_desired = 'whole'`))
	require.Equal(t, 1, s.count(t, `select count(*) from events where type = 'gpu.mode_failed'`))
}
