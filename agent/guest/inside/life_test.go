package inside_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/agent/guest"
	"github.com/tranche-cloud/tranche/agent/guest/inside"
	"github.com/tranche-cloud/tranche/agent/guest/wire"
)

const soon = 20 * time.Second

// TestMain lets this program be the guest as well, so that the guest that is tested is
// the one that was compiled with the race detector.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "guest" {
		os.Exit(inside.Run(context.Background(), inside.Config{
			Dir: os.Args[2], Self: os.Args[0], Command: os.Args[3:], Build: "test", Log: os.Stderr,
		}))
	}
	os.Exit(m.Run())
}

// text collects the output of a process.
type text struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (o *text) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.all.Write(p)
}

func (o *text) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.all.String()
}

// bench is a hub and the guests that run against it, each process 1 of a namespace.
type bench struct {
	hub *guest.Hub
	dir string
}

func setup(t *testing.T) *bench {
	t.Helper()
	dir, err := os.MkdirTemp("", "gst") //nolint:usetesting // a socket's address holds 107 bytes
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	b := &bench{dir: dir}
	b.hub = b.open(t)
	return b
}

func (b *bench) open(t *testing.T) *guest.Hub {
	t.Helper()
	hub, err := guest.NewHub(guest.Config{
		Dir: b.dir, Uptime: func() time.Duration { return time.Hour * 24 * 365 * 100 }, Log: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	t.Cleanup(hub.Shutdown)
	return hub
}

// instance is one running guest.
type instance struct {
	*exec.Cmd
	out  *text
	done chan struct{}
	err  error
}

// run starts a guest with a command. The process is process 1 of its own namespace, so
// that its end is the end of all that it started.
func (b *bench) run(t *testing.T, name string, boot guest.Boot, command ...string) *instance {
	t.Helper()
	boot.Peer = func(int) error { return nil }
	folder, err := b.hub.Open(t.Context(), name, boot)
	require.NoError(t, err)
	return start(t, folder.Path, command...)
}

func start(t *testing.T, folder string, command ...string) *instance {
	t.Helper()
	i := &instance{Cmd: exec.Command(os.Args[0], append([]string{"guest", folder}, command...)...), out: &text{}, done: make(chan struct{})}
	i.Stdout, i.Stderr = i.out, i.out
	i.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
	require.NoError(t, i.Start(), "tests of the guest need root")
	go func() {
		i.err = i.Wait()
		close(i.done)
	}()
	t.Cleanup(func() {
		_ = i.Process.Kill()
		<-i.done
	})
	return i
}

// code waits for the end of the instance.
func (i *instance) code(t *testing.T) int {
	t.Helper()
	select {
	case <-i.done:
	case <-time.After(soon):
		require.Fail(t, "the instance does not end", i.out.String())
	}
	if exit, ok := errors.AsType[*exec.ExitError](i.err); ok {
		return exit.ExitCode()
	}
	require.NoError(t, i.err)
	return 0
}

func (b *bench) exited(t *testing.T, name string) guest.Exit {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	exit, err := b.hub.Exited(ctx, name)
	require.NoError(t, err)
	return exit
}

func (b *bench) ready(t *testing.T, name string) guest.Status {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	status, err := b.hub.Wait(ctx, name)
	require.NoError(t, err)
	return status
}

func (i *instance) says(t *testing.T, want string) {
	t.Helper()
	require.Eventually(t, func() bool { return strings.Contains(i.out.String(), want) }, soon, 5*time.Millisecond, i.out)
}

func TestACommandRunsAndItsExitIsTheInstances(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for name, tc := range map[string]struct {
		command []string
		code    int
		reason  string
	}{
		"code":      {[]string{"sh", "-c", "exit 7"}, 7, ""},
		"success":   {[]string{"true"}, 0, ""},
		"signal":    {[]string{"sh", "-c", "kill -9 $$"}, 137, ""},
		"missing":   {[]string{"no-such-program"}, 127, "not in the image's PATH"},
		"nopath":    {[]string{"/no/such/program"}, 127, "not in the image"},
		"folder":    {[]string{"/etc"}, 126, "is no program"},
		"noprogram": {[]string{"/etc/passwd"}, 126, "is no program"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := b.run(t, name, guest.Boot{}, tc.command...)
			exit := b.exited(t, name)
			require.Equal(t, tc.code, exit.Code)
			require.Contains(t, exit.Reason, tc.reason)
			require.Equal(t, tc.code, i.code(t))
		})
	}
}

func TestSecretsReachTheProgramAndNoFileOfProcessOne(t *testing.T) {
	t.Parallel()
	b := setup(t)
	i := b.run(t, "asg", guest.Boot{Secrets: func(context.Context) (map[string]string, error) {
		return map[string]string{"TOKEN": "s3cret"}, nil
	}}, "sh", "-c", `echo "token=$TOKEN home=$HOME dir=$(pwd)"; exec sleep 60`)
	i.says(t, "token=s3cret")
	require.Equal(t, wire.Running, b.ready(t, "asg").Phase)
	for _, file := range []string{"environ", "cmdline"} {
		shown, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(i.Process.Pid), file))
		require.NoError(t, err)
		require.NotContains(t, string(shown), "s3cret")
	}
}

func TestTheProgramIsTheImagesUser(t *testing.T) {
	t.Parallel()
	b := setup(t)
	dir := filepath.Join(b.dir, "work", "deep")
	require.NoError(t, os.Chmod(b.dir, 0o755))
	i := b.run(t, "numeric", guest.Boot{User: "12345:23456", Workdir: dir}, "sh", "-c", `echo "$(id -u):$(id -g) $(pwd)"; touch mine`)
	require.Zero(t, i.code(t), i.out)
	require.Contains(t, i.out.String(), "12345:23456 "+dir)
	i = b.run(t, "named", guest.Boot{User: "nobody"}, "id", "-un")
	require.Zero(t, i.code(t), i.out)
	require.Contains(t, i.out.String(), "nobody")
	i = b.run(t, "unknown", guest.Boot{User: "whoever"}, "true")
	require.Equal(t, 126, i.code(t))
	require.Contains(t, b.exited(t, "unknown").Reason, `user "whoever"`)
}

func TestSignalsReachTheProgramAndEndItInTime(t *testing.T) {
	t.Parallel()
	b := setup(t)
	polite := b.run(t, "polite", guest.Boot{Grace: time.Minute}, "sh", "-c", `trap 'echo bye; exit 3' TERM; trap 'echo usr' USR1; echo up; while :; do sleep 0.05; done`)
	polite.says(t, "up")
	require.NoError(t, polite.Process.Signal(syscall.SIGUSR1))
	polite.says(t, "usr")
	require.NoError(t, polite.Process.Signal(syscall.SIGTERM))
	require.Equal(t, 3, polite.code(t))
	require.Contains(t, polite.out.String(), "bye")

	stubborn := b.run(t, "stubborn", guest.Boot{Grace: 100 * time.Millisecond}, "sh", "-c", `trap '' TERM; echo up; while :; do sleep 0.05; done`)
	stubborn.says(t, "up")
	require.NoError(t, stubborn.Process.Signal(syscall.SIGTERM))
	require.Equal(t, 137, stubborn.code(t))
}

func TestOrphansAreReaped(t *testing.T) {
	t.Parallel()
	b := setup(t)
	i := b.run(t, "asg", guest.Boot{}, "sh", "-c", `for i in 1 2 3 4 5 6 7 8 9 10; do (sleep 0.1 &); done; echo up; exec sleep 60`)
	i.says(t, "up")
	require.Eventually(t, func() bool { return len(i.children(t)) == 1 }, soon, 10*time.Millisecond, "only the main process is left")
}

// children returns the processes whose parent is the guest, dead ones included.
func (i *instance) children(t *testing.T) []int {
	t.Helper()
	return childrenOf(t, i.Process.Pid)
}

func childrenOf(t *testing.T, pid int) []int {
	t.Helper()
	lists, err := filepath.Glob(filepath.Join("/proc", strconv.Itoa(pid), "task", "*", "children"))
	require.NoError(t, err)
	var pids []int
	for _, list := range lists {
		text, err := os.ReadFile(list)
		if err != nil {
			continue // a thread that ended meanwhile
		}
		for _, field := range strings.Fields(string(text)) {
			pid, err := strconv.Atoi(field)
			require.NoError(t, err)
			pids = append(pids, pid)
		}
	}
	return pids
}

func TestAGuestOutlivesItsHost(t *testing.T) {
	t.Parallel()
	b := setup(t)
	i := start(t, filepath.Join(b.dir, "asg"), "sh", "-c", "echo up; exec sleep 60") // no host yet
	boot := guest.Boot{Peer: func(int) error { return nil }}
	_, err := b.hub.Open(t.Context(), "asg", boot)
	require.NoError(t, err)
	before := b.ready(t, "asg").Ready
	require.Positive(t, before)
	b.hub.Shutdown()
	b.hub = b.open(t)
	_, err = b.hub.Open(t.Context(), "asg", boot)
	require.NoError(t, err)
	require.Equal(t, before, b.ready(t, "asg").Ready, "the start is the start, whoever asks")
	require.NoError(t, i.Process.Signal(syscall.SIGTERM))
	require.Equal(t, 143, b.exited(t, "asg").Code)
	require.Equal(t, 1, strings.Count(i.out.String(), "up"), "nothing was started twice")
}

func TestAnInstanceWithoutCommandWaitsForSSH(t *testing.T) {
	t.Parallel()
	b := setup(t)
	i := b.run(t, "asg", guest.Boot{})
	require.Equal(t, wire.Idle, b.ready(t, "asg").Phase)
	require.NoError(t, i.Process.Signal(syscall.SIGTERM))
	require.Zero(t, i.code(t))
}

func TestOnlyProcessOneOfTheGroupIsTheGuest(t *testing.T) {
	t.Parallel()
	b := setup(t)
	i := b.run(t, "asg", guest.Boot{}, "unshare", "--pid", "--fork", "--kill-child", "sleep", "60")
	b.ready(t, "asg")
	group := ""
	for _, mount := range []string{"/sys/fs/cgroup/pids", "/sys/fs/cgroup/unified", "/sys/fs/cgroup"} {
		dir := filepath.Join(mount, "tranche-guest-test-"+strconv.Itoa(os.Getpid()))
		if os.Mkdir(dir, 0o755) == nil {
			group = dir
			break
		}
	}
	require.NotEmpty(t, group, "tests of the guest need root and control groups")
	t.Cleanup(func() {
		_ = i.Process.Kill()
		<-i.done
		require.Eventually(t, func() bool { return os.Remove(group) == nil }, soon, 10*time.Millisecond)
	})
	child := i.children(t)[0]
	require.Eventually(t, func() bool { return len(childrenOf(t, child)) == 1 }, soon, 5*time.Millisecond)
	nested := childrenOf(t, child)[0]
	for _, pid := range []int{i.Process.Pid, child, nested} {
		require.NoError(t, os.WriteFile(filepath.Join(group, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0))
	}
	ours := guest.First("/" + filepath.Base(group))
	require.NoError(t, ours(i.Process.Pid))
	require.ErrorIs(t, ours(child), guest.ErrStranger, "another process of the instance")
	require.ErrorIs(t, ours(nested), guest.ErrStranger, "process 1 of a namespace made inside")
	require.ErrorIs(t, ours(os.Getpid()), guest.ErrStranger, "a process of the host")
	require.ErrorIs(t, guest.First("/tranche-guest")(i.Process.Pid), guest.ErrStranger, "a group whose name begins alike")
}

func TestFilesAreServedUntilTheClientEnds(t *testing.T) {
	t.Parallel()
	in, client := io.Pipe()
	require.NoError(t, client.Close())
	out, err := os.Open(os.DevNull)
	require.NoError(t, err)
	require.NoError(t, inside.ServeFiles(in, out))
}
