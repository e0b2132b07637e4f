package sshgw_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"

	"github.com/tranche-cloud/tranche/agent/sshgw"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/sshcert"
)

// open starts a session that lasts, and returns once it does.
func open(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	_, err = io.ReadFull(out, make([]byte, 3))
	require.NoError(t, err)
}

func TestKeysChangeInPlace(t *testing.T) {
	t.Parallel()
	h, first, second := setup(t), newTenant(t), newTenant(t)
	b := h.launch(t, first.line)
	require.Equal(t, 255, finish(t, h.ssh(t, second, b, "true"), nil).code)
	stays := h.ssh(t, first, b, "echo up; exec sleep 60")
	open(t, stays)

	b.Keys = []string{second.line + " another"}
	require.NoError(t, h.state.Put(b.Entry))
	began := time.Now()
	require.Error(t, stays.Wait(), "a withdrawn key ends its sessions")
	require.Less(t, time.Since(began), 5*time.Second)
	require.Equal(t, "key withdrawn", h.collected(t, 2)[1].Reason)
	require.Equal(t, 255, finish(t, h.ssh(t, first, b, "true"), nil).code)
	got := finish(t, h.ssh(t, second, b, "true"), nil)
	require.Zero(t, got.code, got.err)

	stays = h.ssh(t, second, b, "echo up; exec sleep 60")
	open(t, stays)
	require.NoError(t, h.state.Remove(b.Instance))
	require.NoError(t, h.state.Remove(b.Instance), "removing twice is removing")
	require.Error(t, stays.Wait(), "an instance that is gone has no sessions")
	require.Equal(t, 255, finish(t, h.ssh(t, second, b, "true"), nil).code)
}

func TestAnInstanceThatIsNotHereLooksLikeAWrongKey(t *testing.T) {
	t.Parallel()
	h, me, other := setup(t), newTenant(t), newTenant(t)
	b := h.launch(t, me.line)
	wrong := finish(t, h.ssh(t, other, b, "true"), nil)
	missing := b
	missing.Instance = id.New[id.Instance]()
	got := finish(t, h.ssh(t, other, missing, "true"), nil)
	require.Equal(t, strings.ReplaceAll(wrong.err, b.Instance.String(), missing.Instance.String()), got.err)
	require.Equal(t, wrong.code, got.code)
	refusals := map[string]bool{}
	for _, user := range []string{b.Instance.String(), missing.Instance.String(), "", "root", "inst_", b.Assignment} {
		_, err := ssh.Dial("tcp", h.address, &ssh.ClientConfig{
			User: user, Auth: []ssh.AuthMethod{ssh.PublicKeys(other.signer)}, HostKeyCallback: ssh.InsecureIgnoreHostKey(), Timeout: soon,
		})
		require.Error(t, err, user)
		refusals[err.Error()] = true
	}
	require.Len(t, refusals, 1, "everybody hears the same")
	records, err := h.spool.Collect(10)
	require.NoError(t, err)
	require.Empty(t, records, "who was not let in had no session")
}

// authority makes a CA and a way to sign for a tenant.
func authority(t *testing.T) *sshcert.Authority {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	a, err := sshcert.NewAuthority(key)
	require.NoError(t, err)
	return a
}

func certify(t *testing.T, a *sshcert.Authority, who tenant, r sshcert.Request, at time.Time) *ssh.Certificate {
	t.Helper()
	r.Key, r.Holder = who.signer.PublicKey(), "key_01h455vb4pex5vsknk084sn02q"
	if r.Kind == "" {
		r.Kind = sshcert.Shell
	}
	if r.Life == 0 {
		r.Life = time.Minute
	}
	if r.Serial == 0 {
		r.Serial = 4711
	}
	cert, err := a.Sign(r, at)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(who.path+"-cert.pub", ssh.MarshalAuthorizedKey(cert), 0o600))
	return cert
}

func TestACertificateOpensWhatItNames(t *testing.T) {
	t.Parallel()
	h, me, ca := setup(t), newTenant(t), authority(t)
	b := h.launch(t)
	certify(t, ca, me, sshcert.Request{Instance: b.Instance}, time.Now())
	require.Equal(t, 255, finish(t, h.ssh(t, me, b, "true"), nil).code, "nobody trusts the authority yet")

	require.NoError(t, h.state.SetAuthorities([]string{authority(t).Public(), ca.Public()}))
	h.server.Refresh()
	require.Eventually(t, func() bool { return finish(t, h.ssh(t, me, b, "true"), nil).code == 0 }, soon, 10*time.Millisecond)
	closed := h.collected(t, 2)[1]
	require.Equal(t, "key_01h455vb4pex5vsknk084sn02q", closed.Principal)
	require.EqualValues(t, 4711, closed.Serial)
	require.Equal(t, ssh.FingerprintSHA256(me.signer.PublicKey()), closed.Fingerprint)

	for name, r := range map[string]sshcert.Request{
		"another instance": {Instance: id.New[id.Instance]()},
		"another address":  {Instance: b.Instance, Source: []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}},
	} {
		certify(t, ca, me, r, time.Now())
		require.Equal(t, 255, finish(t, h.ssh(t, me, b, "true"), nil).code, name)
	}
	certify(t, ca, me, sshcert.Request{Instance: b.Instance}, time.Now().Add(-2*time.Minute))
	require.Equal(t, 255, finish(t, h.ssh(t, me, b, "true"), nil).code, "expired")
	certify(t, ca, me, sshcert.Request{Instance: b.Instance, Source: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}, time.Now())
	stays := h.ssh(t, me, b, "echo up; exec sleep 60")
	open(t, stays)
	require.NoError(t, h.state.SetAuthorities(nil))
	require.Error(t, stays.Wait(), "sessions of an authority end with the trust in it")
}

func TestACertificateWithoutPermissionsForwardsNothing(t *testing.T) {
	t.Parallel()
	h, me := setup(t), newTenant(t)
	_, key, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	a, err := sshcert.NewAuthority(key)
	require.NoError(t, err)
	signer, err := ssh.NewSignerFromKey(key)
	require.NoError(t, err)
	b := h.launch(t)
	require.NoError(t, h.state.SetAuthorities([]string{a.Public()}))
	cert := certify(t, a, me, sshcert.Request{Instance: b.Instance}, time.Now())
	cert.Extensions = nil
	require.NoError(t, cert.SignCert(rand.Reader, signer))
	bound, err := ssh.NewCertSigner(cert, me.signer)
	require.NoError(t, err)
	var client *ssh.Client
	require.Eventually(t, func() bool {
		client, err = h.client(t, b, ssh.PublicKeys(bound))
		return err == nil
	}, soon, 10*time.Millisecond)
	defer client.Close()
	_, err = client.Dial("tcp", h.address)
	require.ErrorContains(t, err, "does not permit port forwarding")
	_, err = client.Listen("tcp", "127.0.0.1:0")
	require.Error(t, err)
	run, err := client.NewSession()
	require.NoError(t, err)
	require.Error(t, run.RequestPty("xterm", 24, 80, nil))
	require.NoError(t, run.Run("true"))
}

func TestALogsCertificateReadsTheLogAlone(t *testing.T) {
	t.Parallel()
	h, me, ca := setup(t), newTenant(t), authority(t)
	b := h.prepare(t) // no guest: logs are read of instances that do not answer, too
	require.NoError(t, h.state.SetAuthorities([]string{ca.Public()}))
	certify(t, ca, me, sshcert.Request{Instance: b.Instance, Kind: sshcert.Logs}, time.Now())
	file := h.cfg.Logs + "/" + b.Log
	require.Eventually(t, func() bool {
		got := finish(t, h.ssh(t, me, b, "logs"), nil)
		return got.code == 1 && strings.Contains(got.err, "no log yet")
	}, soon, 10*time.Millisecond)

	require.NoError(t, os.WriteFile(file, []byte("one\ntwo\nthree\n"), 0o600))
	for ask, want := range map[string]result{
		"logs":                {"one\ntwo\nthree\n", "", 0},
		"logs -n 2":           {"two\nthree\n", "", 0},
		"logs --tail 1":       {"three\n", "", 0},
		"logs -n all":         {"one\ntwo\nthree\n", "", 0},
		"logs -n 0":           {"", "", 0},
		"logs -n 9":           {"one\ntwo\nthree\n", "", 0},
		"cat /etc/passwd":     {"", "permits the log alone", 2},
		"logs ; id":           {"", "is not understood", 2},
		"logs -n -5":          {"", "no number of lines", 2},
		"logs -n 2000000":     {"", "no number of lines", 2},
		"logs ../../host_key": {"", "is not understood", 2},
	} {
		got := finish(t, h.ssh(t, me, b, ask), nil)
		require.Equal(t, want.code, got.code, ask)
		require.Equal(t, want.out, got.out, ask)
		require.Contains(t, got.err, want.err, ask)
	}
	for _, args := range [][]string{{"-s", "--", "sftp"}, {"-W", h.address, "--"}, {"-T", "--"}} {
		got := finish(t, h.ssh(t, me, b, args...), nil)
		require.NotZero(t, got.code, args)
		require.Empty(t, got.out, args)
	}
}

func TestALogIsFollowedOverItsTurns(t *testing.T) {
	t.Parallel()
	h, me, ca := setup(t), newTenant(t), authority(t)
	b := h.prepare(t)
	require.NoError(t, h.state.SetAuthorities([]string{ca.Public()}))
	certify(t, ca, me, sshcert.Request{Instance: b.Instance, Kind: sshcert.Logs}, time.Now())
	file := h.cfg.Logs + "/" + b.Log
	require.NoError(t, os.WriteFile(file, []byte("old\nlast\n"), 0o600))
	h.server.Refresh()
	require.Eventually(t, func() bool { return finish(t, h.ssh(t, me, b, "logs"), nil).code == 0 }, soon, 10*time.Millisecond)
	cmd := h.ssh(t, me, b, "logs -f -n 1")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	next := func(want string) {
		got := make([]byte, len(want))
		_, err := io.ReadFull(out, got)
		require.NoError(t, err)
		require.Equal(t, want, string(got))
	}
	next("last\n")
	log, err := os.OpenFile(file, os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	defer log.Close()
	_, err = log.WriteString("more\n")
	require.NoError(t, err)
	next("more\n")
	require.NoError(t, os.Rename(file, file+".1"))
	_, err = log.WriteString("end of old\n")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, []byte("new file\n"), 0o600))
	next("end of old\nnew file\n")
	require.NoError(t, os.Truncate(file, 0))
	again, err := os.OpenFile(file, os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	defer again.Close()
	_, err = again.WriteString("afresh\n")
	require.NoError(t, err)
	next("afresh\n")
	require.NoError(t, h.state.Remove(b.Instance))
	require.Error(t, cmd.Wait(), "the log of an instance that is gone is no longer followed")
}

func TestALogThatIsNoPlainFileIsNotOpened(t *testing.T) {
	t.Parallel()
	h, me, ca := setup(t), newTenant(t), authority(t)
	b := h.prepare(t)
	require.NoError(t, h.state.SetAuthorities([]string{ca.Public()}))
	certify(t, ca, me, sshcert.Request{Instance: b.Instance, Kind: sshcert.Logs}, time.Now())
	file := h.cfg.Logs + "/" + b.Log
	for name, put := range map[string]func() error{
		"a link out":      func() error { return os.Symlink(h.cfg.HostKey, file) },
		"a link within":   func() error { return os.Symlink("other.log", file) },
		"a folder":        func() error { return os.Mkdir(file, 0o755) },
		"a pipe":          func() error { return exec.Command("mkfifo", file).Run() },
		"a device":        func() error { return exec.Command("mknod", file, "c", "1", "5").Run() },
		"a device's link": func() error { return os.Symlink("/dev/zero", file) },
	} {
		require.NoError(t, os.RemoveAll(file))
		require.NoError(t, put(), name)
		h.server.Refresh()
		require.Eventually(t, func() bool {
			got := finish(t, h.ssh(t, me, b, "logs"), nil)
			return got.code == 1 && strings.Contains(got.err, "no log yet") && got.out == ""
		}, soon, 10*time.Millisecond, name)
	}
	for _, bad := range []string{"../x", "/etc/passwd", "a/b", ".."} {
		b.Log = bad
		require.Error(t, h.state.Put(b.Entry), bad)
	}
}

func TestSessionsAndInstancesOutliveTheGateway(t *testing.T) {
	t.Parallel()
	h, me := setup(t), newTenant(t)
	b := h.launch(t, me.line)
	key := h.server.HostKey()
	stays := h.ssh(t, me, b, "echo up; exec sleep 60")
	open(t, stays)
	h.stop()
	require.Error(t, stays.Wait())
	require.Equal(t, "gateway stopped", h.collected(t, 2)[1].Reason)
	h.start(t)
	require.Equal(t, key, h.server.HostKey(), "tenants know the host by its key")
	got := finish(t, h.ssh(t, me, b, "echo again"), nil)
	require.Equal(t, "again\n", got.out, got.err)
	info, err := os.Stat(h.cfg.HostKey)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
}

// startProcess runs the gateway on its own and returns how to kill it.
func (h *host) startProcess(t *testing.T) (kill func()) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "gateway", h.dir, h.address)
	cmd.Stderr = os.Stderr
	require.NoError(t, cmd.Start())
	kill = sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	t.Cleanup(kill)
	return kill
}

func TestAGatewayThatIsKilledClosesItsSessionsWhenItReturns(t *testing.T) {
	t.Parallel()
	h, me := setup(t), newTenant(t)
	b := h.launch(t, me.line)
	h.stop()
	h.hub.Shutdown() // there is no agent either
	kill := h.startProcess(t)
	require.Eventually(t, func() bool { return finish(t, h.ssh(t, me, b, "true"), nil).code == 0 }, soon, 10*time.Millisecond)
	stays := h.ssh(t, me, b, "echo up; exec sleep 60")
	open(t, stays)
	kill()
	require.Error(t, stays.Wait())
	require.Equal(t, sshgw.Opened, h.collected(t, 3)[2].Event)
	h.startProcess(t)
	require.Eventually(t, func() bool { return finish(t, h.ssh(t, me, b, "true"), nil).code == 0 }, soon, 10*time.Millisecond)
	records := h.collected(t, 6)
	require.Equal(t, records[2].Session, records[3].Session)
	require.Equal(t, sshgw.Closed, records[3].Event)
	require.Equal(t, sshgw.Restarted, records[3].Reason)
}

func TestAnInstanceThatDoesNotAnswerSaysSo(t *testing.T) {
	t.Parallel()
	h, me := setup(t, func(c *sshgw.Config) { c.Limits.Reach = 200 * time.Millisecond }), newTenant(t)
	b := h.prepare(t, me.line)
	require.Eventually(t, func() bool {
		got := finish(t, h.ssh(t, me, b, "true"), nil)
		return got.code == 255 && strings.Contains(got.err, "the instance does not answer")
	}, soon, 10*time.Millisecond)
	h.run(t, b)
	require.Eventually(t, func() bool { return finish(t, h.ssh(t, me, b, "true"), nil).code == 0 }, soon, 10*time.Millisecond)
}

func TestASessionThatCannotBeRecordedIsRefused(t *testing.T) {
	t.Parallel()
	h, me := setup(t, func(c *sshgw.Config) { c.Audit = func(sshgw.Record) error { return os.ErrPermission } }), newTenant(t)
	b := h.launch(t, me.line)
	require.Equal(t, 255, finish(t, h.ssh(t, me, b, "true"), nil).code)
}

func TestUnusableKeysAreNamedAndTheOthersHold(t *testing.T) {
	t.Parallel()
	h, me := setup(t), newTenant(t)
	b := h.launch(t)
	b.Keys = []string{"ssh-rsa AAAA", `command="true" ` + me.line, me.line}
	require.ErrorIs(t, h.state.Put(b.Entry), sshcert.ErrKey)
	require.Eventually(t, func() bool { return finish(t, h.ssh(t, me, b, "true"), nil).code == 0 }, soon, 10*time.Millisecond)
	all, err := h.state.List()
	require.NoError(t, err)
	require.Equal(t, []id.Instance{b.Instance}, all)
}
