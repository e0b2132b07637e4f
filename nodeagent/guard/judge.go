// Package guard ends programs that take more of a shared GPU than their slice. It
// owns that judgement and the signals that follow from it.
//
// Nothing else does it: a client of an MPS daemon that hides the pipe folder gets
// the whole GPU, limits of a daemon hold for each process and not for a slice,
// and turns limit no memory at all. The guard therefore looks every second who
// computes on which GPU, in which slice, and how much memory they hold.
//
// It never ends a program outside the slices it was told about: such holders are
// reported. It does not make slices (carve) and does not watch whole GPUs or MIG
// instances, where the hardware keeps everybody in bounds.
package guard

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/internal/units"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
	"github.com/tranche-cloud/tranche/nodeagent/process"
)

// Reason says which rule a program broke.
type Reason string

// The reasons.
const (
	Bypass       Reason = "MPS_BYPASS"    // computes on an mps GPU outside the daemon
	ProcessLimit Reason = "PROCESS_LIMIT" // more processes than the slice may have
	MemoryLimit  Reason = "MEMORY_LIMIT"  // all processes together hold more than the slice
)

const (
	// bypassFor and limitFor are how long a breach is watched before the program is
	// ended. A client that is about to end may be seen after it has left the daemon,
	// and a program that is replaced may be seen together with its successor.
	bypassFor = 200 * time.Millisecond
	limitFor  = 600 * time.Millisecond
)

// Slice is one slice of a GPU as the guard has to hold it.
type Slice struct {
	Assignment string
	// Processes is how many may compute at the same time; 0 is any number.
	Processes int
	// Memory is the most that all processes may hold together; 0 is no limit.
	Memory units.MiB
}

// Seen is one process on a GPU.
type Seen struct {
	Process process.Identity
	Name    string
	Used    gpudrv.Value[int64] // bytes of device memory
	// Slice is the assignment whose container it runs in; "" if in none.
	Slice string
	// Client says that the MPS daemon lists it.
	Client bool
}

// Scene is one look at a GPU.
type Scene struct {
	At     time.Time
	Kind   gpu.Kind
	Slices []Slice
	Seen   []Seen
	// ClientsKnown is false when the daemon could not be asked: nobody is then
	// accused of passing it by.
	ClientsKnown bool
}

// Suspicion is a breach that was seen and is not yet old enough.
type Suspicion struct {
	Reason Reason
	Since  time.Time
}

// Suspects is what Judge remembers from one look to the next.
type Suspects map[process.Identity]Suspicion

// Verdict is a program to be ended.
type Verdict struct {
	Seen   Seen
	Reason Reason
	Detail string // what was seen and what is allowed, for the tenant
	// Victims are the assignments of the other slices that had work on the GPU.
	Victims []string
}

// Judge says who is to be ended now and whom to watch. It is pure. A process
// outside every slice of the scene is never judged.
func Judge(s Scene, before Suspects) ([]Verdict, Suspects) {
	accused := map[process.Identity]Verdict{}
	for _, sl := range s.Slices {
		accuse(s, sl, before, accused)
	}
	var out []Verdict
	after := Suspects{}
	for id, v := range accused {
		since := s.At
		if was, ok := before[id]; ok && was.Reason == v.Reason {
			since = was.Since
		}
		after[id] = Suspicion{Reason: v.Reason, Since: since}
		age := s.At.Sub(since)
		if (v.Reason == Bypass && s.ClientsKnown && age >= bypassFor) || (v.Reason != Bypass && age >= limitFor) {
			v.Victims = victims(s, v.Seen.Slice)
			out = append(out, v)
		}
	}
	slices.SortFunc(out, func(a, b Verdict) int { return cmp.Compare(a.Seen.Process.PID, b.Seen.Process.PID) })
	return out, after
}

// accuse adds the breaches of one slice. Who passes the daemon by is not counted
// against the other limits, because it goes anyway.
func accuse(s Scene, sl Slice, before Suspects, accused map[process.Identity]Verdict) {
	var inside []Seen
	for _, p := range s.Seen {
		if p.Slice != sl.Assignment || p.Slice == "" {
			continue
		}
		if passesBy(s, p, before) {
			accused[p.Process] = Verdict{
				Seen: p, Reason: Bypass,
				Detail: fmt.Sprintf("process %d (%s) uses the GPU without the MPS daemon of its slice", p.Process.PID, p.Name),
			}
			continue
		}
		inside = append(inside, p)
	}
	// The oldest processes stay: who came first was within the limit.
	slices.SortFunc(inside, func(a, b Seen) int {
		return cmp.Or(cmp.Compare(a.Process.Started, b.Process.Started), cmp.Compare(a.Process.PID, b.Process.PID))
	})
	if n := len(inside); sl.Processes > 0 && n > sl.Processes {
		for _, p := range inside[sl.Processes:] {
			accused[p.Process] = Verdict{
				Seen: p, Reason: ProcessLimit,
				Detail: fmt.Sprintf("%d processes use the GPU, the slice allows %d", n, sl.Processes),
			}
		}
		inside = inside[:sl.Processes]
	}
	accuseOfMemory(sl, inside, accused)
}

// passesBy says whether a process is outside the daemon. While the daemon cannot
// be asked, an earlier suspicion is kept.
func passesBy(s Scene, p Seen, before Suspects) bool {
	if s.Kind != gpu.MPS || p.Client {
		return false
	}
	if s.ClientsKnown {
		return true
	}
	return before[p.Process].Reason == Bypass
}

// accuseOfMemory picks the largest processes until the rest fits.
func accuseOfMemory(sl Slice, inside []Seen, accused map[process.Identity]Verdict) {
	if sl.Memory <= 0 {
		return
	}
	total := int64(0)
	for _, p := range inside {
		total += p.Used.Or(0)
	}
	held, limit := total, sl.Memory.Bytes()
	bySize := slices.Clone(inside)
	slices.SortStableFunc(bySize, func(a, b Seen) int { return cmp.Compare(b.Used.Or(0), a.Used.Or(0)) })
	for _, p := range bySize {
		if total <= limit {
			return
		}
		total -= p.Used.Or(0)
		accused[p.Process] = Verdict{
			Seen: p, Reason: MemoryLimit,
			Detail: fmt.Sprintf("%d MiB of GPU memory in use, the slice has %d MiB", held>>20, sl.Memory),
		}
	}
}

// victims lists the other slices with work on the GPU.
func victims(s Scene, of string) []string {
	known := map[string]bool{}
	for _, sl := range s.Slices {
		known[sl.Assignment] = true
	}
	out := map[string]bool{}
	for _, p := range s.Seen {
		if known[p.Slice] && p.Slice != of {
			out[p.Slice] = true
		}
	}
	return slices.Sorted(maps.Keys(out))
}
