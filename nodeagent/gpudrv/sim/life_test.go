package sim_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv/sim"
)

// lines keeps the messages of a log.
type lines struct {
	mu   sync.Mutex
	text []string
}

func (l *lines) logger() *slog.Logger { return slog.New(l) }

func (l *lines) Enabled(context.Context, slog.Level) bool { return true }

func (l *lines) Handle(_ context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, r.Message)
	return nil
}

func (l *lines) WithAttrs([]slog.Attr) slog.Handler { return l }

func (l *lines) WithGroup(string) slog.Handler { return l }

func (l *lines) seen() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text
}

// oldState is a state file of the first format.
const oldState = `{"format":1,"host":"solo","boot_id":"b1","boot_at":"2026-01-01T00:00:00Z","gpus":[{
"uuid":"UUID","model":"H200-141","pci":"00000000:10:00.0","mode":"mps:4x25","mig_pending":false,
"shares":[0,2],"clients":[{"pid":7,"name":"python3","gpu_instance":-1,"unit":2,"used_bytes":1048576}],
"energy_mj":42,"energy_at":"2026-01-01T00:00:00Z"}]}`

func TestAStateFileOfTheFirstFormatIsRead(t *testing.T) {
	t.Parallel()
	m, err := gpu.MPSMode(4, 25)
	require.NoError(t, err)
	h := one("H200-141", m)
	uuid := h.Devices()[0].UUID
	write := func(text string) string {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, "gpu-state.json"), []byte(text), 0o600))
		return dir
	}
	d := open(t, write(strings.Replace(oldState, "UUID", uuid, 1)), h)
	shares, err := d.Shares(t.Context(), uuid)
	require.NoError(t, err)
	require.Len(t, shares, 2)
	err = d.DestroyShare(t.Context(), uuid, 2)
	require.Equal(t, []gpudrv.Holder{{PID: 7, Name: "python3"}}, gpudrv.HoldersOf(err))
	host, err := d.Host(t.Context())
	require.NoError(t, err)
	require.Equal(t, "b1", host.BootID)

	_, err = sim.Open(sim.Config{Dir: write(`{"format":9}`), Host: h})
	require.ErrorContains(t, err, "format 9, this version reads 1 and 2")
	_, err = sim.Open(sim.Config{Dir: write(`{"for`), Host: h})
	require.ErrorContains(t, err, "read simulated gpus")
}

// TestTheDriversOwnChoiceFailsInTheDocumentedOrder: letting the driver choose the
// places, 1g 1g 2g 3g end without room, and 3g first works.
func TestTheDriversOwnChoiceFailsInTheDocumentedOrder(t *testing.T) {
	t.Parallel()
	ctx, h := t.Context(), one("A100-40", gpu.MIGMode())
	uuid := h.Devices()[0].UUID
	const one, two, three = 19, 14, 9
	choose := func(order ...int) error {
		d := open(t, "", h)
		for _, profile := range order {
			if _, err := d.CreateGPUInstanceAnywhere(ctx, uuid, profile); err != nil {
				return err
			}
		}
		return nil
	}
	require.Equal(t, gpudrv.NoRoom, gpudrv.KindOf(choose(one, one, two, three)))
	require.NoError(t, choose(three, one, one, two))
	require.Equal(t, gpudrv.Invalid, gpudrv.KindOf(choose(77)))
}

func TestUseAndEnergyFollowTheLoad(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, h := t.Context(), one("H200-141", gpu.MIGMode())
		d, uuid := open(t, "", h), h.Devices()[0].UUID
		for start := range 2 {
			_, err := d.CreateGPUInstance(ctx, uuid, 19, gpudrv.Placement{Start: start, Size: 1})
			require.NoError(t, err)
		}
		energy := func() int64 {
			tel, err := d.Telemetry(ctx, uuid)
			require.NoError(t, err)
			_, reported := tel.GPUPercent.Get()
			require.False(t, reported, "not with MIG on")
			return tel.EnergyMillijoule.Or(0)
		}
		<-time.After(time.Minute)
		idle := energy()
		require.Equal(t, int64(111_179*60), idle)
		slot := gpu.Slot{GPU: uuid, Mode: gpu.MIGMode(), Profile: 19, Size: 1, Compute: 1}
		require.NoError(t, d.Attach(uuid, sim.Client{PID: 1, Slot: slot, Duty: 60, UsedBytes: 1 << 30}))
		require.NoError(t, d.Attach(uuid, sim.Client{PID: 2, Slot: slot, Duty: -1}))
		<-time.After(time.Minute)
		require.Greater(t, energy()-idle, idle)
		use, err := d.Usage(ctx, uuid)
		require.NoError(t, err)
		require.Len(t, use, 2)
		require.Equal(t, []int64{600, 0}, []int64{use[0].Busy.Or(-1), use[1].Busy.Or(-1)})
		require.Equal(t, []int64{1 << 30, 0}, []int64{use[0].UsedBytes.Or(-1), use[1].UsedBytes.Or(-1)})
		require.Equal(t, gpudrv.UsageGPM, use[0].Source)
	})
}

func TestAmpereCountsNothingPerInstance(t *testing.T) {
	t.Parallel()
	ctx, h := t.Context(), one("A100-80", gpu.MIGMode())
	d, uuid := open(t, "", h), h.Devices()[0].UUID
	_, err := d.CreateGPUInstance(ctx, uuid, 19, gpudrv.Placement{Start: 0, Size: 1})
	require.NoError(t, err)
	use, err := d.Usage(ctx, uuid)
	require.NoError(t, err)
	require.Empty(t, use[0].Source)
	_, reported := use[0].Busy.Get()
	require.False(t, reported)
	whole := open(t, "", one("A100-80", gpu.WholeMode()))
	use, err = whole.Usage(ctx, uuid)
	require.NoError(t, err)
	require.Equal(t, gpudrv.UsageNVML, use[0].Source)
}

func TestAResetNeedsAnIdleGPUAndHealsIt(t *testing.T) {
	t.Parallel()
	ctx, h := t.Context(), one("H200-141", gpu.MIGMode())
	d, uuid := open(t, "", h), h.Devices()[0].UUID
	require.NoError(t, d.Advise(uuid, "reset"))
	require.NoError(t, d.Attach(uuid, sim.Client{PID: 9, Name: "dcgm", Monitor: true}))
	require.Equal(t, gpudrv.InUse, gpudrv.KindOf(d.Reset(ctx, uuid)))
	require.NoError(t, d.Detach(uuid, 9))
	require.NoError(t, d.Reset(ctx, uuid))
	health, err := d.Health(ctx, uuid)
	require.NoError(t, err)
	require.Equal(t, "none", health.RecoveryAction.String())
	require.NoError(t, d.Lose(uuid))
	require.Equal(t, gpudrv.GPULost, gpudrv.KindOf(d.Reset(ctx, uuid)))
}

func TestAMismatchedLibraryAnswersNothingUntilTheReboot(t *testing.T) {
	t.Parallel()
	ctx, h := t.Context(), one("H200-141", gpu.MIGMode())
	d, uuid := open(t, "", h), h.Devices()[0].UUID
	require.NoError(t, d.Mismatch())
	_, err := d.GPUs(ctx)
	require.Equal(t, gpudrv.Mismatch, gpudrv.KindOf(err))
	_, err = d.Memory(ctx, uuid)
	require.Equal(t, gpudrv.Mismatch, gpudrv.KindOf(err))
	require.NoError(t, d.Reboot())
	_, err = d.Memory(ctx, uuid)
	require.NoError(t, err)
}

// TestAnotherDriverRenamesEmptyGPUsOnly: one model, two names and sizes.
func TestAnotherDriverRenamesEmptyGPUsOnly(t *testing.T) {
	t.Parallel()
	ctx, dir, h := t.Context(), t.TempDir(), one("GB200-186", gpu.MIGMode())
	uuid := h.Devices()[0].UUID
	small := func(d *sim.Driver) string {
		list, err := d.Profiles(ctx, uuid)
		require.NoError(t, err)
		return list[0].Name
	}
	d := open(t, dir, h)
	require.Equal(t, "1g.23gb", small(d))
	gi, err := d.CreateGPUInstance(ctx, uuid, 19, gpudrv.Placement{Start: 0, Size: 1})
	require.NoError(t, err)
	require.NoError(t, d.Close())
	h.GPUs[0].Variant = "1g.24gb"
	require.Equal(t, uuid, h.Devices()[0].UUID, "the card is the same")
	d = open(t, dir, h)
	require.Equal(t, "1g.23gb", small(d))
	require.NoError(t, d.DestroyGPUInstance(ctx, uuid, gi.ID))
	require.NoError(t, d.Close())
	require.Equal(t, "1g.24gb", small(open(t, dir, h)))
}

// TestOneProfileMayTakeAllMediaEngines: beside it only profiles without any fit, and
// the chip's one OFA is given once.
func TestOneProfileMayTakeAllMediaEngines(t *testing.T) {
	t.Parallel()
	ctx, h := t.Context(), one("RTX-PRO-6000-96", gpu.MIGMode())
	uuid := h.Devices()[0].UUID
	profiles, err := open(t, "", h).Profiles(ctx, uuid)
	require.NoError(t, err)
	id := map[string]int{}
	for _, p := range profiles {
		id[p.Name] = p.ID
	}
	together := func(first, second string) gpudrv.Kind {
		d := open(t, "", h)
		_, err := d.CreateGPUInstance(ctx, uuid, id[first], gpudrv.Placement{Start: 0, Size: 3})
		require.NoError(t, err)
		_, err = d.CreateGPUInstance(ctx, uuid, id[second], gpudrv.Placement{Start: 9, Size: 3})
		return gpudrv.KindOf(err)
	}
	const all, plain, bare, ofa = "1g.24gb+me.all", "1g.24gb", "1g.24gb-me", "1g.24gb+me"
	require.Equal(t, gpudrv.NoRoom, together(all, plain))
	require.Equal(t, gpudrv.NoRoom, together(all, ofa))
	require.Empty(t, together(all, bare))
	require.Empty(t, together(ofa, plain))
	require.Equal(t, gpudrv.NoRoom, together(ofa, ofa))
}
