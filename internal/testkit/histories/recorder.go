package histories

import (
	"encoding/binary"
	"slices"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/billing/rating"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
)

// piece is one recorded interval of a meter; to is 0 while it is open.
type piece struct {
	meter    metering.Meter
	sku      int
	start    int
	run      int
	from, to int64
	silent   bool // closed by silence
}

// recorder applies the product's table of meters to the messages of one instance.
type recorder struct {
	seen   map[int]bool
	pieces []piece
	starts int
	begun  map[int]int64 // first instant of a run
}

// Record makes the usage of a customer from its messages by the table of
// internal/metering, sealed at the ends of months.
func (c *Customer) Record() []rating.Usage {
	recorders := make([]recorder, len(c.Instances))
	for i := range recorders {
		recorders[i] = recorder{seen: map[int]bool{}, begun: map[int]int64{}}
	}
	for _, m := range c.Messages {
		recorders[m.Instance].take(m)
	}
	var out []rating.Usage
	for i := range recorders {
		out = append(out, c.usage(i, recorders[i].pieces)...)
	}
	return out
}

func (r *recorder) take(m Message) {
	if r.seen[m.Seq] {
		return
	}
	r.seen[m.Seq] = true
	if m.Event == "" {
		r.fill(m)
		return
	}
	changes, known := metering.Changes(m.Event, m.Facts)
	if !known {
		panic("histories: unknown event " + string(m.Event))
	}
	for _, ch := range changes {
		at := ch.At.UnixMicro()
		start := -1
		if ch.Close {
			start = r.close(ch.Meter, at, m.Event == metering.Silence)
		}
		if !ch.Open {
			continue
		}
		r.open(m, ch, at, start)
	}
}

// close ends the open piece of a meter and returns its start, −1 if none was open.
func (r *recorder) close(meter metering.Meter, at int64, silent bool) int {
	for i := range r.pieces {
		if p := &r.pieces[i]; p.meter == meter && p.to == 0 {
			p.to, p.silent = max(at, p.from+1), silent
			return p.start
		}
	}
	return -1
}

// open begins a piece. A run that fell silent and is proven again goes on where it
// was proven last.
func (r *recorder) open(m Message, ch metering.Change, at int64, start int) {
	last := -1
	for i, p := range r.pieces {
		if p.meter != ch.Meter {
			continue
		}
		if p.to == 0 {
			return
		}
		if last < 0 || p.to > r.pieces[last].to {
			last = i
		}
	}
	if !ch.KeepStart || start < 0 {
		r.starts++
		start = r.starts
	}
	if last >= 0 && r.pieces[last].silent && r.pieces[last].run == m.Run {
		at, start = r.pieces[last].to, r.pieces[last].start
	}
	if _, ok := r.begun[m.Run]; !ok {
		r.begun[m.Run] = at
	}
	r.pieces = append(r.pieces, piece{meter: ch.Meter, sku: m.SKU, start: start, run: m.Run, from: at})
}

// fill adds what late evidence proves beyond what is recorded.
func (r *recorder) fill(m Message) {
	var billed []metering.Interval
	var like piece
	for _, p := range r.pieces {
		if p.meter != metering.GPU {
			continue
		}
		to := p.to
		if to == 0 {
			to = m.Received + 1
		}
		billed = append(billed, metering.Between(instant(p.from), instant(to)))
		if p.run == m.Run {
			like = p
		}
	}
	for _, gap := range metering.FillGaps(m.Evidence, billed, instant(r.begun[m.Run]), instant(m.Received)) {
		like.from, like.to, like.silent = gap.From.UnixMicro(), gap.To.UnixMicro(), false
		r.pieces = append(r.pieces, like)
	}
}

// usage turns the pieces of an instance into segments, none of which crosses a month.
func (c *Customer) usage(instance int, pieces []piece) []rating.Usage {
	slices.SortFunc(pieces, func(a, b piece) int { return int(min(max(a.from-b.from, -1), 1)) })
	var out []rating.Usage
	seq := map[metering.Meter]int64{}
	inst := c.Instances[instance]
	started := map[int]int64{}
	for _, p := range pieces { // in order of time
		if _, ok := started[p.start]; !ok {
			started[p.start] = p.from
		}
	}
	for _, p := range pieces {
		if p.to == 0 {
			p.to = c.Months[len(c.Months)-1].To.UnixMicro()
		}
		sealed, err := metering.Split(metering.Between(instant(p.from), instant(p.to)), metering.Month)
		if err != nil {
			panic(err)
		}
		for _, during := range sealed {
			seq[p.meter]++
			out = append(out, rating.Usage{
				Segment: metering.Segment{
					ID: segmentID(inst.ID, p.meter, seq[p.meter]), Org: c.Org, Project: c.Projects[inst.Project],
					Subject: metering.Subject{Kind: "instance", ID: inst.ID}, Meter: p.meter, StartID: startID(inst.ID, p.start),
					Seq: seq[p.meter], Run: p.run, Units: 1, During: during,
				},
				SubjectName: inst.Name, ProjectName: "p", SKU: c.SKUs[p.sku], Book: c.Book.ID, Lock: c.lock(inst, p.sku, p.meter),
				Pricing: billing.OnDemand, Region: Region, Started: instant(started[p.start]),
			})
		}
	}
	return out
}

func (c *Customer) lock(inst Instance, sku int, meter metering.Meter) *billing.Lock {
	if inst.Locked < 0 || meter != metering.GPU {
		return nil
	}
	l, ok := c.Book.Lock(c.Book.Versions[inst.Locked].ID, billing.PriceKey{SKU: c.SKUs[sku].ID, Meter: meter})
	if !ok {
		return nil
	}
	return &l
}

func segmentID(inst id.Instance, meter metering.Meter, seq int64) id.Segment {
	v := id.Segment(inst)
	v[0] ^= meter[len(meter)-1]
	binary.BigEndian.PutUint64(v[8:], binary.BigEndian.Uint64(v[8:])^uint64(seq))
	return v
}

func startID(inst id.Instance, start int) [16]byte {
	v := [16]byte(inst)
	v[15] ^= byte(start)
	v[14] ^= byte(start >> 8)
	return v
}
