package guest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/tranche-cloud/tranche/agent/guest/wire"
	"github.com/tranche-cloud/tranche/nodeagent/runtime"
)

// ErrUnknown is what a Hub's methods fail with, wrapped, for a name that is not open.
var ErrUnknown = errors.New("no such guest")

// ErrName is what Open fails with, wrapped, for a name that is no plain file name.
var ErrName = errors.New("name of a guest is 1 to 64 letters, digits, _ and -")

var plain = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$`)

// Config says where a hub lives. All fields but the ids are needed.
type Config struct {
	// Dir is the host-only folder under which each instance gets one; short, for
	// socket addresses hold 107 bytes.
	Dir string
	// GatewayUID and GatewayGID own the folder of the shell socket, which the SSH
	// gateway makes; 0 when it runs as root.
	GatewayUID, GatewayGID int
	// Uptime is the host's monotonic uptime in this boot.
	Uptime func() time.Duration
	Log    *slog.Logger
}

// Boot is what a guest needs to know, and what the host needs to know of it.
type Boot struct {
	// Peer admits the guest; see First.
	Peer Peer
	// Root is the host uid and gid that is root inside; 0 without a user namespace.
	Root int
	// Since is the uptime before which the main process cannot have started.
	Since time.Duration
	// User is who runs the main process and the sessions, as the image names it
	// (user[:group]); "" is root. The guest itself must run as root inside.
	User    string
	Workdir string // "" is /
	// Grace is the time from SIGTERM to SIGKILL; at most the runtime's own.
	Grace time.Duration
	// Secrets fetches the environment that no disk sees; nil when there is none. It is
	// called each time that a guest which has not started asks.
	Secrets func(ctx context.Context) (map[string]string, error)
}

// Folder is the place where a host and one guest meet.
type Folder struct {
	Path string // on the host
}

// Shell returns the path of the socket on which the SSH gateway listens.
func (f Folder) Shell() string { return filepath.Join(f.Path, wire.Shell) }

// Mounts returns what the container must be given, binary being the guest's program on
// the host.
func (f Folder) Mounts(binary string) []runtime.Mount {
	return []runtime.Mount{{Source: f.Path, Target: wire.Folder}, {Source: binary, Target: wire.Binary}}
}

// Init returns the front of the command line of a container with a guest. The process
// must start as root inside: the guest becomes the image's user for what it starts.
func Init() []string { return []string{wire.Binary, "run", "--"} }

// Exit is how a main process ended.
type Exit struct {
	Code   int           // 0–255, 128 + n for signal n
	Reason string        // why it never started; "" if it did
	At     time.Duration // uptime
}

// Status is what is known of a guest. Everything but Connected and Heard is the
// guest's own word, within the bounds that the host can check.
type Status struct {
	Phase     wire.Phase // "" before the first hello
	Connected bool
	Heard     time.Duration // uptime of the last frame; 0 before the first
	Ready     time.Duration // uptime when the main process started; 0 if it did not
	Exit      *Exit         // nil while it runs
	Build     string        // version of the guest's program
}

// Hub serves the guests of a host. It is safe for concurrent use.
type Hub struct {
	cfg Config

	mu     sync.Mutex
	guests map[string]*link
}

// NewHub prepares the folder; guests are served from Open until Close or Shutdown.
func NewHub(cfg Config) (*Hub, error) {
	if err := os.MkdirAll(cfg.Dir, 0o711); err != nil {
		return nil, fmt.Errorf("make the guests' folder: %w", err)
	}
	if err := os.Chmod(cfg.Dir, 0o711); err != nil { //nolint:gosec // containers with other ids pass through, by name only
		return nil, fmt.Errorf("make the guests' folder: %w", err)
	}
	return &Hub{cfg: cfg, guests: map[string]*link{}}, nil
}

// Open makes the instance's folder, or takes up the one that an earlier agent left,
// and listens in it until Close or Shutdown, whatever becomes of the context. Opening a
// name again replaces what its guest is told. It fails with ErrName, ErrPath or the
// system's error.
func (h *Hub) Open(ctx context.Context, name string, boot Boot) (Folder, error) {
	folder := Folder{Path: filepath.Join(h.cfg.Dir, name)}
	if !plain.MatchString(name) {
		return Folder{}, fmt.Errorf("open guest %q: %w", name, ErrName)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if open, ok := h.guests[name]; ok {
		open.reboot(boot)
		return folder, nil
	}
	if err := h.lay(folder); err != nil {
		return Folder{}, fmt.Errorf("open guest %s: %w", name, err)
	}
	l := newLink(h.cfg, name, boot)
	door, err := OpenDoor(filepath.Join(folder.Path, wire.Control), boot.Root, l.admits)
	if err != nil {
		return Folder{}, fmt.Errorf("open guest %s: %w", name, err)
	}
	l.start(context.WithoutCancel(ctx), door)
	h.guests[name] = l
	return folder, nil
}

// lay makes the folders. They are never made anew while they exist, for a running
// container has them mounted.
func (h *Hub) lay(f Folder) error {
	for _, dir := range []string{f.Path, filepath.Dir(f.Shell())} {
		if err := os.Mkdir(dir, 0o711); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
		if err := os.Chmod(dir, 0o711); err != nil { //nolint:gosec // passed through by name only
			return err
		}
	}
	return os.Chown(filepath.Dir(f.Shell()), h.cfg.GatewayUID, h.cfg.GatewayGID)
}

// Status returns what is known of a guest, ErrUnknown if it is not open.
func (h *Hub) Status(name string) (Status, error) {
	l, err := h.link(name)
	if err != nil {
		return Status{}, err
	}
	now, _ := l.look()
	return now, nil
}

// Wait returns when the main process has started, or ended, or could not start; its
// Status says which. It fails with ErrUnknown when the guest is closed meanwhile.
func (h *Hub) Wait(ctx context.Context, name string) (Status, error) {
	return h.until(ctx, name, func(s Status) bool { return s.Ready > 0 || s.Exit != nil })
}

// Exited returns when the guest reported the end of the main process. A guest that is
// killed reports nothing: the runtime's word is the one that counts.
func (h *Hub) Exited(ctx context.Context, name string) (Exit, error) {
	s, err := h.until(ctx, name, func(s Status) bool { return s.Exit != nil })
	if err != nil {
		return Exit{}, err
	}
	return *s.Exit, nil
}

func (h *Hub) until(ctx context.Context, name string, enough func(Status) bool) (Status, error) {
	l, err := h.link(name)
	if err != nil {
		return Status{}, err
	}
	for {
		now, changed := l.look()
		if enough(now) {
			return now, nil
		}
		select {
		case <-changed:
		case <-l.done:
			return now, fmt.Errorf("wait for guest %s: closed: %w", name, ErrUnknown)
		case <-ctx.Done():
			return now, fmt.Errorf("wait for guest %s: %w", name, ctx.Err())
		}
	}
}

func (h *Hub) link(name string) (*link, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	l, ok := h.guests[name]
	if !ok {
		return nil, fmt.Errorf("guest %s: %w", name, ErrUnknown)
	}
	return l, nil
}

// Close stops serving a guest and removes its folder. It succeeds if there is none.
func (h *Hub) Close(name string) error {
	if !plain.MatchString(name) {
		return fmt.Errorf("close guest %q: %w", name, ErrName)
	}
	h.mu.Lock()
	l := h.guests[name]
	delete(h.guests, name)
	h.mu.Unlock()
	if l != nil {
		l.stop()
	}
	if err := os.RemoveAll(filepath.Join(h.cfg.Dir, name)); err != nil {
		return fmt.Errorf("close guest %s: %w", name, err)
	}
	return nil
}

// List returns the names of all folders, open or left by an earlier agent.
func (h *Hub) List() ([]string, error) {
	entries, err := os.ReadDir(h.cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("list guests: %w", err)
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() && plain.MatchString(e.Name()) {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// Sweep closes every guest that is not to be kept and returns their names.
func (h *Hub) Sweep(keep []string) ([]string, error) {
	names, err := h.List()
	if err != nil {
		return nil, err
	}
	names = slices.DeleteFunc(names, func(name string) bool { return slices.Contains(keep, name) })
	var failures []error
	for _, name := range names {
		failures = append(failures, h.Close(name))
	}
	return names, errors.Join(failures...)
}

// Shutdown stops serving and leaves the folders: the guests dial until the next agent
// opens them.
func (h *Hub) Shutdown() {
	h.mu.Lock()
	open := h.guests
	h.guests = map[string]*link{}
	h.mu.Unlock()
	for _, l := range open {
		l.stop()
	}
}
