package guard_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
	"github.com/tranche-cloud/tranche/nodeagent/guard"
	"github.com/tranche-cloud/tranche/nodeagent/process"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func seen(pid int, slice string, mib int64, client bool) guard.Seen {
	return guard.Seen{
		Process: process.Identity{PID: pid, Started: uint64(pid)}, Name: "prog", Slice: slice,
		Used: gpudrv.Reported(mib << 20), Client: client,
	}
}

func two() []guard.Slice {
	return []guard.Slice{{Assignment: "a", Processes: 1, Memory: 1000}, {Assignment: "b", Processes: 1, Memory: 1000}}
}

// judge looks twice, long enough apart, at the same scene.
func judge(s guard.Scene) []guard.Verdict {
	s.At = start
	_, suspects := guard.Judge(s, nil)
	s.At = start.Add(time.Second)
	verdicts, _ := guard.Judge(s, suspects)
	return verdicts
}

func TestJudge(t *testing.T) {
	t.Parallel()
	unknown := seen(9, "a", 0, true)
	unknown.Used = gpudrv.NotReported[int64]("not counted")
	for name, c := range map[string]struct {
		kind   gpu.Kind
		slices []guard.Slice
		seen   []guard.Seen
		blind  bool // the daemon cannot be asked
		want   map[int]guard.Reason
	}{
		"nobody":                    {kind: gpu.MPS, slices: two()},
		"honest neighbours":         {kind: gpu.MPS, slices: two(), seen: []guard.Seen{seen(1, "a", 1000, true), seen(2, "b", 1000, true)}},
		"outside the daemon":        {kind: gpu.MPS, slices: two(), seen: []guard.Seen{seen(1, "a", 5, false), seen(2, "b", 5, true)}, want: map[int]guard.Reason{1: guard.Bypass}},
		"outside, too much as well": {kind: gpu.MPS, slices: two(), seen: []guard.Seen{seen(1, "a", 9000, false)}, want: map[int]guard.Reason{1: guard.Bypass}},
		"one inside, one outside":   {kind: gpu.MPS, slices: two(), seen: []guard.Seen{seen(1, "a", 5, false), seen(2, "a", 5, true)}, want: map[int]guard.Reason{1: guard.Bypass}},
		"the daemon is silent":      {kind: gpu.MPS, slices: two(), seen: []guard.Seen{seen(1, "a", 5, false)}, blind: true, want: nil},
		"a second process":          {kind: gpu.MPS, slices: two(), seen: []guard.Seen{seen(7, "a", 5, true), seen(3, "a", 5, true)}, want: map[int]guard.Reason{7: guard.ProcessLimit}},
		"too much memory":           {kind: gpu.MPS, slices: two(), seen: []guard.Seen{seen(1, "a", 1001, true)}, want: map[int]guard.Reason{1: guard.MemoryLimit}},
		"memory not counted":        {kind: gpu.MPS, slices: two(), seen: []guard.Seen{unknown}},
		"turns need no daemon":      {kind: gpu.TimeSlice, slices: two(), seen: []guard.Seen{seen(1, "a", 5, false)}},
		"turns limit memory":        {kind: gpu.TimeSlice, slices: two(), seen: []guard.Seen{seen(1, "b", 2000, false)}, want: map[int]guard.Reason{1: guard.MemoryLimit}},
		"the largest goes": {
			kind: gpu.TimeSlice, slices: []guard.Slice{{Assignment: "a", Memory: 1000}},
			seen: []guard.Seen{seen(1, "a", 300, false), seen(2, "a", 900, false), seen(3, "a", 200, false)},
			want: map[int]guard.Reason{2: guard.MemoryLimit},
		},
		"any number, any size": {
			kind: gpu.TimeSlice, slices: []guard.Slice{{Assignment: "a"}},
			seen: []guard.Seen{seen(1, "a", 30000, false), seen(2, "a", 90000, false)},
		},
		"not ours":         {kind: gpu.MPS, slices: two(), seen: []guard.Seen{seen(1, "", 90000, false)}},
		"of another gpu":   {kind: gpu.MPS, slices: two(), seen: []guard.Seen{seen(1, "c", 90000, false)}},
		"a slice no name":  {kind: gpu.MPS, slices: []guard.Slice{{}}, seen: []guard.Seen{seen(1, "", 90000, false)}},
		"clients past two": {kind: gpu.MPS, slices: []guard.Slice{{Assignment: "a", Processes: 2}}, seen: []guard.Seen{seen(1, "a", 1, true), seen(2, "a", 1, true), seen(3, "a", 1, true)}, want: map[int]guard.Reason{3: guard.ProcessLimit}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := map[int]guard.Reason{}
			for _, v := range judge(guard.Scene{Kind: c.kind, Slices: c.slices, Seen: c.seen, ClientsKnown: !c.blind}) {
				got[v.Seen.Process.PID] = v.Reason
				require.NotEmpty(t, v.Detail)
			}
			require.Equal(t, len(c.want), len(got), got)
			for pid, why := range c.want {
				require.Equal(t, why, got[pid])
			}
		})
	}
}

func TestAMomentIsNoBreach(t *testing.T) {
	t.Parallel()
	leaving := guard.Scene{At: start, Kind: gpu.MPS, Slices: two(), ClientsKnown: true, Seen: []guard.Seen{seen(1, "a", 5, false)}}
	verdicts, suspects := guard.Judge(leaving, nil)
	require.Empty(t, verdicts)
	require.Len(t, suspects, 1)
	gone := guard.Scene{At: start.Add(time.Second), Kind: gpu.MPS, Slices: two(), ClientsKnown: true}
	verdicts, suspects = guard.Judge(gone, suspects)
	require.Empty(t, verdicts)
	require.Empty(t, suspects)
}

func TestASilentDaemonKeepsASuspicion(t *testing.T) {
	t.Parallel()
	s := guard.Scene{At: start, Kind: gpu.MPS, Slices: two(), ClientsKnown: true, Seen: []guard.Seen{seen(1, "a", 5, false)}}
	_, suspects := guard.Judge(s, nil)
	s.At, s.ClientsKnown = start.Add(time.Second), false
	verdicts, suspects := guard.Judge(s, suspects)
	require.Empty(t, verdicts, "nobody is ended on an old answer")
	s.At, s.ClientsKnown = start.Add(2*time.Second), true
	verdicts, _ = guard.Judge(s, suspects)
	require.Len(t, verdicts, 1)
}

func TestVictimsAreTheOthersWithWork(t *testing.T) {
	t.Parallel()
	sl := append(two(), guard.Slice{Assignment: "idle"})
	verdicts := judge(guard.Scene{Kind: gpu.MPS, Slices: sl, ClientsKnown: true, Seen: []guard.Seen{
		seen(1, "a", 5, false), seen(2, "b", 5, true), seen(3, "foreign", 5, true), seen(4, "", 5, true),
	}})
	require.Len(t, verdicts, 1)
	require.Equal(t, []string{"b"}, verdicts[0].Victims)
}

// TestHonestProgramsLive plays random hosts: honest programs come and go, overlap
// with their successors for a moment and are seen at the end outside the daemon;
// hostile ones stay. No honest program is ended, and every hostile one is within
// two seconds.
func TestHonestProgramsLive(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		const step, steps = 250 * time.Millisecond, 60
		sl := []guard.Slice{{Assignment: "good", Processes: 1, Memory: 1000}, {Assignment: "bad", Processes: 1, Memory: 1000}}
		kind := rapid.SampledFrom([]gpu.Kind{gpu.MPS, gpu.TimeSlice}).Draw(t, "kind")
		crime := rapid.SampledFrom([]string{"bypass", "second", "memory"}).Draw(t, "crime")
		if kind == gpu.TimeSlice && crime == "bypass" {
			crime = "memory"
		}
		from := rapid.IntRange(0, steps/2).Draw(t, "crime starts")
		honest, left := 100, 0 // the honest program's number, and for how long it still runs
		var suspects guard.Suspects
		var verdicts []guard.Verdict
		caught := -1
		for i := range steps {
			if i%4 != 0 && len(suspects) == 0 {
				continue // one look a second while all is well
			}
			s := guard.Scene{At: start.Add(time.Duration(i) * step), Kind: kind, Slices: sl, ClientsKnown: true}
			if left--; left <= 0 {
				dying := seen(honest, "good", rapid.Int64Range(0, 1000).Draw(t, "last"), rapid.Bool().Draw(t, "connected"))
				if rapid.Bool().Draw(t, "seen dying") {
					s.Seen = append(s.Seen, dying)
				}
				honest++
				left = rapid.IntRange(2, 9).Draw(t, "runs for")
			}
			s.Seen = append(s.Seen, seen(honest, "good", rapid.Int64Range(0, 1000).Draw(t, "used"), true))
			if i >= from {
				s.Seen = append(s.Seen, crimeOf(crime)...)
			}
			verdicts, suspects = guard.Judge(s, suspects)
			for _, v := range verdicts {
				if v.Seen.Slice != "bad" {
					t.Fatalf("ended honest %v of %s: %s", v.Seen.Process, v.Seen.Slice, v.Reason)
				}
			}
			if caught < 0 && len(verdicts) > 0 {
				caught = i
			}
		}
		if caught < 0 || time.Duration(caught-from)*step > 2*time.Second {
			t.Fatalf("%s from step %d was caught at step %d", crime, from, caught)
		}
	})
}

func crimeOf(crime string) []guard.Seen {
	switch crime {
	case "bypass":
		return []guard.Seen{seen(50, "bad", 10, false)}
	case "second":
		return []guard.Seen{seen(50, "bad", 10, true), seen(51, "bad", 10, true)}
	default:
		return []guard.Seen{seen(50, "bad", 1001, true)}
	}
}
