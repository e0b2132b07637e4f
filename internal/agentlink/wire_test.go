package agentlink_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/tranche-cloud/tranche/internal/agentlink"
	"github.com/tranche-cloud/tranche/internal/agentlink/agentv1"
	"github.com/tranche-cloud/tranche/internal/agentlink/ca"
	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/instance"
	"github.com/tranche-cloud/tranche/internal/units"
)

// travel sends a message over the wire.
func travel[M proto.Message](t *testing.T, m, into M) M {
	t.Helper()
	text, err := proto.Marshal(m)
	require.NoError(t, err)
	require.NoError(t, proto.Unmarshal(text, into))
	return into
}

func age(rt *rapid.T, name string) time.Duration {
	return time.Duration(rapid.Int64Range(-1, 1<<40).Draw(rt, name)) * time.Microsecond
}

// What an agent observed arrives as it was sent, ages of zero and none included.
func TestObservedTravels(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		o := agentlink.Observed{
			Full: rapid.Bool().Draw(rt, "full"), Applied: rapid.Int64().Draw(rt, "applied"),
			Hash: rapid.StringMatching(`[0-9a-f]{0,64}`).Draw(rt, "hash"), Unchanged: rapid.Bool().Draw(rt, "unchanged"),
		}
		for i := range rapid.IntRange(0, 4).Draw(rt, "slices") {
			s := agentlink.Slice{
				Key: fmt.Sprint(i), Assignment: id.New[id.Assignment](), Fence: rapid.Int64().Draw(rt, "fence"), Run: i,
				State: agentlink.SlicePresent, RunState: instance.RunExited, ExitCode: i,
				Age: age(rt, "age"), EndedAge: age(rt, "ended"), Reason: instance.Problem{Code: "IN_USE", Detail: "x"}, Progress: "pulling", Credited: true,
				Slots: []agentlink.SliceSlot{{
					Slot:   gpu.Slot{GPU: "GPU-1", Mode: gpu.MIGMode(), Name: "1g.18gb", Start: 3, Size: 1},
					Device: "MIG-1", Memory: 16384, SMs: 16,
				}},
			}
			o.Slices = append(o.Slices, s)
			o.Gone = append(o.Gone, agentlink.Tombstone{Assignment: id.New[id.Assignment](), Fence: int64(i)})
		}
		got, err := agentlink.ObservedIn(travel(t, agentlink.ObservedOut(o), &agentv1.Observed{}))
		require.NoError(t, err)
		require.Equal(t, o, got)
	})
}

func TestDesiredTravels(t *testing.T) {
	d := agentlink.Desired{
		Version: 7, Timeline: 2,
		Orders: []agentlink.Order{{
			Assignment: id.New[id.Assignment](), Fence: 1, Instance: id.New[id.Instance](), Run: 3, Image: "img",
			Command: []string{"a", "b"}, Env: map[string]string{"K": "v"}, VCPU: 4, RAM: 32 * units.GiB,
			Org: id.New[id.Org](), Name: "trainer", SSHKeys: []string{"ssh-ed25519 AAAA"}, Shm: 64, HasSecrets: true,
			Ports: []agentlink.Port{{Container: 80, Host: 30000, Protocol: "tcp"}},
			Slots: []gpu.Slot{{GPU: "GPU-1", Mode: gpu.MIGMode(), Profile: 19, Name: "1g.18gb", Start: 3, Size: 1}},
		}},
		Tombstones:     []agentlink.Tombstone{{Assignment: id.New[id.Assignment](), Fence: 4}},
		SSHAuthorities: []string{"ssh-ed25519 BBBB"},
		Modes:          []agentlink.ModeOrder{{GPU: "GPU-1", Mode: gpu.MIGMode(), Epoch: 3}},
	}
	got, err := agentlink.DesiredIn(travel(t, agentlink.DesiredOut(d), &agentv1.Desired{}))
	require.NoError(t, err)
	require.Equal(t, d, got)
}

func TestInventoryTravels(t *testing.T) {
	v := agentlink.Inventory{
		VCPU: 128, RAM: 1024 * units.GiB, Driver: "sim", DriverVersion: "1", Simulated: true,
		Runtime: "runc", BelowFloor: []string{"kernel"}, Condition: agentlink.ConditionCordon, ConditionCause: "FLOORS",
		Reach: agentlink.Reach{Address: "gpu1.example", SSHPort: 22, SSHHostKey: "ssh-ed25519 CC", FirstPort: 30000, LastPort: 30999},
		GPUs: []agentlink.InventoryGPU{{
			Ordinal: 1, Mode: gpu.MIGMode(), Desired: gpu.MIGMode(), Health: "degraded", HealthCause: "XID_94", HealthDetail: "contained",
			ModeState: "switching", ModeProblem: "in use", PlacementsSource: "sim",
			Device: gpu.Device{
				UUID: "GPU-1", PCI: "00:06.0", Model: "H200-141", Name: "NVIDIA H200", Memory: 143771, SMs: 132,
				MemorySlices: 8, ComputeUnits: 7, Engines: gpu.Engines{Copy: 7, Decode: 7, JPEG: 7}, Simulated: true,
				Capabilities: gpu.Capabilities{MIG: true, MPS: true, ComputeCapability: "9.0"},
				Profiles: []gpu.Profile{{
					ID: 15, Name: "1g.35gb", Compute: 1, MemoryUnits: 2, Memory: 33280, SMs: 26, MaxInstances: 4,
					Engines:    gpu.Engines{Copy: 1, Decode: 1},
					Placements: []gpu.Placement{{Start: 0, Size: 2}, {Start: 2, Size: 2}},
				}},
			},
		}},
	}
	got, err := agentlink.InventoryIn(travel(t, agentlink.InventoryOut(v), &agentv1.Inventory{}))
	require.NoError(t, err)
	require.Equal(t, v, got)
}

func TestSpooledFramesTravel(t *testing.T) {
	e := agentlink.Event{
		ID: 9, Kind: "gpu.xid", Subject: "GPU-1", Detail: "xid 79", Age: time.Second, Attributes: map[string]string{"xid": "79"},
	}
	gotE, err := agentlink.EventIn(travel(t, agentlink.EventOut(e), &agentv1.Event{}))
	require.NoError(t, err)
	require.Equal(t, e, gotE)
	s := agentlink.Samples{ID: 10, Age: time.Second, Interval: 10 * time.Second, Slices: []agentlink.SliceSample{
		{Assignment: id.New[id.Assignment](), Source: "gpm", Readings: map[string]int64{"sm_util_ppm": 500_000, "gpu_memory_bytes": 0}},
		{Assignment: id.New[id.Assignment](), Source: "cgroup", Gap: "the agent was away"},
	}}
	gotS, err := agentlink.SamplesIn(travel(t, agentlink.SamplesOut(s), &agentv1.Samples{}))
	require.NoError(t, err)
	require.Equal(t, s, gotS)
}

func TestSecretsTravelAndStayOutOfLogs(t *testing.T) {
	r := agentlink.SecretsRequest{Assignment: id.New[id.Assignment](), Fence: 2}
	gotR, err := agentlink.SecretsRequestIn(travel(t, agentlink.SecretsRequestOut(r), &agentv1.SecretsRequest{}))
	require.NoError(t, err)
	require.Equal(t, r, gotR)
	s := agentlink.Secrets{
		Assignment: r.Assignment, Fence: 2, Env: map[string]string{"HF_TOKEN": "canary"},
		Login: &agentlink.Login{Registry: "r.example", Username: "u", Password: "canary"},
	}
	gotS, err := agentlink.SecretsIn(travel(t, agentlink.SecretsOut(s), &agentv1.Secrets{}))
	require.NoError(t, err)
	require.Equal(t, s, gotS)
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "secrets", s, "login", *s.Login)
	require.NotContains(t, log.String(), "canary")
}

func TestBadSpooledFramesAreRefused(t *testing.T) {
	asg := id.New[id.Assignment]().String()
	for name, m := range map[string]*agentv1.Event{
		"no id":   {Kind: "k", AgeUs: 1},
		"no kind": {Id: 1, AgeUs: 1},
		"no age":  {Id: 1, Kind: "k"},
		"control": {Id: 1, Kind: "k", AgeUs: 1, Detail: "\x1b[2J"},
	} {
		_, err := agentlink.EventIn(m)
		require.Error(t, err, name)
	}
	for name, m := range map[string]*agentv1.Samples{
		"no interval": {Id: 1, AgeUs: 1},
		"negative": {Id: 1, AgeUs: 1, IntervalMs: 1, Slices: []*agentv1.SliceSample{
			{AssignmentId: asg, Readings: []*agentv1.Reading{{Name: "cpu_us", Value: -1}}},
		}},
		"nameless": {Id: 1, AgeUs: 1, IntervalMs: 1, Slices: []*agentv1.SliceSample{
			{AssignmentId: asg, Readings: []*agentv1.Reading{{Value: 1}}},
		}},
	} {
		_, err := agentlink.SamplesIn(m)
		require.Error(t, err, name)
	}
	_, err := agentlink.InventoryIn(&agentv1.Inventory{Condition: "odd"})
	require.Error(t, err)
	_, err = agentlink.InventoryIn(&agentv1.Inventory{Reach: &agentv1.Inventory_Reach{SshPort: 70000}})
	require.Error(t, err)
	_, err = agentlink.InventoryIn(&agentv1.Inventory{Reach: &agentv1.Inventory_Reach{FirstPort: 2, LastPort: 1}})
	require.Error(t, err)
}

// A frame with one bad part is refused as a whole.
func TestBadFramesAreRefused(t *testing.T) {
	asg, inst := id.New[id.Assignment]().String(), id.New[id.Instance]().String()
	slot := &agentv1.DesiredSlot{GpuUuid: "GPU-1", GpuMode: "whole", Size: 1}
	for name, m := range map[string]*agentv1.Desired{
		"no slots":       {Slices: []*agentv1.DesiredSlice{{AssignmentId: asg, InstanceId: inst}}},
		"unknown mode":   {Slices: []*agentv1.DesiredSlice{{AssignmentId: asg, InstanceId: inst, Slots: []*agentv1.DesiredSlot{{GpuMode: "vgpu"}}}}},
		"another noun":   {Slices: []*agentv1.DesiredSlice{{AssignmentId: inst, InstanceId: inst, Slots: []*agentv1.DesiredSlot{slot}}}},
		"nameless grave": {Tombstones: []*agentv1.Tombstone{{Fence: 1}}},
	} {
		_, err := agentlink.DesiredIn(m)
		require.Error(t, err, name)
	}
	for name, m := range map[string]*agentv1.Observed{
		"no key":        {Slices: []*agentv1.SliceReport{{State: "present", RunState: "none"}}},
		"unknown state": {Slices: []*agentv1.SliceReport{{Key: "k", State: "lost", RunState: "none"}}},
		"unknown run":   {Slices: []*agentv1.SliceReport{{Key: "k", State: "present", RunState: "dead"}}},
	} {
		_, err := agentlink.ObservedIn(m)
		require.Error(t, err, name)
	}
	whole := func(uuid string) *agentv1.GPU { return &agentv1.GPU{Uuid: uuid, Mode: "whole", MemoryMib: 1} }
	_, err := agentlink.InventoryIn(&agentv1.Inventory{Gpus: []*agentv1.GPU{whole("a"), whole("b")}})
	require.NoError(t, err)
	for name, m := range map[string]*agentv1.Inventory{
		"a GPU twice":        {Gpus: []*agentv1.GPU{whole("a"), whole("a")}},
		"a GPU without name": {Gpus: []*agentv1.GPU{whole("")}},
		"no units":           {Gpus: []*agentv1.GPU{{Uuid: "a", Mode: "mig", MemoryMib: 1}}},
		"no memory":          {Gpus: []*agentv1.GPU{{Uuid: "a", Mode: "whole"}}},
		"control character":  {Gpus: []*agentv1.GPU{whole("a\x00")}},
		"huge":               {Vcpu: 1 << 31},
		"negative":           {RamMib: -1},
	} {
		_, err := agentlink.InventoryIn(m)
		require.Error(t, err, name)
	}
	_, err = agentlink.HelloIn(&agentv1.Hello{BootId: "b"})
	require.Error(t, err, "no process")
	_, err = agentlink.WelcomeIn(&agentv1.HelloAck{Session: 1})
	require.Error(t, err, "no intervals")
}

// A join token is read back whole or not at all, and prints without its secret.
func TestJoinToken(t *testing.T) {
	token := agentlink.MintJoinToken(ca.Fingerprint{1, 2, 3})
	text := token.Text()
	back, err := agentlink.ParseJoinToken(" " + text + "\n")
	require.NoError(t, err)
	require.Equal(t, token.ID, back.ID)
	require.Equal(t, token.Trust, back.Trust)
	require.True(t, back.Matches(token.Hash()))
	require.False(t, agentlink.MintJoinToken(token.Trust).Matches(token.Hash()))
	for i := range text {
		changed := []byte(text)
		changed[i] ^= 1
		_, err := agentlink.ParseJoinToken(string(changed))
		require.ErrorIs(t, err, agentlink.ErrToken, "character %d", i)
	}
	_, err = agentlink.ParseJoinToken(text[:len(text)-1])
	require.ErrorIs(t, err, agentlink.ErrToken)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q"} {
		require.NotContains(t, fmt.Sprintf(verb, token), text[len(text)-40:])
		require.NotContains(t, fmt.Sprintf(verb, &token), text[60:100])
	}
}

func FuzzParseJoinToken(f *testing.F) {
	f.Add(agentlink.MintJoinToken(ca.Fingerprint{}).Text())
	f.Fuzz(func(t *testing.T, text string) {
		if token, err := agentlink.ParseJoinToken(text); err == nil {
			again, err := agentlink.ParseJoinToken(token.Text())
			require.NoError(t, err)
			require.Equal(t, token.ID, again.ID)
		}
	})
}

// Whatever bytes a peer sends, a frame is refused or means what it says.
func FuzzFrames(f *testing.F) {
	for _, m := range []proto.Message{
		agentlink.ObservedOut(agentlink.Observed{Full: true, Hash: "x"}),
		agentlink.DesiredOut(agentlink.Desired{Version: 1, Timeline: 1}),
		agentlink.InventoryOut(agentlink.Inventory{VCPU: 1}),
		agentlink.HelloOut(agentlink.Hello{BootID: "b", Nonce: "n"}),
	} {
		text, err := proto.Marshal(m)
		require.NoError(f, err)
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var observed agentv1.Observed
		if proto.Unmarshal(text, &observed) == nil {
			if o, err := agentlink.ObservedIn(&observed); err == nil {
				again, err := agentlink.ObservedIn(agentlink.ObservedOut(o))
				require.NoError(t, err)
				require.Equal(t, o, again)
			}
		}
		var desired agentv1.Desired
		if proto.Unmarshal(text, &desired) == nil {
			_, _ = agentlink.DesiredIn(&desired) // it must not panic
		}
		var inventory agentv1.Inventory
		if proto.Unmarshal(text, &inventory) == nil {
			_, _ = agentlink.InventoryIn(&inventory)
		}
		var hello agentv1.Hello
		if proto.Unmarshal(text, &hello) == nil {
			_, _ = agentlink.HelloIn(&hello)
		}
	})
}
