package e2e_test

import (
	"bufio"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/client"
	"github.com/tranche-cloud/tranche/devstack/internal/market"
	"github.com/tranche-cloud/tranche/devstack/internal/stack"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/openapi/wire"
)

// realHost is the one host of the tests with real containers.
const realHost = "real-1"

// settle bounds what follows at once.
const settle, glance = 10 * time.Second, 50 * time.Millisecond

// TestContainers runs tenants' programs in real containers on one installation.
func TestContainers(t *testing.T) {
	require.NoError(t, stack.CanContain(), "this machine cannot run what this test is about")
	r := openAs(t, market.Fleet{{Name: realHost, GPUs: []market.GPUs{{Model: "H200-141", Mode: "mig", Count: 2}}}},
		stack.Config{Containers: true}, tiny())
	t.Run("tenant", func(t *testing.T) { tenantsDay(t, r) })
	t.Run("bad input", func(t *testing.T) { badInput(t, r) })
	t.Run("create to running", func(t *testing.T) { createToRunning(t, r) })
	t.Run("restarts", func(t *testing.T) { restartsBeneath(t, r) })

	ctx := within(t, 30*time.Second)
	r.clean(t, ctx)
	require.Eventually(t, func() bool { return len(r.tasks(t)) == 0 }, settle, glance, "a container is left")
	require.NoError(t, r.StopHost(ctx, realHost))
	said, err := r.Purge(ctx, realHost)
	require.NoError(t, err)
	require.NotContains(t, said, "ending", "a purge finds nothing to end")
	devices, err := filepath.Glob(filepath.Join(r.RunDir(), "cdi-*", "*"))
	require.NoError(t, err)
	require.Empty(t, devices, "device files are left")
	require.Empty(t, mountsBelow(t, r.RunDir(), r.Dir))
}

// mountsBelow lists what is mounted below some folders.
func mountsBelow(t *testing.T, dirs ...string) (found []string) {
	t.Helper()
	text, err := os.ReadFile("/proc/self/mounts")
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		at := strings.Fields(line)[1]
		if slices.ContainsFunc(dirs, func(dir string) bool { return strings.HasPrefix(at, dir+"/") }) {
			found = append(found, at)
		}
	}
	return found
}

// contained is an order for a program in a real container.
func (r *region) contained(name string, command ...string) client.InstanceCreate {
	in := client.InstanceCreate{Name: &name, Offer: market.MIGSmall.Offer, Image: r.Image()}
	if len(command) > 0 {
		in.Command = &command
	}
	return in
}

// running creates an instance and waits until it runs.
func running(t *testing.T, ctx context.Context, c *client.Client, b market.Buyer, in client.InstanceCreate) client.Instance {
	t.Helper()
	created, err := c.CreateInstance(ctx, b.Project, in)
	require.NoError(t, err)
	up, err := c.WaitInstance(ctx, b.Project, created.Id, wire.WaitStatusRunning)
	require.NoError(t, err)
	return up
}

// tenantsDay is all that a tenant does with one instance, and all that a stranger
// tries meanwhile.
func tenantsDay(t *testing.T, r *region) {
	ctx := within(t, time.Minute)
	b, c := r.buyer(t, ctx, "Dweller")
	const canary = "canary-7f3e9b1c5d-value"
	secret := true
	first, firstPublic := keyPair(t)
	in := r.contained("home", "sh", "-c", "echo began; i=0; while :; do echo tick $i; i=$((i+1)); sleep 1; done")
	in.SshKeys = &[]string{firstPublic}
	in.Env = &[]client.EnvVar{{Name: "TOKEN", Value: canary, Secret: &secret}, {Name: "PLAIN", Value: "open"}}
	home := running(t, ctx, c, b, in)
	require.Len(t, home.Gpus, 1)
	require.True(t, home.Ready)
	require.Len(t, r.tasks(t), 1)

	t.Run("exec", func(t *testing.T) {
		require.Equal(t, ended{code: 42}, r.inside(t, ctx, b.Key, home.Id, "", "sh", "-c", "exit 42"))
		require.Equal(t, ended{out: "2097152\n"}, r.inside(t, ctx, b.Key, home.Id, strings.Repeat("x", 2<<20), "wc", "-c"), "input ends")
		require.Equal(t, ended{out: "home\n"}, r.inside(t, ctx, b.Key, home.Id, "", "hostname"))
		require.Equal(t, 137, r.inside(t, ctx, b.Key, home.Id, "", "sh", "-c", "kill -9 $$").code)
	})
	t.Run("logs", func(t *testing.T) { followLogs(t, ctx, r, b, home) })
	t.Run("secret", func(t *testing.T) {
		require.Equal(t, canary+"\n", r.inside(t, ctx, b.Key, home.Id, "", "sh", "-c", "echo $TOKEN").out)
		require.Equal(t, "open\n", r.inside(t, ctx, b.Key, home.Id, "", "sh", "-c", "echo $PLAIN").out)
		require.Empty(t, filesWith(t, canary, r.Dir, r.RunDir()), "the secret is written nowhere")
	})
	t.Run("keys", func(t *testing.T) { changeKeys(t, ctx, r, b, home, first, firstPublic) })
	t.Run("stranger", func(t *testing.T) { stranger(t, ctx, r, home) })
	t.Run("sessions", func(t *testing.T) { sessionsAreTold(t, ctx, r, home) })

	_, err := c.StopInstance(ctx, b.Project, home.Id)
	require.NoError(t, err)
	stopped, err := c.WaitInstance(ctx, b.Project, home.Id, wire.WaitStatusStopped)
	require.NoError(t, err)
	require.Empty(t, stopped.Endpoints)
	require.Empty(t, r.tasks(t), "stopped means gone")
	refused := r.inside(t, ctx, b.Key, home.Id, "", "true")
	require.Equal(t, 5, refused.code, "conflict: %s", refused.err)

	_, err = c.StartInstance(ctx, b.Project, home.Id)
	require.NoError(t, err)
	again, err := c.WaitInstance(ctx, b.Project, home.Id, wire.WaitStatusRunning)
	require.NoError(t, err)
	require.Len(t, again.Billed, 2)
	require.Equal(t, canary+"\n", r.inside(t, ctx, b.Key, home.Id, "", "sh", "-c", "echo $TOKEN").out, "a new run gets it too")
	remove(t, ctx, c, b, home.Id)
	require.Empty(t, r.tasks(t))
	require.Empty(t, filesWith(t, canary, r.Dir, r.RunDir()))
}

func followLogs(t *testing.T, ctx context.Context, r *region, b market.Buyer, i client.Instance) {
	ctx, cancel := context.WithTimeout(ctx, settle)
	defer cancel()
	cmd := r.tranche(ctx, b.Key, "instance", "logs", i.Id, "-f", "--tail", "all")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	lines := bufio.NewScanner(out)
	var seen []string
	for len(seen) < 4 && lines.Scan() {
		seen = append(seen, lines.Text())
	}
	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait(), "it followed until it was killed")
	require.Equal(t, []string{"began", "tick 0", "tick 1", "tick 2"}, seen)
}

// changeKeys replaces the keys of a running instance; its run goes on.
func changeKeys(t *testing.T, ctx context.Context, r *region, b market.Buyer, i client.Instance, old, oldPublic string) {
	c, at := r.Client(b.Key), entrance(t, i)
	user, err := at.User.Get()
	require.NoError(t, err)
	require.Equal(t, i.Id, user)
	entered := program(t, openSSH(t, ctx, at, user, old, nil, "echo $PLAIN; exit 7"))
	require.Equal(t, ended{out: "open\n", code: 7}, entered)

	run := value[int](t, ctx, r, `select run from instances where id = $1`, uuidOf(t, i.Id))
	fresh, public := keyPair(t)
	require.NotEqual(t, oldPublic, public)
	changed, err := c.UpdateInstance(ctx, b.Project, i.Id, client.InstancePatch{SshKeys: &[]string{public}})
	require.NoError(t, err)
	require.Equal(t, []string{public}, changed.SshKeys)
	require.Eventually(t, func() bool { return program(t, openSSH(t, ctx, at, user, fresh, nil, "true")).code == 0 }, settle, glance)
	require.Equal(t, 255, program(t, openSSH(t, ctx, at, user, old, nil, "true")).code, "the old key is out")
	require.Equal(t, run, value[int](t, ctx, r, `select run from instances where id = $1`, uuidOf(t, i.Id)))
	after, err := c.GetInstance(ctx, b.Project, i.Id)
	require.NoError(t, err)
	require.Equal(t, i.Billed, after.Billed)
}

// stranger is another organization that has an instance on the same host.
func stranger(t *testing.T, ctx context.Context, r *region, victim client.Instance) {
	b, c := r.buyer(t, ctx, "Stranger")
	key, public := keyPair(t)
	in := r.contained("next-door", "sleep", "1000")
	in.SshKeys = &[]string{public}
	own := running(t, ctx, c, b, in)
	at := entrance(t, own)

	want := client.SSHCertificateCreate{PublicKey: public, Purpose: client.SSHShell}
	for _, project := range []string{victim.Project, b.Project} {
		_, err := c.CreateSSHCertificate(ctx, project, victim.Id, want)
		require.True(t, client.IsNotFound(err), err)
	}
	denied := r.inside(t, ctx, b.Key, victim.Id, "", "true")
	require.Equal(t, 3, denied.code, "not found: %s", denied.err)
	require.Equal(t, 255, program(t, openSSH(t, ctx, at, victim.Id, key, nil, "true")).code, "by a key of one's own")

	ticket, err := c.CreateSSHCertificate(ctx, b.Project, own.Id, want)
	require.NoError(t, err)
	certificate := filepath.Join(t.TempDir(), "key-cert.pub")
	require.NoError(t, os.WriteFile(certificate, []byte(ticket.Certificate+"\n"), 0o600))
	with := []string{"-o", "CertificateFile=" + certificate}
	require.Equal(t, ended{out: "next-door\n"}, program(t, openSSH(t, ctx, at, own.Id, key, with, "hostname")))
	require.Equal(t, 255, program(t, openSSH(t, ctx, at, victim.Id, key, with, "true")).code, "by a certificate of one's own")

	for _, instance := range []string{own.Id, victim.Id} {
		logs, err := c.CreateSSHCertificate(ctx, b.Project, instance, client.SSHCertificateCreate{PublicKey: public, Purpose: client.SSHLogs})
		if instance == victim.Id {
			require.True(t, client.IsNotFound(err), err)
			continue
		}
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(certificate, []byte(logs.Certificate+"\n"), 0o600))
		other, _ := keyPair(t) // the certificate is for another key: it proves nothing
		require.Equal(t, 255, program(t, openSSH(t, ctx, at, own.Id, other, with, "true")).code)
	}
	remove(t, ctx, c, b, own.Id)
}

// sessionsAreTold looks for the sessions in the tenant's feed and in the audit log.
func sessionsAreTold(t *testing.T, ctx context.Context, r *region, i client.Instance) {
	for _, end := range []struct{ event, operation string }{
		{"session.opened", "instance.session_open"}, {"session.closed", "instance.session_close"},
	} {
		require.Eventually(t, func() bool {
			return value[int](t, ctx, r, `select count(*) from events e join instances i on i.id = e.subject_id and i.org_id = e.org_id
				where i.id = $1 and e.type = $2`, uuidOf(t, i.Id), end.event) >= 6
		}, settle, glance, end.event)
		require.GreaterOrEqual(t, value[int](t, ctx, r, `select count(*) from audit_log a join instances i on i.org_id = a.org_id
			where i.id = $1 and a.operation = $2 and a.resource = $3`, uuidOf(t, i.Id), end.operation, i.Id), 6, end.operation)
	}
	require.Positive(t, value[int](t, ctx, r, `select count(*) from audit_log where operation = 'instance.session_open' and resource = $1
		and actor like 'ssh/SHA256:%'`, i.Id), "a session by one's own key names the key")
	require.Zero(t, value[int](t, ctx, r, `select count(*) from events e join organizations o on o.id = e.org_id
		where o.name = 'Stranger' and e.subject_id = $1`, uuidOf(t, i.Id)))
}

func uuidOf(t *testing.T, instance string) [16]byte {
	t.Helper()
	parsed, err := id.Parse[id.Instance](instance)
	require.NoError(t, err)
	return parsed.UUID()
}

// createToRunning measures from the request to the running program, with the image
// on the host.
func createToRunning(t *testing.T, r *region) {
	ctx := within(t, time.Minute)
	b, c := r.buyer(t, ctx, "Quick")
	const creates = 12
	var took []time.Duration
	for i := range creates {
		began := time.Now()
		up := running(t, ctx, c, b, r.contained("quick", "sleep", "1000"))
		if i > 0 { // the first may fetch the image
			took = append(took, time.Since(began))
		}
		remove(t, ctx, c, b, up.Id)
	}
	slices.Sort(took)
	t.Logf("create to running, warm, over %d: p50 %s, min %s, max %s", len(took),
		took[len(took)/2].Round(time.Millisecond), took[0].Round(time.Millisecond), took[len(took)-1].Round(time.Millisecond))
}
