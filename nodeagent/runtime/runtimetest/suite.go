// Package runtimetest owns what every runtime driver must do, as tests: whoever
// implements runtime.Driver passes Run. Drivers that execute nothing pass the life of
// a container; those that do pass its confinement, limits, images, logs and teardown.
//
// It owns no image and no driver: a Harness brings both. It runs as root where the
// driver executes.
package runtimetest

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/nodeagent/runtime"
)

// Images are the references that a driver is examined with.
type Images struct {
	// Shell has busybox with its applets on the PATH, the user root and a command
	// that waits until SIGTERM.
	Shell string
	// Bare has nothing but the program /busybox.
	Bare string
	// Hostile is Shell with LD_PRELOAD=/evil.so, NVIDIA_VISIBLE_DEVICES=all,
	// CUDA_VISIBLE_DEVICES=0, TRANCHE_TOKEN=x and KEEP=1 in its environment.
	Hostile string
	// Private is Shell behind Login.
	Private string
	Login   runtime.Login
	// Missing is not in its registry, Refused not on the allow-list, Away in a
	// registry that nobody serves.
	Missing, Refused, Away string
}

// Harness is what a driver gives to be examined.
type Harness struct {
	// Open opens a driver whose state is in dir. Opened once more over the same dir it
	// stands for an agent that was started again.
	Open func(t *testing.T, dir string) runtime.Driver
	// Executes says that processes run. The fields below matter only then.
	Executes bool
	Images   Images
	// CDIDir is a folder whose CDI files the driver reads.
	CDIDir string
	// LogLimit is how many bytes Extra.Log may have; 0 does not examine it.
	LogLimit int64
	// Leftovers lists what the driver still holds of a container elsewhere than in its
	// dir, the mounts and the cgroups; nil is nothing.
	Leftovers func(t *testing.T, name string) []string
}

// patience is how long something may take that takes milliseconds.
const patience = 30 * time.Second

const poll = 20 * time.Millisecond

// Run examines a driver.
func Run(t *testing.T, h Harness) {
	t.Helper()
	tests := lifeTests
	if h.Executes {
		tests = append(tests[:len(tests):len(tests)], executingTests()...)
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			b := &bench{T: t, h: h, dir: dir, driver: h.Open(t, dir), logs: t.TempDir()}
			t.Cleanup(b.clean)
			test.run(b)
		})
	}
}

type test struct {
	name string
	run  func(b *bench)
}

func executingTests() []test {
	var out []test
	for _, tests := range [][]test{exitTests, confinementTests, deviceTests, limitTests, execTests, logTests, imageTests, teardownTests} {
		out = append(out, tests...)
	}
	return out
}

// bench is one test with one driver.
type bench struct {
	*testing.T
	h      Harness
	dir    string
	driver runtime.Driver
	logs   string
}

// clean stops whatever a test left, so that a failed one does not spoil the machine.
func (b *bench) clean() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(b.Context()), patience)
	defer cancel()
	list, err := b.driver.List(ctx)
	require.NoError(b, err)
	for _, c := range list {
		require.NoError(b, b.driver.Stop(ctx, c.Name))
	}
}

// restart opens the driver again over its state.
func (b *bench) restart() { b.driver = b.h.Open(b.T, b.dir) }

// spec is a small container of the given command.
func (b *bench) spec(command ...string) runtime.Spec {
	name := "asg_" + strings.ToLower(rand.Text()[:12])
	return runtime.Spec{
		Name: name, Run: 1, Instance: "inst-" + name[4:], Org: "org_1", Image: b.h.Images.Shell, Command: command,
		Slots:   []gpu.Slot{{GPU: "GPU-1", Mode: gpu.WholeMode(), Size: 1}},
		Devices: []string{"GPU-1"},
		VCPU:    1, RAM: 64,
		Extra: runtime.Extra{Log: filepath.Join(b.logs, name+".log")},
	}
}

func (b *bench) start(s runtime.Spec) runtime.Container {
	b.Helper()
	c, err := b.driver.Start(b.Context(), s)
	require.NoError(b, err)
	return c
}

// find returns the container as List shows it.
func (b *bench) find(name string) (runtime.Container, bool) {
	b.Helper()
	list, err := b.driver.List(b.Context())
	require.NoError(b, err)
	for _, c := range list {
		if c.Name == name {
			return c, true
		}
	}
	return runtime.Container{}, false
}

// exited waits for the end of a container.
func (b *bench) exited(name string) runtime.Container {
	b.Helper()
	var c runtime.Container
	require.Eventually(b, func() bool {
		c, _ = b.find(name)
		return c.State == runtime.Exited
	}, patience, poll, "%s should end", name)
	return c
}

// sh runs a script in a container and returns its standard output. The script must
// succeed.
func (b *bench) sh(name, script string) string {
	b.Helper()
	var stdout, stderr bytes.Buffer
	code, err := b.driver.Exec(b.Context(), name, runtime.Exec{Args: []string{"sh", "-c", script}, Stdout: &stdout, Stderr: &stderr})
	require.NoError(b, err)
	require.Zero(b, code, "%s: %s%s", script, stdout.String(), stderr.String())
	return strings.TrimSpace(stdout.String())
}

// log returns the log of a container so far.
func (b *bench) log(s runtime.Spec) string {
	text, err := os.ReadFile(s.Extra.Log)
	if err != nil {
		return ""
	}
	return string(text)
}

// logged waits until the log has a text.
func (b *bench) logged(s runtime.Spec, text string) {
	b.Helper()
	require.Eventually(b, func() bool { return strings.Contains(b.log(s), text) }, patience, poll, "%q in the log", text)
}

// fails starts a container that must be refused for a reason, and leaves nothing.
func (b *bench) fails(s runtime.Spec, kinds ...runtime.Kind) error {
	b.Helper()
	_, err := b.driver.Start(b.Context(), s)
	require.Error(b, err)
	require.Contains(b, kinds, runtime.KindOf(err), "%v", err)
	if c, ok := b.find(s.Name); ok {
		require.Equal(b, runtime.Created, c.State, "a failed start leaves nothing that runs")
		require.NoError(b, b.driver.Stop(b.Context(), s.Name))
	}
	b.gone(s.Name, runtime.Container{Cgroup: "/tranche/" + s.Name})
	return err
}

// gone checks that nothing is left of a container: no entry, process, mount, cgroup
// or file.
func (b *bench) gone(name string, c runtime.Container) {
	b.Helper()
	_, found := b.find(name)
	require.False(b, found)
	if !b.h.Executes {
		return
	}
	if c.PID != 0 {
		require.NoDirExists(b, fmt.Sprintf("/proc/%d/ns", c.PID))
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	require.NoError(b, err)
	require.NotContains(b, string(mounts), name, "mounts")
	if c.Cgroup != "" {
		require.Empty(b, cgroupsOf(b, c.Cgroup), "cgroups")
	}
	require.NoError(b, filepath.WalkDir(b.dir, func(path string, _ fs.DirEntry, err error) error {
		require.NotContains(b, strings.TrimPrefix(path, b.dir), name, "files")
		return err
	}))
	if b.h.Leftovers != nil {
		require.Empty(b, b.h.Leftovers(b.T, name))
	}
}

// cgroupsOf lists the folders of a cgroup in every hierarchy.
func cgroupsOf(b *bench, path string) []string {
	b.Helper()
	var out []string
	for _, pattern := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/*"} {
		found, err := filepath.Glob(pattern + path)
		require.NoError(b, err)
		out = append(out, found...)
	}
	return out
}
