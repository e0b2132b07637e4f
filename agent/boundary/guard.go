package boundary

import (
	"context"
	"sync"
	"time"

	"github.com/tranche-cloud/tranche/nodeagent/guard"
	"github.com/tranche-cloud/tranche/nodeagent/meter"
)

// syncEvery is how often the link says what is to be guarded and hears what happened.
const syncEvery = time.Second

// maxNews is how much waits for the link; more drops the oldest.
const maxNews = 1024

// guardArgs say what is to be guarded, and up to which number news were taken.
type guardArgs struct {
	Targets []guard.Target `json:"targets"`
	Taken   uint64         `json:"taken"`
}

func (a guardArgs) check() error {
	if len(a.Targets) > maxSlots {
		return invalid("%d GPUs are too many", len(a.Targets))
	}
	for _, t := range a.Targets {
		if !uuidForm.MatchString(t.GPU) || !profileForm.MatchString(string(t.Kind)) || !profileForm.MatchString(t.ComputeMode) || len(t.Slices) > maxSlots {
			return invalid("a guarded GPU is not legal")
		}
		for _, s := range t.Slices {
			if err := checkName(s.Assignment); err != nil {
				return err
			}
			if s.Processes < 0 || s.Memory < 0 {
				return invalid("a guarded slice's limits are not legal")
			}
		}
	}
	return nil
}

// news is one thing that the guard did or found.
type news struct {
	Number  uint64        `json:"number"`
	Ended   *guard.Ended  `json:"ended,omitempty"`
	Held    *guard.Holder `json:"held,omitempty"`
	Drifted *guard.Drift  `json:"drifted,omitempty"`
}

func (n news) tell(sink guard.Sink) {
	switch {
	case n.Ended != nil:
		sink.Ended(*n.Ended)
	case n.Held != nil:
		sink.Held(*n.Held)
	case n.Drifted != nil:
		sink.Drifted(*n.Drifted)
	}
}

// watchman keeps what the guard needs from the link and the link from the guard. The
// guard goes on with what it was told last while the link is away.
type watchman struct {
	mu      sync.Mutex
	targets []guard.Target
	last    uint64
	waiting []news
}

var _ guard.Sink = (*watchman)(nil)

func (w *watchman) current() []guard.Target {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.targets
}

// sync takes new targets, forgets what was taken and returns the rest.
func (w *watchman) sync(a guardArgs) []news {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.targets = a.Targets
	left := []news{}
	for _, n := range w.waiting {
		if n.Number > a.Taken {
			left = append(left, n)
		}
	}
	w.waiting = left
	return left
}

func (w *watchman) add(n news) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last++
	n.Number = w.last
	if w.waiting = append(w.waiting, n); len(w.waiting) > maxNews {
		w.waiting = w.waiting[1:]
	}
}

// Ended implements guard.Sink.
func (w *watchman) Ended(e guard.Ended) { w.add(news{Ended: &e}) }

// Held implements guard.Sink.
func (w *watchman) Held(h guard.Holder) { w.add(news{Held: &h}) }

// Drifted implements guard.Sink.
func (w *watchman) Drifted(d guard.Drift) { w.add(news{Drifted: &d}) }

// Guard keeps telling the helper what is to be guarded, and the sink what the guard did
// and found, until ctx ends.
func (c *Client) Guard(ctx context.Context, targets func() []guard.Target, sink guard.Sink) error {
	taken := uint64(0)
	for {
		var list []news
		if err := c.call(ctx, guardSync, guardArgs{Targets: targets(), Taken: taken}, &list, nil); err != nil && ctx.Err() == nil {
			list = nil // the helper is away; its restart is waited for
		}
		for _, n := range list {
			n.tell(sink)
			taken = n.Number
		}
		timer := c.clock.NewTimer(syncEvery)
		select {
		case <-timer.C():
		case <-ctx.Done():
			timer.Stop()
			return nil
		}
	}
}

// Traffic returns the network's counters by container.
func (c *Client) Traffic(ctx context.Context) (map[string]meter.Traffic, error) {
	var out map[string]meter.Traffic
	err := c.call(ctx, netTraffic, nothing{}, &out, nil)
	return out, err
}
