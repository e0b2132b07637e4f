package gateway_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net/http"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/internal/agentlink"
	"github.com/tranche-cloud/tranche/internal/agentlink/agentv1"
	"github.com/tranche-cloud/tranche/internal/agentlink/agentv1/agentv1connect"
	"github.com/tranche-cloud/tranche/internal/agentlink/ca"
	"github.com/tranche-cloud/tranche/internal/app"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/host"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/instance"
	"github.com/tranche-cloud/tranche/internal/store"
)

// client dials the gateway as whoever holds cert; nil: as nobody.
func (r *rig) client(t *testing.T, cert *tls.Certificate) *http.Client {
	t.Helper()
	cfg := &tls.Config{
		MinVersion: tls.VersionTLS13, InsecureSkipVerify: true,
		VerifyConnection: agentlink.VerifyPinned(r.TrustRoot, time.Now),
	}
	if cert != nil {
		cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return cert, nil }
	}
	tr := &http.Transport{TLSClientConfig: cfg, Protocols: new(http.Protocols)}
	tr.Protocols.SetHTTP2(true)
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

// certificate makes a key and has an authority certify it as a host's.
func certificate(t *testing.T, a *ca.Authority, installation string, h id.Host, at time.Time) *tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	spki, err := x509.MarshalPKIXPublicKey(key.Public())
	require.NoError(t, err)
	issued, err := a.IssueHost(spki, installation, h, at)
	require.NoError(t, err)
	c := &tls.Certificate{PrivateKey: key}
	for rest := issued.PEM; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return c
		}
		c.Certificate = append(c.Certificate, block.Bytes)
	}
}

func (r *rig) certificate(t *testing.T, h id.Host) *tls.Certificate {
	t.Helper()
	installation, err := r.Installation(t.Context())
	require.NoError(t, err)
	return certificate(t, r.Authority, installation, h, time.Now())
}

// raw is an agent played by hand.
type raw struct {
	*connect.BidiStreamForClient[agentv1.SessionRequest, agentv1.SessionResponse]
	session  int64
	sequence uint64
}

// open starts a stream and says hello; the answer is an error unless admitted.
func (r *rig) open(t *testing.T, cert *tls.Certificate, hello agentlink.Hello) (*raw, error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	s := &raw{BidiStreamForClient: agentv1connect.NewAgentServiceClient(r.client(t, cert), r.url).Session(ctx)}
	err := s.send(&agentv1.SessionRequest{Frame: &agentv1.SessionRequest_Hello{Hello: agentlink.HelloOut(hello)}})
	m, cause := s.Receive()
	if cause != nil {
		return nil, errors.Join(cause, err)
	}
	if refused := m.GetRefused(); refused != nil {
		return nil, fault.New(fault.Conflict, refused.GetCode(), refused.GetDetail())
	}
	s.session = m.GetHelloAck().GetSession()
	return s, nil
}

func (s *raw) send(m *agentv1.SessionRequest) error {
	s.sequence++
	m.Session, m.Sequence = s.session, s.sequence
	return s.Send(m)
}

// pending makes a host row by joining with a fresh key, without an agent.
func (r *rig) approved(t *testing.T, name string) id.Host {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	csr, err := agentlink.Request(key)
	require.NoError(t, err)
	joined, err := r.Join(t.Context(), app.JoinRequest{Token: r.token(t, true), CSR: csr, HostName: name})
	require.NoError(t, err)
	require.NotEmpty(t, joined.Certificate)
	return joined.Host
}

func hello(boot, nonce string, counter uint64) agentlink.Hello {
	return agentlink.Hello{BootID: boot, Nonce: nonce, Counter: counter}
}

// Who gets a session, by certificate alone.
func TestCertificateDecides(t *testing.T) {
	r := newRig(t)
	h := r.approved(t, "node-1")
	other := t.TempDir()
	require.NoError(t, ca.Init(other, time.Now().AddDate(0, -1, 0)))
	foreign, err := ca.Open(other)
	require.NoError(t, err)
	installation, err := r.Installation(t.Context())
	require.NoError(t, err)
	unauthenticated := func(t *testing.T, err error) {
		t.Helper()
		require.Equal(t, connect.CodeUnauthenticated, connect.CodeOf(err), "%v", err)
	}
	// What the client sees of a handshake that the server refused depends on who
	// writes first; what counts is that no session begins.
	refused := func(t *testing.T, err error) {
		t.Helper()
		require.Error(t, err)
		require.Zero(t, r.count(t, `select count(*) from host_sessions`))
	}
	t.Run("no certificate", func(t *testing.T) {
		_, err := r.open(t, nil, hello("b", "n", 1))
		unauthenticated(t, err)
	})
	t.Run("foreign authority", func(t *testing.T) {
		_, err := r.open(t, certificate(t, foreign, installation, h, time.Now()), hello("b", "n", 1))
		refused(t, err)
	})
	t.Run("another installation", func(t *testing.T) {
		_, err := r.open(t, certificate(t, r.Authority, "elsewhere", h, time.Now()), hello("b", "n", 1))
		refused(t, err)
	})
	t.Run("expired", func(t *testing.T) {
		old := certificate(t, r.Authority, installation, h, time.Now().Add(-25*time.Hour))
		_, err := r.open(t, old, hello("b", "n", 1))
		unauthenticated(t, err)
	})
	t.Run("expired for longer than it may renew", func(t *testing.T) {
		old := certificate(t, r.Authority, installation, h, time.Now().Add(-16*24*time.Hour))
		_, err := r.open(t, old, hello("b", "n", 1))
		refused(t, err)
	})
	t.Run("a host that does not exist", func(t *testing.T) {
		_, err := r.open(t, r.certificate(t, id.New[id.Host]()), hello("b", "n", 1))
		require.ErrorContains(t, err, "auth.forbidden")
	})
	t.Run("renewal with a key that never joined", func(t *testing.T) {
		c := agentv1connect.NewEnrolServiceClient(r.client(t, r.certificate(t, h)), r.url)
		_, err := c.Renew(t.Context(), connect.NewRequest(&agentv1.RenewRequest{}))
		require.Equal(t, connect.CodePermissionDenied, connect.CodeOf(err))
	})
	t.Run("the host's own", func(t *testing.T) {
		s, err := r.open(t, r.certificate(t, h), hello("b", "n", 1))
		require.NoError(t, err)
		require.Positive(t, s.session)
	})
}

// A revoked host is off within five seconds, and does not come back.
func TestRevokedHostIsCutOff(t *testing.T) {
	r := newRig(t)
	h := r.approved(t, "node-1")
	s, err := r.open(t, r.certificate(t, h), hello("b", "n", 1))
	require.NoError(t, err)
	r.exec(t, `update hosts set cert_revoked_at = clock_timestamp() where id = $1`, h.UUID())
	started := time.Now()
	for err == nil {
		_, err = s.Receive()
	}
	require.Less(t, time.Since(started), 5*time.Second)
	_, err = r.open(t, r.certificate(t, h), hello("b", "n", 2))
	require.ErrorContains(t, err, "auth.forbidden")
}

// A pending host gets no session and no certificate before it is approved.
func TestHostWaitsForApproval(t *testing.T) {
	r := newRig(t)
	r.machine(t, "node-1", r.token(t, false))
	var h app.Host
	eventually(t, "the host has asked to join", func() bool { h = r.host(t, "node-1"); return h.State == host.Pending })
	_, err := r.open(t, r.certificate(t, h.ID), hello("b", "n", 1))
	require.ErrorContains(t, err, "auth.forbidden")
	_, err = r.ApproveHost(t.Context(), r.operator, h.ID, app.Match{})
	require.NoError(t, err)
	r.ready(t, "node-1")
}

// A join token is good for what it says and no more.
func TestJoinTokenIsRefused(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	join := func(token, name string) error {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		require.NoError(t, err)
		csr, err := agentlink.Request(key)
		require.NoError(t, err)
		_, err = r.Join(ctx, app.JoinRequest{Token: token, CSR: csr, HostName: name})
		return err
	}
	mint := func(in app.NewJoinToken) (app.JoinToken, string) {
		token, secret, err := r.CreateJoinToken(ctx, r.operator, in)
		require.NoError(t, err)
		return token, secret.Reveal()
	}
	_, named := mint(app.NewJoinToken{HostName: "node-1"})
	require.Equal(t, "auth.invalid", fault.CodeOf(join(named, "node-2")))
	require.NoError(t, join(named, "node-1"))
	require.Equal(t, "auth.invalid", fault.CodeOf(join(named, "node-1")), "used up")
	revoked, text := mint(app.NewJoinToken{})
	_, err := r.RevokeJoinToken(ctx, r.operator, revoked.ID)
	require.NoError(t, err)
	require.Equal(t, "auth.invalid", fault.CodeOf(join(text, "node-3")))
	_, far := mint(app.NewJoinToken{CIDR: "10.0.0.0/8"})
	require.Equal(t, "auth.invalid", fault.CodeOf(join(far, "node-4")))
	_, late := mint(app.NewJoinToken{})
	r.exec(t, `update join_tokens set expires_at = clock_timestamp() where used = 0`)
	require.Equal(t, "auth.invalid", fault.CodeOf(join(late, "node-5")))
	require.Equal(t, "auth.invalid", fault.CodeOf(join(agentlink.MintJoinToken(r.TrustRoot).Text(), "node-6")))
	_, twice := mint(app.NewJoinToken{MaxHosts: 2})
	require.Equal(t, "name.taken", fault.CodeOf(join(twice, "node-1")))
}

// A stream that was superseded can write nothing, and one that never held the
// better right gets none.
func TestOneStreamOfAHost(t *testing.T) {
	r := newRig(t)
	h := r.approved(t, "node-1")
	cert := r.certificate(t, h)
	first, err := r.open(t, cert, hello("boot", "a", 1))
	require.NoError(t, err)
	_, err = r.open(t, cert, hello("boot", "b", 1))
	require.ErrorContains(t, err, "state.conflict", "another process while the first proves life")
	second, err := r.open(t, cert, hello("boot", "a", 2))
	require.NoError(t, err, "the same process may dial again at once")
	require.Greater(t, second.session, first.session)
	for err == nil {
		_, err = first.Receive()
	}
	stale := store.Session{Host: h, Number: first.session}
	err = r.RecordObserved(t.Context(), app.Report{Session: stale, Sequence: 9, Received: time.Now(), Observed: agentlink.Observed{Full: true}})
	require.Equal(t, "state.conflict", fault.CodeOf(err))
	err = r.RecordInventory(t.Context(), stale, agentlink.Inventory{})
	require.Equal(t, "state.conflict", fault.CodeOf(err))
	r.exec(t, `update hosts set state = 'ready' where id = $1`, h.UUID())
	_, err = r.open(t, cert, hello("another boot", "c", 1))
	require.ErrorContains(t, err, "state.conflict")
	require.Equal(t, host.Cordoned, r.host(t, "node-1").State, "an alarm: two machines are one host")
}

// The one a process leaves behind does not make the next one wait.
func TestNextProcessNeedNotWait(t *testing.T) {
	r := newRig(t)
	cert := r.certificate(t, r.approved(t, "node-1"))
	first, err := r.open(t, cert, hello("boot", "a", 1))
	require.NoError(t, err)
	require.NoError(t, first.CloseRequest())
	require.NoError(t, first.CloseResponse())
	eventually(t, "the next process is admitted", func() bool {
		_, err := r.open(t, cert, hello("boot", "b", 1))
		return err == nil
	})
}

// What a host says about assignments of another host changes nothing of them.
func TestReportOfAnotherHostsAssignment(t *testing.T) {
	r := newRig(t)
	r.machine(t, "node-1", r.token(t, true))
	r.ready(t, "node-1")
	r.sell(t)
	i := r.create(t, "victim", "whole")
	r.reaches(t, i, instance.Running)
	var raw16 [16]byte
	require.NoError(t, r.owner.QueryRow(t.Context(), `select id from assignments`).Scan(&raw16))
	victim := id.Assignment(raw16)
	s, err := r.open(t, r.certificate(t, r.approved(t, "node-2")), hello("b", "n", 1))
	require.NoError(t, err)
	require.NoError(t, s.send(&agentv1.SessionRequest{Frame: &agentv1.SessionRequest_Observed{Observed: agentlink.ObservedOut(agentlink.Observed{
		Full: true, Hash: "x",
		Slices: []agentlink.Slice{{
			Key: victim.String(), Assignment: victim, Fence: 1, Run: 1, State: agentlink.SlicePresent,
			RunState: instance.RunFailed, Age: -1, EndedAge: -1,
		}},
		Gone: []agentlink.Tombstone{{Assignment: victim, Fence: 99}},
	})}}))
	eventually(t, "the report is kept as a stranger's", func() bool {
		return r.count(t, `select count(*) from observed_slices o join hosts h on h.id = o.host_id
			where h.name = 'node-2' and o.assignment_id is null`) == 1
	})
	require.Equal(t, instance.Running, r.get(t, i).Status)
	require.Equal(t, 1, r.count(t, `select count(*) from claims`))
}

// An unreadable inventory is told as a reason and takes nothing away.
func TestFailedReadTakesNothingAway(t *testing.T) {
	r := newRig(t)
	m := r.machine(t, "node-1", r.token(t, true))
	h := r.ready(t, "node-1")
	m.stop()
	var s *raw
	eventually(t, "the next process is admitted", func() (ok bool) {
		var err error
		s, err = r.open(t, r.certificate(t, h), hello(m.BootID, "z", 1))
		return err == nil
	})
	before := r.count(t, `select count(*) from gpus where present`)
	require.NoError(t, s.send(&agentv1.SessionRequest{Frame: &agentv1.SessionRequest_Inventory{
		Inventory: agentlink.InventoryOut(agentlink.Inventory{Failed: true, Failure: "driver hangs"}),
	}}))
	eventually(t, "the reason is shown", func() bool { return r.host(t, "node-1").Reason == "inventory: driver hangs" })
	require.Equal(t, before, r.count(t, `select count(*) from gpus where present`))
}
