package sim_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv/sim"
)

const goodScript = `
faults:
  - {do: xid, at: 10s, gpu: 0, code: 94, gi: 9, ci: 0}
  - {do: recovery_action, at: 20s, gpu: 0, action: drain_reset}
  - {do: lose, at: 30s, gpu: 1}
  - {do: ci_fails, on: create_gpu_instance, call: 2, times: 1}
  - {do: in_use, on: destroy_gpu_instance, op: destroy_gpu_instance, times: 2, pid: 812, name: nv-hostengine}
  - {do: thermal, at: 1m, every: 1m, times: 3, celsius: 95}
  - {do: reboot, at: 2h, host: host-1}
`

func script(t testing.TB, text string) sim.Script {
	t.Helper()
	s, err := sim.ParseScript([]byte(text))
	require.NoError(t, err)
	return s
}

func pair() sim.FleetHost {
	return sim.FleetHost{Name: "host-1", VCPU: 8, RAM: 65536, GPUs: []sim.FleetGPU{{Model: "H200-141", Mode: gpu.MIGMode(), Count: 2}}}
}

func TestAFaultFileIsReadAndFitsItsFleet(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "faults.yaml")
	require.NoError(t, os.WriteFile(path, []byte(goodScript), 0o600))
	s, err := sim.LoadScript(path)
	require.NoError(t, err)
	require.NoError(t, s.Check(sim.Fleet{Hosts: []sim.FleetHost{pair()}}))
	require.NoError(t, script(t, "faults: []").Check(sim.Fleet{}))
	other := pair()
	other.Name = "host-2"
	require.ErrorContains(t, s.Check(sim.Fleet{Hosts: []sim.FleetHost{other}}), `line 9: host: the fleet has no host "host-1"`)
	require.ErrorContains(t, s.Check(sim.Fleet{Hosts: []sim.FleetHost{one("H200-141", gpu.MIGMode())}}), "line 5: gpu: host solo has gpus 0 to 0, not 1")
	_, err = sim.LoadScript(path + ".gone")
	require.ErrorContains(t, err, "open fault file")
}

func TestABadFaultFileNamesTheLine(t *testing.T) {
	t.Parallel()
	step := func(text string) string { return "faults:\n  - {do: reboot}\n  - {" + text + "}\n" }
	for name, tc := range map[string]struct{ text, want string }{
		"empty":             {"", "empty"},
		"not a script":      {"hosts: []", "line 1: a fault file is"},
		"two keys":          {"faults: []\nmore: 1", "nothing else"},
		"two documents":     {"faults: []\n---\nfaults: []", "more than one"},
		"not yaml":          {"faults: [", "line 1"},
		"no mapping":        {"faults:\n  - reboot\n", "line 2: a step is a mapping"},
		"unknown action":    {step("do: explode"), `line 3: do: "explode" is none of attach,`},
		"no action":         {step("at: 1s"), `line 3: do: "" is none of`},
		"unknown key":       {step("do: reboot, colour: red"), `line 3: unknown key "colour"`},
		"key of another":    {step("do: reboot, gpu: 0"), `line 3: do: reboot does not take "gpu", only`},
		"key twice":         {step("do: reboot, at: 1s, at: 2s"), `line 3: "at" is said twice`},
		"missing key":       {step("do: xid, gpu: 0"), `line 3: do: xid needs "code"`},
		"bad number":        {step("do: xid, code: many"), `line 3: code: "many" is not a number from 1 to 1000`},
		"number too large":  {step("do: xid, code: 5000"), "from 1 to 1000"},
		"bad time":          {step("do: reboot, at: soon"), `at: "soon" is not a time`},
		"negative time":     {step("do: reboot, at: -1s"), "is not a time"},
		"bad call":          {step("do: hang, op: think"), `op: "think" is none of write, bind_vfio,`},
		"bad kind":          {step("do: fail, op: read, kind: SAD"), `kind: "SAD" is none of IN_USE,`},
		"neither":           {step("do: fail, op: read"), "needs either `kind` or `hang: true`"},
		"both":              {step("do: fail, op: read, kind: FAILED, hang: true"), "needs either"},
		"bad action":        {step("do: recovery_action, action: pray"), "none of none, reset,"},
		"both triggers":     {step("do: reboot, at: 1s, on: read"), "either `at` (and `every`) or `on`"},
		"call without on":   {step("do: reboot, call: 2"), "`call` needs `on`"},
		"times of what":     {step("do: hang, op: read, every: 1s, times: 2"), "cannot go with `every`"},
		"bad flag":          {step("do: hang, op: read, late: maybe"), "neither true nor false"},
		"list for a value":  {step("do: xid, code: [1]"), "line 3: code must be a plain value"},
		"name too long":     {step("do: attach, pid: 1, name: '" + string(make([]byte, 0)) + "'"), "1 to 100 characters"},
		"no such gpu ever":  {step("do: lose, gpu: 16"), "from 0 to 15"},
		"zero times":        {step("do: ci_fails, times: 0"), "from 1 to"},
		"binary garbage":    {"\x00\x01", ""},
		"anchor of nothing": {"faults: *x", "unknown anchor"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := sim.ParseScript([]byte(tc.text))
			require.ErrorContains(t, err, tc.want)
		})
	}
}

func FuzzFaultFile(f *testing.F) {
	f.Add([]byte(goodScript))
	f.Add([]byte("faults:\n  - {do: xid, code: 79}\n"))
	f.Add([]byte("faults: &a [*a]"))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := sim.ParseScript(text)
		if err != nil {
			require.NotEmpty(t, err.Error())
			return
		}
		_ = s.Check(sim.Fleet{Hosts: []sim.FleetHost{pair()}}) // may refuse, must return
	})
}

func FuzzFleetFile(f *testing.F) {
	f.Add([]byte(goodFleet))
	f.Fuzz(func(t *testing.T, text []byte) {
		fleet, err := sim.ParseFleet(text)
		if err != nil {
			return
		}
		for _, h := range fleet.Hosts[:min(len(fleet.Hosts), 2)] {
			d, err := sim.Open(sim.Config{Host: h})
			require.NoError(t, err, "what was read can be opened")
			_, err = gpudrv.Inventory(t.Context(), d)
			require.NoError(t, err)
			require.NoError(t, d.Close())
		}
	})
}

// TestAScriptHappensInTime runs the fault file above through two hours.
func TestAScriptHappensInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := pair()
		d, err := sim.Open(sim.Config{Host: h, Faults: script(t, goodScript)})
		require.NoError(t, err)
		defer func() { require.NoError(t, d.Close()) }()
		ctx, a, b := t.Context(), h.Devices()[0].UUID, h.Devices()[1].UUID
		begin := time.Now()
		w, err := d.Watch(ctx)
		require.NoError(t, err)
		for _, want := range []struct {
			kind gpudrv.EventKind
			gpu  string
			at   time.Duration
		}{
			{gpudrv.EventXID, a, 10 * time.Second}, {gpudrv.EventRecovery, a, 20 * time.Second},
			{gpudrv.EventUnavailable, b, 30 * time.Second},
		} {
			e, err := w.Next(ctx)
			require.NoError(t, err)
			require.Equal(t, want.kind, e.Kind)
			require.Equal(t, want.gpu, e.GPU)
			require.Equal(t, want.at, e.At.Sub(begin))
		}
		health, err := d.Health(ctx, a)
		require.NoError(t, err)
		require.Equal(t, "drain_reset", health.RecoveryAction.String())
		_, err = d.Health(ctx, b)
		require.Equal(t, gpudrv.GPULost, gpudrv.KindOf(err))

		boot, err := d.Host(ctx)
		require.NoError(t, err)
		<-time.After(90 * time.Second)
		tel, err := d.Telemetry(ctx, a)
		require.NoError(t, err)
		require.Equal(t, int64(95), tel.TemperatureC.Or(0))
		<-time.After(2 * time.Hour)
		after, err := d.Host(ctx)
		require.NoError(t, err)
		require.NotEqual(t, boot.BootID, after.BootID)
		_, err = d.Health(ctx, b)
		require.NoError(t, err, "a reboot brings a lost gpu back")
		require.NoError(t, w.Close())
	})
}

func TestAScriptWaitsForCalls(t *testing.T) {
	t.Parallel()
	h := pair()
	d, err := sim.Open(sim.Config{Host: h, Faults: script(t, goodScript)})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	ctx, uuid := t.Context(), h.Devices()[0].UUID
	make := func(start int) (int, error) {
		gi, err := d.CreateGPUInstance(ctx, uuid, 19, gpudrv.Placement{Start: start, Size: 1})
		require.NoError(t, err)
		_, err = d.CreateComputeInstance(ctx, uuid, gi.ID)
		return gi.ID, err
	}
	first, err := make(0)
	require.NoError(t, err)
	second, err := make(1)
	require.Equal(t, gpudrv.NoRoom, gpudrv.KindOf(err), "the second instance has no room for its compute instance")
	require.NoError(t, d.DestroyComputeInstance(ctx, uuid, first, 0))
	for range 2 {
		err := d.DestroyGPUInstance(ctx, uuid, second)
		require.Equal(t, []gpudrv.Holder{{PID: 812, Name: "nv-hostengine"}}, gpudrv.HoldersOf(err))
	}
	require.NoError(t, d.DestroyGPUInstance(ctx, uuid, second))
}

// TestEveryActionCanBeTaken takes each action of the table once on a busy GPU.
func TestEveryActionCanBeTaken(t *testing.T) {
	t.Parallel()
	params := map[string]string{
		"xid": "code: 79", "recovery_action": "action: reset", "fail": "op: write, kind: FAILED",
		"hang": "op: reset", "in_use": "op: reset", "mps_fault": "pid: 1", "kill": "pid: 1", "detach": "pid: 1",
		"attach":  "pid: 2, name: python3, start: 0, duty: 50, used_mib: 1024, hide_pipe: true",
		"monitor": "pid: 3, start: 0", "link_down": "link: 3", "thermal": "celsius: 90", "ecc": "count: 2",
		"remap": "count: 1", "reset_fails": "count: 1",
	}
	for _, do := range sim.Actions() {
		t.Run(do, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				text := "faults: [{do: " + do + ", at: 1s"
				if p := params[do]; p != "" {
					text += ", " + p
				}
				h := one("H200-141", gpu.MIGMode())
				log := &lines{}
				d, err := sim.Open(sim.Config{Host: h, Faults: script(t, text+"}]"), Log: log.logger()})
				require.NoError(t, err)
				ctx, uuid := t.Context(), h.Devices()[0].UUID
				_, err = d.CreateGPUInstance(ctx, uuid, 19, gpudrv.Placement{Start: 0, Size: 1})
				require.NoError(t, err)
				slot := gpu.Slot{GPU: uuid, Mode: gpu.MIGMode(), Profile: 19, Size: 1, Compute: 1}
				require.NoError(t, d.Attach(uuid, sim.Client{PID: 1, Slot: slot}))
				<-time.After(2 * time.Second)
				require.Equal(t, []string{"fault step taken"}, log.seen())
				require.NoError(t, d.Close())
			})
		})
	}
}

func TestAStepThatCannotBeTakenIsLogged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log := &lines{}
		d, err := sim.Open(sim.Config{
			Host: one("H200-141", gpu.MIGMode()), Log: log.logger(),
			Faults: script(t, "faults: [{do: attach, at: 1s, pid: 1, start: 5}, {do: reboot, at: 3h}]"),
		})
		require.NoError(t, err)
		<-time.After(2 * time.Second)
		require.Equal(t, []string{"fault step not taken"}, log.seen())
		require.NoError(t, d.Close(), "what has not happened by then does not")
	})
}

func TestADriverThatHangsUntilItsDeadlineMayHaveDoneIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := one("H200-141", gpu.MIGMode())
		d, err := sim.Open(sim.Config{Host: h, Faults: script(t, "faults: [{do: hang, op: create_gpu_instance, late: true}]")})
		require.NoError(t, err)
		defer func() { require.NoError(t, d.Close()) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err = d.CreateGPUInstance(ctx, h.Devices()[0].UUID, 19, gpudrv.Placement{Start: 0, Size: 1})
		require.Equal(t, gpudrv.Hung, gpudrv.KindOf(err))
		list, err := d.GPUInstances(t.Context(), h.Devices()[0].UUID)
		require.NoError(t, err)
		require.Len(t, list, 1)
	})
}
