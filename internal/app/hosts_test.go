package app_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/internal/agentlink"
	"github.com/tranche-cloud/tranche/internal/agentlink/ca"
	"github.com/tranche-cloud/tranche/internal/app"
	"github.com/tranche-cloud/tranche/internal/clock"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/internal/host"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/store"
	"github.com/tranche-cloud/tranche/internal/units"
)

// withAgents gives the world an agent CA.
func (w world) withAgents(t *testing.T) world {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, ca.Init(dir, time.Now()))
	authority, err := ca.Open(dir)
	require.NoError(t, err)
	w.Authority, w.TrustRoot = authority, authority.Trust()
	return w
}

func request(t *testing.T) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	csr, err := agentlink.Request(key)
	require.NoError(t, err)
	return csr
}

// joinHost makes a host by a token of its own.
func (w world) joinHost(t *testing.T, name string, approve bool) (app.Joined, []byte) {
	t.Helper()
	_, secret, err := w.CreateJoinToken(t.Context(), w.operator, app.NewJoinToken{AutoApprove: approve})
	require.NoError(t, err)
	csr := request(t)
	j, err := w.Join(t.Context(), app.JoinRequest{Token: secret.Reveal(), CSR: csr, HostName: name, From: netip.MustParseAddr("127.0.0.1")})
	require.NoError(t, err)
	return j, csr
}

func (w world) session(t *testing.T, h id.Host, boot string) store.Session {
	t.Helper()
	welcome, err := w.BeginSession(t.Context(), h, "gw", agentlink.Hello{BootID: boot, Nonce: id.New[id.Request]().String(), Counter: 1})
	require.NoError(t, err)
	return store.Session{Host: h, Number: welcome.Session}
}

func inventory(uuids ...string) agentlink.Inventory {
	in := agentlink.Inventory{VCPU: 64, RAM: 512 * units.GiB, Driver: "sim", DriverVersion: "1", Simulated: true}
	for i, u := range uuids {
		d := h200()
		d.UUID = u
		in.GPUs = append(in.GPUs, agentlink.InventoryGPU{Device: d, Ordinal: i, Mode: gpu.MIGMode(), Health: "healthy"})
	}
	return in
}

// From token to sale: pending, approved, validating, ready at the first complete
// inventory.
func TestHostIsTakenIn(t *testing.T) {
	w := newWorld(t, clock.Real()).withAgents(t)
	ctx := t.Context()
	j, csr := w.joinHost(t, "node-1", false)
	require.Nil(t, j.Certificate)
	_, err := w.BeginSession(ctx, j.Host, "gw", agentlink.Hello{BootID: "b", Nonce: "n", Counter: 1})
	require.Equal(t, "auth.forbidden", fault.CodeOf(err))
	h, err := w.ApproveHost(ctx, w.operator, j.Host, app.Match{})
	require.NoError(t, err)
	require.Equal(t, host.Approved, h.State)
	again, err := w.Join(ctx, app.JoinRequest{CSR: csr, HostName: "node-1"})
	require.NoError(t, err, "the key is the proof; the token is not asked for again")
	require.Equal(t, j.Host, again.Host)
	require.NotEmpty(t, again.Certificate)
	s := w.session(t, j.Host, "b")
	_, err = w.AdvanceHost(ctx, j.Host)
	require.NoError(t, err)
	require.NoError(t, w.RecordInventory(ctx, s, agentlink.Inventory{Failed: true, Failure: "hangs"}))
	_, err = w.AdvanceHost(ctx, j.Host)
	require.NoError(t, err)
	h, err = w.GetHost(ctx, w.operator, j.Host)
	require.NoError(t, err)
	require.Equal(t, host.Validating, h.State, "a failed read is no inventory")
	require.NoError(t, w.RecordInventory(ctx, s, inventory("GPU-b", "GPU-a")))
	_, err = w.AdvanceHost(ctx, j.Host)
	require.NoError(t, err)
	h, err = w.GetHost(ctx, w.operator, j.Host)
	require.NoError(t, err)
	require.Equal(t, host.Ready, h.State)
	require.Equal(t, 2, h.GPUCount)
	gpus, err := w.ListGPUs(ctx, w.operator, app.GPUFilter{Host: j.Host}, app.Page{Size: 1})
	require.NoError(t, err)
	require.Equal(t, "GPU-b", gpus.Items[0].UUID, "by index")
	require.Equal(t, 8, gpus.Items[0].UnitsTotal)
	gpus, err = w.ListGPUs(ctx, w.operator, app.GPUFilter{}, app.Page{Size: 1, Cursor: gpus.Next})
	require.NoError(t, err)
	require.Equal(t, "GPU-a", gpus.Items[0].UUID)
	require.Empty(t, gpus.Next)
	require.Equal(t, 1, w.count(t, `select count(*) from gpu_inventories`), "equal GPUs share one body")
}

// Another set of GPUs is an alarm: nothing is sold until an operator has looked.
func TestChangedGPUSetCordons(t *testing.T) {
	w := newWorld(t, clock.Real()).withAgents(t)
	ctx := t.Context()
	j, _ := w.joinHost(t, "node-1", true)
	s := w.session(t, j.Host, "b")
	_, err := w.AdvanceHost(ctx, j.Host)
	require.NoError(t, err)
	require.NoError(t, w.RecordInventory(ctx, s, inventory("GPU-a", "GPU-b")))
	_, err = w.AdvanceHost(ctx, j.Host)
	require.NoError(t, err)
	require.NoError(t, w.RecordInventory(ctx, s, inventory("GPU-b", "GPU-a")))
	h, err := w.GetHost(ctx, w.operator, j.Host)
	require.NoError(t, err)
	require.Equal(t, host.Ready, h.State, "another order is the same set")
	require.NoError(t, w.RecordInventory(ctx, s, inventory("GPU-a", "GPU-c")))
	h, err = w.GetHost(ctx, w.operator, j.Host)
	require.NoError(t, err)
	require.Equal(t, host.Cordoned, h.State)
	require.Equal(t, 1, w.count(t, `select count(*) from gpus where not present`))
	h, err = w.UncordonHost(ctx, w.operator, j.Host, app.Match{})
	require.NoError(t, err)
	require.Equal(t, host.Ready, h.State)
}

// Cordon is never blind; both turn only between ready and cordoned.
func TestCordon(t *testing.T) {
	w := newWorld(t, clock.Real()).withAgents(t)
	ctx := t.Context()
	w.host(t, "a", 1)
	list, err := w.ListHosts(ctx, w.operator, app.HostFilter{State: host.Ready}, app.Page{Size: 10})
	require.NoError(t, err)
	h := list.Items[0]
	_, err = w.CordonHost(ctx, w.operator, h.ID, app.Match{})
	require.Equal(t, "precondition.required", fault.CodeOf(err))
	stale := h.Generation - 1
	_, err = w.CordonHost(ctx, w.operator, h.ID, app.Match{Generation: &stale})
	require.Equal(t, "precondition.failed", fault.CodeOf(err))
	cordoned, err := w.CordonHost(ctx, w.operator, h.ID, app.Match{Generation: &h.Generation})
	require.NoError(t, err)
	require.Equal(t, host.Cordoned, cordoned.State)
	require.Greater(t, cordoned.Generation, h.Generation)
	again, err := w.CordonHost(ctx, w.operator, h.ID, app.Match{Generation: &cordoned.Generation})
	require.NoError(t, err)
	require.Equal(t, cordoned.Generation, again.Generation, "nothing to do, nothing changed")
	ready, err := w.UncordonHost(ctx, w.operator, h.ID, app.Match{})
	require.NoError(t, err)
	require.Equal(t, host.Ready, ready.State)
	j, _ := w.joinHost(t, "b", false)
	_, err = w.UncordonHost(ctx, w.operator, j.Host, app.Match{})
	require.Equal(t, "state.conflict", fault.CodeOf(err))
	_, err = w.GetHost(ctx, w.operator, id.New[id.Host]())
	require.Equal(t, "resource.not_found", fault.CodeOf(err))
}

func TestJoinTokens(t *testing.T) {
	w := newWorld(t, clock.Real()).withAgents(t)
	ctx := t.Context()
	for _, bad := range []app.NewJoinToken{
		{TTL: 25 * time.Hour}, {TTL: -time.Second}, {MaxHosts: -1}, {MaxHosts: 10_001}, {CIDR: "10.0.0.0"}, {HostName: "a", MaxHosts: 2},
	} {
		_, _, err := w.CreateJoinToken(ctx, w.operator, bad)
		require.Equal(t, fault.Invalid, fault.KindOf(err), "%+v", bad)
	}
	_, _, err := w.CreateJoinToken(ctx, w.operator, app.NewJoinToken{Pool: "nowhere"})
	require.Equal(t, "resource.not_found", fault.CodeOf(err))
	made, secret, err := w.CreateJoinToken(ctx, w.operator, app.NewJoinToken{CIDR: "10.1.0.0/16"})
	require.NoError(t, err)
	require.Equal(t, 15*time.Minute, made.ExpiresAt.Sub(made.CreatedAt).Round(time.Second))
	join := func(from string) error {
		_, err := w.Join(ctx, app.JoinRequest{Token: secret.Reveal(), CSR: request(t), HostName: "n", From: netip.MustParseAddr(from)})
		return err
	}
	require.Equal(t, "auth.invalid", fault.CodeOf(join("10.2.0.1")))
	require.NoError(t, join("10.1.2.3"))
	list, err := w.ListJoinTokens(ctx, w.operator, app.Page{Size: 10})
	require.NoError(t, err)
	require.Len(t, list.Items, 1)
	require.Equal(t, 1, list.Items[0].Used)
	first, err := w.RevokeJoinToken(ctx, w.operator, made.ID)
	require.NoError(t, err)
	second, err := w.RevokeJoinToken(ctx, w.operator, made.ID)
	require.NoError(t, err)
	require.Equal(t, first, second)
}

// What a stranger says of itself is bounded before it reaches a database or a
// terminal, and a refusal does not use the token up.
func TestJoinBounds(t *testing.T) {
	w := newWorld(t, clock.Real()).withAgents(t)
	_, secret, err := w.CreateJoinToken(t.Context(), w.operator, app.NewJoinToken{MaxHosts: 1})
	require.NoError(t, err)
	join := func(in app.JoinRequest) error {
		in.Token, in.CSR, in.From = secret.Reveal(), request(t), netip.MustParseAddr("127.0.0.1")
		_, err := w.Join(t.Context(), in)
		return err
	}
	for name, in := range map[string]app.JoinRequest{
		"no name":          {},
		"NUL in the name":  {HostName: "a\x00b"},
		"escape sequence":  {HostName: "a\x1b[31m"},
		"line in the name": {HostName: "a\nb"},
		"long name":        {HostName: strings.Repeat("a", 64)},
		"NUL in the id":    {HostName: "a", MachineID: "m\x00"},
		"long id":          {HostName: "a", MachineID: strings.Repeat("m", 256)},
		"NUL in a version": {HostName: "a", AgentVersion: "1\x00"},
		"long version":     {HostName: "a", AgentVersion: strings.Repeat("1", 256)},
	} {
		require.Equal(t, "request.invalid", fault.CodeOf(join(in)), name)
	}
	require.NoError(t, join(app.JoinRequest{HostName: "gpu-01.example", MachineID: strings.Repeat("m", 255), AgentVersion: "1"}))
}

// Renewal is for the key that joined, and not for a revoked host.
func TestRenewal(t *testing.T) {
	w := newWorld(t, clock.Real()).withAgents(t)
	ctx := context.WithoutCancel(t.Context())
	j, csr := w.joinHost(t, "node-1", true)
	key, err := agentlink.PublicKeyOf(csr)
	require.NoError(t, err)
	renewed, err := w.Renew(ctx, ca.Identity{Host: j.Host, PublicKey: key})
	require.NoError(t, err)
	require.NotEmpty(t, renewed.Certificate)
	_, err = w.Renew(ctx, ca.Identity{Host: id.New[id.Host](), PublicKey: key})
	require.Equal(t, "auth.forbidden", fault.CodeOf(err))
	w.exec(t, `update hosts set cert_revoked_at = clock_timestamp()`)
	_, err = w.Renew(ctx, ca.Identity{Host: j.Host, PublicKey: key})
	require.Equal(t, "auth.forbidden", fault.CodeOf(err))
	_, err = w.Join(ctx, app.JoinRequest{CSR: csr, HostName: "node-1"})
	require.Equal(t, "auth.forbidden", fault.CodeOf(err))
}
