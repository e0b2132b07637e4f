package mpsd_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// The test binary, started under the name of the control program, behaves like
// version 2 of it: a daemon for each pipe folder, one server process, limits as
// defaults and per server. The file "behaviour" beside it makes it misbehave.

const (
	controlName = "nvidia-cuda-mps-control"
	serverName  = "nvidia-cuda-mps-server"
	childMark   = "CONTROL_TEST_CHILD=1"
)

func TestMain(m *testing.M) {
	switch filepath.Base(os.Args[0]) {
	case controlName:
		leave(controlMain())
	case serverName:
		end := make(chan os.Signal, 1)
		signal.Notify(end, syscall.SIGTERM)
		<-end
		leave(0)
	}
	os.Exit(m.Run())
}

// leave ends the process without the second that the race detector waits for.
func leave(code int) {
	_, _, _ = syscall.RawSyscall(syscall.SYS_EXIT_GROUP, uintptr(code), 0, 0)
}

func behaves(word string) bool {
	text, err := os.ReadFile(filepath.Join(filepath.Dir(os.Args[0]), "behaviour"))
	return err == nil && slices.Contains(strings.Fields(string(text)), word)
}

func socket() string { return filepath.Join(os.Getenv("CUDA_MPS_PIPE_DIRECTORY"), "control") }

func controlMain() int {
	switch {
	case len(os.Args) == 1:
		return question()
	case slices.Contains(os.Environ(), childMark):
		return daemon()
	default:
		return launch()
	}
}

// launch starts the daemon in the background and returns when it listens.
func launch() int {
	if !slices.Contains(os.Args, "-multiuser-server") {
		fmt.Println("clients of other users would wait for each other")
		return 1
	}
	if behaves("no-start") {
		fmt.Println("An instance of this daemon is already running")
		return 1
	}
	cmd := exec.Command(os.Args[0], "-d")
	cmd.Env = append(os.Environ(), childMark)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	ready, err := cmd.StdoutPipe()
	if err != nil || cmd.Start() != nil {
		return 1
	}
	line, err := bufio.NewReader(ready).ReadString('\n')
	if err != nil || line != "ready\n" {
		return 1
	}
	return 0
}

// question sends standard input to the daemon and prints its answer.
func question() int {
	text, err := io.ReadAll(os.Stdin)
	if err != nil {
		return 1
	}
	if behaves("hang") {
		end := make(chan os.Signal, 1)
		signal.Notify(end, syscall.SIGTERM)
		<-end
	}
	if once := filepath.Join(filepath.Dir(os.Args[0]), "busy"); os.Remove(once) == nil {
		fmt.Println("Cannot send command to MPS control daemon process")
		return 1
	}
	for line := range strings.Lines(strings.TrimSpace(string(text))) {
		said, err := tell(socket(), strings.TrimSpace(line))
		if err != nil {
			fmt.Println("Cannot find MPS control daemon process")
			return 1
		}
		fmt.Print(said)
	}
	return 0
}

func tell(path, command string) (string, error) {
	conn, err := net.Dial("unix", path)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	if _, err := fmt.Fprintln(conn, command); err != nil {
		return "", err
	}
	said, err := io.ReadAll(conn)
	return string(said), err
}

type limits struct{ percent, memory string }

type control struct {
	defaults limits
	server   *exec.Cmd
	limits   limits // of the server
	clients  []string
}

func daemon() int {
	listener, err := net.Listen("unix", socket())
	if err != nil {
		return 1
	}
	fmt.Println("ready")
	c := &control{defaults: limits{percent: "100.0"}}
	for {
		conn, err := listener.Accept()
		if err != nil {
			return 1
		}
		line, _ := bufio.NewReader(conn).ReadString('\n')
		words := strings.Fields(line)
		said, err := c.answer(words)
		_, _ = fmt.Fprint(conn, said)
		if err != nil {
			_ = listener.Close()
			_ = conn.Close()
			return 0
		}
		_ = conn.Close()
	}
}

var errQuit = errors.New("quit")

func (c *control) start() {
	if c.server != nil {
		return
	}
	name := filepath.Join(filepath.Dir(os.Args[0]), serverName)
	cmd := exec.Command(name)
	cmd.Env = os.Environ()
	if cmd.Start() == nil {
		c.server, c.limits = cmd, c.defaults
	}
}

func (c *control) pid() string {
	if c.server == nil {
		return "0"
	}
	return strconv.Itoa(c.server.Process.Pid)
}

func (c *control) answer(words []string) (string, error) {
	word := func(i int) string {
		if i < len(words) {
			return words[i]
		}
		return ""
	}
	switch word(0) {
	case "get_server_list":
		if behaves("babble") {
			return "?!\n", nil
		}
		if c.server == nil {
			return "", nil
		}
		return c.pid() + "\n", nil
	case "start_server", "test_connect":
		c.start()
		if word(0) == "test_connect" {
			c.clients = append(c.clients, word(1))
		}
	case "get_client_list":
		if word(1) != c.pid() {
			return "Server " + word(1) + " not found\n", nil
		}
		return strings.Join(append(c.clients, ""), "\n"), nil
	case "terminate_client":
		c.clients = slices.DeleteFunc(c.clients, func(s string) bool { return s == word(2) })
	case "quit":
		if behaves("stubborn") {
			return "", nil
		}
		if c.server != nil {
			_ = c.server.Process.Kill()
			_ = c.server.Wait()
		}
		return "", errQuit
	default:
		return c.limit(word), nil
	}
	return "", nil
}

// shown is how the daemon prints a limit of so many M: in whole G, if it can.
func shown(limit string) string {
	n, err := strconv.Atoi(strings.TrimSuffix(limit, "M"))
	if err != nil || n < 1024 {
		return limit
	}
	return strconv.Itoa(n/1024) + "G"
}

func (c *control) limit(word func(int) string) string {
	percent := func(s string) string { return strings.TrimSuffix(s, ".0") + ".0" }
	switch word(0) {
	case "set_default_active_thread_percentage":
		c.defaults.percent = percent(word(1))
		return c.defaults.percent + "\n"
	case "set_default_device_pinned_mem_limit":
		if !behaves("deaf") {
			c.defaults.memory = shown(word(2))
		}
	case "get_default_active_thread_percentage":
		return c.defaults.percent + "\n"
	case "get_default_device_pinned_mem_limit":
		return c.defaults.memory + "\n"
	case "set_active_thread_percentage":
		c.limits.percent = percent(word(2))
		return c.limits.percent + "\n"
	case "set_device_pinned_mem_limit":
		c.limits.memory = shown(word(3))
	case "get_active_thread_percentage":
		return c.limits.percent + "\n"
	case "get_device_pinned_mem_limit":
		return c.limits.memory + "\n"
	default:
		return "Unknown command: " + word(0) + "\n"
	}
	return ""
}
