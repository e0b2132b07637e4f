// Package runc owns the runtime driver that drives the runc binary by itself: for
// hosts without a container daemon. Every container has one small process of ours, its
// shim, which outlives the agent: it holds the log, waits for the end and writes it
// down.
//
// It does not decide how a container is confined (runtime/oci), does not pull
// (images), and knows no network. Instants are uptimes.
//
// A container is a folder below Config.Dir, 0700:
//
//	record.json   what it is; written and synced before anything is done
//	bundle/       config.json for runc
//	shim.lock     held by the shim as long as it lives
//	init.json     the main process, once it is made
//	exit.json     how it ended
//
// Whatever step the agent is killed at, the record is there, so that List shows the
// container and Stop removes it. The last thing that Stop removes is the record.
//
// A host that supervises the agent must end the agent alone and not its shims
// (systemd: KillMode=process).
package runc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/tranche-cloud/tranche/agent/cgroup"
	"github.com/tranche-cloud/tranche/agent/images"
	"github.com/tranche-cloud/tranche/agent/runtime/oci"
	"github.com/tranche-cloud/tranche/internal/clock"
	"github.com/tranche-cloud/tranche/nodeagent"
	"github.com/tranche-cloud/tranche/nodeagent/runtime"
)

// Config opens a Driver.
type Config struct {
	// Dir has the containers' folders; made 0700.
	Dir string
	// RunDir has what need not outlive a boot, on a tmpfs at best (/run/tranche). Every
	// folder above it must be searchable by everybody.
	RunDir string
	// Runc is the binary; "" is runc on the PATH.
	Runc string
	// Shim is the command line that runs Shim with the arguments after it, for example
	// the agent's own binary and a hidden subcommand.
	Shim   []string
	Images *images.Store
	// CDIDirs are the folders whose CDI files name Extra.CDI.
	CDIDirs []string
	BootID  string
	// FirstID is where the driver takes the ids of user namespaces from, 65,536 each, if
	// the caller gives none: 2^30. Up to 2^31 they must be nobody's.
	FirstID uint32
	// LogLimit bounds a container's log, in bytes: 16 MiB. A full log becomes LOG.1 in
	// place of the one before.
	LogLimit int64
	// Grace is how long a program has after SIGTERM: 10 s.
	Grace time.Duration
	Clock clock.Clock
	Log   *slog.Logger
}

// Driver implements runtime.Driver.
type Driver struct {
	cfg  Config
	host oci.Host
	tree *cgroup.Tree

	mu    sync.Mutex // the choice of ids, and locks
	locks map[string]*nameLock
}

type nameLock struct {
	sync.Mutex
	users int
}

var _ runtime.Driver = (*Driver)(nil)

// Open checks that runc can be run here and finds the containers of an earlier agent.
func Open(cfg Config) (*Driver, error) {
	cfg.Runc = cmp.Or(cfg.Runc, "runc")
	cfg.FirstID, cfg.LogLimit = cmp.Or(cfg.FirstID, 1<<30), cmp.Or(cfg.LogLimit, 16<<20)
	cfg.Grace = cmp.Or(cfg.Grace, 10*time.Second)
	if cfg.Clock == nil {
		cfg.Clock = clock.Real()
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if len(cfg.Shim) == 0 || cfg.Images == nil || cfg.BootID == "" {
		return nil, errors.New("open runc driver: it needs a shim command, an image store and the boot id")
	}
	path, err := exec.LookPath(cfg.Runc)
	if err != nil {
		return nil, unavailable("no runc on this host: install it").Because(err)
	}
	cfg.Runc = path
	said, err := exec.Command(path, "--version").CombinedOutput() //nolint:gosec // the operator's binary
	if err != nil || !strings.HasPrefix(string(said), "runc version") {
		return nil, unavailable("%s is not runc: it says %q", path, strings.TrimSpace(string(said))).Because(err)
	}
	d := &Driver{cfg: cfg, locks: map[string]*nameLock{}}
	if d.host, err = oci.HostFacts(); err != nil {
		return nil, unavailable("the host's limits cannot be read").Because(err)
	}
	if d.tree, err = cgroup.Open(""); err != nil {
		return nil, unavailable("no cgroups on this host").Because(err)
	}
	if err := errors.Join(os.MkdirAll(d.containers(), 0o700), os.MkdirAll(cfg.RunDir, 0o711)); err != nil {
		return nil, fmt.Errorf("make container folder: %w", err)
	}
	return d, d.sweep()
}

// sweep removes folders whose record is gone: a removal that was all but done.
func (d *Driver) sweep() error {
	names, err := os.ReadDir(d.containers())
	if err != nil {
		return fmt.Errorf("list containers: %w", err)
	}
	for _, n := range names {
		dir := d.dir(n.Name())
		if _, err := os.Stat(filepath.Join(dir, recordFile)); errors.Is(err, fs.ErrNotExist) {
			if err := os.RemoveAll(dir); err != nil {
				return fmt.Errorf("remove empty container folder: %w", err)
			}
		}
	}
	return nil
}

func (d *Driver) containers() string     { return filepath.Join(d.cfg.Dir, "containers") }
func (d *Driver) dir(name string) string { return filepath.Join(d.containers(), name) }
func (d *Driver) runcRoot() string       { return filepath.Join(d.cfg.RunDir, "runc") }

var names = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$`)

// lock serialises work on one container.
func (d *Driver) lock(name string) func() {
	d.mu.Lock()
	l := d.locks[name]
	if l == nil {
		l = &nameLock{}
		d.locks[name] = l
	}
	l.users++
	d.mu.Unlock()
	l.Lock()
	return func() {
		l.Unlock()
		d.mu.Lock()
		defer d.mu.Unlock()
		if l.users--; l.users == 0 {
			delete(d.locks, name)
		}
	}
}

// List implements runtime.Driver.
func (d *Driver) List(context.Context) ([]runtime.Container, error) {
	entries, err := os.ReadDir(d.containers())
	if err != nil {
		return nil, refuse(runtime.Broken, "list", "", "read the container folder").Because(err)
	}
	var out []runtime.Container
	for _, e := range entries {
		r, found, err := d.record(e.Name())
		if err != nil {
			return nil, refuse(runtime.Broken, "list", e.Name(), "read the record of a container").Because(err)
		}
		if found {
			out = append(out, d.container(r))
		}
	}
	return out, nil
}

// Stats implements runtime.Driver.
func (d *Driver) Stats(_ context.Context, name string) (runtime.Stats, error) {
	if _, err := d.running("stats", name); err != nil {
		return runtime.Stats{}, err
	}
	stats, err := d.tree.Stats(cgroup.Path(name))
	if cgroup.Gone(err) {
		return runtime.Stats{}, refuse(runtime.NotFound, "stats", name, "it has just ended")
	}
	if err != nil {
		return runtime.Stats{}, refuse(runtime.Broken, "stats", name, "read counters").Because(err)
	}
	return stats, nil
}

// running returns a container that runs.
func (d *Driver) running(op, name string) (runtime.Container, error) {
	if !names.MatchString(name) {
		return runtime.Container{}, refuse(runtime.NotFound, op, name, "no container has such a name")
	}
	r, found, err := d.record(name)
	if err != nil {
		return runtime.Container{}, refuse(runtime.Broken, op, name, "read the record of a container").Because(err)
	}
	if found {
		if c := d.container(r); c.State == runtime.Running {
			return c, nil
		}
	}
	return runtime.Container{}, refuse(runtime.NotFound, op, name, "no such container runs")
}

func uptime() time.Duration { return nodeagent.Uptime() }

func refuse(kind runtime.Kind, op, name, format string, args ...any) *runtime.Error {
	return runtime.Refuse(kind, op, name, format, args...)
}

func unavailable(format string, args ...any) *runtime.Error {
	return runtime.Refuse(runtime.Unavailable, "open", "", format, args...)
}
