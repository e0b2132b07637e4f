package containerd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tranche-cloud/tranche/agent/cgroup"
	"github.com/tranche-cloud/tranche/nodeagent/process"
)

// A daemon that dies while it makes a task forgets the shim that it had begun, and the
// container's first process with it: no call of the next daemon names them.

// cleaning is how long the daemon may take to remove a dead shim's folder.
const cleaning = 5 * time.Second

// endLost ends the processes that are left under the name of a container without a
// task. The daemon, which sees its shim end, cleans up behind it.
func (d *Driver) endLost(ctx context.Context, name string) error {
	shims, err := d.shimsOf(name)
	if err != nil {
		return err
	}
	for _, s := range shims {
		folder, _ := os.Readlink(filepath.Join("/proc", strconv.Itoa(s.PID), "cwd")) // the shim's own
		if err := d.killLost(ctx, s); err != nil {
			return err
		}
		if err := d.cleaned(ctx, folder, name); err != nil {
			return err
		}
	}
	pids, err := d.groups.PIDs(cgroup.Path(name))
	if err != nil {
		return err
	}
	for _, pid := range pids {
		if p, err := process.Of(pid); err == nil {
			if err := d.killLost(ctx, p); err != nil {
				return err
			}
		}
	}
	return nil
}

func (d *Driver) killLost(ctx context.Context, p process.Identity) error {
	ctx, cancel := context.WithTimeout(ctx, dying)
	defer cancel()
	if err := p.Kill(ctx, d.cfg.Clock); err != nil && !errors.Is(err, process.ErrGone) {
		return fmt.Errorf("end process %d, which a daemon that died left: %w", p.PID, err)
	}
	return nil
}

// shimsOf finds the shims of a container by the command line that the daemon gives them.
func (d *Driver) shimsOf(name string) ([]process.Identity, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("look for left shims: %w", err)
	}
	var out []process.Identity
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		p, err := process.Of(pid)
		if err != nil {
			continue
		}
		// After the identity: a command line of another process of the same number is
		// not killed for this one's.
		line, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if err == nil && d.isShim(strings.Split(string(line), "\x00"), name) && p.Alive() {
			out = append(out, p)
		}
	}
	return out, nil
}

func (d *Driver) isShim(args []string, name string) bool {
	after := func(flag string) string {
		if i := slices.Index(args, flag); i >= 0 && i+1 < len(args) {
			return args[i+1]
		}
		return ""
	}
	return strings.HasPrefix(filepath.Base(args[0]), "containerd-shim") &&
		after("-namespace") == d.cfg.Namespace && after("-id") == name && after("-address") == d.cfg.Address
}

// cleaned waits until the daemon has removed the folder of a shim, which is in the way
// of a new one.
func (d *Driver) cleaned(ctx context.Context, folder, name string) error {
	if filepath.Base(folder) != name {
		return nil
	}
	deadline := d.cfg.Clock.NewTimer(cleaning)
	defer deadline.Stop()
	for {
		if _, err := os.Stat(folder); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		again := d.cfg.Clock.NewTimer(cleaning / 500)
		select {
		case <-again.C():
		case <-deadline.C():
			again.Stop()
			return nil // a daemon that is away cleans up when it is back
		case <-ctx.Done():
			again.Stop()
			return ctx.Err()
		}
	}
}
