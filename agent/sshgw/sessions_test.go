package sshgw_test

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"

	"github.com/tranche-cloud/tranche/agent/sshgw"
)

func TestACommandsInputOutputAndCodePass(t *testing.T) {
	t.Parallel()
	h, me := setup(t), newTenant(t)
	b := h.launch(t, me.line)
	got := finish(t, h.ssh(t, me, b, `echo out; echo err >&2; cat; exit 7`), strings.NewReader("typed"))
	require.Equal(t, result{"out\ntyped", "err\n", 7}, got)

	records := h.collected(t, 2)
	require.Equal(t, []string{sshgw.Opened, sshgw.Closed}, []string{records[0].Event, records[1].Event})
	closed := records[1]
	require.Equal(t, records[0].Session, closed.Session)
	require.Equal(t, b.Instance.String(), closed.Instance)
	require.Equal(t, b.Assignment, closed.Assignment)
	require.Equal(t, ssh.FingerprintSHA256(me.signer.PublicKey()), closed.Fingerprint)
	require.Equal(t, []string{"exec"}, closed.Kinds)
	require.Equal(t, "client hung up", closed.Reason)
	require.EqualValues(t, len("typed"), closed.In)
	require.EqualValues(t, len("out\ntypederr\n"), closed.Out)
	require.Positive(t, closed.Duration)
}

func TestASignalThatEndsACommandIsTold(t *testing.T) {
	t.Parallel()
	h, me := setup(t), newTenant(t)
	b := h.launch(t, me.line)
	client, err := h.client(t, b, ssh.PublicKeys(me.signer))
	require.NoError(t, err)
	defer client.Close()
	run, err := client.NewSession()
	require.NoError(t, err)
	require.NoError(t, run.Start("exec sleep 60"))
	require.NoError(t, run.Signal(ssh.SIGTERM))
	var exit *ssh.ExitError
	require.ErrorAs(t, run.Wait(), &exit)
	require.Equal(t, "TERM", exit.Signal())
}

func TestATerminalHasItsSizeAndEnds(t *testing.T) {
	t.Parallel()
	h, me := setup(t), newTenant(t)
	b := h.launch(t, me.line)
	cmd := h.ssh(t, me, b, "-tt", "--", `stty size; trap 'stty size; exit 3' WINCH; echo "on $TERM"; while :; do sleep 0.05; done`)
	cmd.Env = append(os.Environ(), "TERM=vt100")
	screen, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 31, Cols: 97})
	require.NoError(t, err)
	defer screen.Close()
	var shown strings.Builder
	part := make([]byte, 1024)
	resized := false
	for {
		n, err := screen.Read(part)
		shown.Write(part[:n])
		if !resized && strings.Contains(shown.String(), "on vt100") {
			resized = true
			require.NoError(t, pty.Setsize(screen, &pty.Winsize{Rows: 44, Cols: 111}))
		}
		if err != nil {
			break
		}
	}
	_ = cmd.Wait()
	require.Contains(t, shown.String(), "31 97")
	require.Contains(t, shown.String(), "44 111")
	require.Equal(t, 3, cmd.ProcessState.ExitCode(), shown.String())
}

func TestATerminalHasTheClientsModes(t *testing.T) {
	t.Parallel()
	h, me := setup(t), newTenant(t)
	b := h.launch(t, me.line)
	client, err := h.client(t, b, ssh.PublicKeys(me.signer))
	require.NoError(t, err)
	defer client.Close()
	for _, tc := range []struct {
		modes ssh.TerminalModes
		want  []string
	}{
		{ssh.TerminalModes{ssh.ECHO: 0, ssh.IUTF8: 1, ssh.VERASE: 8}, []string{"-echo ", " iutf8", "erase = ^H"}},
		{ssh.TerminalModes{ssh.ECHO: 1, ssh.IUTF8: 0, ssh.VINTR: 255}, []string{" echo ", "-iutf8", "intr = <undef>"}},
	} {
		run, err := client.NewSession()
		require.NoError(t, err)
		require.NoError(t, run.RequestPty("vt100", 24, 80, tc.modes))
		shown, err := run.Output("stty -a")
		require.NoError(t, err)
		for _, want := range tc.want {
			require.Contains(t, string(shown), want)
		}
	}
}

func TestAShellReadsUntilTheClientIsDone(t *testing.T) {
	t.Parallel()
	h, me := setup(t), newTenant(t)
	b := h.launch(t, me.line)
	got := finish(t, h.ssh(t, me, b, "-T", "--"), strings.NewReader("echo $((6*7))\nexit 5\n"))
	require.Contains(t, got.out, "42")
	require.Equal(t, 5, got.code, got.err)
	// A process in the background that holds the terminal does not hold the session.
	got = finish(t, h.ssh(t, me, b, "-tt", "--", "sleep 60 & echo started"), nil)
	require.Contains(t, got.out, "started")
	require.Zero(t, got.code)
}

func TestAClientThatGoesTakesItsCommandAlong(t *testing.T) {
	t.Parallel()
	h, me := setup(t), newTenant(t)
	b := h.launch(t, me.line)
	mark := filepath.Join(t.TempDir(), "mark")
	cmd := h.ssh(t, me, b, fmt.Sprintf(`trap 'echo gone > %s; exit' HUP; echo up; while :; do sleep 0.05; done`, mark))
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	_, err = io.ReadFull(out, make([]byte, 2))
	require.NoError(t, err)
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
	require.Eventually(t, func() bool { _, err := os.Stat(mark); return err == nil }, soon, 10*time.Millisecond)
}

// noise returns bytes that do not compress, and their digest.
func noise(t *testing.T, size int) ([]byte, [32]byte) {
	t.Helper()
	data := make([]byte, size)
	_, err := rand.Read(data)
	require.NoError(t, err)
	return data, sha256.Sum256(data)
}

func TestMuchDataArrivesWhole(t *testing.T) {
	t.Parallel()
	h, me := setup(t), newTenant(t)
	b := h.launch(t, me.line)
	data, _ := noise(t, 24<<20)
	got := finish(t, h.ssh(t, me, b, "cat"), bytes.NewReader(data))
	require.Zero(t, got.code, got.err)
	require.True(t, bytes.Equal(data, []byte(got.out)), "%d of %d bytes", len(got.out), len(data))
	closed := h.collected(t, 2)[1]
	require.EqualValues(t, len(data), closed.In)
	require.EqualValues(t, len(data), closed.Out)
}

func TestFilesGoInAndOut(t *testing.T) {
	t.Parallel()
	h, me := setup(t), newTenant(t)
	b := h.launch(t, me.line)
	dir := t.TempDir()
	data, want := noise(t, 5<<20+17)
	source, inside, back, copied := filepath.Join(dir, "source"), filepath.Join(dir, "inside"), filepath.Join(dir, "back"), filepath.Join(dir, "copied")
	require.NoError(t, os.WriteFile(source, data, 0o600))
	user := b.Instance.String() + "@127.0.0.1"

	sftp := exec.CommandContext(t.Context(), "sftp", append(h.options(t, me), "-b", "-", user)...)
	got := finish(t, sftp, strings.NewReader(fmt.Sprintf("put %s %s\nget %s %s\nls -l %s\n", source, inside, inside, back, dir)))
	require.Zero(t, got.code, got.err)
	scp := exec.CommandContext(t.Context(), "scp", append(h.options(t, me), user+":"+inside, copied)...)
	got = finish(t, scp, nil)
	require.Zero(t, got.code, got.err)
	for _, file := range []string{inside, back, copied} {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Equal(t, want, sha256.Sum256(text), file)
	}
	require.Equal(t, []string{"sftp"}, h.collected(t, 4)[1].Kinds)
}

func TestForwardingPassesEachSidesEndByItself(t *testing.T) {
	t.Parallel()
	h, me := setup(t), newTenant(t)
	b := h.launch(t, me.line)
	// The server answers when the client has said all, and hears what comes after it
	// has said all itself.
	server := listen(t)
	defer server.Close()
	heard := make(chan string, 2)
	go func() {
		for {
			conn, err := server.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				question, _ := io.ReadAll(conn)
				_, _ = fmt.Fprintf(conn, "answer to %d bytes", len(question))
				heard <- string(question)
			}()
		}
	}()
	question := strings.Repeat("q", 100_000)
	got := finish(t, h.ssh(t, me, b, "-W", server.Addr().String(), "--"), strings.NewReader(question))
	require.Equal(t, "answer to 100000 bytes", got.out, got.err)
	require.Equal(t, question, <-heard)
	require.Equal(t, []string{"forward"}, h.collected(t, 2)[1].Kinds)

	first := listen(t)
	defer first.Close()
	go func() {
		conn, err := first.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "hello")
		_ = conn.(*net.TCPConn).CloseWrite()
		after, _ := io.ReadAll(conn)
		heard <- string(after)
	}()
	client, err := h.client(t, b, ssh.PublicKeys(me.signer))
	require.NoError(t, err)
	defer client.Close()
	conn, err := client.Dial("tcp", first.Addr().String())
	require.NoError(t, err)
	greeting, err := io.ReadAll(conn)
	require.NoError(t, err)
	require.Equal(t, "hello", string(greeting))
	_, err = io.WriteString(conn, "late words")
	require.NoError(t, err)
	require.NoError(t, conn.(interface{ CloseWrite() error }).CloseWrite())
	require.Equal(t, "late words", <-heard)

	_, err = client.Dial("tcp", "127.0.0.1:1")
	require.ErrorContains(t, err, "refused")
}

func TestAPortOfTheInstanceLeadsToTheClient(t *testing.T) {
	t.Parallel()
	h, me := setup(t), newTenant(t)
	b := h.launch(t, me.line)
	client, err := h.client(t, b, ssh.PublicKeys(me.signer))
	require.NoError(t, err)
	defer client.Close()
	listener, err := client.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = io.Copy(conn, conn)
	}()
	conn, err := net.Dial("tcp", listener.Addr().String())
	require.NoError(t, err)
	defer conn.Close()
	_, err = io.WriteString(conn, "echo")
	require.NoError(t, err)
	require.NoError(t, conn.(*net.TCPConn).CloseWrite())
	echo, err := io.ReadAll(conn)
	require.NoError(t, err)
	require.Equal(t, "echo", string(echo))
	require.NoError(t, listener.Close())
	_, err = net.Dial("tcp", listener.Addr().String())
	require.Error(t, err)
}

func TestManySessionsShareAnInstance(t *testing.T) {
	t.Parallel()
	h, me := setup(t), newTenant(t)
	b := h.launch(t, me.line)
	const many = 12
	type outcome struct {
		out []byte
		err error
		cmd *exec.Cmd
	}
	outcomes := make(chan outcome, many)
	for i := range many {
		cmd := h.ssh(t, me, b, fmt.Sprintf("echo %d; exit %d", i, i))
		go func() {
			out, err := cmd.Output()
			outcomes <- outcome{out, err, cmd}
		}()
	}
	for range many {
		got := <-outcomes
		require.Equal(t, fmt.Sprintf("%d\n", got.cmd.ProcessState.ExitCode()), string(got.out), "%v", got.err)
	}
	require.Len(t, h.collected(t, 2*many), 2*many)
}

func TestWhatIsNotOfferedIsRefused(t *testing.T) {
	t.Parallel()
	h, me := setup(t), newTenant(t)
	b := h.launch(t, me.line)
	client, err := h.client(t, b, ssh.PublicKeys(me.signer))
	require.NoError(t, err)
	defer client.Close()
	for _, kind := range []string{"x11", "auth-agent@openssh.com", "direct-streamlocal@openssh.com", "forwarded-tcpip", "tun@openssh.com"} {
		_, _, err := client.OpenChannel(kind, nil)
		require.Error(t, err, kind)
	}
	run, err := client.NewSession()
	require.NoError(t, err)
	for _, request := range []string{"x11-req", "auth-agent-req@openssh.com", "unknown"} {
		ok, err := run.SendRequest(request, true, nil)
		require.NoError(t, err)
		require.False(t, ok, request)
	}
	require.Error(t, run.RequestSubsystem("netconf"))
	ok, _, err := client.SendRequest("keepalive@openssh.com", true, nil)
	require.NoError(t, err)
	require.True(t, ok)
}
