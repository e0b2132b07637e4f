package containerd

import (
	"context"

	"github.com/tranche-cloud/tranche/agent/cgroup"
	"github.com/tranche-cloud/tranche/nodeagent/runtime"
)

// Stats implements runtime.Driver. The counters are read from the kernel, as the other
// driver does, and not from the daemon, whose figures differ by its version.
func (d *Driver) Stats(ctx context.Context, name string) (runtime.Stats, error) {
	if _, err := d.runningTask(ctx, "stats", name); err != nil {
		return runtime.Stats{}, err
	}
	stats, err := d.groups.Stats(cgroup.Path(name))
	if cgroup.Gone(err) {
		return runtime.Stats{}, runtime.Refuse(runtime.NotFound, "stats", name, "it has just ended").Because(err)
	}
	return stats, typed("stats", name, err)
}

// oomKills counts the processes that the kernel ended for want of memory; 0 is also
// that the group is gone.
func (d *Driver) oomKills(name string) int64 {
	stats, err := d.groups.Stats(cgroup.Path(name))
	if err != nil {
		return 0
	}
	return max(0, stats.OOMKills)
}
