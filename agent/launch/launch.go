// Package launch owns how a run comes up on a host and goes away again: it puts the
// parts around a runtime driver, in one order, and takes them away in the other.
//
//	start: ids · device files · guest's folder · container made · network attached ·
//	       started · guest has started the tenant's program
//	stop:  container · network · guest's folder · device files · ids
//
// It is a runtime.Driver itself, so the agent's core needs to know none of the parts.
// Everything is safe to repeat: what a dead agent left is taken up by the next start
// or stop of the same name, and Sweep removes what belongs to no container.
//
// It does not carve, does not choose and keeps no state but the ids it gave out.
package launch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tranche-cloud/tranche/agent/guest"
	"github.com/tranche-cloud/tranche/agent/injection"
	"github.com/tranche-cloud/tranche/agent/network"
	"github.com/tranche-cloud/tranche/internal/units"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
	"github.com/tranche-cloud/tranche/nodeagent/mpsd"
	"github.com/tranche-cloud/tranche/nodeagent/runtime"
)

// Config is the parts. All are needed but those that say otherwise.
type Config struct {
	Runtime   runtime.Driver
	Devices   *injection.Store
	Kind      injection.Driver
	GPUs      gpudrv.Driver
	MPS       mpsd.Control     // nil where no GPU is ever in mps mode
	Network   *network.Manager // nil gives instances no network at all
	Guests    *guest.Hub
	GuestPath string // of the guest's static program
	Resolv    string // the host's file for /etc/resolv.conf of instances; "" is none
	IDs       *IDs
	// Logs is the folder with one file a container, for its output.
	Logs string
	// CPUs says on which CPUs and memory nodes a container with these GPUs runs best,
	// as cpuset lists; nil is anywhere.
	CPUs func(ctx context.Context, gpus []string) (cpus, nodes string)
	// VCPU and RAM bound what a container gets, for a simulated host that claims more
	// than this machine has; 0 is no bound, and too much is refused.
	VCPU   int
	RAM    units.MiB
	Uptime func() time.Duration
	Log    *slog.Logger
}

// Launcher is a runtime.Driver with the parts around it.
type Launcher struct{ cfg Config }

var _ runtime.Driver = (*Launcher)(nil)

// Bounds of a start.
const (
	readyWithin = 30 * time.Second // from the container's start to the tenant's program
	// rejoin is how soon the guest of a running container is heard by a new agent: guests
	// dial each second.
	rejoin     = 3 * time.Second
	grace      = 10 * time.Second
	undoWithin = time.Minute
)

// New makes the folder of the logs.
func New(cfg Config) (*Launcher, error) {
	if err := os.MkdirAll(cfg.Logs, 0o750); err != nil {
		return nil, fmt.Errorf("make the folder of instances' logs: %w", err)
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Launcher{cfg: cfg}, nil
}

// Start implements runtime.Driver. The container counts as running when the guest has
// started the tenant's program; an error leaves nothing running.
func (l *Launcher) Start(ctx context.Context, s runtime.Spec) (runtime.Container, error) {
	c, err := l.start(ctx, s)
	if err == nil {
		return c, nil
	}
	// Half a start is worse than none; what cannot be undone now is Stop's to finish.
	undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoWithin)
	defer cancel()
	if ctx.Err() == nil {
		if err := l.Stop(undo, s.Name); err != nil {
			l.cfg.Log.Warn("start not undone", "assignment_id", s.Name, "error", err)
		}
	}
	return runtime.Container{}, err
}

func (l *Launcher) start(ctx context.Context, s runtime.Spec) (runtime.Container, error) {
	if c, runs, err := l.resume(ctx, s); runs || err != nil {
		return c, err
	}
	if l.cfg.VCPU > 0 {
		s.VCPU, s.RAM = min(s.VCPU, l.cfg.VCPU), min(s.RAM, l.cfg.RAM)
	}
	base, err := l.cfg.IDs.Take(s.Name)
	if err != nil {
		return runtime.Container{}, runtime.Refuse(runtime.Broken, "start", s.Name, "no ids for its user namespace").Because(err)
	}
	for i := range s.Slots {
		device, err := l.inject(ctx, s, i)
		if err != nil {
			return runtime.Container{}, err
		}
		s.Extra.CDI = append(s.Extra.CDI, device)
	}
	boot := guest.Boot{
		Root: int(base), Since: l.cfg.Uptime(), Grace: grace,
		Peer: func(int) error { return fmt.Errorf("%w: its container is not made yet", guest.ErrStranger) },
	}
	if len(s.Secrets) > 0 {
		secrets := s.Secrets
		boot.Secrets = func(context.Context) (map[string]string, error) { return secrets, nil }
	}
	folder, err := l.cfg.Guests.Open(ctx, s.Name, boot)
	if err != nil {
		return runtime.Container{}, runtime.Refuse(runtime.Broken, "start", s.Name, "no folder for its guest").Because(err)
	}
	s.Extra.IDBase = base
	s.Extra.Mounts = append(s.Extra.Mounts, folder.Mounts(l.cfg.GuestPath)...)
	if l.cfg.Resolv != "" {
		s.Extra.Mounts = append(s.Extra.Mounts, runtime.Mount{Source: l.cfg.Resolv, Target: "/etc/resolv.conf"})
	}
	names, err := hostsFile(folder.Path, s)
	if err != nil {
		return runtime.Container{}, err
	}
	s.Extra.Mounts = append(s.Extra.Mounts, runtime.Mount{Source: names, Target: "/etc/hosts"})
	s.Extra.Init = guest.Init()
	s.Extra.Log = l.LogPath(s.Name)
	if l.cfg.CPUs != nil {
		s.Extra.CPUs, s.Extra.MemoryNodes = l.cfg.CPUs(ctx, gpusOf(s))
	}
	s.Extra.Learn = func(image runtime.Image) { boot.User, boot.Workdir = image.User, image.Workdir }
	s.Extra.Attach = func(ctx context.Context, pid int) error { return l.attach(ctx, s, boot, pid) }
	c, err := l.cfg.Runtime.Start(ctx, s)
	if err != nil {
		return runtime.Container{}, err
	}
	return l.ready(ctx, c)
}

// errCutShort is what a guest hears that waits for a start which nobody remembers.
var errCutShort = errors.New("the start that it waits for was cut short")

// resume takes up the run if its program runs already. A guest of an earlier start that
// still waits for its user and secrets would wait for ever: its container is removed.
func (l *Launcher) resume(ctx context.Context, s runtime.Spec) (runtime.Container, bool, error) {
	if _, err := l.cfg.Guests.Status(s.Name); err != nil {
		return runtime.Container{}, false, nil //nolint:nilerr // no start of the name was begun
	}
	c, found, err := l.find(ctx, s.Name)
	if err != nil || !found {
		return runtime.Container{}, false, err
	}
	if c.State == runtime.Running && c.Run == s.Run {
		wait, cancel := context.WithTimeout(ctx, rejoin)
		defer cancel()
		if st, err := l.cfg.Guests.Wait(wait, s.Name); err == nil && st.Ready > 0 {
			c.Started = st.Ready
			return c, true, nil
		}
	}
	return runtime.Container{}, false, l.Stop(ctx, s.Name)
}

// hostsFile writes the names that an instance knows without asking, into the folder
// that goes with its guest.
func hostsFile(dir string, s runtime.Spec) (string, error) {
	name := cmp.Or(s.Hostname, s.Instance)
	path := filepath.Join(dir, "hosts")
	text := "127.0.0.1 localhost\n::1 localhost ip6-localhost\n127.0.1.1 " + name + "\n"
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil { //nolint:gosec // the instance reads it
		return "", runtime.Refuse(runtime.Broken, "start", s.Name, "no file of host names").Because(err)
	}
	return path, nil
}

// attach gives a made container its network and lets its guest in.
func (l *Launcher) attach(ctx context.Context, s runtime.Spec, boot guest.Boot, pid int) error {
	if l.cfg.Network != nil {
		_, err := l.cfg.Network.Attach(ctx, network.Attachment{Name: s.Name, Org: s.Org, PID: pid, Ports: s.Ports})
		if err != nil {
			return err
		}
	}
	group, err := cgroupOf(pid)
	if err != nil {
		return runtime.Refuse(runtime.Broken, "attach", s.Name, "its control group is not known").Because(err)
	}
	if err := l.limitMemory(ctx, s, group); err != nil {
		return err
	}
	boot.Peer = guest.First(group)
	if _, err := l.cfg.Guests.Open(ctx, s.Name, boot); err != nil {
		return runtime.Refuse(runtime.Broken, "attach", s.Name, "its guest is not served").Because(err)
	}
	return nil
}

// ready waits for the tenant's program.
func (l *Launcher) ready(ctx context.Context, c runtime.Container) (runtime.Container, error) {
	wait, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	st, err := l.cfg.Guests.Wait(wait, c.Name)
	switch {
	case err == nil && st.Exit != nil && st.Ready == 0:
		return c, runtime.Refuse(runtime.CommandFailed, "start", c.Name, "the program could not be started: %s", st.Exit.Reason)
	case err == nil:
		c.Started = st.Ready
		return c, nil
	case ctx.Err() != nil:
		return c, ctx.Err()
	}
	if now, found, lookErr := l.find(ctx, c.Name); lookErr == nil && found && now.State == runtime.Exited {
		return c, runtime.Refuse(runtime.CommandFailed, "start", c.Name, "the instance ended with code %d before its program was started", now.ExitCode)
	}
	return c, runtime.Refuse(runtime.Broken, "start", c.Name, "the guest did not report within %s", readyWithin).Because(err)
}

// serve takes the guest of a running container up again. What a guest needs to begin is
// known to the start alone, so one that has not begun is told nothing.
func (l *Launcher) serve(ctx context.Context, c runtime.Container) error {
	if _, err := l.cfg.Guests.Status(c.Name); err == nil {
		return nil
	}
	base, err := l.cfg.IDs.Take(c.Name)
	if err != nil {
		return runtime.Refuse(runtime.Broken, "serve", c.Name, "no ids for its user namespace").Because(err)
	}
	boot := guest.Boot{
		Root: int(base), Grace: grace, Peer: guest.First(c.Cgroup),
		Secrets: func(context.Context) (map[string]string, error) { return nil, errCutShort },
	}
	if _, err := l.cfg.Guests.Open(ctx, c.Name, boot); err != nil {
		return runtime.Refuse(runtime.Broken, "serve", c.Name, "its guest is not served").Because(err)
	}
	return nil
}

// Stop implements runtime.Driver.
func (l *Launcher) Stop(ctx context.Context, name string) error {
	if err := l.cfg.Runtime.Stop(ctx, name); err != nil {
		return err
	}
	var errs []error
	if l.cfg.Network != nil {
		errs = append(errs, l.cfg.Network.Detach(ctx, name))
	}
	errs = append(errs, l.cfg.Guests.Close(name), l.removeDevices(name), l.removeLogs(name))
	if err := errors.Join(errs...); err != nil {
		return runtime.Refuse(runtime.Broken, "stop", name, "something of it is left").Because(err)
	}
	if err := l.cfg.IDs.Give(name); err != nil {
		return runtime.Refuse(runtime.Broken, "stop", name, "its ids are not given back").Because(err)
	}
	return nil
}

func (l *Launcher) removeDevices(name string) error {
	devices, err := l.cfg.Devices.List()
	if err != nil {
		return err
	}
	var errs []error
	for _, d := range devices {
		if slot, ok := slotOf(d, name); ok {
			errs = append(errs, l.cfg.Devices.Remove(name, slot))
		}
	}
	return errors.Join(errs...)
}

// slotOf is the slot of a device of an assignment.
func slotOf(device, name string) (int, bool) {
	rest, ok := strings.CutPrefix(device, name+"-")
	if !ok {
		return 0, false
	}
	n, err := strconv.Atoi(rest)
	return n, err == nil
}

// List implements runtime.Driver.
func (l *Launcher) List(ctx context.Context) ([]runtime.Container, error) {
	list, err := l.cfg.Runtime.List(ctx)
	if err != nil {
		return nil, err
	}
	for i, c := range list {
		// The start that is billed is that of the tenant's program, not the guest's.
		if st, err := l.cfg.Guests.Status(c.Name); err == nil && st.Ready > 0 {
			list[i].Started = st.Ready
		}
	}
	return list, nil
}

// Stats implements runtime.Driver.
func (l *Launcher) Stats(ctx context.Context, name string) (runtime.Stats, error) {
	return l.cfg.Runtime.Stats(ctx, name)
}

// Exec implements runtime.Driver.
func (l *Launcher) Exec(ctx context.Context, name string, e runtime.Exec) (int, error) {
	return l.cfg.Runtime.Exec(ctx, name, e)
}

// LogPath is the file that holds a container's output. It stays, with its predecessor,
// while the container exists, whether that runs or not; Stop removes both.
func (l *Launcher) LogPath(name string) string { return filepath.Join(l.cfg.Logs, name+logSuffix) }

// Sweep takes up what runs and removes what belongs to no container. Call it once at
// start, before anything else.
func (l *Launcher) Sweep(ctx context.Context) error {
	list, err := l.cfg.Runtime.List(ctx)
	if err != nil {
		return err
	}
	var keep, devices []string
	for _, c := range list {
		keep = append(keep, c.Name)
		for i := range c.Slots {
			devices = append(devices, injection.Device(c.Name, i))
		}
		if c.State == runtime.Running {
			if err := l.serve(ctx, c); err != nil {
				return err
			}
		}
	}
	var errs []error
	if l.cfg.Network != nil {
		_, err := l.cfg.Network.Sweep(ctx, keep)
		errs = append(errs, err)
	}
	_, err = l.cfg.Guests.Sweep(keep)
	errs = append(errs, err)
	_, err = l.cfg.Devices.Sweep(devices)
	return errors.Join(append(errs, err, l.sweepLogs(keep), l.cfg.IDs.Keep(keep))...)
}

func (l *Launcher) find(ctx context.Context, name string) (runtime.Container, bool, error) {
	list, err := l.cfg.Runtime.List(ctx)
	if err != nil {
		return runtime.Container{}, false, err
	}
	i := slices.IndexFunc(list, func(c runtime.Container) bool { return c.Name == name })
	if i < 0 {
		return runtime.Container{}, false, nil
	}
	return list[i], true, nil
}

func gpusOf(s runtime.Spec) []string {
	var out []string
	for _, x := range s.Slots {
		out = append(out, x.GPU)
	}
	return out
}

// cgroupOf is the control group of a process below the mount: the pids hierarchy of
// version 1, or the one of version 2.
func cgroupOf(pid int) (string, error) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cgroup")
	if err != nil {
		return "", err
	}
	unified := ""
	for line := range strings.Lines(string(text)) {
		_, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		controllers, group, _ := strings.Cut(rest, ":")
		if slices.Contains(strings.Split(controllers, ","), "pids") {
			return group, nil
		}
		if controllers == "" {
			unified = group
		}
	}
	if unified == "" {
		return "", fmt.Errorf("process %d is in no control group", pid)
	}
	return unified, nil
}
