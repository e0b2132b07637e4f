package containerd_test

import (
	"bytes"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	ctd "github.com/containerd/containerd/v2/client"
	oci "github.com/opencontainers/runtime-spec/specs-go"
	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/agent/runtime/containerd"
	"github.com/tranche-cloud/tranche/internal/clock"
	"github.com/tranche-cloud/tranche/nodeagent"
	"github.com/tranche-cloud/tranche/nodeagent/runtime"
)

// listed waits until the driver reaches a daemon that was started again.
func listed(t *testing.T, d *containerd.Driver) {
	t.Helper()
	require.Eventually(t, func() bool { _, err := d.List(t.Context()); return err == nil }, patience, poll)
}

func TestInstancesOutliveTheDaemon(t *testing.T) {
	l := newLab(t)
	d := l.open(t, t.TempDir())
	s := spec(t, l.shell(t), "sh", "-c", "echo one; while ! test -e /go; do sleep 0.05; done; echo two; sleep 1000")
	c := start(t, d, s)
	logged(t, s, "one")
	l.daemon.Kill()

	_, err := d.List(t.Context())
	require.Equal(t, runtime.Unavailable, runtime.KindOf(err), "nothing is known: %v", err)
	_, err = d.Start(t.Context(), spec(t, s.Image))
	require.Equal(t, runtime.Unavailable, runtime.KindOf(err), "%v", err)
	_, err = d.Stats(t.Context(), s.Name)
	require.Equal(t, runtime.Unavailable, runtime.KindOf(err), "%v", err)
	_, err = d.Exec(t.Context(), s.Name, runtime.Exec{Args: []string{"true"}})
	require.Equal(t, runtime.Unavailable, runtime.KindOf(err), "%v", err)
	err = d.Stop(t.Context(), s.Name)
	require.Equal(t, runtime.Unavailable, runtime.KindOf(err), "%v", err)
	_, err = d.Probe(t.Context())
	require.Equal(t, runtime.Unavailable, runtime.KindOf(err), "%v", err)

	l.daemon.Run()
	listed(t, d)
	found, ok := find(t, d, s.Name)
	require.True(t, ok)
	require.Equal(t, c, found)
	code, err := d.Exec(t.Context(), s.Name, runtime.Exec{Args: []string{"touch", "/go"}})
	require.NoError(t, err)
	require.Zero(t, code)
	logged(t, s, "two")
}

func TestAnEndWithoutDaemonIsNotTakenForRunning(t *testing.T) {
	l := newLab(t)
	d := l.open(t, t.TempDir())
	s := spec(t, l.shell(t), "sh", "-c", "echo ready; sleep 1000")
	c := start(t, d, s)
	logged(t, s, "ready")
	l.daemon.Kill()
	require.NoError(t, syscall.Kill(c.PID, syscall.SIGKILL))
	require.Eventually(t, func() bool { return syscall.Kill(c.PID, 0) != nil }, patience, poll)
	l.daemon.Run()
	listed(t, d)
	found := exited(t, d, s.Name)
	require.Equal(t, c.Started, found.Started)
	require.True(t, found.Ended == 0 || found.Ended >= c.Started, "unknown, or known")
	require.NoError(t, d.Stop(t.Context(), s.Name))
	require.Empty(t, l.leftovers(t, s.Name))
}

// skewed is a wall clock that somebody set.
type skewed struct {
	clock.Clock
	by time.Duration
}

func (s skewed) Now() time.Time { return s.Clock.Now().Add(s.by) }

func TestASetClockMovesNoEndOutOfTheRun(t *testing.T) {
	l := newLab(t)
	image := l.shell(t)
	for name, by := range map[string]time.Duration{"forward": time.Hour, "back": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			d := l.open(t, t.TempDir(), func(c *containerd.Config) { c.Clock = skewed{clock.Real(), by} })
			s := spec(t, image, "true")
			started := start(t, d, s).Started
			c := exited(t, d, s.Name)
			require.GreaterOrEqual(t, c.Ended, started)
			require.LessOrEqual(t, c.Ended, nodeagent.Uptime())
			require.NoError(t, d.Stop(t.Context(), s.Name))
		})
	}
}

func TestAnEndIsKnownToTheMillisecond(t *testing.T) {
	l := newLab(t)
	d := l.open(t, t.TempDir())
	s := spec(t, l.shell(t), "sh", "-c", "cat /proc/uptime; exit 0")
	start(t, d, s)
	c := exited(t, d, s.Name)
	logged(t, s, ".")
	text, err := os.ReadFile(s.Extra.Log)
	require.NoError(t, err)
	said, err := time.ParseDuration(strings.Fields(string(text))[0] + "s")
	require.NoError(t, err)
	const process = 5 * time.Second // a loaded machine ends a shell late, but not by an hour
	require.InDelta(t, said, c.Ended, float64(process))
}

func TestHalfMadeContainersAreSeenAndRemoved(t *testing.T) {
	l := newLab(t)
	d := l.open(t, t.TempDir())
	s := spec(t, l.shell(t))
	start(t, d, s) // brings the image
	require.NoError(t, d.Stop(t.Context(), s.Name))

	client := l.daemon.Client(containerd.DefaultNamespace)
	_, err := client.SnapshotService(containerd.DefaultSnapshotter).Prepare(t.Context(), "asg_layer", "")
	require.NoError(t, err)
	require.NoError(t, d.Stop(t.Context(), "asg_layer"), "a layer without a container")
	require.Empty(t, l.leftovers(t, "asg_layer"))

	_, err = client.SnapshotService(containerd.DefaultSnapshotter).Prepare(t.Context(), s.Name, "")
	require.NoError(t, err)
	_, err = client.NewContainer(t.Context(), s.Name, ctd.WithSpec(&oci.Spec{Version: oci.Version}))
	require.NoError(t, err)
	c, ok := find(t, d, s.Name)
	require.True(t, ok)
	require.Equal(t, runtime.Created, c.State)
	start(t, d, s)
	var out bytes.Buffer
	_, err = d.Exec(t.Context(), s.Name, runtime.Exec{Args: []string{"hostname"}, Stdout: &out})
	require.NoError(t, err)
	require.Equal(t, s.Instance+"\n", out.String())
}

func TestProbe(t *testing.T) {
	l := newLab(t)
	d := l.open(t, t.TempDir())
	facts, err := d.Probe(t.Context())
	require.NoError(t, err)
	t.Logf("%+v", facts)
	require.NotEmpty(t, facts.Containerd)
	require.Contains(t, facts.Runc, "runc version")
	_, err = l.open(t, t.TempDir(), func(c *containerd.Config) { c.Runc = "/no/such/runc" }).Probe(t.Context())
	require.Equal(t, runtime.Unavailable, runtime.KindOf(err), "%v", err)
}

func TestVersionsHaveAFloor(t *testing.T) {
	t.Parallel()
	for version, older := range map[string]bool{
		"1.6.20~ds1": false, "v2.4.2": false, "1.6.19": true, "1.5.99": true, "1.7": false, "": true, "unknown": true,
	} {
		require.Equal(t, older, containerd.Older(version, containerd.FloorContainerd), version)
	}
	require.Error(t, containerd.CheckRunc("crun version 1.8.1", false), "crun on cgroups of version 1")
	require.NoError(t, containerd.CheckRunc("crun version 1.8.1", true))
	require.Error(t, containerd.CheckRunc("runc version 1.1.4", true))
	require.NoError(t, containerd.CheckRunc("runc version 1.1.5+ds1", false))
}

func TestAnAddressIsAbsolute(t *testing.T) {
	t.Parallel()
	_, err := containerd.Open(containerd.Config{Address: "s"})
	require.Equal(t, runtime.Broken, runtime.KindOf(err))
}
