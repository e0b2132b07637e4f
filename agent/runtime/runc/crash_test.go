package runc_test

import (
	"bufio"
	"encoding/json"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/agent/cgroup"
	"github.com/tranche-cloud/tranche/nodeagent/runtime"
)

func spec(b *bench, name string, command ...string) runtime.Spec {
	return runtime.Spec{Name: name, Run: 1, Instance: "inst-1", Image: b.images.Shell, Command: command, VCPU: 1, RAM: 64}
}

// agent starts a process that obeys an order, and returns it with its output.
func agent(t *testing.T, o order) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	text, err := json.Marshal(o)
	require.NoError(t, err)
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self, "doomed-agent", string(text))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	return cmd, bufio.NewScanner(out)
}

func kill(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
}

// clean checks that nothing of a container is left on the host.
func clean(t *testing.T, p place, name string) {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	require.NoError(t, err)
	require.NotContains(t, string(mounts), name)
	tree, err := cgroup.Open("")
	require.NoError(t, err)
	_, err = tree.Stats(cgroup.Path(name))
	require.True(t, cgroup.Gone(err), "%v", err)
	for _, dir := range []string{p.Dir, p.Run, filepath.Join(p.Layers, "mounts")} {
		require.NoError(t, filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
			require.NotContains(t, path, name)
			return err
		}))
	}
	processes, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(t, err)
	for _, file := range processes {
		if line, err := os.ReadFile(file); err == nil && !strings.Contains(string(line), "doomed-agent") {
			require.NotContains(t, string(line), name, file)
		}
	}
}

// Killed at any instant of a start or a stop, the next agent lists what is there and
// stops it without a trace.
func TestAgentIsKilledAtAnyStep(t *testing.T) {
	b := newBench(t)
	p := b.place(t, t.TempDir())
	const name = "asg_doomed"
	obedient := spec(b, name, "sh", "-c", "trap 'exit 0' TERM; while :; do sleep 0.05; done")
	states := map[runtime.State]int{}
	for i := range 9 {
		cmd, out := agent(t, order{Place: p, Spec: obedient, Stop: true})
		if i%2 == 1 {
			require.True(t, out.Scan(), "started")
		}
		wait := time.NewTimer(time.Duration(rand.IntN(700)) * time.Millisecond)
		<-wait.C
		kill(t, cmd)

		d, err := p.open()
		require.NoError(t, err)
		list, err := d.List(t.Context())
		require.NoError(t, err)
		for _, c := range list {
			require.Equal(t, name, c.Name)
			states[c.State]++
		}
		if i%3 == 0 {
			c, err := d.Start(t.Context(), obedient)
			require.NoError(t, err, "or starts it as if nothing had been")
			require.Equal(t, runtime.Running, c.State)
		}
		require.NoError(t, d.Stop(t.Context(), name))
		clean(t, p, name)
	}
	t.Logf("found: %v", states)
}

// Nobody watches, and still the end is known to the code and the moment.
func TestEndIsKeptWhileTheAgentIsDead(t *testing.T) {
	b := newBench(t)
	p := b.place(t, t.TempDir())
	s := spec(b, "asg_alone", "sh", "-c", "while ! test -e /go; do sleep 0.05; done; echo bye; exit 9")
	s.Extra.Log = filepath.Join(t.TempDir(), "log")
	cmd, out := agent(t, order{Place: p, Spec: s})
	require.True(t, out.Scan())
	kill(t, cmd)
	d, err := p.open()
	require.NoError(t, err)
	list, err := d.List(t.Context())
	require.NoError(t, err)
	require.Equal(t, runtime.Running, list[0].State)
	_, err = d.Exec(t.Context(), s.Name, runtime.Exec{Args: []string{"touch", "/go"}})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		list, err = d.List(t.Context())
		require.NoError(t, err)
		return list[0].State == runtime.Exited
	}, 20*time.Second, 10*time.Millisecond)
	require.Equal(t, 9, list[0].ExitCode)
	require.Greater(t, list[0].Ended, list[0].Started)
	require.Eventually(t, func() bool {
		text, err := os.ReadFile(s.Extra.Log)
		return err == nil && string(text) == "bye\n"
	}, 10*time.Second, 10*time.Millisecond)
	require.NoError(t, d.Stop(t.Context(), s.Name))
	clean(t, p, s.Name)
}

// A killed shim takes the knowledge of the end with it, and nothing else.
func TestShimIsKilled(t *testing.T) {
	b := newBench(t)
	p := b.place(t, t.TempDir())
	d, err := p.open()
	require.NoError(t, err)
	s := spec(b, "asg_orphan")
	c, err := d.Start(t.Context(), s)
	require.NoError(t, err)
	killShim(t, p, s.Name)
	list, err := d.List(t.Context())
	require.NoError(t, err)
	require.Equal(t, c, list[0], "it runs on")
	require.NoError(t, syscall.Kill(c.PID, syscall.SIGKILL))
	require.Eventually(t, func() bool {
		list, err = d.List(t.Context())
		require.NoError(t, err)
		return list[0].State == runtime.Exited
	}, 10*time.Second, 10*time.Millisecond)
	require.Zero(t, list[0].Ended, "nobody saw it")
	require.Equal(t, 255, list[0].ExitCode)
	require.NoError(t, d.Stop(t.Context(), s.Name))
	clean(t, p, s.Name)
}

func killShim(t *testing.T, p place, name string) {
	t.Helper()
	processes, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(t, err)
	for _, file := range processes {
		line, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(line), "runc-shim\x00--dir\x00"+filepath.Join(p.Dir, "containers", name)+"\x00") {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		require.NoError(t, err)
		proc, err := os.FindProcess(pid)
		require.NoError(t, err)
		require.NoError(t, proc.Kill())
		require.Eventually(t, func() bool { _, err := os.Stat(filepath.Dir(file)); return err != nil }, 10*time.Second, 10*time.Millisecond)
		return
	}
	require.Fail(t, "no shim")
}

// After a reboot nothing runs, and what was left on the disk is removed.
func TestReboot(t *testing.T) {
	b := newBench(t)
	p := b.place(t, t.TempDir())
	d, err := p.open()
	require.NoError(t, err)
	s := spec(b, "asg_old")
	c, err := d.Start(t.Context(), s)
	require.NoError(t, err)
	killShim(t, p, s.Name)
	require.NoError(t, syscall.Kill(c.PID, syscall.SIGKILL))
	require.Eventually(t, func() bool { _, err := os.Stat("/proc/" + strconv.Itoa(c.PID)); return err != nil }, 10*time.Second, 10*time.Millisecond)
	require.NoError(t, os.RemoveAll(filepath.Join(p.Run, "runc")))

	p.BootID = "the next boot"
	next, err := p.open()
	require.NoError(t, err)
	list, err := next.List(t.Context())
	require.NoError(t, err)
	require.Equal(t, runtime.Exited, list[0].State)
	require.Equal(t, c.BootID, list[0].BootID)
	require.Equal(t, c.Started, list[0].Started)
	require.Zero(t, list[0].Ended)
	require.NoError(t, next.Stop(t.Context(), s.Name))
	clean(t, p, s.Name)
}

// Login, secrets and the environment of an exec never touch the disk.
func TestSecretsStayInMemory(t *testing.T) {
	b := newBench(t)
	p := b.place(t, t.TempDir())
	d, err := p.open()
	require.NoError(t, err)
	s := spec(b, "asg_secret")
	s.Secrets = map[string]string{"TOKEN": "canary-secret"}
	s.Login = &runtime.Login{Registry: b.served.Public, Username: "u", Password: "canary-login"}
	_, err = d.Start(t.Context(), s)
	require.NoError(t, err)
	defer func() { require.NoError(t, d.Stop(t.Context(), s.Name)) }()
	var out strings.Builder
	_, err = d.Exec(t.Context(), s.Name, runtime.Exec{
		Args: []string{"sh", "-c", "echo $GIVEN; cat /proc/1/environ"}, Env: map[string]string{"GIVEN": "canary-exec"}, Stdout: &out,
	})
	require.NoError(t, err)
	require.Contains(t, out.String(), "canary-exec")
	require.NotContains(t, out.String(), "canary-secret", "the guest hears it, not the spec")
	require.NoError(t, filepath.WalkDir(p.Dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NotContains(t, string(text), "canary", path)
		return nil
	}))
}

// Containers come and go at once without disturbing each other.
func TestManyAtOnce(t *testing.T) {
	b := newBench(t)
	p := b.place(t, t.TempDir())
	d, err := p.open()
	require.NoError(t, err)
	const n = 4
	failed := make(chan error, n)
	for i := range n {
		go func() {
			name := "asg_many" + strconv.Itoa(i)
			_, err := d.Start(t.Context(), spec(b, name))
			if err == nil {
				err = d.Stop(t.Context(), name)
			}
			failed <- err
		}()
	}
	for range n {
		require.NoError(t, <-failed)
	}
	clean(t, p, "asg_many")
}

func TestOpenRefusesWhatIsNotRunc(t *testing.T) {
	b := newBench(t)
	p := b.place(t, t.TempDir())
	for _, binary := range []string{"/no/runc", "true"} {
		_, err := p.openWith(binary)
		require.Equal(t, runtime.Unavailable, runtime.KindOf(err), "%v", err)
	}
}
