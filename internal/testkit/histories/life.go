package histories

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/tranche-cloud/tranche/internal/metering"
)

// life walks one instance through its states, writing what is true and what is told.
type life struct {
	c        *Customer
	r        *rand.Rand
	instance int
	at       int64
	sku      int
	start    int
	run      int
	seq      int
}

// span draws how long something lasts: a microsecond to weeks, all scales alike.
func (l *life) span() int64 {
	switch l.r.IntN(5) {
	case 0:
		return 1 + l.r.Int64N(2*second)
	case 1:
		return second + l.r.Int64N(hour)
	case 2:
		return hour * (1 + l.r.Int64N(30))
	case 3:
		return hour + l.r.Int64N(3*day)
	}
	return day + l.r.Int64N(25*day)
}

func instant(micros int64) time.Time { return time.UnixMicro(micros).UTC() }

func (l *life) tell(e metering.Event, f metering.Facts, received int64) {
	l.seq++
	l.c.Messages = append(l.c.Messages, Message{Instance: l.instance, Seq: l.seq, Event: e, Facts: f, SKU: l.sku, Run: l.run, Received: received})
}

func (l *life) true(meter metering.Meter, from, to int64) {
	l.c.Truths = append(l.c.Truths, Truth{Instance: l.instance, Meter: meter, SKU: l.sku, Start: l.start, From: from, To: to})
}

func (l *life) down(from, to int64) {
	l.c.Down = append(l.c.Down, Truth{Instance: l.instance, SKU: l.sku, From: from, To: to})
}

// live is the whole life: a create that may fail, then starts and what ends them.
func (l *life) live() {
	l.sku = l.r.IntN(len(l.c.SKUs))
	l.tell(metering.RequestAccepted, metering.Facts{At: instant(l.at)}, l.at)
	if l.r.IntN(10) == 0 {
		l.at += l.span()
		l.tell(metering.CreateFailed, metering.Facts{At: instant(l.at)}, l.at)
		return
	}
	for range 1 + l.r.IntN(6) {
		l.at += 1 + l.r.Int64N(5*hour) // placing, preparing: free
		l.run++
		l.tell(metering.ProcessStarted, metering.Facts{At: instant(l.at)}, l.at)
		if l.r.IntN(3) == 0 {
			l.tell(metering.GuestReady, metering.Facts{At: instant(l.at + second)}, l.at+second)
		}
		if ended := l.running(); ended {
			break
		}
		l.start++
	}
	l.deliver()
}

// running is one start: stretches of running until something ends it. It reports
// whether the instance is deleted.
func (l *life) running() bool {
	for {
		from := l.at
		l.at += l.span()
		switch l.r.IntN(9) {
		case 0: // resized; the old shape until the new one is proven
			l.true(metering.GPU, from, l.at)
			l.sku = l.r.IntN(len(l.c.SKUs))
			l.tell(metering.ResizeProven, metering.Facts{At: instant(l.at)}, l.at)
		case 1: // a failed resize changes nothing
			l.true(metering.GPU, from, l.at)
			l.tell(metering.ResizeFailed, metering.Facts{At: instant(l.at)}, l.at)
		case 2: // the tenant's reboot is continuous
			l.true(metering.GPU, from, l.at)
			l.run++
			l.tell(metering.Rebooted, metering.Facts{At: instant(l.at)}, l.at)
		case 3:
			l.silence(from)
		case 4:
			return l.fault(from)
		case 5:
			return l.lost(from)
		case 6:
			return l.stop(from)
		case 7:
			return l.preempted(from)
		default:
			l.true(metering.GPU, from, l.at)
			l.tell(metering.DeleteAccepted, metering.Facts{At: instant(l.at)}, l.at)
			return true
		}
	}
}

// silence: no proof for a while, but the run lived on; evidence arrives late, in
// pieces, twice, in any order, some of it reaching beyond what is new.
func (l *life) silence(from int64) {
	proof := l.at
	l.tell(metering.Silence, metering.Facts{LastProof: instant(proof)}, proof+90*second)
	back := proof + 90*second + l.r.Int64N(18*hour)
	l.true(metering.GPU, from, proof)
	l.true(metering.GPU, proof, back)
	cuts := []int64{proof, back}
	for range l.r.IntN(4) {
		cuts = append(cuts, proof+l.r.Int64N(back-proof))
	}
	slices.Sort(cuts)
	var pieces []metering.Interval
	for i := 1; i < len(cuts); i++ {
		early := cuts[i-1] - l.r.Int64N(min(hour, cuts[i-1]-from+1)) // overlaps what is billed
		pieces = append(pieces, metering.Between(instant(early), instant(cuts[i])))
	}
	l.r.Shuffle(len(pieces), func(i, j int) { pieces[i], pieces[j] = pieces[j], pieces[i] })
	pieces = append(pieces, pieces[l.r.IntN(len(pieces))])
	for _, p := range pieces {
		l.seq++
		l.c.Messages = append(l.c.Messages, Message{
			Instance: l.instance, Seq: l.seq, SKU: l.sku, Run: l.run, Evidence: []metering.Interval{p},
			Received: back + l.r.Int64N(20*hour),
		})
	}
	l.at = back
	l.tell(metering.ProcessStarted, metering.Facts{At: instant(l.at)}, l.at) // proven again, same run
}

// fault: a symptom and a last proof, whichever came first ends the charge.
func (l *life) fault(from int64) bool {
	l.true(metering.GPU, from, l.at)
	f := metering.Facts{FirstSymptom: instant(l.at), LastProof: instant(l.at + l.r.Int64N(hour))}
	if l.r.IntN(2) == 0 {
		f.FirstSymptom, f.LastProof = f.LastProof, f.FirstSymptom
	}
	l.tell(metering.OurFault, f, l.at+2*hour)
	back := l.at + 2*hour + l.span()
	l.down(l.at, back)
	l.at = back
	return false
}

// lost: silence that never ends; only what was proven is charged.
func (l *life) lost(from int64) bool {
	l.true(metering.GPU, from, l.at)
	l.tell(metering.Silence, metering.Facts{LastProof: instant(l.at)}, l.at+90*second)
	back := l.at + 2*hour + l.span()
	l.down(l.at, back)
	l.at = back
	return false
}

func (l *life) stop(from int64) bool {
	l.true(metering.GPU, from, l.at)
	stopped := l.at
	retained := l.r.IntN(2) == 0
	if retained {
		l.tell(metering.StopRetain, metering.Facts{At: instant(stopped)}, stopped)
	} else {
		l.tell(metering.StopRelease, metering.Facts{At: instant(stopped)}, stopped)
	}
	l.at += l.span()
	if !retained {
		return false
	}
	deleted := l.r.IntN(3) == 0
	if deleted {
		l.true(metering.GPURetained, stopped, l.at)
		l.tell(metering.DeleteAccepted, metering.Facts{At: instant(l.at)}, l.at)
		return true
	}
	l.at += 1 + l.r.Int64N(hour)
	l.run++
	l.tell(metering.ProcessStarted, metering.Facts{At: instant(l.at)}, l.at)
	l.true(metering.GPURetained, stopped, l.at)
	l.start++
	return l.running()
}

// preempted: notice, then the end of it, unless the tenant stops or dies before.
func (l *life) preempted(from int64) bool {
	l.true(metering.GPU, from, l.at)
	others := [2]int64{l.at + l.r.Int64N(hour), l.at + l.r.Int64N(hour)}
	f := metering.Facts{TenantStop: instant(l.at), NoticeEnd: instant(others[0]), LastProof: instant(others[1])}
	switch l.r.IntN(3) {
	case 0:
		f.TenantStop, f.NoticeEnd = f.NoticeEnd, f.TenantStop
	case 1:
		f.TenantStop = time.Time{}
		f.NoticeEnd = instant(l.at)
	}
	l.tell(metering.Preempted, f, l.at+hour)
	l.at += hour + l.span()
	return false
}

// deliver puts the messages of this instance into the order of their arrival, some
// of them twice.
func (l *life) deliver() {
	var mine, others []Message
	for _, m := range l.c.Messages {
		if m.Instance != l.instance {
			others = append(others, m)
			continue
		}
		mine = append(mine, m)
		if l.r.IntN(4) == 0 {
			again := m
			again.Received += l.r.Int64N(day)
			mine = append(mine, again)
		}
	}
	slices.SortStableFunc(mine, func(a, b Message) int {
		return int(min(max(a.Received-b.Received, -1), 1))
	})
	l.c.Messages = append(others, mine...)
}
