package nodeagent

import (
	"time"

	"github.com/tranche-cloud/tranche/internal/agentlink"
	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/instance"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
	"github.com/tranche-cloud/tranche/nodeagent/journal"
)

// HealthState is the public health of a GPU.
type HealthState string

// The states. Only a healthy GPU takes new work.
const (
	Healthy     HealthState = "healthy"
	Degraded    HealthState = "degraded"  // runs go on, nothing new
	Failing     HealthState = "failed"    // runs are interrupted
	Resetting   HealthState = "resetting" // being brought back
	Quarantined HealthState = "quarantined"
)

// CauseHung is the cause of a GPU that does not answer: the Keeper does not read it
// until its health changes.
const CauseHung = "GPU_HUNG"

// GPUHealth is what is known about a GPU's health, by whoever watches it.
type GPUHealth struct {
	State  HealthState
	Cause  string // a code such as XID_79 or GPU_LOST; "" on a healthy GPU
	Detail string
}

// condition is what concerns the host as a whole.
type condition struct {
	is    agentlink.Condition
	cause string
}

// SetHealth takes in a GPU's health. Nothing new is started on a GPU that is not
// healthy; Interrupt ends what runs there.
func (k *Keeper) SetHealth(uuid string, h GPUHealth) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.health[uuid] == h {
		return
	}
	k.health[uuid] = h
	k.inventory = true
	k.signal()
}

// SetCondition takes in what concerns the host as a whole.
func (k *Keeper) SetCondition(is agentlink.Condition, cause string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if next := (condition{is, cause}); k.condition != next {
		k.condition, k.inventory = next, true
		k.signal()
	}
}

// graded is the health of a GPU: what was said about it, and failed while it cannot
// be read. The caller holds k.mu.
func (k *Keeper) graded(uuid string) GPUHealth {
	h, said := k.health[uuid]
	if said && h.State != Healthy {
		return h
	}
	if err := k.trouble[uuid]; err != nil {
		return GPUHealth{State: Failing, Cause: codeOf(err), Detail: err.Error()}
	}
	return GPUHealth{State: Healthy}
}

// refusedByHealth says no to new work on a GPU that is not healthy.
func (k *Keeper) refusedByHealth(s *slice) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, x := range s.entry.Slots {
		if h := k.graded(x.Slot.GPU); h.State != Healthy {
			return gpudrv.Refuse(gpudrv.Kind(h.Cause), "start", x.Slot.GPU, "the gpu is %s: %s", h.State, h.Detail)
		}
	}
	return nil
}

// Interruption ends runs for a reason that is not their own.
type Interruption struct {
	// GPU is the UUID of the GPU concerned; At limits it to the slots that overlap a
	// range of units, nil is all of the GPU. Assignment limits it to one run.
	GPU        string
	At         *gpu.Placement
	Assignment id.Assignment
	Code       string
	Detail     string
	Credited   bool
	// Since is how long ago the first symptom showed; billing ends there.
	Since time.Duration
}

// Interrupt notes the end of the runs concerned and ends their containers. It
// returns the assignments that it ended.
func (k *Keeper) Interrupt(in Interruption) ([]id.Assignment, error) {
	k.mu.Lock()
	hit := map[id.Assignment]*slice{}
	for a, s := range k.slices {
		if s.entry.Step == journal.Running && s.want != wantGo && in.concerns(s.entry) {
			hit[a] = s
		}
	}
	k.mu.Unlock()
	var ended []id.Assignment
	for a, s := range hit {
		done, err := k.interrupt(s, in)
		if err != nil {
			return ended, err
		}
		if done {
			ended = append(ended, a)
		}
	}
	return ended, nil
}

func (k *Keeper) interrupt(s *slice, in Interruption) (bool, error) {
	k.mu.Lock()
	if s.busy || s.entry.Step != journal.Running || s.want == wantGo {
		k.mu.Unlock()
		return false, nil
	}
	s.busy = true // nobody else works on it while the end is written
	k.mu.Unlock()
	at := max(k.host.Uptime()-max(in.Since, 0), 1)
	err := k.commit(s, func(e *journal.Entry) {
		e.Step, e.Halt, e.Code, e.Detail, e.Credited = journal.Ended, true, in.Code, in.Detail, in.Credited
		e.EndedUS = max(at.Microseconds(), e.StartedUS)
	})
	k.mu.Lock()
	defer k.mu.Unlock()
	s.busy = false
	k.kick(s)
	return err == nil, err
}

func (in Interruption) concerns(e journal.Entry) bool {
	if !in.Assignment.IsZero() && e.Assignment != in.Assignment {
		return false
	}
	if in.GPU == "" {
		return !in.Assignment.IsZero()
	}
	for _, x := range e.Slots {
		if x.Slot.GPU != in.GPU {
			continue
		}
		if in.At == nil || x.Slot.Start < in.At.Start+in.At.Size && in.At.Start < x.Slot.Start+x.Slot.Size {
			return true
		}
	}
	return false
}

// Tenancy is a run that is on the host now, as monitors need it.
type Tenancy struct {
	Assignment id.Assignment
	Instance   id.Instance
	Org        id.Org
	Run        int
	Running    bool
	Started    time.Duration // uptime
	Slots      []journal.Slot
	// Problem is what stands in the way of its removal now.
	Problem instance.Problem
}

// Tenancies lists what exists on the host.
func (k *Keeper) Tenancies() []Tenancy {
	k.mu.Lock()
	defer k.mu.Unlock()
	var out []Tenancy
	for _, s := range k.slices {
		e := s.entry
		if !exists(e.Step) {
			continue
		}
		out = append(out, Tenancy{
			Assignment: e.Assignment, Instance: e.Instance, Org: e.Org, Run: e.Run,
			Running: e.Step == journal.Running, Started: uptimeOf(e.StartedUS), Slots: e.Slots,
			Problem: s.trouble,
		})
	}
	return out
}

// openDoor tells the SSH gateway who may enter now. The caller holds k.mu.
func (k *Keeper) openDoor() {
	if k.host.Door == nil || k.desired == nil || k.ctx.Err() != nil {
		return
	}
	var list []Access
	for a, s := range k.slices {
		if s.want != wantGo && (s.want == wantRun || exists(s.entry.Step)) {
			list = append(list, Access{Assignment: a, Instance: s.entry.Instance, Keys: s.keys})
		}
	}
	authorities := k.desired.SSHAuthorities
	k.door = &opening{authorities: authorities, list: list}
	if k.doorBusy {
		return
	}
	k.doorBusy = true
	k.work.Go(k.tellDoor)
}

// opening is what the SSH gateway shall know.
type opening struct {
	authorities []string
	list        []Access
}

// tellDoor tells the newest state until it is the one told: a key that was withdrawn
// must not stay for a fault of a moment.
func (k *Keeper) tellDoor() {
	for try := 0; ; try++ {
		k.mu.Lock()
		next := k.door
		if next == nil || k.ctx.Err() != nil {
			k.doorBusy = false
			k.mu.Unlock()
			return
		}
		k.door = nil
		k.mu.Unlock()
		err := k.host.Door.Open(k.ctx, next.authorities, next.list)
		if err == nil || k.ctx.Err() != nil {
			continue
		}
		k.host.Log.Error("ssh gateway not told", "error", err)
		k.mu.Lock()
		if k.door == nil {
			k.door = next
		}
		k.mu.Unlock()
		timer := k.host.Clock.NewTimer(min(firstRetry<<min(try, 10), lastRetry))
		select {
		case <-timer.C():
		case <-k.ctx.Done():
			timer.Stop()
		}
	}
}
