// Package containerdtest owns private containerd daemons for tests: each with its own
// root, state and socket below one folder, and without the parts that clusters need.
//
// It needs root, and containerd, its shim and runc of the distribution. A missing
// program fails the test. What a test leaves behind is removed by Cleanup: tasks,
// mounts and files.
package containerdtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Binary names the environment variable with the path of another daemon than the one
// on the PATH. Its shim must lie beside it.
const Binary = "TRANCHE_TEST_CONTAINERD"

const patience = 30 * time.Second

const poll = 20 * time.Millisecond

// Daemon is one running, or stopped, daemon.
type Daemon struct {
	Dir     string
	Address string
	t       testing.TB
	process *exec.Cmd
}

const config = `version = 2
root = %q
state = %q
disabled_plugins = [
  "io.containerd.grpc.v1.cri", "io.containerd.cri.v1.images", "io.containerd.cri.v1.runtime",
  "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.blockfile",
  "io.containerd.nri.v1.nri", "io.containerd.internal.v1.tracing",
]
[grpc]
  address = %q
[plugins."io.containerd.internal.v1.opt"]
  path = %q
`

// Start runs a daemon until the end of the test.
func Start(t testing.TB) *Daemon {
	t.Helper()
	require.Zero(t, os.Getuid(), "containerd needs root")
	dir, err := os.MkdirTemp("", "ctd") // short: paths of sockets are
	require.NoError(t, err)
	require.NoError(t, os.Chmod(dir, 0o711), "a mapped root must pass through")
	d := &Daemon{Dir: dir, Address: filepath.Join(dir, "s"), t: t}
	text := fmt.Sprintf(config, filepath.Join(dir, "root"), filepath.Join(dir, "state"), d.Address, filepath.Join(dir, "opt"))
	require.NoError(t, os.WriteFile(d.file("config.toml"), []byte(text), 0o600))
	t.Cleanup(d.remove)
	d.Run()
	return d
}

func (d *Daemon) file(name string) string { return filepath.Join(d.Dir, name) }

// Run starts the daemon and waits until it serves.
func (d *Daemon) Run() {
	d.t.Helper()
	binary := os.Getenv(Binary)
	if binary == "" {
		binary = "containerd"
	}
	path, err := exec.LookPath(binary)
	require.NoError(d.t, err, "install containerd")
	log, err := os.OpenFile(d.file("log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	require.NoError(d.t, err)
	defer func() { require.NoError(d.t, log.Close()) }()
	cmd := exec.Command(path, "--config", d.file("config.toml"), "--log-level", "warn")
	cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(path)+":"+os.Getenv("PATH"))
	cmd.Stdout, cmd.Stderr = log, log
	require.NoError(d.t, cmd.Start())
	d.process = cmd
	ctx, cancel := context.WithTimeout(context.WithoutCancel(d.t.Context()), patience)
	defer cancel()
	for {
		err := d.serves(ctx)
		if err == nil {
			return
		}
		if ctx.Err() != nil {
			text, _ := os.ReadFile(d.file("log")) // only for the message
			require.NoError(d.t, err, "containerd does not serve: %s", text)
		}
		<-time.After(poll)
	}
}

func (d *Daemon) serves(ctx context.Context) error {
	c, err := client.New(d.Address)
	if err != nil {
		return err
	}
	_, err = c.Version(ctx)
	return errors.Join(err, c.Close())
}

// Stop ends the daemon, with its tasks running on.
func (d *Daemon) Stop() { d.end(syscall.SIGTERM) }

// Kill ends the daemon without a warning.
func (d *Daemon) Kill() { d.end(syscall.SIGKILL) }

func (d *Daemon) end(signal syscall.Signal) {
	d.t.Helper()
	if d.process == nil {
		return
	}
	require.NoError(d.t, d.process.Process.Signal(signal))
	_ = d.process.Wait() // a signal is an error
	d.process = nil
}

// Client opens a client for one namespace, until the end of the test.
func (d *Daemon) Client(namespace string) *client.Client {
	d.t.Helper()
	c, err := client.New(d.Address, client.WithDefaultNamespace(namespace))
	require.NoError(d.t, err)
	d.t.Cleanup(func() { require.NoError(d.t, c.Close()) })
	return c
}

// remove ends what is left, daemon last, and deletes the folder.
func (d *Daemon) remove() {
	if d.process == nil {
		d.Run()
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(d.t.Context()), patience)
	defer cancel()
	d.endTasks(ctx)
	d.Stop()
	d.endShims()
	for range 3 { // mounts on mounts
		for _, path := range d.mounts() {
			_ = unix.Unmount(path, unix.MNT_DETACH) // looked at again
		}
	}
	require.Empty(d.t, d.mounts(), "mounts of the daemon")
	require.NoError(d.t, os.RemoveAll(d.Dir))
}

// endTasks removes the tasks of every namespace; shims end with them.
func (d *Daemon) endTasks(ctx context.Context) {
	c, err := client.New(d.Address)
	require.NoError(d.t, err)
	defer func() { require.NoError(d.t, c.Close()) }()
	spaces, err := c.NamespaceService().List(ctx)
	require.NoError(d.t, err)
	for _, space := range spaces {
		in, err := client.New(d.Address, client.WithDefaultNamespace(space))
		require.NoError(d.t, err)
		found, err := in.Containers(ctx)
		require.NoError(d.t, err)
		for _, container := range found {
			if task, err := container.Task(ctx, nil); err == nil {
				_, err = task.Delete(ctx, client.WithProcessKill)
				d.t.Logf("left over: task %s (%v)", container.ID(), err)
			}
		}
		require.NoError(d.t, in.Close())
	}
}

// endShims kills the shims of this daemon that did not end with their tasks.
func (d *Daemon) endShims() {
	entries, err := os.ReadDir("/proc")
	require.NoError(d.t, err)
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		line, err := os.ReadFile(filepath.Join("/proc", entry.Name(), "cmdline"))
		if err == nil && strings.Contains(string(line), "containerd-shim") && strings.Contains(string(line), "\x00"+d.Address+"\x00") {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may be ending
		}
	}
}

// mounts lists what is mounted below the folder, latest first.
func (d *Daemon) mounts() []string {
	text, err := os.ReadFile("/proc/self/mountinfo")
	require.NoError(d.t, err)
	var found []string
	for line := range strings.Lines(string(text)) {
		const target = 4
		if fields := strings.Fields(line); len(fields) > target && strings.HasPrefix(fields[target], d.Dir+"/") {
			found = append([]string{fields[target]}, found...)
		}
	}
	return found
}
