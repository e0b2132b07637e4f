package nodeagent

import (
	"context"
	"errors"
	"fmt"

	"github.com/tranche-cloud/tranche/internal/agentlink"
	"github.com/tranche-cloud/tranche/internal/agentlink/agentv1"
)

// tellAtOnce is how many spooled records may be on the way unacknowledged.
const tellAtOnce = 64

// errUnlinked answers questions that the stream ended on.
var errUnlinked = errors.New("the link to the control plane ended")

// ask is a question for secrets that somebody waits on.
type ask struct {
	req   agentlink.SecretsRequest
	reply chan answer
}

type answer struct {
	secrets agentlink.Secrets
	err     error
}

// Secrets asks the control plane for what a run needs. It waits for a link until ctx
// ends; what it returns is to be kept in memory and nowhere else.
func (a *Agent) Secrets(ctx context.Context, r agentlink.SecretsRequest) (agentlink.Secrets, error) {
	q := ask{req: r, reply: make(chan answer, 1)}
	select {
	case a.asks <- q:
	case <-ctx.Done():
		return agentlink.Secrets{}, fmt.Errorf("no link to the control plane: %w", ctx.Err())
	}
	select {
	case got := <-q.reply:
		return got.secrets, got.err
	case <-ctx.Done():
		return agentlink.Secrets{}, fmt.Errorf("no answer from the control plane: %w", ctx.Err())
	}
}

func (l *link) ask(q ask) error {
	l.mu.Lock()
	l.waiting[q.req.Assignment] = append(l.waiting[q.req.Assignment], q)
	l.mu.Unlock()
	m := agentlink.SecretsRequestOut(q.req)
	return l.send(&agentv1.SessionRequest{Frame: &agentv1.SessionRequest_SecretsRequest{SecretsRequest: m}})
}

// answer hands secrets to whoever asked for them with this fence.
func (l *link) answer(m *agentv1.Secrets) error {
	got, err := agentlink.SecretsIn(m)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	var left []ask
	for _, q := range l.waiting[got.Assignment] {
		if q.req.Fence != got.Fence {
			left = append(left, q)
			continue
		}
		q.reply <- answer{secrets: got}
	}
	if l.waiting[got.Assignment] = left; len(left) == 0 {
		delete(l.waiting, got.Assignment)
	}
	return nil
}

// abandon answers everybody who still waits when the stream ends.
func (l *link) abandon() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, list := range l.waiting {
		for _, q := range list {
			q.reply <- answer{err: errUnlinked}
		}
	}
	clear(l.waiting)
}

// tell sends what waits in the spool, a bounded number at a time.
func (l *link) tell() error {
	s := l.a.cfg.Spool
	room := tellAtOnce - int(l.told-min(l.acked, l.told))
	for _, r := range s.Pending(l.told, max(room, 0)) {
		m := &agentv1.SessionRequest{}
		if r.Event != nil {
			m.Frame = &agentv1.SessionRequest_Event{Event: agentlink.EventOut(*r.Event)}
		} else {
			m.Frame = &agentv1.SessionRequest_Samples{Samples: agentlink.SamplesOut(*r.Samples)}
		}
		if err := l.send(m); err != nil {
			return err
		}
		if l.told == 0 {
			l.acked = r.ID - 1 // what came before was taken by an earlier stream
		}
		l.told = r.ID
	}
	return nil
}

// acknowledge passes the newest acknowledgement on to the sender.
func (l *link) acknowledge(through uint64) {
	select {
	case <-l.taken:
	default:
	}
	l.taken <- through
}

// forget drops what was taken in, and sends what still waits.
func (l *link) forget(through uint64) error {
	if err := l.a.cfg.Spool.Taken(through); err != nil {
		return err
	}
	l.acked = max(l.acked, through)
	return l.tell()
}

// stocked reports whether something of the inventory changed since it was read.
func (k *Keeper) stocked() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.inventory
}
