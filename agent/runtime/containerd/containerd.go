// Package containerd implements the runtime port on a containerd daemon, from 1.6 on,
// through its own client. It owns the containers, snapshots, tasks and images of one
// namespace of the daemon, and the processes that keep their logs.
//
// It does not decide on isolation (agent/runtime/oci), on which images are allowed
// (agent/images) or on networks. Instants are the host's uptime. The container's
// labels hold what must outlive the agent; neither secrets nor logins are in them.
//
// A task belongs to its shim, not to the daemon or to this process: both may be
// restarted while it runs. The shim's exit time is by the wall clock, and is turned
// into uptime when it is heard of, once, and kept.
package containerd

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/containerd/containerd/v2/client"

	"github.com/tranche-cloud/tranche/agent/cgroup"
	"github.com/tranche-cloud/tranche/agent/images"
	"github.com/tranche-cloud/tranche/agent/runtime/oci"
	"github.com/tranche-cloud/tranche/internal/clock"
	"github.com/tranche-cloud/tranche/nodeagent/runtime"
)

// Defaults of a Config.
const (
	DefaultAddress     = "/run/containerd/containerd.sock"
	DefaultNamespace   = "tranche"
	DefaultSnapshotter = "overlayfs"
	DefaultStateDir    = "/run/tranche/containerd"
	DefaultLogLimit    = 16 << 20 // bytes
	DefaultHigh        = 64 << 30 // bytes
	DefaultLow         = 48 << 30
	maxGrace           = 10 * time.Second
)

// Config opens a driver. BootID, Uptime, Clock, Host and Images must be set.
type Config struct {
	Address     string // of the daemon's socket, absolute; "" is DefaultAddress
	Namespace   string // "" is DefaultNamespace
	Snapshotter string // "" is DefaultSnapshotter
	Runc        string // path of the runc binary; "" is the one on the daemon's PATH
	StateDir    string // pipes of execs and runc's state; "" is DefaultStateDir
	CDIDirs     []string
	Host        oci.Host
	Images      *images.Registry // what may be pulled, and how long it may take
	BootID      string
	Uptime      func() time.Duration // of this boot, suspended time included
	Clock       clock.Clock
	// Grace is how long a process may take from SIGTERM on; 0 and everything above
	// ten seconds is ten seconds.
	Grace time.Duration
	// Logger is the absolute path of a binary that runs Log for LogCommand; "" is this
	// process's own.
	Logger string
	// LogLimit bounds a container's log; 0 is DefaultLogLimit. A full log becomes LOG.1
	// in place of the one before.
	LogLimit int64
	// High and Low are the sizes of all stored layers, in bytes as they came from the
	// registries, at which GC begins and ends to remove images that nobody uses; 0 is
	// DefaultHigh and DefaultLow.
	High, Low int64
}

// Driver implements runtime.Driver.
type Driver struct {
	cfg     Config
	client  *client.Client
	groups  *cgroup.Tree
	names   locks // one change of a container at a time
	records locks // one writer of a container's labels at a time
	pulls   locks // one pull of an image at a time
	ids     sync.Mutex
	taken   map[string]uint32 // containers being made, and their first id
	watch   sync.Mutex
	closed  bool
	cancel  context.CancelFunc // ends listening; nil until it began
	done    sync.WaitGroup
}

var _ runtime.Driver = (*Driver)(nil)

// Open connects when the daemon is first needed: it may be down. From the first call
// on the driver listens to ends of containers, until Close.
func Open(cfg Config) (*Driver, error) {
	fill(&cfg.Address, DefaultAddress)
	fill(&cfg.Namespace, DefaultNamespace)
	fill(&cfg.Snapshotter, DefaultSnapshotter)
	fill(&cfg.StateDir, DefaultStateDir)
	fill(&cfg.LogLimit, DefaultLogLimit)
	fill(&cfg.High, DefaultHigh)
	fill(&cfg.Low, min(DefaultLow, cfg.High))
	if cfg.Grace <= 0 || cfg.Grace > maxGrace {
		cfg.Grace = maxGrace
	}
	if cfg.Logger == "" {
		self, err := os.Executable()
		if err != nil {
			return nil, runtime.Refuse(runtime.Broken, "open", "", "find the own binary").Because(err)
		}
		cfg.Logger = self
	}
	for _, path := range []string{cfg.Address, cfg.StateDir, cfg.Logger} {
		if !filepath.IsAbs(path) {
			return nil, runtime.Refuse(runtime.Broken, "open", "", "socket, folder and logger must be absolute paths, not %q", path)
		}
	}
	groups, err := cgroup.Open("")
	if err != nil {
		return nil, runtime.Refuse(runtime.Unavailable, "open", "", "this host has no cgroups").Because(err)
	}
	const reconnect = 2 * time.Second
	c, err := client.New(cfg.Address, client.WithDefaultNamespace(cfg.Namespace), client.WithTimeout(reconnect))
	if err != nil {
		return nil, runtime.Refuse(runtime.Unavailable, "open", "", "containerd at %s", cfg.Address).Because(err)
	}
	d := &Driver{cfg: cfg, client: c, groups: groups, taken: map[string]uint32{}}
	if err := d.sweep(); err != nil {
		return nil, errors.Join(runtime.Refuse(runtime.Broken, "open", "", "remove what was left in %s", d.cfg.StateDir).Because(err), c.Close())
	}
	return d, nil
}

func fill[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// attend begins to listen to ends, for longer than the call that asks for it.
func (d *Driver) attend(ctx context.Context) {
	d.watch.Lock()
	defer d.watch.Unlock()
	if d.closed || d.cancel != nil {
		return
	}
	ctx, d.cancel = context.WithCancel(context.WithoutCancel(ctx))
	d.done.Go(func() { d.listen(ctx) })
}

// Close leaves everything running and lets go of the daemon.
func (d *Driver) Close() error {
	d.watch.Lock()
	d.closed = true
	if d.cancel != nil {
		d.cancel()
	}
	d.watch.Unlock()
	err := d.client.Close()
	d.done.Wait()
	return err
}

// locks are mutexes by name.
type locks struct {
	mu   sync.Mutex
	held map[string]chan struct{}
}

// lock waits for the name and returns what gives it back.
func (l *locks) lock(ctx context.Context, name string) (func(), error) {
	for {
		l.mu.Lock()
		busy, ok := l.held[name]
		if !ok {
			if l.held == nil {
				l.held = map[string]chan struct{}{}
			}
			free := make(chan struct{})
			l.held[name] = free
			l.mu.Unlock()
			return func() { l.release(name, free) }, nil
		}
		l.mu.Unlock()
		select {
		case <-busy:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (l *locks) release(name string, free chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.held, name)
	close(free)
}
