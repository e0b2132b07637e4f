package gateway

import (
	"context"
	"time"

	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/store"
)

const (
	feedEvery  = 200 * time.Millisecond // notices only shorten this wait
	proofEvery = 5 * time.Second
	checkEvery = 2 * time.Second // a revoked host is off within 5 s
	pruneEvery = 10 * time.Minute
	endWithin  = 2 * time.Second
)

// enter makes s the host's stream in this process; an older one here is ended. It
// reports false when the gateway is going away.
func (g *Gateway) enter(s *stream) bool {
	g.mu.Lock()
	if g.leaving {
		g.mu.Unlock()
		return false
	}
	old := g.streams[s.session.Host]
	g.streams[s.session.Host] = s
	g.open.Add(1)
	g.mu.Unlock()
	if old != nil {
		old.end(errSuperseded)
	}
	s.nudge()
	return true
}

// leave forgets s and notes that it is closed, so that the host's next process
// need not wait for missed proofs.
func (g *Gateway) leave(ctx context.Context, s *stream) {
	defer g.open.Done()
	g.mu.Lock()
	if g.streams[s.session.Host] == s {
		delete(g.streams, s.session.Host)
	}
	last := s.proof
	s.proof = nil
	g.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, endWithin)
	defer cancel()
	if last != nil {
		g.writeProofs(ctx, []store.LifeProof{g.age(s, *last)})
	}
	if err := g.app.EndSession(ctx, s.session); err != nil {
		g.log.Warn("end of session not noted", "host_id", s.session.Host.String(), "error", err)
	}
}

// nudge asks for a delivery; asking twice is asking once.
func (s *stream) nudge() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (g *Gateway) all() []*stream {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := make([]*stream, 0, len(g.streams))
	for _, s := range g.streams {
		out = append(out, s)
	}
	return out
}

// nudgeHost wakes the stream of a host, all of them for the zero id.
func (g *Gateway) nudgeHost(h id.Host) {
	if h.IsZero() {
		for _, s := range g.all() {
			s.nudge()
		}
		return
	}
	g.mu.Lock()
	s := g.streams[h]
	g.mu.Unlock()
	if s != nil {
		s.nudge()
	}
}

// watch shortens the wait by notices.
func (g *Gateway) watch(ctx context.Context) error { return g.app.WatchHosts(ctx, g.nudgeHost) }

// follow reads the feed of changed hosts, which misses nothing.
func (g *Gateway) follow(ctx context.Context) error {
	feed := g.app.DesiredFeed()
	prune := g.clock.Now().Add(pruneEvery)
	began := false
	for again := true; again; again = g.pause(ctx, feedEvery) {
		hosts, err := feed.Next(ctx)
		if err != nil && ctx.Err() == nil {
			g.log.Warn("feed of desired sets not read", "error", err)
		}
		if err == nil && !began {
			// What changed before the feed's start was perhaps not delivered yet.
			began = true
			g.nudgeHost(id.Host{})
		}
		for _, h := range hosts {
			g.nudgeHost(h)
		}
		if now := g.clock.Now(); !now.Before(prune) {
			prune = now.Add(pruneEvery)
			if err := g.app.PruneDesiredFeed(ctx); err != nil {
				g.log.Warn("feed of desired sets not pruned", "error", err)
			}
		}
	}
	return ctx.Err()
}

func (g *Gateway) prove(s *stream, p proof) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if s.proof != nil && p.uptime == 0 {
		p.uptime = s.proof.uptime
	}
	s.proof = &p
}

func (g *Gateway) age(s *stream, p proof) store.LifeProof {
	return store.LifeProof{Session: s.session, Age: max(0, g.clock.Now().Sub(p.at)), Uptime: p.uptime}
}

// keepProofs writes proofs of life in batches, and an empty batch too: it says that
// silence is the hosts' and not the gateway's.
func (g *Gateway) keepProofs(ctx context.Context) error {
	for again := true; again; again = g.pause(ctx, proofEvery) {
		var batch []store.LifeProof
		g.mu.Lock()
		for _, s := range g.streams {
			if s.proof != nil {
				batch = append(batch, g.age(s, *s.proof))
				s.proof = nil
			}
		}
		g.mu.Unlock()
		g.writeProofs(ctx, batch)
	}
	return ctx.Err()
}

// writeProofs loses the batch on an error: the next proofs come in ten seconds.
func (g *Gateway) writeProofs(ctx context.Context, batch []store.LifeProof) {
	if err := g.app.RecordProofs(ctx, batch); err != nil && ctx.Err() == nil {
		g.log.Warn("proofs of life not written", "count", len(batch), "error", err)
	}
}

// checkStreams ends streams whose host was revoked, taken over elsewhere, or has
// come to count as unknown although its stream is open.
func (g *Gateway) checkStreams(ctx context.Context) error {
	for g.pause(ctx, checkEvery) {
		var open []store.Session
		for _, s := range g.all() {
			open = append(open, s.session)
		}
		if len(open) == 0 {
			continue
		}
		ended, err := g.app.SessionsToEnd(ctx, open)
		if err != nil {
			if ctx.Err() == nil {
				g.log.Warn("streams not checked", "error", err)
			}
			continue
		}
		for _, e := range ended {
			g.dismiss(e)
		}
	}
	return ctx.Err()
}

func (g *Gateway) dismiss(e store.Ended) {
	g.mu.Lock()
	s := g.streams[e.Host]
	reported := s != nil && s.reported
	g.mu.Unlock()
	switch {
	case s == nil:
	case e.Revoked:
		s.end(errRevoked)
	case e.Superseded:
		s.end(errSuperseded)
	case e.Unknown && reported:
		s.end(errSilent)
	}
}
