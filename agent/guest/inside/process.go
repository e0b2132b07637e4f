package inside

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/tranche-cloud/tranche/agent/guest/inside/account"
)

// table holds the processes that the guest started itself. Process 1 also gets every
// orphan, so one place waits for all of them and knows which are its own.
type table struct {
	mu  sync.Mutex
	own map[int]*process
}

// process is a started program; status is set when done is closed.
type process struct {
	pid    int
	done   chan struct{}
	status syscall.WaitStatus
}

// program is what to start: an absolute path, and where the first three descriptors
// lead.
type program struct {
	path  string
	argv  []string
	env   []string
	dir   string
	as    account.Account
	files [3]*os.File
	group bool     // a process group of its own
	tty   *os.File // controlling terminal and session leader; nil none
}

func newTable() *table { return &table{own: map[int]*process{}} }

// reap waits for children until the context ends.
func (t *table) reap(ctx context.Context) {
	died := make(chan os.Signal, 1)
	signal.Notify(died, syscall.SIGCHLD)
	defer signal.Stop(died)
	for {
		t.collect()
		select {
		case <-ctx.Done():
			return
		case <-died:
		}
	}
}

// collect takes every child that is dead now. The lock keeps a child from being
// collected before start has noted whose it is, and from being signalled afterwards.
func (t *table) collect() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil || pid <= 0 {
			return
		}
		if p, mine := t.own[pid]; mine {
			p.status = status
			delete(t.own, pid)
			close(p.done)
		}
	}
}

// start runs a program. Its error is the system's; the files stay the caller's.
func (t *table) start(p program) (*process, error) {
	attr := &syscall.ProcAttr{Dir: p.dir, Env: p.env, Sys: &syscall.SysProcAttr{Setpgid: p.group, Credential: credential(p.as)}}
	if p.tty != nil {
		attr.Sys.Setsid, attr.Sys.Setctty, attr.Sys.Setpgid = true, true, false
	}
	for _, f := range p.files {
		attr.Files = append(attr.Files, f.Fd())
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	pid, err := syscall.ForkExec(p.path, p.argv, attr)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", p.path, err)
	}
	started := &process{pid: pid, done: make(chan struct{})}
	t.own[pid] = started
	return started, nil
}

// signal sends a signal to a process and its group while it lives.
func (t *table) signal(p *process, s syscall.Signal) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.own[p.pid] == p {
		_ = syscall.Kill(-p.pid, s)
	}
}

// exitCode is what a shell would say of a status.
func exitCode(status syscall.WaitStatus) int {
	if status.Signaled() {
		return 128 + int(status.Signal())
	}
	return status.ExitStatus()
}

// failure is a program that could not start, in words for its tenant.
type failure struct {
	code int
	text string
}

func (f *failure) Error() string { return f.text }

// find looks a program up as execvp does, in the given environment and folder.
func find(name, dir string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		if !filepath.IsAbs(name) {
			name = filepath.Join(dir, name)
		}
		return name, runnable(name)
	}
	denied := false
	for _, folder := range filepath.SplitList(value(env, "PATH")) {
		if !filepath.IsAbs(folder) {
			folder = filepath.Join(dir, folder)
		}
		path := filepath.Join(folder, name)
		err := runnable(path)
		if err == nil {
			return path, nil
		}
		denied = denied || codeOf(err) != 127
	}
	if denied {
		return "", &failure{126, fmt.Sprintf("%q is in PATH but cannot be run: it is no program", name)}
	}
	return "", &failure{127, fmt.Sprintf("%q is not in the image's PATH: name the program by its whole path, or choose an image that has it", name)}
}

func runnable(path string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, os.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return &failure{127, fmt.Sprintf("%q is not in the image: name a program that it has", path)}
	case err != nil:
		return &failure{126, fmt.Sprintf("%q cannot be run: %v", path, cause(err))}
	case !info.Mode().IsRegular() || info.Mode()&0o111 == 0:
		return &failure{126, fmt.Sprintf("%q cannot be run: it is no program", path)}
	}
	return nil
}

// value returns a variable of an environment; the last one wins, as with setenv.
func value(env []string, name string) string {
	for i := len(env) - 1; i >= 0; i-- {
		if text, ok := strings.CutPrefix(env[i], name+"="); ok {
			return text
		}
	}
	return ""
}

// with returns the environment with one variable set.
func with(env []string, name, text string) []string {
	kept := make([]string, 0, len(env)+1)
	for _, line := range env {
		if !strings.HasPrefix(line, name+"=") {
			kept = append(kept, line)
		}
	}
	return append(kept, name+"="+text)
}

// adopt makes orphans this process's children and its memory nobody else's to read.
// As process 1 the first comes of itself; a guest that runs as an ordinary process
// needs it.
func adopt() error {
	return errors.Join(
		unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0),
		unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0),
	)
}

// credential returns nil when the guest is that account already.
func credential(a account.Account) *syscall.Credential {
	if int(a.UID) == os.Geteuid() && int(a.GID) == os.Getegid() {
		return nil
	}
	return &syscall.Credential{Uid: a.UID, Gid: a.GID, Groups: a.Groups}
}
