package inside

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"github.com/tranche-cloud/tranche/agent/guest/inside/account"
	"github.com/tranche-cloud/tranche/agent/guest/wire"
)

// Config says what a guest runs.
type Config struct {
	Dir     string   // where the host's sockets are; wire.Folder in an instance
	Self    string   // path of this program, which also serves SFTP
	Command []string // the tenant's; empty for an instance that is used by SSH only
	Build   string   // version of this program
	Log     io.Writer
}

const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// life is a running guest.
type life struct {
	cfg   Config
	table *table
	host  *control
	tasks sync.WaitGroup
	grace time.Duration
	env   []string // of main process and sessions, secrets included; nowhere else
	as    account.Account
	dir   string
}

// Run is the life of a guest: it waits for the host's word, runs the command, and
// returns the exit code of the instance. It ends with its main process, with SIGTERM
// when there is none, and with the context in tests.
func Run(ctx context.Context, cfg Config) int {
	// Process 1 shares the tenant's memory limit; it has little to remember.
	debug.SetGCPercent(50)
	if err := adopt(); err != nil {
		fmt.Fprintln(cfg.Log, "tranche-guest: become the reaper:", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	g := &life{cfg: cfg, table: newTable(), host: newControl(filepath.Join(cfg.Dir, wire.Control), cfg.Build)}
	defer g.tasks.Wait()
	defer cancel()
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2)
	defer signal.Stop(signals)
	g.tasks.Go(func() { g.table.reap(ctx) })
	g.tasks.Go(func() { g.host.run(ctx) })

	code, err := g.run(ctx, signals)
	reason := ""
	if err != nil {
		reason = err.Error()
		fmt.Fprintln(cfg.Log, "tranche-guest:", reason)
	}
	if ctx.Err() == nil {
		g.host.end(code, reason, 300*time.Millisecond)
	}
	return code
}

func (g *life) run(ctx context.Context, signals <-chan os.Signal) (int, error) {
	for {
		select {
		case boot := <-g.host.boot:
			return g.begin(ctx, boot, signals)
		case s := <-signals:
			if s == syscall.SIGTERM || s == syscall.SIGINT {
				return 143, errors.New("stopped before the host said what to run")
			}
		case <-ctx.Done():
			return 0, nil
		}
	}
}

// begin takes the host's word, opens the sessions and runs the main process.
func (g *life) begin(ctx context.Context, boot wire.FromHost, signals <-chan os.Signal) (int, error) {
	as, err := account.Resolve(boot.User, account.Users, account.Groups)
	if err != nil {
		return codeOf(err), err
	}
	g.as, g.dir, g.grace = as, filepath.Join("/", boot.Workdir), time.Duration(boot.Grace)
	if g.grace <= 0 {
		g.grace = 10 * time.Second
	}
	g.env = environment(as, os.Environ(), boot.Secrets)
	if err := g.enter(); err != nil {
		return 126, err
	}
	sessions, err := newSessions(g)
	if err != nil {
		return 126, err
	}
	if len(g.cfg.Command) == 0 {
		g.tasks.Go(func() { sessions.run(ctx) })
		g.host.started(wire.Idle)
		idle(ctx, signals)
		return 0, nil
	}
	main, err := g.launch()
	if err != nil {
		return codeOf(err), err
	}
	g.tasks.Go(func() { sessions.run(ctx) })
	g.host.started(wire.Running)
	return g.attend(ctx, main, signals), nil
}

// enter makes the working folder if the image has none, as container engines do.
func (g *life) enter() error {
	if _, err := os.Stat(g.dir); !errors.Is(err, os.ErrNotExist) {
		return nil
	}
	err := os.MkdirAll(g.dir, 0o755)
	if err == nil && credential(g.as) != nil {
		err = os.Chown(g.dir, int(g.as.UID), int(g.as.GID))
	}
	if err != nil {
		return fmt.Errorf("make the working folder %s: %w", g.dir, err)
	}
	return nil
}

// launch starts the main process on the guest's own output.
func (g *life) launch() (*process, error) {
	path, err := find(g.cfg.Command[0], g.dir, g.env)
	if err != nil {
		return nil, err
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, fmt.Errorf("start the command: %w", err)
	}
	defer null.Close()
	for _, out := range []*os.File{os.Stdout, os.Stderr} {
		// Programs that open /dev/stderr anew need to own the pipe behind it.
		if info, err := out.Stat(); err == nil && info.Mode()&os.ModeNamedPipe != 0 && credential(g.as) != nil {
			_ = out.Chown(int(g.as.UID), int(g.as.GID))
		}
	}
	main, err := g.table.start(program{
		path: path, argv: g.cfg.Command, env: g.env, dir: g.dir, as: g.as,
		files: [3]*os.File{null, os.Stdout, os.Stderr}, group: true,
	})
	if err != nil {
		return nil, &failure{126, fmt.Sprintf("%q cannot be run: %v", path, cause(err))}
	}
	return main, nil
}

// attend forwards signals to the main process and its group until it ends. After a
// SIGTERM it has the grace to end by itself.
func (g *life) attend(ctx context.Context, main *process, signals <-chan os.Signal) int {
	var late <-chan time.Time
	for {
		select {
		case <-main.done:
			return exitCode(main.status)
		case s := <-signals:
			if s == syscall.SIGTERM && late == nil {
				late = time.After(g.grace)
			}
			if s, ok := s.(syscall.Signal); ok {
				g.table.signal(main, s)
			}
		case <-late:
			g.table.signal(main, syscall.SIGKILL)
		case <-ctx.Done():
			g.table.signal(main, syscall.SIGKILL)
			return 137
		}
	}
}

// idle keeps an instance without a command until it is told to stop.
func idle(ctx context.Context, signals <-chan os.Signal) {
	for {
		select {
		case s := <-signals:
			if s == syscall.SIGTERM || s == syscall.SIGINT {
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// environment is what the image and the tenant set, the secrets, and what every
// program expects.
func environment(as account.Account, given []string, secrets map[string]string) []string {
	env := append([]string(nil), given...)
	for name, text := range secrets {
		env = with(env, name, text)
	}
	if value(env, "PATH") == "" {
		env = with(env, "PATH", defaultPath)
	}
	// Runtimes set HOME for the user that the container starts as, which is root.
	if home := value(env, "HOME"); home == "" || (home == "/root" && as.UID != 0) {
		env = with(env, "HOME", as.Home)
	}
	return env
}

// codeOf is the exit code that an error of a start stands for.
func codeOf(err error) int {
	if f, ok := errors.AsType[*failure](err); ok {
		return f.code
	}
	return 126
}

// cause is the system's own word, without the path that the caller names already.
func cause(err error) error {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno
	}
	return err
}
