package containerd

import (
	"context"
	"syscall"
	"time"

	"github.com/containerd/containerd/v2/client"

	"github.com/tranche-cloud/tranche/agent/cgroup"
	"github.com/tranche-cloud/tranche/nodeagent/runtime"
)

// dying is how long the kernel may take to end a process that was killed. One in a
// driver's hands may take longer, and then the stop fails and may be repeated.
const dying = 10 * time.Second

// Stop implements runtime.Driver. The log file stays: it is the agent's.
func (d *Driver) Stop(ctx context.Context, name string) error {
	release, err := d.names.lock(ctx, name)
	if err != nil {
		return typed("stop", name, err)
	}
	defer release()
	if err := d.remove(ctx, name); err != nil {
		return typed("stop", name, err)
	}
	_, _ = d.GC(ctx) // the container is gone; the next stop tries again
	return nil
}

// remove takes away whatever there is under a name: task, container, layer, cgroup.
// Every step may find nothing.
func (d *Driver) remove(ctx context.Context, name string) error {
	c, err := d.client.LoadContainer(ctx, name)
	if ignoreGone(err) != nil {
		return err
	}
	whole := false
	if err == nil {
		if whole, err = d.end(ctx, c); err != nil {
			return err
		}
		if err := c.Delete(ctx); ignoreGone(err) != nil {
			return err
		}
	}
	if !whole {
		if err := d.endLost(ctx, name); err != nil {
			return err
		}
	}
	snapshotter := d.client.SnapshotService(d.cfg.Snapshotter)
	if err := snapshotter.Remove(ctx, name); ignoreGone(err) != nil {
		return err
	}
	return d.groups.Remove(cgroup.Path(name))
}

// end ends the container's task and removes it. It reports whether there was one.
func (d *Driver) end(ctx context.Context, c client.Container) (bool, error) {
	task, err := c.Task(ctx, nil)
	if err != nil {
		return false, ignoreGone(err)
	}
	exit, err := task.Wait(ctx)
	if err != nil {
		return false, ignoreGone(err)
	}
	state, err := task.Status(ctx)
	if err != nil {
		return false, ignoreGone(err)
	}
	if state.Status != client.Stopped {
		if err := d.kill(ctx, task, exit, state.Status); err != nil {
			return true, err
		}
	}
	_, err = task.Delete(ctx, client.WithProcessKill)
	return err == nil, ignoreGone(err)
}

// kill asks first, unless no process of the tenant runs yet.
func (d *Driver) kill(ctx context.Context, task client.Task, exit <-chan client.ExitStatus, state client.ProcessStatus) error {
	if state == client.Running {
		if err := ignoreGone(task.Kill(ctx, syscall.SIGTERM)); err != nil {
			return err
		}
		if ended, err := d.exits(ctx, exit, d.cfg.Grace); ended || err != nil {
			return err
		}
	}
	if err := ignoreGone(task.Kill(ctx, syscall.SIGKILL, client.WithKillAll)); err != nil {
		return err
	}
	ended, err := d.exits(ctx, exit, dying)
	if err == nil && !ended {
		err = runtime.Refuse(runtime.Broken, "stop", task.ID(), "process %d was killed and did not end within %s: the kernel holds it", task.Pid(), dying)
	}
	return err
}

// exits waits for the end of a task for at most a while.
func (d *Driver) exits(ctx context.Context, exit <-chan client.ExitStatus, at time.Duration) (bool, error) {
	timer := d.cfg.Clock.NewTimer(at)
	defer timer.Stop()
	select {
	case status := <-exit:
		return true, status.Error()
	case <-timer.C():
		return false, nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
}
