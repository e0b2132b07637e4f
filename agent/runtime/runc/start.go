package runc

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/tranche-cloud/tranche/agent/cgroup"
	"github.com/tranche-cloud/tranche/agent/images"
	"github.com/tranche-cloud/tranche/agent/runtime/oci"
	"github.com/tranche-cloud/tranche/nodeagent/runtime"
)

// undoing bounds the removal of a failed start, which goes on when the start's
// context has ended.
const undoing = time.Minute

// Start implements runtime.Driver. A container of that name that does not run, or
// runs with another run, is removed first. After an error nothing is left, or what is
// left is created and Stop removes it.
func (d *Driver) Start(ctx context.Context, s runtime.Spec) (runtime.Container, error) {
	if !names.MatchString(s.Name) {
		return runtime.Container{}, refuse(runtime.Broken, "start", s.Name, "no container can have such a name")
	}
	defer d.lock(s.Name)()
	old, found, err := d.record(s.Name)
	if err != nil {
		return runtime.Container{}, refuse(runtime.Broken, "start", s.Name, "read the record of a container").Because(err)
	}
	if found {
		if c := d.container(old); c.State == runtime.Running && c.Run == s.Run {
			return c, nil
		}
		if err := d.remove(ctx, s.Name); err != nil {
			return runtime.Container{}, err
		}
	}
	if err := oci.Check(s, d.host); err != nil {
		return runtime.Container{}, err
	}
	r, err := d.begin(s)
	if err == nil {
		r, err = d.start(ctx, s, r)
	}
	if err != nil {
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoing)
		defer cancel()
		if left := d.remove(undo, s.Name); left != nil {
			d.cfg.Log.Warn("failed start left a container", "container", s.Name, "error", left)
		}
		return runtime.Container{}, named(err, s.Name)
	}
	d.collect(ctx)
	return d.container(r), nil
}

// named gives an error of a part the container's name, and a kind if it has none.
func named(err error, name string) error {
	e, ok := errors.AsType[*runtime.Error](err)
	if !ok {
		return refuse(runtime.Broken, "start", name, "start container").Because(err)
	}
	if e.Name == "" {
		with := *e
		with.Name = name
		return &with
	}
	return err
}

// begin chooses the ids and writes the record: from here on List shows the container.
func (d *Driver) begin(s runtime.Spec) (record, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	r := record{
		Name: s.Name, Run: s.Run, Instance: s.Instance, Slots: s.Slots, BootID: d.cfg.BootID, IDBase: s.Extra.IDBase,
	}
	if r.IDBase == 0 {
		base, err := d.freeIDs()
		if err != nil {
			return r, err
		}
		r.IDBase = base
	}
	if err := os.Mkdir(d.dir(s.Name), 0o700); err != nil {
		return r, err
	}
	if err := d.save(r); err != nil {
		return r, err
	}
	return r, syncDir(d.containers())
}

// freeIDs finds ids that no container has.
func (d *Driver) freeIDs() (uint32, error) {
	entries, err := os.ReadDir(d.containers())
	if err != nil {
		return 0, err
	}
	taken := map[uint32]bool{}
	for _, e := range entries {
		if r, found, err := d.record(e.Name()); err != nil {
			return 0, err
		} else if found {
			taken[r.IDBase] = true
		}
	}
	for base := d.cfg.FirstID; base < 1<<31; base += oci.IDs {
		if !taken[base] {
			return base, nil
		}
	}
	return 0, refuse(runtime.Unavailable, "start", "", "every range of user ids is taken by a container")
}

func (d *Driver) start(ctx context.Context, s runtime.Spec, r record) (record, error) {
	s.Extra.IDBase = r.IDBase
	image, err := d.cfg.Images.Take(ctx, s.Name, images.Request{Reference: s.Image, Login: s.Login, Progress: s.Extra.Progress})
	if err != nil {
		return r, err
	}
	r.Digest = image.Digest
	if err := d.save(r); err != nil {
		return r, err
	}
	oci.Learn(s, image.Digest, image.Config)
	tell(s, "starting")
	if err := d.bundle(s, image); err != nil {
		return r, err
	}
	id, err := d.create(ctx, s)
	if err != nil {
		return r, err
	}
	if s.Extra.Attach != nil {
		if err := s.Extra.Attach(ctx, id.PID); err != nil {
			return r, err
		}
	}
	r.Started = uptime()
	if err := d.save(r); err != nil {
		return r, err
	}
	return r, d.runc(ctx, "start", s.Name, "start", s.Name)
}

func tell(s runtime.Spec, text string) {
	if s.Extra.Progress != nil {
		s.Extra.Progress(text)
	}
}

// bundle mounts the root file system and writes the spec.
func (d *Driver) bundle(s runtime.Spec, image images.Image) error {
	root, err := d.cfg.Images.Mount(s.Name, s.Extra.IDBase)
	if err != nil {
		return err
	}
	inside, err := os.OpenRoot(root)
	if err != nil {
		return err
	}
	user, err := oci.FindUser(inside.FS(), image.Config.User)
	if err := errors.Join(err, inside.Close()); err != nil {
		return err
	}
	spec, err := oci.Build(oci.Input{
		Spec: s, Image: image.Config, User: user, RootFS: root, Cgroup: cgroup.Path(s.Name), Host: d.host, CDIDirs: d.cfg.CDIDirs,
	})
	if err != nil {
		return err
	}
	dir := filepath.Join(d.dir(s.Name), bundleDir)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	return writeJSON(filepath.Join(dir, "config.json"), spec)
}
