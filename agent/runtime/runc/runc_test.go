package runc_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/agent/images"
	"github.com/tranche-cloud/tranche/agent/images/imagestest"
	"github.com/tranche-cloud/tranche/agent/runtime/runc"
	"github.com/tranche-cloud/tranche/internal/units"
	"github.com/tranche-cloud/tranche/nodeagent"
	"github.com/tranche-cloud/tranche/nodeagent/runtime"
	"github.com/tranche-cloud/tranche/nodeagent/runtime/runtimetest"
)

// TestMain makes this binary the shim of its own containers, and the agents that
// tests kill.
func TestMain(m *testing.M) {
	run := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if len(os.Args) > 1 && os.Args[1] == "runc-shim" {
		run(runc.Shim(context.Background(), os.Args[2:]))
	}
	if len(os.Args) > 2 && os.Args[1] == "doomed-agent" {
		run(doomed(context.Background(), os.Args[2]))
	}
	os.Exit(m.Run())
}

const logLimit = 1 << 20

// place is where a driver lives; another process can open it too.
type place struct {
	Dir, Run, Layers, CDI string
	Allow                 []string
	BootID                string
}

func (p place) open() (*runc.Driver, error) { return p.openWith("") }

// openWith opens a driver with another runc binary.
func (p place) openWith(binary string) (*runc.Driver, error) {
	registry, err := images.NewRegistry(images.Policy{Allow: p.Allow})
	if err != nil {
		return nil, err
	}
	store, err := images.Open(images.Config{Dir: p.Layers, RunDir: filepath.Join(p.Run, "rootfs"), Registry: registry, Disk: disk()})
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return runc.Open(runc.Config{
		Dir: p.Dir, RunDir: p.Run, Runc: binary, Shim: []string{self, "runc-shim"}, Images: store,
		CDIDirs: []string{p.CDI}, BootID: p.BootID, LogLimit: logLimit, Grace: time.Second,
	})
}

// disk is a small one where the machine has loop devices.
func disk() units.MiB {
	if _, err := os.Stat("/dev/loop-control"); err != nil {
		return images.Unbounded
	}
	return 64
}

// bench has the images, pulled once for all tests of it.
type bench struct {
	served *imagestest.Registry
	images runtimetest.Images
	layers string
	cdi    string
	places map[string]place
}

func newBench(t *testing.T) *bench {
	t.Helper()
	served := imagestest.Serve(t)
	return &bench{served: served, images: served.Images(t), cdi: t.TempDir(), layers: t.TempDir(), places: map[string]place{}}
}

// place returns the place of a state folder; its run folder is searchable by all.
func (b *bench) place(t *testing.T, dir string) place {
	t.Helper()
	if p, ok := b.places[dir]; ok {
		return p
	}
	run, err := os.MkdirTemp("", "tranche-runc-")
	require.NoError(t, err)
	require.NoError(t, os.Chmod(run, 0o711))
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(run)) })
	boot, err := nodeagent.BootID()
	require.NoError(t, err)
	p := place{Dir: dir, Run: run, Layers: b.layers, CDI: b.cdi, Allow: b.served.Allow(), BootID: boot}
	b.places[dir] = p
	return p
}

func (b *bench) open(t *testing.T, dir string) runtime.Driver {
	t.Helper()
	d, err := b.place(t, dir).open()
	require.NoError(t, err)
	return d
}

func TestIsADriver(t *testing.T) {
	b := newBench(t)
	runtimetest.Run(t, runtimetest.Harness{
		Open: b.open, Executes: true, Images: b.images, CDIDir: b.cdi, LogLimit: logLimit,
		Leftovers: func(t *testing.T, name string) []string {
			t.Helper()
			found, err := filepath.Glob(filepath.Join(b.layers, "mounts", name))
			require.NoError(t, err)
			return found
		},
	})
}

// order is what a doomed agent does, over and over, until it is killed.
type order struct {
	Place place
	Spec  runtime.Spec
	Stop  bool // stop what was started, and start again
}

// doomed says "started" on its output after every start.
func doomed(ctx context.Context, text string) error {
	var o order
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return err
	}
	d, err := o.Place.open()
	if err != nil {
		return err
	}
	for {
		if _, err := d.Start(ctx, o.Spec); err != nil {
			return err
		}
		fmt.Println("started")
		if !o.Stop {
			select {}
		}
		if err := d.Stop(ctx, o.Spec.Name); err != nil {
			return err
		}
	}
}
