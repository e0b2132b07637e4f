package stack

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// Ports are all ports of one stack. Temporal and Membership are the first of
// four in a row each.
type Ports struct {
	API        int `json:"api"`
	Metrics    int `json:"metrics"` // api; worker and gateway have the next two
	Gateway    int `json:"gateway"`
	Postgres   int `json:"postgres"`
	Temporal   int `json:"temporal"`
	Membership int `json:"membership"`
}

// DevPorts are the ones of `make dev`; Shift makes others from them.
var DevPorts = Ports{API: 8080, Metrics: 8081, Gateway: 8443, Postgres: 15432, Temporal: 17233, Membership: 16933}

// Shift adds n to each port.
func (p Ports) Shift(n int) Ports {
	return Ports{p.API + n, p.Metrics + n, p.Gateway + n, p.Postgres + n, p.Temporal + n, p.Membership + n}
}

// FreePorts finds ports between 20000 and 32000 that nobody uses. They stay ours
// until release, against others who ask this function.
func FreePorts() (ports Ports, release func(), err error) {
	const first, last, width = 20000, 32000, 20
	for range 200 {
		base := first + rand.IntN((last-first)/width)*width
		// The first port of the block is the lock on the rest.
		lock, err := net.Listen("tcp", address(base))
		if err != nil {
			continue
		}
		if free(base+1, base+width-1) {
			return Ports{base + 1, base + 2, base + 5, base + 6, base + 7, base + 11}, func() { lock.Close() }, nil
		}
		lock.Close()
	}
	return Ports{}, nil, errors.New("no free block of ports between 20000 and 32000")
}

func free(first, last int) bool {
	for port := first; port <= last; port++ {
		l, err := net.Listen("tcp", address(port))
		if err != nil {
			return false
		}
		l.Close()
	}
	return true
}

func address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// state is what other commands need to know about a stack; state.json, for its
// owner's eyes only.
type state struct {
	Ports      Ports  `json:"ports"`
	AdminToken string `json:"admin_token"`
}

func (s state) write(dir string) error {
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return writeFile(filepath.Join(dir, "state.json"), text)
}

func readState(dir string) (state, error) {
	var s state
	text, err := os.ReadFile(filepath.Join(dir, "state.json"))
	if err != nil {
		return s, fmt.Errorf("read the state of the stack: %w", err)
	}
	if err := json.Unmarshal(text, &s); err != nil {
		return s, fmt.Errorf("read the state of the stack: %w", err)
	}
	return s, nil
}

// writeFile replaces a file that only its owner may read, whole or not at all.
func writeFile(path string, text []byte) error {
	part := path + ".part"
	if err := os.WriteFile(part, text, 0o600); err != nil {
		return fmt.Errorf("write %s: %w", filepath.Base(path), err)
	}
	if err := os.Rename(part, path); err != nil {
		return fmt.Errorf("write %s: %w", filepath.Base(path), err)
	}
	return nil
}

// claim takes the folder for this process until the file is closed. The kernel
// gives it back when the process dies.
func claim(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "pid"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the pid file: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		pid, _ := os.ReadFile(f.Name()) // only for the message
		f.Close()
		return nil, fmt.Errorf("a stack runs in %s already (process %s)", dir, pid)
	}
	if err := errors.Join(f.Truncate(0), writeAt(f, strconv.Itoa(os.Getpid()))); err != nil {
		f.Close()
		return nil, fmt.Errorf("write the pid file: %w", err)
	}
	return f, nil
}

func writeAt(f *os.File, text string) error {
	_, err := f.WriteAt([]byte(text), 0)
	return err
}

// makeFolders makes the folder of a stack and what is in it. The user that runs
// Postgres may pass through the outer one; all in it is closed.
func makeFolders(dir string) error {
	if err := os.Mkdir(dir, 0o711); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make the folder of the stack: %w", err)
	}
	for _, d := range []string{filepath.Join(dir, "log"), filepath.Join(dir, "keys"), filepath.Join(dir, "agents")} {
		if err := os.MkdirAll(d, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("make the folder of the stack: %w", err)
		}
	}
	return nil
}
