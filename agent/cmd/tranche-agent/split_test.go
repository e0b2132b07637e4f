package main

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/agent/boundary"
	"github.com/tranche-cloud/tranche/internal/agentlink"
	"github.com/tranche-cloud/tranche/internal/clock"
	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/instance"
	"github.com/tranche-cloud/tranche/nodeagent"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv/sim"
)

const asAgent = "TRANCHE_AGENT_TEST_IS_AGENT"

// TestMain makes this binary the agent of its own tests, too.
func TestMain(m *testing.M) {
	if os.Getenv(asAgent) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// soon is how long a busy machine may take for what is quick.
const soon = 30 * time.Second

const splitFleet = `hosts:
- {name: node-1, vcpu: 64, ram_mib: 524288, gpus: [{model: H200-141, mode: mig, count: 3}]}
`

// machine is a host whose agent is split into processes.
type machine struct {
	t      *testing.T
	dir    string
	args   []string // of the helper
	socket string
	uuids  []string
	helper *exec.Cmd
	client *boundary.Client
	keeper *nodeagent.Keeper
	host   nodeagent.Host
}

func newMachine(t *testing.T, faults string) *machine {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "ts") // short, for a socket lives below it
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	fleet := filepath.Join(dir, "fleet.yaml")
	require.NoError(t, os.WriteFile(fleet, []byte(splitFleet), 0o600))
	loaded, err := sim.LoadFleet(fleet)
	require.NoError(t, err)
	m := &machine{t: t, dir: dir, socket: filepath.Join(dir, "s")}
	for _, d := range loaded.Hosts[0].Devices() {
		m.uuids = append(m.uuids, d.UUID)
	}
	m.args = []string{
		"helper", "--driver=sim", "--fleet=" + fleet, "--latency=none", "--runtime=fake", "--boot-id=boot", "--data-dir=" + filepath.Join(dir, "h"),
		"--socket=" + m.socket, "--link-user=0", "--gpu-patience=1s",
	}
	if faults != "" {
		path := filepath.Join(dir, "faults.yaml")
		require.NoError(t, os.WriteFile(path, []byte(faults), 0o600))
		m.args = append(m.args, "--faults="+path)
	}
	require.NoError(t, os.Mkdir(filepath.Join(dir, "l"), 0o700))
	m.startHelper()
	t.Cleanup(m.killHelper)
	m.startKeeper()
	t.Cleanup(m.stopKeeper)
	return m
}

// agent starts this program as the agent.
func (m *machine) agent(args ...string) *exec.Cmd {
	m.t.Helper()
	self, err := os.Executable()
	require.NoError(m.t, err)
	cmd := exec.CommandContext(context.WithoutCancel(m.t.Context()), self, args...)
	cmd.Env = append(os.Environ(), asAgent+"=1")
	log, err := os.OpenFile(filepath.Join(m.dir, "log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	require.NoError(m.t, err)
	cmd.Stdout, cmd.Stderr = log, log
	require.NoError(m.t, cmd.Start())
	require.NoError(m.t, log.Close())
	return cmd
}

func kill(cmd *exec.Cmd) {
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}

func (m *machine) startHelper() { m.helper = m.agent(m.args...) }
func (m *machine) killHelper()  { kill(m.helper) }

func (m *machine) startKeeper() {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), soon)
	defer cancel()
	var err error
	m.client, err = boundary.Dial(ctx, m.socket, clock.Real())
	require.NoError(m.t, err, m.log())
	m.host, err = m.client.Host(m.t.Context(), filepath.Join(m.dir, "l"), nil)
	require.NoError(m.t, err)
	m.keeper, err = nodeagent.NewKeeper(m.t.Context(), m.host)
	require.NoError(m.t, err)
	require.NoError(m.t, m.keeper.Adopt(m.t.Context()), m.log())
}

// stopKeeper ends the link as a killed process ends.
func (m *machine) stopKeeper() {
	if m.keeper == nil {
		return
	}
	require.NoError(m.t, m.keeper.Close())
	require.NoError(m.t, m.client.Close())
	m.keeper = nil
}

func (m *machine) log() string {
	text, _ := os.ReadFile(filepath.Join(m.dir, "log"))
	return string(text)
}

// workers are the gpu-workers that run, by their command lines.
func (m *machine) workers() []int {
	m.t.Helper()
	entries, err := os.ReadDir("/proc")
	require.NoError(m.t, err)
	var out []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		line, _ := os.ReadFile("/proc/" + e.Name() + "/cmdline")
		if strings.Contains(string(line), workerCommandName) && strings.Contains(string(line), m.dir) {
			out = append(out, pid)
		}
	}
	return out
}

func (m *machine) order(a id.Assignment, on string, start int) agentlink.Order {
	return agentlink.Order{
		Assignment: a, Fence: 1, Instance: id.New[id.Instance](), Run: 1, Image: "img",
		Slots: []gpu.Slot{{GPU: on, Mode: gpu.MIGMode(), Profile: 19, Start: start, Size: 1}},
	}
}

func (m *machine) obey(orders []agentlink.Order, tombstones ...agentlink.Tombstone) {
	m.keeper.Obey(agentlink.Desired{Version: 1, Timeline: 1, Orders: orders, Tombstones: tombstones})
}

func (m *machine) slice(a id.Assignment) agentlink.Slice {
	for _, s := range m.keeper.Observe(true).Slices {
		if s.Assignment == a {
			return s
		}
	}
	return agentlink.Slice{}
}

func (m *machine) running(a id.Assignment) {
	m.t.Helper()
	require.Eventually(m.t, func() bool { return m.slice(a).RunState == instance.RunRunning }, soon, 10*time.Millisecond, "%+v\n%s", m.slice(a), m.log())
}

// exists counts the containers on disk and the carved slices of a GPU.
func (m *machine) exists(uuid string) (containers, slices int) {
	m.t.Helper()
	list, err := m.host.Runtime.List(m.t.Context())
	require.NoError(m.t, err)
	found, err := m.host.Carve.Observe(m.t.Context(), uuid)
	require.NoError(m.t, err)
	return len(list), len(found)
}

// Link, helper and gpu-worker as processes: an order is carried out, each of them is
// killed, and the run goes on.
func TestASplitAgentOutlivesEachOfItsParts(t *testing.T) {
	m := newMachine(t, "")
	a := id.New[id.Assignment]()
	o := m.order(a, m.uuids[0], 0)
	m.obey([]agentlink.Order{o})
	m.running(a)

	// The worker, with a change in flight or not.
	workers := m.workers()
	require.Len(t, workers, 1)
	require.NoError(t, syscall.Kill(workers[0], syscall.SIGKILL))
	b := id.New[id.Assignment]()
	o2 := m.order(b, m.uuids[0], 1)
	m.obey([]agentlink.Order{o, o2})
	m.running(b)
	require.NotEqual(t, workers, m.workers())

	// The helper, in the middle of a start.
	c := id.New[id.Assignment]()
	o3 := m.order(c, m.uuids[1], 3)
	m.obey([]agentlink.Order{o, o2, o3})
	made := filepath.Join(m.dir, "h", "containers", c.String()+".json")
	require.Eventually(t, func() bool { _, err := os.Stat(made); return err == nil }, soon, time.Millisecond)
	m.killHelper()
	m.startHelper()
	m.running(c)
	containers, slices := m.exists(m.uuids[1])
	require.Equal(t, []int{3, 1}, []int{containers, slices})

	// The link: the journal is its own, and another process of it adopts everything.
	before := m.slice(a).Age
	m.stopKeeper()
	link := m.agent("link", "--helper="+m.socket, "--data-dir="+filepath.Join(m.dir, "l"), "--gateway=https://127.0.0.1:1", "--name=node-1")
	t.Cleanup(func() { kill(link) })
	require.Eventually(t, func() bool { return strings.Contains(m.log(), "not enrolled") }, soon, 10*time.Millisecond, "it serves and waits for a token")
	kill(link)
	m.startKeeper()
	require.Equal(t, instance.RunRunning, m.slice(a).RunState)
	require.GreaterOrEqual(t, m.slice(a).Age, before)

	m.obey(nil, agentlink.Tombstone{Assignment: a, Fence: 2}, agentlink.Tombstone{Assignment: b, Fence: 2}, agentlink.Tombstone{Assignment: c, Fence: 2})
	require.Eventually(t, func() bool { return len(m.keeper.Observe(true).Slices) == 0 }, soon, 10*time.Millisecond)
	containers, slices = m.exists(m.uuids[0])
	require.Zero(t, containers+slices)
	m.stopKeeper()
	m.killHelper()
	require.Eventually(t, func() bool { return len(m.workers()) == 0 }, soon, 10*time.Millisecond, "no worker outlives its helper")
}

// A GPU that hangs costs its worker; the others are served by the next. Killing the
// agent meanwhile changes nothing for what runs.
func TestAHungGPUCostsNoOther(t *testing.T) {
	m := newMachine(t, "faults:\n- {do: hang, gpu: 1, op: create_gpu_instance, times: 100}\n")
	good, bad := id.New[id.Assignment](), id.New[id.Assignment]()
	first := m.order(good, m.uuids[0], 0)
	m.obey([]agentlink.Order{first})
	m.running(good)
	before := m.workers()
	require.Len(t, before, 1)

	hanging := m.order(bad, m.uuids[1], 0)
	m.obey([]agentlink.Order{first, hanging})
	other := id.New[id.Assignment]()
	second := m.order(other, m.uuids[2], 0)
	m.obey([]agentlink.Order{first, hanging, second})
	m.running(other)

	// Nobody waits for the worker that hangs: as if the agent were killed now.
	m.stopKeeper()
	m.killHelper()
	m.startHelper()
	m.startKeeper()
	for _, a := range []id.Assignment{good, other} {
		require.Equal(t, instance.RunRunning, m.slice(a).RunState, m.log())
	}
	containers, slices := m.exists(m.uuids[0])
	require.Equal(t, []int{2, 1}, []int{containers, slices})

	_, err := m.host.Driver.Health(t.Context(), m.uuids[1])
	require.NoError(t, err, "reads of it do not hang")
	m.obey([]agentlink.Order{first, hanging, second})
	require.Eventually(t, func() bool { return m.slice(bad).RunState == instance.RunFailed }, 2*soon, 10*time.Millisecond, m.log())
	require.Equal(t, string(gpudrv.Hung), m.slice(bad).Reason.Code)
	_, err = m.host.Driver.Health(t.Context(), m.uuids[1])
	require.Equal(t, gpudrv.Hung, gpudrv.KindOf(err), "it is not asked any more")
	_, err = m.host.Driver.Health(t.Context(), m.uuids[0])
	require.NoError(t, err)
	m.running(good)
	text, err := json.Marshal(m.workers())
	require.NoError(t, err)
	require.Len(t, m.workers(), 1, string(text))
}

func TestSplitCommandsSayWhatTheyLack(t *testing.T) {
	for name, args := range map[string][]string{
		"link: no folder":       {"link"},
		"helper: no folder":     {"helper"},
		"helper: no user":       {"helper", "--data-dir=x", "--link-user=nobody-of-that-name"},
		"helper: odd driver":    {"helper", "--data-dir=x", "--link-user=0", "--driver=odd"},
		"helper: no fleet":      {"helper", "--data-dir=x", "--link-user=0", "--driver=sim"},
		"sshgw: no folder":      {"sshgw"},
		"worker: odd arguments": {"gpu-worker", "more"},
	} {
		cmd := root()
		cmd.SetArgs(args)
		require.Error(t, cmd.ExecuteContext(t.Context()), name)
	}
}
