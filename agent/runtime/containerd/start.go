package containerd

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"github.com/containerd/containerd/api/types/runc/options"
	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/tranche-cloud/tranche/agent/cgroup"
	"github.com/tranche-cloud/tranche/agent/runtime/oci"
	"github.com/tranche-cloud/tranche/nodeagent/runtime"
)

// shim is the shim of runc in every supported daemon.
const shim = "io.containerd.runc.v2"

// undoing is how long it may take to remove what a failed start left.
const undoing = 30 * time.Second

// Start implements runtime.Driver. Whatever exists under the name and is not the
// wanted run is removed first. After an error nothing is there, unless the daemon
// left in the middle.
func (d *Driver) Start(ctx context.Context, s runtime.Spec) (runtime.Container, error) {
	d.attend(ctx)
	release, err := d.names.lock(ctx, s.Name)
	if err != nil {
		return runtime.Container{}, typed("start", s.Name, err)
	}
	defer release()
	found, running, err := d.running(ctx, s)
	if err != nil || running {
		return found, typed("start", s.Name, err)
	}
	if err := d.remove(ctx, s.Name); err != nil {
		return runtime.Container{}, typed("start", s.Name, err)
	}
	if err := oci.Check(s, d.cfg.Host); err != nil {
		return runtime.Container{}, err
	}
	c, err := d.make(ctx, s)
	if err == nil {
		return c, nil
	}
	undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoing)
	defer cancel()
	if left := d.remove(undo, s.Name); left != nil {
		err = errors.Join(typed("start", s.Name, err), left)
	}
	return runtime.Container{}, typed("start", s.Name, err)
}

// running looks for the wanted run.
func (d *Driver) running(ctx context.Context, s runtime.Spec) (runtime.Container, bool, error) {
	c, err := d.client.LoadContainer(ctx, s.Name)
	if err != nil {
		return runtime.Container{}, false, ignoreGone(err)
	}
	seen, err := d.look(ctx, c)
	if err != nil {
		return runtime.Container{}, false, ignoreGone(err)
	}
	return seen, seen.State == runtime.Running && seen.Run == s.Run, nil
}

func ignoreGone(err error) error {
	if errdefs.IsNotFound(err) {
		return nil
	}
	return err
}

// make takes the steps of a start, under a lease, so that the daemon's collector
// leaves alone what nothing refers to yet.
func (d *Driver) make(ctx context.Context, s runtime.Spec) (runtime.Container, error) {
	ctx, unlease, err := d.client.WithLease(ctx)
	if err != nil {
		return runtime.Container{}, err
	}
	defer func() { _ = unlease(context.WithoutCancel(ctx)) }() // it expires by itself
	if err := d.giveIDs(ctx, &s); err != nil {
		return runtime.Container{}, err
	}
	defer d.idsNoted(s.Name)
	image, err := d.pull(ctx, s)
	if err != nil {
		return runtime.Container{}, err
	}
	user, err := d.prepare(ctx, s, image)
	if err != nil {
		return runtime.Container{}, err
	}
	oci.Learn(s, image.digest, image.config)
	c, err := d.create(ctx, s, image, user)
	if err != nil {
		return runtime.Container{}, err
	}
	return d.launch(ctx, s, c, user)
}

// create makes the container's record.
func (d *Driver) create(ctx context.Context, s runtime.Spec, image pulled, user oci.User) (client.Container, error) {
	spec, err := oci.Build(oci.Input{
		Spec: s, Image: image.config, User: user, RootFS: "/rootfs", Cgroup: cgroup.Path(s.Name),
		Host: d.cfg.Host, CDIDirs: d.cfg.CDIDirs,
	})
	if err != nil {
		return nil, err
	}
	spec.Root = &specs.Root{Path: "rootfs"} // where every shim mounts the snapshot
	labels, err := d.labelsOf(s, image.digest)
	if err != nil {
		return nil, err
	}
	snapshot := func(_ context.Context, _ *client.Client, c *containers.Container) error {
		c.Snapshotter, c.SnapshotKey, c.Image = d.cfg.Snapshotter, s.Name, image.name
		return nil
	}
	return d.client.NewContainer(ctx, s.Name,
		snapshot, client.WithSpec(spec), client.WithContainerLabels(labels), client.WithRuntime(shim, d.runcOptions(s, user)))
}

// runcOptions name the binary and let the mapped user open its own standard streams.
func (d *Driver) runcOptions(s runtime.Spec, user oci.User) *options.Options {
	return &options.Options{
		BinaryName: d.cfg.Runc, Root: filepath.Join(d.cfg.StateDir, "runc"),
		IoUid: s.Extra.IDBase + user.UID, IoGid: s.Extra.IDBase + user.GID,
	}
}

// launch starts the process, with its network attached before.
func (d *Driver) launch(ctx context.Context, s runtime.Spec, c client.Container, user oci.User) (runtime.Container, error) {
	logs, err := d.logTo(s, s.Extra.IDBase+user.UID, s.Extra.IDBase+user.GID)
	if err != nil {
		return runtime.Container{}, err
	}
	task, err := c.NewTask(ctx, logs)
	if err != nil {
		return runtime.Container{}, launched("start", s.Name, err)
	}
	if s.Extra.Attach != nil {
		if err := s.Extra.Attach(ctx, int(task.Pid())); err != nil {
			return runtime.Container{}, attachFailed(s.Name, err)
		}
	}
	made, err := d.begin(ctx, c, task)
	if err != nil {
		return runtime.Container{}, launched("start", s.Name, err)
	}
	return made, nil
}

// begin starts the process and writes down when, before anybody may write down when
// it ended: no end is before its start.
func (d *Driver) begin(ctx context.Context, c client.Container, task client.Task) (runtime.Container, error) {
	release, err := d.records.lock(ctx, c.ID())
	if err != nil {
		return runtime.Container{}, err
	}
	defer release()
	if err := task.Start(ctx); err != nil {
		return runtime.Container{}, err
	}
	started := d.cfg.Uptime().Truncate(time.Microsecond)
	labels, err := c.SetLabels(ctx, map[string]string{labelStarted: micros(started)})
	if err != nil {
		return runtime.Container{}, err
	}
	made, err := recorded(c.ID(), labels)
	made.State, made.PID = runtime.Running, int(task.Pid())
	return made, err
}

func attachFailed(name string, err error) error {
	if known, ok := errors.AsType[*runtime.Error](err); ok {
		return known
	}
	return runtime.Refuse(runtime.Broken, "attach", name, "attach the network").Because(err)
}
