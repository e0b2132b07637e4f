package hardware

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/tranche-cloud/tranche/devstack/internal/stack"
	"github.com/tranche-cloud/tranche/openapi/wire"
)

// clientEnded is what a tenant is told whose program took more than its slice.
const clientEnded = "gpu.client_ended"

// caught waits until a hostile instance is ended, and says how soon after the
// program's first kernel, why, and what its neighbour lost.
func (r *run) caught(ctx context.Context, name string, since int64, reason, neighbour string) error {
	i, err := r.gone(ctx, name)
	if err != nil {
		return err
	}
	lines := r.lines(name)
	last := since
	for _, l := range lines {
		last = max(last, l.At)
	}
	why, err := i.StatusReason.Get()
	r.holds("the tenant is told why", err == nil && why.Code == clientEnded, fmt.Sprintf("%s %s: %s", i.Status, why.Code, why.Detail))
	r.told("its last line after its first kernel", float64(last-since), "ms", "")
	if err := r.reported(ctx, name, since, reason); err != nil {
		return err
	}
	if neighbour == "" {
		return nil
	}
	before := mean(r.rates(neighbour, since-4000, since-500))
	during := least(r.rates(neighbour, since-1000, last+2000))
	r.told("neighbour before", before, "it/s", "")
	r.told("neighbour at its worst", during, "it/s", fmt.Sprintf("%.0f %% of before", 100*during/before))
	now := time.Now().UnixMilli()
	for len(r.rates(neighbour, now, 0)) < 2 {
		if err := pause(ctx, "the neighbour does not go on"); err != nil {
			return err
		}
	}
	r.atLeast("neighbour afterwards, against before", 100*mean(r.rates(neighbour, now, 0))/before, 97, "%")
	return nil
}

// settled waits until a program has been left alone for long enough to know its rate.
func (r *run) settled(ctx context.Context, name string) error {
	const enough = 5
	now := time.Now().UnixMilli()
	for len(r.rates(name, now, 0)) < enough {
		if err := pause(ctx, name+" does not go on"); err != nil {
			return err
		}
	}
	return nil
}

// bypass hides from the daemon.
func (r *run) bypass(ctx context.Context) error {
	if err := r.settled(ctx, "left"); err != nil {
		return err
	}
	first, _, err := r.begin(ctx, 0, "h200-half", "hider", "spin", "--hide", "40")
	if err != nil {
		return err
	}
	return r.caught(ctx, "hider", first.At, "MPS_BYPASS", "left")
}

// bypassAgain starts the hostile instance once more.
func (r *run) bypassAgain(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, r.remove(ctx, "hider")) }()
	if err := r.settled(ctx, "left"); err != nil {
		return err
	}
	m := r.made["hider"]
	asked := time.Now().UnixMilli()
	if _, err := r.stack.Client(m.buyer.Key).StartInstance(ctx, m.buyer.Project, m.Id); err != nil {
		return fmt.Errorf("start the ended instance again: %w", err)
	}
	since := int64(0)
	for since == 0 {
		for _, l := range r.lines("hider") {
			if l.Event == "first" && l.At > asked {
				since = l.At
			}
		}
		if err := pause(ctx, "the hostile program computes no more"); err != nil {
			return err
		}
	}
	return r.caught(ctx, "hider", since, "MPS_BYPASS", "left")
}

// killClient kills a tenant's program from outside, with work under way.
func (r *run) killClient(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, r.clear(ctx)) }()
	first, _, err := r.begin(ctx, 0, "h200-half", "victim", "spin", "60")
	if err != nil {
		return err
	}
	pid, err := hostPID("victim", "spin")
	if err != nil {
		return err
	}
	killed := time.Now()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return err
	}
	i, err := r.gone(ctx, "victim")
	if err != nil {
		return err
	}
	why := ""
	if got, err := i.StatusReason.Get(); err == nil {
		why = got.Code + ": " + got.Detail
	}
	r.told("kill to the API's word", millis(time.Since(killed)), "ms", string(i.Status)+" "+why)
	alive := len(r.rates("left", first.At, 0)) > 0 && r.stillRuns(ctx, "left")
	r.told("the neighbour lives", map[bool]float64{true: 1}[alive], "0/1", "a signal without the daemon's help is a race")
	return nil
}

func (r *run) stillRuns(ctx context.Context, name string) bool {
	i, err := r.look(ctx, name)
	return err == nil && i.Status == wire.InstanceStatusRunning
}

// twice computes in two processes of one slice.
func (r *run) twice(ctx context.Context) error {
	if err := r.settled(ctx, "q1"); err != nil {
		return err
	}
	first, _, err := r.begin(ctx, 0, "h200-quarter", "forker", "spin", "--twice", "40")
	if err != nil {
		return err
	}
	if second, err := r.await(ctx, "forker", "first", 2); err == nil {
		first = second
	}
	return errors.Join(r.caught(ctx, "forker", first.At, "PROCESS_LIMIT", "q1"), r.remove(ctx, "forker"))
}

// killAgent kills the agent while shares are in use.
func (r *run) killAgent(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, r.clear(ctx)) }()
	before := len(r.lines("q1"))
	pid, err := hostPID("q1", "spin")
	if err != nil {
		return err
	}
	began := time.Now()
	if err := r.stack.Kill(stack.AgentName(hostName)); err != nil {
		return err
	}
	process, err := r.stack.Process(stack.AgentName(hostName))
	if err != nil {
		return err
	}
	for process.Starts() < 2 {
		if err := pause(ctx, "the agent is not started again"); err != nil {
			return err
		}
	}
	if err := r.awaitHost(ctx); err != nil {
		return err
	}
	r.told("kill to the host being ready", millis(time.Since(began)), "ms", "")
	for len(r.lines("q1")) < before+4 {
		if err := pause(ctx, "the program does not go on"); err != nil {
			return err
		}
	}
	again, err := hostPID("q1", "spin")
	r.holds("the same program runs on", err == nil && again == pid, "")
	for _, name := range []string{"q1", "q2", "q3"} {
		i, err := r.look(ctx, name)
		r.holds(name+" was not interrupted", err == nil && i.Status == wire.InstanceStatusRunning && len(i.Interruptions) == 0, "")
		r.holds(name+" is billed without a hole", err == nil && len(i.Billed) == 1, fmt.Sprint(len(i.Billed), " intervals"))
	}
	_, took, err := r.begin(ctx, 0, "h200-quarter", "after", "spin", "3")
	if err == nil {
		r.told("create to first kernel afterwards", took, "ms", "")
	}
	return err
}

// hog takes more memory than a turn has: nothing but the guard stands against it.
func (r *run) hog(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, r.clear(ctx)) }()
	if err := r.settled(ctx, "tick"); err != nil {
		return err
	}
	if err := r.create(ctx, r.buyers[0], "h200-turn", "hog", "allocate", "80000", "--hold", "40"); err != nil {
		return err
	}
	l, err := r.await(ctx, "hog", "allocate", 1)
	if err != nil {
		return err
	}
	return r.caught(ctx, "hog", l.At, "MEMORY_LIMIT", "tick")
}

// reported waits for the operator's event about a program that was ended.
func (r *run) reported(ctx context.Context, name string, since int64, reason string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for {
		events, err := r.events(ctx, name)
		if err != nil {
			return err
		}
		for _, e := range events {
			text := fmt.Sprint(e.Type, " ", e.Data)
			if e.At.UnixMilli() < since || !strings.Contains(strings.ToUpper(text), reason) {
				continue
			}
			r.atMost("first kernel to its end, as the event says", float64(e.At.UnixMilli()-since), detectWithin, "ms")
			r.told("event", 1, "seen", text)
			return nil
		}
		if err := pause(ctx, "no event with "+reason); err != nil {
			return err
		}
	}
}
