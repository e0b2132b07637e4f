package containerd

import (
	"context"
	"strconv"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/errdefs"

	"github.com/tranche-cloud/tranche/nodeagent/runtime"
)

// List implements runtime.Driver. A task that the daemon cannot ask about makes the
// whole list unknown: nobody may take it for ended.
func (d *Driver) List(ctx context.Context) ([]runtime.Container, error) {
	d.attend(ctx)
	found, err := d.client.Containers(ctx)
	if err != nil {
		return nil, typed("list", "", err)
	}
	var out []runtime.Container
	for _, c := range found {
		seen, err := d.look(ctx, c)
		if errdefs.IsNotFound(err) {
			continue // removed since
		}
		if err != nil {
			return nil, typed("list", c.ID(), err)
		}
		out = append(out, seen)
	}
	return out, nil
}

// look returns a container as it stands, and writes its end down if nobody did.
func (d *Driver) look(ctx context.Context, c client.Container) (runtime.Container, error) {
	labels, err := c.Labels(ctx)
	if err != nil {
		return runtime.Container{}, err
	}
	seen, err := recorded(c.ID(), labels)
	if err != nil {
		return runtime.Container{}, err
	}
	task, err := c.Task(ctx, nil)
	if errdefs.IsNotFound(err) {
		return d.withoutTask(seen, labels), nil
	}
	if err != nil {
		return runtime.Container{}, err
	}
	state, err := task.Status(ctx)
	if errdefs.IsNotFound(err) {
		return d.withoutTask(seen, labels), nil
	}
	if err != nil {
		return runtime.Container{}, err
	}
	return d.withTask(ctx, c, seen, task, state)
}

// withoutTask judges a container whose task is gone: half made, ended and noted, or
// ended by a reboot or with its shim, and then nobody saw when.
func (d *Driver) withoutTask(seen runtime.Container, labels map[string]string) runtime.Container {
	seen.Cgroup = ""
	seen.State = runtime.Exited
	if labels[labelStarted] == "" && labels[labelEnded] == "" {
		seen.State = runtime.Created
	}
	return seen
}

func (d *Driver) withTask(ctx context.Context, c client.Container, seen runtime.Container, task client.Task, state client.Status) (runtime.Container, error) {
	switch state.Status {
	case client.Created:
		seen.State = runtime.Created
		return seen, nil
	case client.Running, client.Paused, client.Pausing:
		seen.State, seen.PID = runtime.Running, int(task.Pid())
		seen.OOM = seen.OOM || d.oomKills(seen.Name) > 0
		return seen, nil
	case client.Stopped:
		return d.ended(ctx, c, state.ExitStatus, state.ExitTime)
	default:
		return seen, runtime.Refuse(runtime.Unavailable, "list", seen.Name, "its shim does not answer: state %q", state.Status)
	}
}

// ended writes the end of a container down, once, and returns it as it then stands.
func (d *Driver) ended(ctx context.Context, c client.Container, code uint32, at time.Time) (runtime.Container, error) {
	release, err := d.records.lock(ctx, c.ID())
	if err != nil {
		return runtime.Container{}, err
	}
	defer release()
	labels, err := c.Labels(ctx)
	if err != nil {
		return runtime.Container{}, err
	}
	seen, err := recorded(c.ID(), labels)
	if err != nil {
		return runtime.Container{}, err
	}
	seen.State = runtime.Exited
	if labels[labelEnded] != "" || seen.BootID != d.cfg.BootID {
		return seen, nil
	}
	seen.Ended, seen.ExitCode = d.uptimeOf(at, seen.Started), int(code)
	seen.OOM = seen.OOM || d.oomKills(seen.Name) > 0
	note := map[string]string{labelEnded: micros(seen.Ended), labelExit: strconv.Itoa(seen.ExitCode)}
	if seen.OOM {
		note[labelOOM] = "1"
	}
	if _, err := c.SetLabels(ctx, note); err != nil {
		return runtime.Container{}, err
	}
	return seen, nil
}

// uptimeOf turns a wall-clock instant of this boot into uptime, in whole µs. If the
// clock was set in between, the result may be wrong by as much, but never before the
// start or after now.
func (d *Driver) uptimeOf(at time.Time, started time.Duration) time.Duration {
	now := d.cfg.Uptime()
	ago := d.cfg.Clock.Now().Sub(at)
	return min(max(now-ago, started), now).Truncate(time.Microsecond)
}
