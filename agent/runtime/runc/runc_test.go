package runc_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/agent/images"
	"github.com/tranche-cloud/tranche/agent/images/imagestest"
	"github.com/tranche-cloud/tranche/agent/runtime/runc"
	"github.com/tranche-cloud/tranche/nodeagent"
	"github.com/tranche-cloud/tranche/nodeagent/runtime"
	"github.com/tranche-cloud/tranche/nodeagent/runtime/runtimetest"
)

// TestMain makes this binary the shim of its own containers.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "runc-shim" {
		if err := runc.Shim(context.Background(), os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

const logLimit = 1 << 20

type bench struct {
	served *imagestest.Registry
	images runtimetest.Images
	cdi    string
	layers string            // shared, so that each image is pulled once
	runs   map[string]string // state folder → run folder
}

func newBench(t *testing.T) *bench {
	t.Helper()
	served := imagestest.Serve(t)
	return &bench{served: served, images: served.Images(t), cdi: t.TempDir(), layers: t.TempDir(), runs: map[string]string{}}
}

// open opens a driver over a folder; the run folder belongs to it.
func (b *bench) open(t *testing.T, dir string) runtime.Driver {
	t.Helper()
	if b.runs[dir] == "" {
		run, err := os.MkdirTemp("", "tranche-runc-")
		require.NoError(t, err)
		require.NoError(t, os.Chmod(run, 0o711))
		t.Cleanup(func() { require.NoError(t, os.RemoveAll(run)) })
		b.runs[dir] = run
	}
	registry, err := images.NewRegistry(images.Policy{Allow: b.served.Allow()})
	require.NoError(t, err)
	store, err := images.Open(images.Config{
		Dir: b.layers, RunDir: filepath.Join(b.runs[dir], "rootfs"), Registry: registry, Disk: 64,
	})
	require.NoError(t, err)
	boot, err := nodeagent.BootID()
	require.NoError(t, err)
	self, err := os.Executable()
	require.NoError(t, err)
	d, err := runc.Open(runc.Config{
		Dir: filepath.Join(dir, "runc"), RunDir: b.runs[dir], Shim: []string{self, "runc-shim"}, Images: store,
		CDIDirs: []string{b.cdi}, BootID: boot, LogLimit: logLimit, Grace: time.Second,
	})
	require.NoError(t, err)
	return d
}

func TestIsADriver(t *testing.T) {
	b := newBench(t)
	runtimetest.Run(t, runtimetest.Harness{
		Open: b.open, Executes: true, Images: b.images, CDIDir: b.cdi, LogLimit: logLimit,
		Leftovers: func(t *testing.T, name string) []string {
			found, err := filepath.Glob(filepath.Join(b.layers, "mounts", name))
			require.NoError(t, err)
			return found
		},
	})
}
