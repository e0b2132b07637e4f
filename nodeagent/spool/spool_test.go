package spool_test

import (
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tranche-cloud/tranche/internal/agentlink"
	"github.com/tranche-cloud/tranche/nodeagent/spool"
)

// host is a machine whose clocks the test moves.
type host struct {
	path   string
	boot   string
	uptime time.Duration
	wall   time.Time
}

func (h *host) open(t require.TestingT, most int) *spool.Spool {
	s, err := spool.Open(spool.Config{
		Path: h.path, BootID: h.boot, MaxRecords: most,
		Uptime: func() time.Duration { return h.uptime }, Now: func() time.Time { return h.wall },
	})
	require.NoError(t, err)
	return s
}

func newHost(dir string) *host {
	return &host{path: filepath.Join(dir, "spool.log"), boot: "b1", uptime: time.Hour, wall: time.Unix(1_800_000_000, 0)}
}

func (h *host) pass(d time.Duration) { h.uptime += d; h.wall = h.wall.Add(d) }

func TestRecordsWaitUntilTheyAreTaken(t *testing.T) {
	h := newHost(t.TempDir())
	s := h.open(t, 0)
	require.NoError(t, s.Event(agentlink.Event{Kind: "gpu.xid"}))
	<-s.Changed()
	h.pass(time.Minute)
	require.NoError(t, s.Samples(agentlink.Samples{Interval: time.Second, Age: time.Second}))
	list := s.Pending(0, 10)
	require.Len(t, list, 2)
	require.Equal(t, time.Minute, list[0].Event.Age)
	require.Equal(t, list[0].ID, list[0].Event.ID)
	require.Equal(t, time.Second, list[1].Samples.Age)
	require.Len(t, s.Pending(list[0].ID, 10), 1)
	require.NoError(t, s.Taken(list[0].ID))
	require.NoError(t, s.Close())

	h.pass(time.Hour)
	s = h.open(t, 0)
	<-s.Changed()
	again := s.Pending(0, 10)
	require.Len(t, again, 1)
	require.Equal(t, list[1].ID, again[0].ID)
	require.NoError(t, s.Event(agentlink.Event{Kind: "next"}))
	require.Greater(t, s.Pending(again[0].ID, 1)[0].ID, again[0].ID, "ids rise across restarts")
	require.NoError(t, s.Close())
}

func TestAnotherBootAgesByTheWallClock(t *testing.T) {
	h := newHost(t.TempDir())
	s := h.open(t, 0)
	require.NoError(t, s.Event(agentlink.Event{Kind: "x"}))
	require.NoError(t, s.Close())
	h.boot, h.uptime, h.wall = "b2", time.Second, h.wall.Add(10*time.Minute)
	s = h.open(t, 0)
	require.Equal(t, 10*time.Minute, s.Pending(0, 1)[0].Event.Age)
	require.NoError(t, s.Close())
}

func TestAFullSpoolDropsSamplesBeforeEvents(t *testing.T) {
	h := newHost(t.TempDir())
	s := h.open(t, 3)
	require.NoError(t, s.Event(agentlink.Event{Kind: "first"}))
	for range 5 {
		require.NoError(t, s.Samples(agentlink.Samples{Interval: time.Second}))
	}
	list := s.Pending(0, 10)
	require.Len(t, list, 3)
	require.Equal(t, "first", list[0].Event.Kind)
	require.Equal(t, uint64(6), list[2].ID)
	require.Equal(t, uint64(3), s.Dropped())
	require.NoError(t, s.Close())
}

// What a bound dropped is not back after a restart.
func TestAFullSpoolIsNoLargerAfterARestart(t *testing.T) {
	h := newHost(t.TempDir())
	s := h.open(t, 3)
	require.NoError(t, s.Event(agentlink.Event{Kind: "first"}))
	for range 5 {
		require.NoError(t, s.Samples(agentlink.Samples{Interval: time.Second}))
	}
	before := s.Pending(0, 10)
	require.NoError(t, s.Close())
	s = h.open(t, 3)
	require.Equal(t, before, s.Pending(0, 10))
	require.NoError(t, s.Close())
}

// A spool whose file was lost begins at one again, which the control plane takes for
// what it has; its answer says so, and nothing that waits is lost.
func TestALostFileCostsNothingThatCameAfter(t *testing.T) {
	h := newHost(t.TempDir())
	s := h.open(t, 0)
	require.NoError(t, s.Event(agentlink.Event{Kind: "one"}))
	require.NoError(t, s.Event(agentlink.Event{Kind: "two"}))
	require.Error(t, s.Taken(math.MaxUint64))
	require.NoError(t, s.Taken(10_000))
	for range 2 {
		list := s.Pending(2, 10)
		require.Len(t, list, 2)
		require.Equal(t, []any{uint64(10_001), "one"}, []any{list[0].ID, list[0].Event.Kind})
		require.Equal(t, uint64(10_002), list[1].ID)
		require.NoError(t, s.Taken(10_000), "a late answer changes nothing")
		require.NoError(t, s.Close())
		s = h.open(t, 0)
	}
	require.NoError(t, s.Taken(10_001))
	require.Equal(t, 1, s.Len())
	require.NoError(t, s.Event(agentlink.Event{Kind: "three"}))
	require.Equal(t, uint64(10_003), s.Pending(10_002, 1)[0].ID)
	require.NoError(t, s.Close())
}

func TestATornLineCostsOnlyItself(t *testing.T) {
	h := newHost(t.TempDir())
	s := h.open(t, 0)
	require.NoError(t, s.Event(agentlink.Event{Kind: "whole"}))
	require.NoError(t, s.Close())
	f, err := os.OpenFile(h.path, os.O_WRONLY|os.O_APPEND, 0)
	require.NoError(t, err)
	_, err = f.WriteString("deadbeef {\"id\":")
	require.NoError(t, err)
	require.NoError(t, f.Close())
	s = h.open(t, 0)
	require.Len(t, s.Pending(0, 10), 1)
	require.NoError(t, s.Event(agentlink.Event{Kind: "after"}))
	require.NoError(t, s.Close())
	s = h.open(t, 0)
	require.Len(t, s.Pending(0, 10), 2)
	require.NoError(t, s.Close())
}

// Whatever is written, taken, and however often it is opened again: what is pending
// is exactly what was written and not taken, in order.
func TestNothingIsLostOrToldTwice(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		dir, err := os.MkdirTemp("", "spool")
		require.NoError(rt, err)
		defer func() { require.NoError(rt, os.RemoveAll(dir)) }()
		h := newHost(dir)
		s := h.open(rt, 0)
		want := []uint64{}
		var last uint64
		for range rapid.IntRange(1, 20).Draw(rt, "steps") {
			switch rapid.IntRange(0, 3).Draw(rt, "do") {
			case 0, 1:
				require.NoError(rt, s.Event(agentlink.Event{Kind: "k"}))
				last++
				want = append(want, last)
			case 2:
				if len(want) > 0 {
					n := rapid.IntRange(1, len(want)).Draw(rt, "taken")
					require.NoError(rt, s.Taken(want[n-1]))
					want = want[n:]
				}
			case 3:
				require.NoError(rt, s.Close())
				s = h.open(rt, 0)
			}
		}
		got := []uint64{}
		for _, r := range s.Pending(0, 1000) {
			got = append(got, r.ID)
		}
		require.Equal(rt, want, got)
		require.NoError(rt, s.Close())
	})
}
