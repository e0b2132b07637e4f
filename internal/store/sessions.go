package store

import (
	"context"
	"crypto/sha256"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/internal/host"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/store/internal/db"
	"github.com/tranche-cloud/tranche/internal/units"
)

// Session names one stream of a host's agent. Every write from a stream holds it.
type Session struct {
	Host   id.Host
	Number int64
}

// errStale is what a write from a superseded stream fails with.
var errStale = fault.New(fault.Conflict, "state.conflict", "A newer stream of this host has taken over.").
	Suggest("Connect again.")

func isNoRows(err error) bool { return errors.Is(err, pgx.ErrNoRows) }

// Stream is the last stream that a host had.
type Stream struct {
	Session       int64 // 0: none yet
	BootID, Nonce string
	Counter       uint64
	Open          bool
	Silence       time.Duration // since its last proof of life
}

// HoldStream locks the row of a host's streams.
func (t *SystemTx) HoldStream(ctx context.Context, h id.Host) (Stream, error) {
	if err := t.q.EnsureSession(ctx, t.raw, uuid.UUID(h)); err != nil {
		return Stream{}, mapError(err)
	}
	r, err := t.q.LockSession(ctx, t.raw, uuid.UUID(h))
	if err != nil {
		return Stream{}, mapError(err)
	}
	return Stream{
		Session: r.Session, BootID: r.BootID, Nonce: r.ProcessNonce, Counter: uint64(r.StreamCounter),
		Open: r.Gateway != "", Silence: time.Duration(min(r.Silence, 1e9) * float64(time.Second)),
	}, nil
}

// NewStream is an admitted Hello.
type NewStream struct {
	Host                    id.Host
	BootID, Nonce           string
	Counter                 uint64
	Gateway                 string // names the gateway process; not ""
	AgentVersion, MachineID string
}

// BeginSession makes a stream the host's only one and counts as a proof of life.
// What the old stream proved of runs is kept. The caller holds the stream row.
func (t *SystemTx) BeginSession(ctx context.Context, n NewStream) (s Session, timeline int64, err error) {
	if err := t.q.KeepRunProofs(ctx, t.raw, uuid.UUID(n.Host)); err != nil {
		return Session{}, 0, mapError(err)
	}
	r, err := t.q.BeginSession(ctx, t.raw, db.BeginSessionParams{
		HostID: uuid.UUID(n.Host), BootID: n.BootID, ProcessNonce: n.Nonce,
		StreamCounter: int64(n.Counter), Gateway: n.Gateway,
	})
	if err != nil {
		return Session{}, 0, mapError(err)
	}
	if err := t.q.TouchLiveness(ctx, t.raw, uuid.UUID(n.Host), r.Session); err != nil {
		return Session{}, 0, mapError(err)
	}
	err = t.q.NoteAgent(ctx, t.raw, db.NoteAgentParams{
		HostID: uuid.UUID(n.Host), AgentVersion: n.AgentVersion, MachineID: n.MachineID,
	})
	if err != nil {
		return Session{}, 0, mapError(err)
	}
	return Session{Host: n.Host, Number: r.Session}, r.Timeline, t.AppendOutbox(ctx, OutboxHost, n.Host.String(), "connected")
}

// EndSession notes that a stream is closed, so that the next one need not wait.
func (t *SystemTx) EndSession(ctx context.Context, s Session) error {
	return mapError(t.q.EndSession(ctx, t.raw, uuid.UUID(s.Host), s.Number))
}

// EndGateway does the same for every stream of a gateway, for its start after a crash.
func (t *SystemTx) EndGateway(ctx context.Context, gateway string) error {
	return mapError(t.q.EndGatewaySessions(ctx, t.raw, gateway))
}

// Hold takes the session for the rest of the transaction: no newer stream begins
// before it ends. It fails with state.conflict if one has begun.
func (t *SystemTx) Hold(ctx context.Context, s Session) error {
	n, err := t.q.HoldSession(ctx, t.raw, uuid.UUID(s.Host))
	if isNoRows(err) || err == nil && n != s.Number {
		return errStale
	}
	return mapError(err)
}

// LifeProof is one proof of life, Age old when it is written.
type LifeProof struct {
	Session
	Age    time.Duration
	Uptime time.Duration
}

// RecordProofs writes a gateway's batch, and that proofs are being written at all.
func (t *SystemTx) RecordProofs(ctx context.Context, proofs []LifeProof) error {
	var p db.RecordProofsParams
	for _, x := range proofs {
		p.HostIds = append(p.HostIds, uuid.UUID(x.Host))
		p.Sessions = append(p.Sessions, x.Number)
		p.Ages = append(p.Ages, x.Age.Seconds())
		p.Uptimes = append(p.Uptimes, x.Uptime.Milliseconds())
	}
	if len(proofs) > 0 {
		if err := t.q.RecordProofs(ctx, t.raw, p); err != nil {
			return mapError(err)
		}
	}
	return mapError(t.q.RecordWriter(ctx, t.raw))
}

// Ended is a stream that lost its right.
type Ended struct {
	Host                         id.Host
	Superseded, Revoked, Unknown bool
}

// SessionsToEnd picks from open streams those that may not go on: superseded,
// revoked, or of a host that counts as unknown and must introduce itself again.
func (t *SystemTx) SessionsToEnd(ctx context.Context, open []Session) ([]Ended, error) {
	var hosts []uuid.UUID
	var numbers []int64
	for _, s := range open {
		hosts, numbers = append(hosts, uuid.UUID(s.Host)), append(numbers, s.Number)
	}
	rows, err := t.q.SessionsToEnd(ctx, t.raw, hosts, numbers)
	if err != nil {
		return nil, mapError(err)
	}
	return mapRows(rows, func(r db.SessionsToEndRow) (Ended, error) {
		return Ended{Host: id.Host(r.HostID), Superseded: r.Superseded, Revoked: r.Revoked, Unknown: r.Unknown}, nil
	})
}

// ReportedGPU is one GPU of an inventory.
type ReportedGPU struct {
	Device        gpu.Device
	Ordinal       int
	Mode, Desired gpu.Mode
	ModeState     string // settled, draining, switching, verifying, failed
	ModeProblem   string
	Health        string
	HealthCause   string // "" on a healthy GPU
	HealthDetail  string
}

// ReportedHost is a complete inventory.
type ReportedHost struct {
	VCPU          int
	RAM           units.MiB
	Simulated     bool
	DriverVersion string
	GPUs          []ReportedGPU
	Runtime       string
	Reach         Reach
	BelowFloor    []string
	Condition     string // "", cordon or failed
	Cause         string // of the condition
}

// Reach is where tenants reach a host; "" and 0 where they cannot.
type Reach struct {
	Address             string
	SSHPort             int
	SSHHostKey          string
	FirstPort, LastPort int
}

// GPUChange is a GPU whose health is another than it was.
type GPUChange struct {
	ID                        id.GPU
	UUID, Was, Health, Reason string
	Detail                    string
}

// InventoryChange is what a complete inventory changed.
type InventoryChange struct {
	SetChanged bool // another set of GPUs than the one seen before
	Condition  bool // the host's condition or floors differ
	GPUs       []GPUChange
	Cell       string
}

// RecordInventory writes a complete inventory: the host's sizes and its GPUs; a
// GPU that is not in it is marked absent. It locks the host and its GPUs.
func (t *SystemTx) RecordInventory(ctx context.Context, h id.Host, in ReportedHost) (InventoryChange, error) {
	before, err := t.q.HostGPUSet(ctx, t.raw, uuid.UUID(h))
	if err != nil {
		return InventoryChange{}, mapError(err)
	}
	known, err := t.q.GPUStandings(ctx, t.raw, uuid.UUID(h))
	if err != nil {
		return InventoryChange{}, mapError(err)
	}
	if in.BelowFloor == nil {
		in.BelowFloor = []string{}
	}
	out := InventoryChange{
		Cell: before.CellID, GPUs: healthChanges(known, in.GPUs),
		Condition: before.Condition != in.Condition || !slices.Equal(before.BelowFloor, in.BelowFloor),
	}
	uuids := []string{}
	for _, g := range in.GPUs {
		uuids = append(uuids, g.Device.UUID)
	}
	slices.Sort(uuids)
	set := sha256.New()
	for _, u := range uuids {
		set.Write([]byte(u + "\n"))
	}
	hash := set.Sum(nil)
	_, err = t.q.RecordHostInventory(ctx, t.raw, db.RecordHostInventoryParams{
		HostID: uuid.UUID(h), Vcpu: int32(in.VCPU), RamMib: int64(in.RAM), Simulated: in.Simulated,
		DriverVersion: in.DriverVersion, GpuSetHash: hash, Runtime: in.Runtime, BelowFloor: in.BelowFloor,
		Condition: in.Condition, ConditionCause: in.Cause, ReachAddress: in.Reach.Address,
		ReachSshPort: int32(in.Reach.SSHPort), ReachSshHostKey: in.Reach.SSHHostKey,
		ReachFirstPort: int32(in.Reach.FirstPort), ReachLastPort: int32(in.Reach.LastPort),
	})
	if err != nil {
		return InventoryChange{}, mapError(err)
	}
	for _, g := range in.GPUs {
		if err := t.upsertGPU(ctx, h, before.CellID, in.Simulated, g); err != nil {
			return InventoryChange{}, err
		}
	}
	if err := t.q.HideOtherGPUs(ctx, t.raw, uuid.UUID(h), uuids); err != nil {
		return InventoryChange{}, mapError(err)
	}
	out.SetChanged = before.GpuSetHash != nil && !slices.Equal(before.GpuSetHash, hash)
	return out, nil
}

// WakeRecovering wakes instances that wait to be placed again in the pool of a host,
// because there may be room on it now.
func (t *SystemTx) WakeRecovering(ctx context.Context, h id.Host, reason string) error {
	const most = 500 // the others look by themselves within a minute
	rows, err := t.q.RecoveringIn(ctx, t.raw, uuid.UUID(h), most)
	if err != nil {
		return mapError(err)
	}
	for _, i := range rows {
		if err := t.AppendOutbox(ctx, OutboxInstance, id.Instance(i).String(), reason); err != nil {
			return err
		}
	}
	return nil
}

// KnownGPUs is how many GPUs of a host are there as far as is known.
func (t *SystemTx) KnownGPUs(ctx context.Context, h id.Host) (int, error) {
	rows, err := t.q.GPUStandings(ctx, t.raw, uuid.UUID(h))
	n := 0
	for _, r := range rows {
		if r.Present {
			n++
		}
	}
	return n, mapError(err)
}

// healthChanges compares what is reported with what is known; a GPU that is new
// and healthy is no change.
func healthChanges(known []db.GPUStandingsRow, reported []ReportedGPU) []GPUChange {
	var out []GPUChange
	for _, g := range reported {
		c := GPUChange{UUID: g.Device.UUID, Was: "healthy", Health: g.Health, Reason: g.HealthCause, Detail: g.HealthDetail}
		for _, k := range known {
			if k.Uuid == c.UUID {
				c.ID, c.Was = id.GPU(k.ID), k.Health
			}
		}
		if c.Was != c.Health && !c.ID.IsZero() {
			out = append(out, c)
		}
	}
	return out
}

func (t *SystemTx) upsertGPU(ctx context.Context, h id.Host, cell string, simulated bool, g ReportedGPU) error {
	hash, body, err := EncodeInventory(g.Device)
	if err != nil {
		return err
	}
	if err := t.q.InsertGPUInventory(ctx, t.raw, hash, body); err != nil {
		return mapError(err)
	}
	desired := g.Desired
	if desired == (gpu.Mode{}) {
		desired = g.Mode
	}
	d := g.Device
	return mapError(t.q.UpsertGPU(ctx, t.raw, db.UpsertGPUParams{
		GpuID: uuid.UUID(id.New[id.GPU]()), HostID: uuid.UUID(h), CellID: cell, Uuid: d.UUID, Pci: d.PCI,
		Ordinal: int32(g.Ordinal), Model: d.Model, Name: d.Name, MemoryMib: int64(d.Memory), SmCount: int32(d.SMs),
		Units: int32(d.Units(g.Mode)), InventoryHash: hash, ModeDesired: desired.String(), ModeObserved: g.Mode.String(),
		ModeState: g.ModeState, ModeProblem: g.ModeProblem, DesiredKnown: g.Desired != (gpu.Mode{}),
		Health: g.Health, HealthCause: g.HealthCause, HealthDetail: g.HealthDetail, Simulated: simulated,
	}))
}

// NoteHostReason says why a host stands as it does, without any other change.
func (t *SystemTx) NoteHostReason(ctx context.Context, h id.Host, reason string) error {
	return mapError(t.q.NoteHostReason(ctx, t.raw, reason, uuid.UUID(h)))
}

// ForgetHostReason drops a reason that begins so, because it is over.
func (t *SystemTx) ForgetHostReason(ctx context.Context, h id.Host, prefix string) error {
	return mapError(t.q.ForgetHostReason(ctx, t.raw, uuid.UUID(h), prefix))
}

// ReviveHost marks a host live after it introduced itself and reported in full.
func (t *SystemTx) ReviveHost(ctx context.Context, h id.Host) (revived bool, err error) {
	n, err := t.q.ReviveHost(ctx, t.raw, uuid.UUID(h))
	return n > 0, mapError(err)
}

// canCordon reports whether an alarm may cordon a host in that state.
func canCordon(s host.State) bool { return host.CanMove(s, host.Cordoned) }

// AlarmCordon cordons a host without anybody's request, if its state allows it,
// and tells why. Instances and billing are untouched.
func (t *SystemTx) AlarmCordon(ctx context.Context, h id.Host, reason string) error {
	r, err := t.q.LockHostState(ctx, t.raw, uuid.UUID(h))
	if err != nil {
		return mapError(err)
	}
	if !canCordon(host.State(r.State)) {
		return t.NoteHostReason(ctx, h, reason)
	}
	if err := t.MoveHost(ctx, h, host.Cordoned, reason, ""); err != nil {
		return err
	}
	return t.AppendEvent(ctx, Event{Cell: r.CellID, Type: "host.cordoned", Subject: h, Data: map[string]any{"reason": reason}})
}
