package metering

import "time"

// Event is something that may start or stop a meter.
type Event string

// Events of an instance and of what is provisioned for it.
const (
	RequestAccepted    Event = "request_accepted"    // a create was accepted
	ProcessStarted     Event = "process_started"     // slice carved, main process started, as the agent saw it
	GuestReady         Event = "guest_ready"         // readiness as the guest says it
	CreateFailed       Event = "create_failed"       // never reached ProcessStarted
	StopRelease        Event = "stop_release"        // stop accepted, slice given back
	StopRetain         Event = "stop_retain"         // stop accepted, slice kept
	DeleteAccepted     Event = "delete_accepted"     //
	ResizeProven       Event = "resize_proven"       // the new shape was proven
	ResizeFailed       Event = "resize_failed"       // the old shape goes on
	Rebooted           Event = "rebooted"            // the tenant's reboot: new run proven
	OurFault           Event = "our_fault"           // host lost, GPU fault
	Silence            Event = "silence"             // no proof any more and no symptom
	Preempted          Event = "preempted"           // notice given to a preemptible instance
	VolumeProvisioned  Event = "volume_provisioned"  //
	VolumeDeleted      Event = "volume_deleted"      // delete accepted
	VolumeUnreachable  Event = "volume_unreachable"  // by our fault
	VolumeReachable    Event = "volume_reachable"    //
	AddressProvisioned Event = "address_provisioned" //
	AddressReleased    Event = "address_released"    // release accepted
	AddressUnreachable Event = "address_unreachable" // by our fault
	AddressReachable   Event = "address_reachable"   //
)

// Facts are the instants known about an event; zero where there is none.
type Facts struct {
	At           time.Time // acceptance, or what the agent saw or proved
	FirstSymptom time.Time
	LastProof    time.Time
	TenantStop   time.Time
	NoticeEnd    time.Time
	Started      time.Time     // of the start that is preempted
	FreeFor      time.Duration // the offer's promise: preempted before this is over, it is free
}

// Change is what an event does to one meter at one instant.
type Change struct {
	Meter     Meter
	Close     bool // end the open segment at At
	Open      bool // begin a segment at At
	KeepStart bool // the new segment continues the start_id of the closed one
	At        time.Time
	Party     string // who caused a close: tenant, operator or "" for nobody
	Waive     bool   // the closed start is free altogether
}

// rule is one row of the table "when a meter runs".
type rule struct {
	meter     Meter
	closes    bool
	opens     bool
	keepStart bool
	party     string
	when      func(Facts) time.Time
	waives    func(Facts) bool // nil: never
}

// rules is the table (60-billing §1). An event with no row moves no meter: a
// request, guest readiness, a failed create and a failed resize charge nothing.
var rules = map[Event][]rule{
	RequestAccepted:    nil,
	GuestReady:         nil,
	CreateFailed:       nil,
	ResizeFailed:       nil,
	ProcessStarted:     {{meter: GPURetained, closes: true, party: "tenant", when: at}, {meter: GPU, opens: true, when: at}},
	StopRelease:        {{meter: GPU, closes: true, party: "tenant", when: at}, {meter: GPURetained, closes: true, party: "tenant", when: at}},
	StopRetain:         {{meter: GPU, closes: true, party: "tenant", when: at}, {meter: GPURetained, opens: true, when: at}},
	DeleteAccepted:     {{meter: GPU, closes: true, party: "tenant", when: at}, {meter: GPURetained, closes: true, party: "tenant", when: at}},
	ResizeProven:       {{meter: GPU, closes: true, opens: true, keepStart: true, party: "tenant", when: at}},
	Rebooted:           {{meter: GPU, closes: true, opens: true, keepStart: true, party: "tenant", when: at}},
	OurFault:           {{meter: GPU, closes: true, party: "operator", when: symptomOrProof}, {meter: GPURetained, closes: true, party: "operator", when: symptomOrProof}},
	Silence:            {{meter: GPU, closes: true, party: "operator", when: lastProof}, {meter: GPURetained, closes: true, party: "operator", when: lastProof}},
	Preempted:          {{meter: GPU, closes: true, party: "operator", when: endOfNotice, waives: soon}},
	VolumeProvisioned:  {{meter: Storage, opens: true, when: at}},
	VolumeDeleted:      {{meter: Storage, closes: true, party: "tenant", when: at}},
	VolumeUnreachable:  {{meter: Storage, closes: true, party: "operator", when: symptomOrProof}},
	VolumeReachable:    {{meter: Storage, opens: true, when: at}},
	AddressProvisioned: {{meter: IP, opens: true, when: at}},
	AddressReleased:    {{meter: IP, closes: true, party: "tenant", when: at}},
	AddressUnreachable: {{meter: IP, closes: true, party: "operator", when: symptomOrProof}},
	AddressReachable:   {{meter: IP, opens: true, when: at}},
}

func at(f Facts) time.Time             { return f.At }
func lastProof(f Facts) time.Time      { return f.LastProof }
func symptomOrProof(f Facts) time.Time { return earliest(f.FirstSymptom, f.LastProof) }
func endOfNotice(f Facts) time.Time    { return earliest(f.TenantStop, f.NoticeEnd, f.LastProof) }

// soon reports whether a preemption, not the tenant, ended a start while it was free.
func soon(f Facts) bool {
	end := endOfNotice(f)
	tenants := !f.TenantStop.IsZero() && end.Equal(f.TenantStop)
	return f.FreeFor > 0 && !f.Started.IsZero() && !tenants && end.Sub(f.Started) < f.FreeFor
}

// earliest ignores zero times; it is zero if all are.
func earliest(times ...time.Time) time.Time {
	var first time.Time
	for _, t := range times {
		if !t.IsZero() && (first.IsZero() || t.Before(first)) {
			first = t
		}
	}
	return first
}

// Changes returns what an event does to the meters, in the order of the table,
// each at a whole microsecond. Closing a meter that does not run is no error and
// does nothing. The second value is false for an unknown event.
func Changes(event Event, facts Facts) ([]Change, bool) {
	rows, known := rules[event]
	out := make([]Change, 0, len(rows))
	for _, r := range rows {
		out = append(out, Change{
			Meter: r.meter, Close: r.closes, Open: r.opens, KeepStart: r.keepStart,
			At: Instant(r.when(facts)), Party: r.party, Waive: r.waives != nil && r.waives(facts),
		})
	}
	return out, known
}
