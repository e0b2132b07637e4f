package containerd_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/errdefs"
	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/agent/images"
	"github.com/tranche-cloud/tranche/agent/images/imagestest"
	"github.com/tranche-cloud/tranche/agent/runtime/containerd"
	"github.com/tranche-cloud/tranche/agent/runtime/containerd/containerdtest"
	"github.com/tranche-cloud/tranche/agent/runtime/oci"
	"github.com/tranche-cloud/tranche/internal/clock"
	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/nodeagent"
	"github.com/tranche-cloud/tranche/nodeagent/runtime"
)

// TestMain makes this binary the logger of its own containers.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == containerd.LogCommand {
		if err := containerd.Log(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

const (
	logLimit = 1 << 20
	patience = 30 * time.Second
	poll     = 20 * time.Millisecond
)

// lab is a daemon, a registry and a folder for CDI files.
type lab struct {
	daemon   *containerdtest.Daemon
	registry *imagestest.Registry
	images   *images.Registry
	cdi      string
}

func newLab(t *testing.T) *lab {
	t.Helper()
	l := &lab{daemon: containerdtest.Start(t), registry: imagestest.Serve(t), cdi: t.TempDir()}
	var err error
	l.images, err = images.NewRegistry(images.Policy{Allow: l.registry.Allow()})
	require.NoError(t, err)
	return l
}

func (l *lab) config(t *testing.T, dir string) containerd.Config {
	t.Helper()
	host, err := oci.HostFacts()
	require.NoError(t, err)
	boot, err := nodeagent.BootID()
	require.NoError(t, err)
	return containerd.Config{
		LogLimit: logLimit,
		Address:  l.daemon.Address, StateDir: dir, CDIDirs: []string{l.cdi}, Host: host, Images: l.images,
		BootID: boot, Uptime: nodeagent.Uptime, Clock: clock.Real(), Grace: time.Second,
	}
}

// open returns a driver; opened again over the same folder it is a new agent.
func (l *lab) open(t *testing.T, dir string, change ...func(*containerd.Config)) *containerd.Driver {
	t.Helper()
	cfg := l.config(t, dir)
	for _, c := range change {
		c(&cfg)
	}
	d, err := containerd.Open(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d
}

func (l *lab) shell(t *testing.T) string {
	t.Helper()
	return l.registry.Push(t, l.registry.Public, "ok/shell:latest", imagestest.Busybox(t))
}

func spec(t *testing.T, image string, command ...string) runtime.Spec {
	t.Helper()
	name := "asg_" + strings.ToLower(rand.Text()[:12])
	return runtime.Spec{
		Name: name, Run: 1, Instance: "inst-" + name[4:], Org: "org_1", Image: image, Command: command,
		Slots: []gpu.Slot{{GPU: "GPU-1", Mode: gpu.WholeMode(), Size: 1}}, Devices: []string{"GPU-1"},
		VCPU: 1, RAM: 64, Extra: runtime.Extra{Log: filepath.Join(t.TempDir(), name+".log")},
	}
}

func start(t *testing.T, d *containerd.Driver, s runtime.Spec) runtime.Container {
	t.Helper()
	c, err := d.Start(t.Context(), s)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		require.NoError(t, d.Stop(ctx, s.Name))
	})
	return c
}

func find(t *testing.T, d *containerd.Driver, name string) (runtime.Container, bool) {
	t.Helper()
	list, err := d.List(t.Context())
	require.NoError(t, err)
	for _, c := range list {
		if c.Name == name {
			return c, true
		}
	}
	return runtime.Container{}, false
}

func exited(t *testing.T, d *containerd.Driver, name string) runtime.Container {
	t.Helper()
	var c runtime.Container
	require.Eventually(t, func() bool {
		c, _ = find(t, d, name)
		return c.State == runtime.Exited
	}, patience, poll)
	return c
}

func logged(t *testing.T, s runtime.Spec, text string) {
	t.Helper()
	require.Eventually(t, func() bool {
		log, err := os.ReadFile(s.Extra.Log)
		return err == nil && strings.Contains(string(log), text)
	}, patience, poll, "%q in the log", text)
}

// leftovers lists what the daemon still has under a name.
func (l *lab) leftovers(t *testing.T, name string) []string {
	t.Helper()
	c := l.daemon.Client(containerd.DefaultNamespace)
	ctx := namespaces.WithNamespace(t.Context(), containerd.DefaultNamespace)
	var found []string
	if _, err := c.LoadContainer(ctx, name); !errdefs.IsNotFound(err) {
		found = append(found, "container")
	}
	if _, err := c.SnapshotService(containerd.DefaultSnapshotter).Stat(ctx, name); !errdefs.IsNotFound(err) {
		found = append(found, "snapshot")
	}
	return found
}
