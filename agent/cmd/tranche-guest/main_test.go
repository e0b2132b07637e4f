package main_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"
	"golang.org/x/sys/unix"

	"github.com/tranche-cloud/tranche/agent/guest"
	"github.com/tranche-cloud/tranche/agent/sshgw"
	"github.com/tranche-cloud/tranche/internal/clock"
	"github.com/tranche-cloud/tranche/internal/id"
)

const (
	soon   = 30 * time.Second
	idBase = 300000 // root inside, on the host
	nobody = 65534  // who the gateway is
)

// TestMain lets this program be the container's runtime, too: it mounts an image and
// what a host adds, and becomes the guest.
func TestMain(m *testing.M) {
	if len(os.Args) > 4 && os.Args[1] == "container" {
		if err := contain(os.Args[2], os.Args[3], os.Args[4], os.Args[5:]); err != nil {
			fmt.Fprintln(os.Stderr, "container:", err)
			os.Exit(99)
		}
	}
	if len(os.Args) == 4 && os.Args[1] == "gateway" {
		fmt.Fprintln(os.Stderr, "gateway:", gateway(os.Args[2], os.Args[3]))
		os.Exit(1)
	}
	os.Exit(built(m))
}

// gateway serves SSH as an unprivileged process that owns its own folder and nothing
// else.
func gateway(dir, address string) error {
	spool, err := sshgw.OpenSpool(filepath.Join(dir, "gateway", "spool"))
	if err != nil {
		return err
	}
	if err := spool.Recover(time.Now()); err != nil {
		return err
	}
	server, err := sshgw.New(sshgw.Config{
		State: filepath.Join(dir, "state"), HostKey: filepath.Join(dir, "gateway", "key"), Audit: spool.Add,
		Clock: clock.Real(), Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	return server.Serve(context.Background(), listener)
}

// shipped is the guest as it is shipped, and the runtime a copy of this program where
// other users may run it.
var shipped, runtime string

func built(m *testing.M) int {
	dir, err := os.MkdirTemp("", "tg")
	if err == nil {
		defer os.RemoveAll(dir)
		shipped, runtime = filepath.Join(dir, "guest"), filepath.Join(dir, "runtime")
		cmd := exec.CommandContext(context.Background(), "go", "build", "-trimpath", "-ldflags", "-s -w -X main.version=1.2.3", "-o", shipped, ".")
		cmd.Env, cmd.Stderr = append(os.Environ(), "CGO_ENABLED=0"), os.Stderr
		var self []byte
		if self, err = os.ReadFile(os.Args[0]); err == nil {
			err = errors.Join(cmd.Run(), os.Chmod(dir, 0o755), os.WriteFile(runtime, self, 0o755))
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "build the guest:", err)
		return 1
	}
	return m.Run()
}

// contain runs in new user, process and mount namespaces. It waits until its parent has
// put it into a control group.
func contain(root, folder, binary string, args []string) error {
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	steps := []func() error{
		func() error { return unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "") },
		func() error { return unix.Mount(root, root, "", unix.MS_BIND|unix.MS_REC, "") },
		func() error { return readOnly(folder, root+"/.tranche/run") },
		func() error { return readOnly(binary, root+"/.tranche/guest") },
		func() error { return unix.Mount("/dev/null", root+"/dev/null", "", unix.MS_BIND, "") },
		func() error { return unix.Mount("devpts", root+"/dev/pts", "devpts", 0, "newinstance,ptmxmode=0666") },
		func() error { return unix.Mount("proc", root+"/proc", "proc", 0, "") },
		func() error { return unix.Chroot(root) },
		func() error { return os.Chdir("/") },
		func() error { return unix.Exec("/.tranche/guest", args, []string{"PATH=/bin", "HOME=/root"}) },
	}
	for i, step := range steps {
		if err := step(); err != nil {
			return fmt.Errorf("step %d: %w", i, err)
		}
	}
	return nil
}

// readOnly mounts as a runtime does; flags that the filesystem has already are locked.
func readOnly(source, target string) error {
	if err := unix.Mount(source, target, "", unix.MS_BIND, ""); err != nil {
		return err
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(target, &fs); err != nil {
		return err
	}
	locked := uintptr(fs.Flags) & (unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC | unix.MS_NOATIME | unix.MS_NODIRATIME | unix.MS_RELATIME)
	return unix.Mount("", target, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV|locked, "")
}

// machine is a host with its gateway; instances are real namespaces with real control
// groups, and peers are checked as in production.
type machine struct {
	dir, address string
	hub          *guest.Hub
	state        *sshgw.State
	key          ssh.Signer
}

func setup(t *testing.T) *machine {
	t.Helper()
	dir, err := os.MkdirTemp("", "tgh") //nolint:usetesting // a socket's address holds 107 bytes
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	require.NoError(t, os.Chmod(dir, 0o711))
	m := &machine{dir: dir}
	m.hub, err = guest.NewHub(guest.Config{
		Dir: filepath.Join(dir, "run"), GatewayUID: nobody, GatewayGID: nobody,
		Uptime: func() time.Duration { return time.Hour }, Log: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	t.Cleanup(m.hub.Shutdown)
	m.state, err = sshgw.OpenState(filepath.Join(dir, "state"))
	require.NoError(t, err)
	require.NoError(t, os.Mkdir(filepath.Join(dir, "gateway"), 0o700))
	require.NoError(t, os.Chown(filepath.Join(dir, "gateway"), nobody, nobody))
	m.address = freeAddress(t)
	cmd := exec.Command(runtime, "gateway", dir, m.address)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	_, key, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	m.key, err = ssh.NewSignerFromKey(key)
	require.NoError(t, err)
	return m
}

// freeAddress finds a port of the range that tests use.
func freeAddress(t *testing.T) string {
	t.Helper()
	for range 100 {
		offset, err := rand.Int(rand.Reader, big.NewInt(12000))
		require.NoError(t, err)
		address := fmt.Sprintf("127.0.0.1:%d", 20000+offset.Int64())
		if free, err := net.Listen("tcp", address); err == nil {
			require.NoError(t, free.Close())
			return address
		}
	}
	require.Fail(t, "no free port")
	return ""
}

// image makes a root folder from one static program; shell says whether it has one.
func (m *machine) image(t *testing.T, shell bool) string {
	t.Helper()
	root := filepath.Join(m.dir, "image-"+strconv.FormatBool(shell)+"-"+id.New[id.Instance]().String())
	for _, dir := range []string{"bin", "etc", "dev/pts", "proc", "root", "srv/app", ".tranche/run", "tmp"} {
		require.NoError(t, os.MkdirAll(filepath.Join(root, dir), 0o755))
	}
	program, err := os.ReadFile("/bin/busybox")
	require.NoError(t, err, "tests of the guest need busybox-static")
	require.NoError(t, os.WriteFile(filepath.Join(root, "bin/busybox"), program, 0o755))
	if shell {
		for _, name := range []string{"sh", "id", "ln", "rm", "mv", "mknod", "mkfifo", "touch", "timeout", "sleep", "echo", "cat", "pwd", "tty", "stty"} {
			require.NoError(t, os.Symlink("busybox", filepath.Join(root, "bin", name)))
		}
	}
	for file, text := range map[string]string{
		"etc/passwd": "root:x:0:0:root:/root:/bin/sh\napp:x:1000:1000:app:/srv/app:/usr/sbin/nologin\n",
		"etc/group":  "root:x:0:\napp:x:1000:\nvideo:x:44:app\n", "dev/null": "", ".tranche/guest": "",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(root, file), []byte(text), 0o644))
	}
	require.NoError(t, os.Symlink("pts/ptmx", filepath.Join(root, "dev/ptmx")))
	require.NoError(t, filepath.WalkDir(root, func(path string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, idBase, idBase)
	}))
	require.NoError(t, os.Chmod(filepath.Join(root, "srv/app"), 0o777))
	return root
}

// group makes a control group of the test's own.
func group(t *testing.T, name string) string {
	t.Helper()
	for _, mount := range []string{"/sys/fs/cgroup/pids", "/sys/fs/cgroup/unified", "/sys/fs/cgroup"} {
		dir := filepath.Join(mount, name)
		if os.Mkdir(dir, 0o755) == nil {
			t.Cleanup(func() {
				require.Eventually(t, func() bool { return os.Remove(dir) == nil }, soon, 10*time.Millisecond)
			})
			return dir
		}
	}
	require.Fail(t, "tests of the guest need root and control groups")
	return ""
}

// instance is a running container.
type instance struct {
	sshgw.Entry
	cmd *exec.Cmd
}

func (m *machine) run(t *testing.T, boot guest.Boot, root string, command ...string) instance {
	t.Helper()
	i := instance{Entry: sshgw.Entry{Instance: id.New[id.Instance](), Assignment: id.New[id.Assignment]().String()}}
	i.Cgroup = "/tranche-test-" + i.Assignment
	boot.Peer, boot.Root = guest.First(i.Cgroup), idBase
	folder, err := m.hub.Open(t.Context(), i.Assignment, boot)
	require.NoError(t, err)
	i.Socket, i.Keys = folder.Shell(), []string{string(ssh.MarshalAuthorizedKey(m.key.PublicKey()))}
	require.NoError(t, m.state.Put(i.Entry))

	dir := group(t, i.Cgroup)
	i.cmd = exec.Command(runtime, append(append([]string{"container", root, folder.Path, shipped}, guest.Init()...), command...)...)
	var said bytes.Buffer
	i.cmd.Stdout, i.cmd.Stderr = &said, &said
	i.cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWPID | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: idBase, Size: 65536}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: idBase, Size: 65536}}, GidMappingsEnableSetgroups: true,
		Credential: &syscall.Credential{Uid: 0, Gid: 0},
	}
	hold, err := i.cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, i.cmd.Start())
	t.Cleanup(func() {
		_ = i.cmd.Process.Kill()
		_ = i.cmd.Wait()
		if t.Failed() {
			t.Log(said.String())
		}
	})
	require.NoError(t, os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(i.cmd.Process.Pid)), 0))
	require.NoError(t, hold.Close())
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	_, err = m.hub.Wait(ctx, i.Assignment)
	require.NoError(t, err)
	return i
}

func (m *machine) client(t *testing.T, i instance) *ssh.Client {
	t.Helper()
	var client *ssh.Client
	require.Eventually(t, func() bool {
		var err error
		client, err = ssh.Dial("tcp", m.address, &ssh.ClientConfig{
			User: i.Instance.String(), Auth: []ssh.AuthMethod{ssh.PublicKeys(m.key)}, HostKeyCallback: ssh.InsecureIgnoreHostKey(), Timeout: soon,
		})
		return err == nil
	}, soon, 10*time.Millisecond)
	t.Cleanup(func() { client.Close() })
	return client
}

func exec1(t *testing.T, client *ssh.Client, command string) (string, int) {
	t.Helper()
	run, err := client.NewSession()
	require.NoError(t, err)
	defer run.Close()
	out, err := run.CombinedOutput(command)
	code := 0
	if err != nil {
		var exit *ssh.ExitError
		require.ErrorAs(t, err, &exit, string(out))
		code = exit.ExitStatus()
	}
	return string(out), code
}

func TestTheGuestIsSmallAndStatic(t *testing.T) {
	t.Parallel()
	binary := shipped
	info, err := os.Stat(binary)
	require.NoError(t, err)
	require.LessOrEqual(t, info.Size(), int64(7<<20))
	out, err := exec.CommandContext(t.Context(), binary, "version").Output()
	require.NoError(t, err)
	require.Equal(t, "1.2.3\n", string(out))
	out, err = exec.CommandContext(t.Context(), "ldd", binary).CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "not a dynamic executable")
	for _, args := range [][]string{{}, {"run"}, {"run", "sh"}, {"run", "--folder", "x"}, {"what"}} {
		out, err := exec.CommandContext(t.Context(), binary, args...).CombinedOutput()
		require.Error(t, err)
		require.Contains(t, string(out), "usage:", args)
	}
}

func TestAnInstanceInNamespacesOfItsOwn(t *testing.T) {
	t.Parallel()
	m := setup(t)
	i := m.run(t, guest.Boot{User: "app", Workdir: "/srv/app", Secrets: func(context.Context) (map[string]string, error) {
		return map[string]string{"TOKEN": "s3cret"}, nil
	}}, m.image(t, true), "sleep", "600")
	client := m.client(t, i)
	out, code := exec1(t, client, `echo "$(id -u):$(id -g):$(id -G) $(pwd) $HOME $TOKEN"`)
	require.Zero(t, code, out)
	require.Equal(t, "1000:1000:1000 44 /srv/app /srv/app s3cret\n", out)

	run, err := client.NewSession()
	require.NoError(t, err)
	require.NoError(t, run.RequestPty("vt100", 25, 81, nil))
	text, err := run.CombinedOutput("tty; stty size; echo x > $(tty)")
	require.NoError(t, err, string(text))
	require.Equal(t, "/dev/pts/0\r\n25 81\r\nx\r\n", string(text))

	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", i.cmd.Process.Pid))
	require.NoError(t, err)
	for line := range strings.Lines(string(status)) {
		if kib, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			size, err := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(kib), " kB"))
			require.NoError(t, err)
			t.Logf("guest resident: %d KiB", size)
			require.LessOrEqual(t, size, 10<<10, "process 1 lives on the tenant's memory")
		}
	}
}

func TestRootInsideCannotTouchWhatTheHostOpens(t *testing.T) {
	t.Parallel()
	m := setup(t)
	i := m.run(t, guest.Boot{}, m.image(t, true), "sleep", "600")
	client := m.client(t, i)
	folder := filepath.Dir(filepath.Dir(i.Socket))
	before := listing(t, folder)
	for _, attack := range []string{
		"rm /.tranche/run/control.sock", "rm /.tranche/run/ssh/ssh.sock", "mv /.tranche/run/ssh /.tranche/run/old",
		"ln -s /etc/passwd /.tranche/run/x", "mkfifo /.tranche/run/ssh/x", "mknod /.tranche/run/x c 1 3",
		"touch /.tranche/run/ssh/x", "mv /.tranche/run /.tranche/away", "echo x > /.tranche/guest", "rm /.tranche/guest",
		"ln -sf /dev/zero /.tranche/run/control.sock",
	} {
		out, code := exec1(t, client, attack)
		require.NotZero(t, code, "%s: %s", attack, out)
	}
	require.Equal(t, before, listing(t, folder))

	// Another process of the instance finds the sockets, and is not heard on them.
	out, code := exec1(t, client, "timeout 1 /.tranche/guest run -- echo leaked")
	require.Equal(t, 143, code)
	require.Contains(t, out, "stopped before the host said what to run")
	require.NotContains(t, out, "leaked")
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	require.NoError(t, i.cmd.Process.Signal(syscall.SIGTERM))
	exit, err := m.hub.Exited(ctx, i.Assignment)
	require.NoError(t, err)
	require.Equal(t, 143, exit.Code, "the true guest is still the one that is heard")
}

func listing(t *testing.T, folder string) []string {
	t.Helper()
	var all []string
	require.NoError(t, filepath.WalkDir(folder, func(path string, d os.DirEntry, err error) error {
		all = append(all, path+" "+d.Type().String())
		return err
	}))
	return all
}

func TestAnImageWithoutAShellSaysSoAndStillServes(t *testing.T) {
	t.Parallel()
	m := setup(t)
	i := m.run(t, guest.Boot{}, m.image(t, false), "/bin/busybox", "sleep", "600")
	client := m.client(t, i)
	out, code := exec1(t, client, "id; id")
	require.Equal(t, 127, code)
	require.Contains(t, out, "this image has no shell")
	out, code = exec1(t, client, "/bin/busybox id -u")
	require.Zero(t, code, out)
	require.Equal(t, "0\n", out)
	run, err := client.NewSession()
	require.NoError(t, err)
	require.NoError(t, run.RequestSubsystem("sftp"), "files need no shell")
}
