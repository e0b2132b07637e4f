package store

import (
	"context"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/internal/host"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/store/internal/db"
	"github.com/tranche-cloud/tranche/internal/units"
)

// JoinToken lets hosts ask to join. Instants are machine time.
type JoinToken struct {
	ID             id.JoinToken
	Pool           string
	HostName, CIDR string // "": any
	AutoApprove    bool
	MaxHosts, Used int
	CreatedBy      string
	CreatedAt      time.Time
	ExpiresAt      time.Time
	RevokedAt      *time.Time
}

// HeldToken is a join token under lock, with what decides about a join by it.
type HeldToken struct {
	JoinToken
	Hash         []byte
	Cell         string
	Expired      bool // by the database's clock
	PoolApproves bool
}

// Host is a host as operators see it.
type Host struct {
	ID                          id.Host
	Name                        string
	State                       host.State
	Liveness                    host.Liveness
	Reason, Pool, Region, Cell  string
	Organization                id.Org // zero: bound to none
	GPUCount, VCPU              int
	RAM                         units.MiB
	AgentVersion, DriverVersion string
	Simulated                   bool
	Generation, Revision        int64
	Runtime                     string
	Reach                       Reach
	BelowFloor                  []string // floors that it does not meet
	Condition, ConditionCause   string   // what it says of itself: "", cordon, failed
	LastSeenAt                  *time.Time
	CreatedAt                   time.Time
}

// GPU is a GPU as operators see it.
type GPU struct {
	ID                            id.GPU
	Host                          id.Host
	Index                         int
	UUID, PCI, Model, Name        string
	Mode, ModeDesired             gpu.Mode // Mode as observed
	ModeState, ModeProblem        string
	Cordoned                      bool // a mode change wants it empty
	Health                        string
	HealthCause, HealthDetail     string // "" on a healthy GPU
	HealthSince                   time.Time
	Memory                        units.MiB
	SMs, UnitsTotal, UnitsClaimed int
	Organization                  id.Org // zero: bound to none
	Simulated, Present            bool
	Generation                    int64        // raised when a change of mode begins or ends
	ModeChange                    id.Operation // that is under way; zero: none
}

// InsertJoinToken writes a token that expires ttl from now by the database's
// clock. It fails with resource.not_found for an unknown pool.
func (t *SystemTx) InsertJoinToken(ctx context.Context, in JoinToken, hash []byte, ttl time.Duration) (JoinToken, error) {
	row, err := t.q.InsertJoinToken(ctx, t.raw, db.InsertJoinTokenParams{
		TokenID: uuid.UUID(in.ID), Hash: hash, PoolID: in.Pool, HostName: in.HostName, Cidr: in.CIDR,
		AutoApprove: in.AutoApprove, MaxHosts: int32(in.MaxHosts), CreatedBy: in.CreatedBy, TtlSeconds: ttl.Seconds(),
	})
	if err != nil {
		return JoinToken{}, mapError(err)
	}
	return joinToken(row), nil
}

// JoinTokens lists tokens, newest first.
func (t *SystemTx) JoinTokens(ctx context.Context, k Keyset) ([]JoinToken, error) {
	rows, err := t.q.ListJoinTokens(ctx, t.raw, k.before(), int32(k.Size))
	if err != nil {
		return nil, mapError(err)
	}
	return mapRows(rows, func(r db.JoinToken) (JoinToken, error) { return joinToken(r), nil })
}

// RevokeJoinToken ends a token; again, it changes nothing. Hosts that used it stay.
func (t *SystemTx) RevokeJoinToken(ctx context.Context, token id.JoinToken) (JoinToken, error) {
	row, err := t.q.RevokeJoinToken(ctx, t.raw, uuid.UUID(token))
	if err != nil {
		return JoinToken{}, mapError(err)
	}
	return joinToken(row), nil
}

// HoldJoinToken locks a token. It fails with resource.not_found.
func (t *SystemTx) HoldJoinToken(ctx context.Context, token id.JoinToken) (HeldToken, error) {
	r, err := t.q.LockJoinToken(ctx, t.raw, uuid.UUID(token))
	if err != nil {
		return HeldToken{}, mapError(err)
	}
	return HeldToken{
		JoinToken: joinToken(db.JoinToken{
			ID: r.ID, PoolID: r.PoolID, HostName: r.HostName, Cidr: r.Cidr, AutoApprove: r.AutoApprove,
			MaxHosts: r.MaxHosts, Used: r.Used, CreatedBy: r.CreatedBy, CreatedAt: r.CreatedAt,
			ExpiresAt: r.ExpiresAt, RevokedAt: r.RevokedAt,
		}),
		Hash: r.Hash, Cell: r.CellID, Expired: r.Expired, PoolApproves: r.PoolApproves,
	}, nil
}

func joinToken(r db.JoinToken) JoinToken {
	return JoinToken{
		ID: id.JoinToken(r.ID), Pool: r.PoolID, HostName: r.HostName, CIDR: r.Cidr, AutoApprove: r.AutoApprove,
		MaxHosts: int(r.MaxHosts), Used: int(r.Used), CreatedBy: r.CreatedBy, CreatedAt: r.CreatedAt.UTC(),
		ExpiresAt: r.ExpiresAt.UTC(), RevokedAt: r.RevokedAt,
	}
}

// Installation returns the installation's id, which is the domain of its hosts'
// certificates, and the current timeline.
func (t *SystemTx) Installation(ctx context.Context) (installation string, timeline int64, err error) {
	r, err := t.q.Installation(ctx, t.raw)
	return r.ID.String(), r.Timeline, mapError(err)
}

// Standing is what decides whether a host's agent is served.
type Standing struct {
	ID        id.Host
	Name      string
	State     host.State
	Revoked   bool
	PublicKey []byte
}

// HoldHostByKey locks the host that joined with a key; found is false if none did.
func (t *SystemTx) HoldHostByKey(ctx context.Context, publicKey []byte) (s Standing, found bool, err error) {
	r, err := t.q.LockHostByKey(ctx, t.raw, publicKey)
	if isNoRows(err) {
		return Standing{}, false, nil
	}
	if err != nil {
		return Standing{}, false, mapError(err)
	}
	return Standing{
		ID: id.Host(r.ID), Name: r.Name, State: host.State(r.State), Revoked: r.CertRevokedAt != nil, PublicKey: publicKey,
	}, true, nil
}

// HostStanding reads the same by id. It fails with resource.not_found.
func (t *SystemTx) HostStanding(ctx context.Context, h id.Host) (Standing, error) {
	r, err := t.q.HostStanding(ctx, t.raw, uuid.UUID(h))
	if err != nil {
		return Standing{}, mapError(err)
	}
	return Standing{ID: h, State: host.State(r.State), Revoked: r.CertRevokedAt != nil, PublicKey: r.PublicKey}, nil
}

// NewHost is a host that joins.
type NewHost struct {
	ID                                  id.Host
	Name, Cell, Pool                    string
	State                               host.State
	MachineID, AgentVersion, ApprovedBy string
	PublicKey, Request                  []byte
	Token                               id.JoinToken
}

// InsertHost writes a joining host and counts the use of its token. It fails with
// name.taken.
func (t *SystemTx) InsertHost(ctx context.Context, h NewHost) error {
	err := t.q.InsertHost(ctx, t.raw, db.InsertHostParams{
		HostID: uuid.UUID(h.ID), CellID: h.Cell, PoolID: h.Pool, Name: h.Name, State: string(h.State),
		MachineID: h.MachineID, PublicKey: h.PublicKey, Csr: h.Request, JoinTokenID: nullable(h.Token),
		ApprovedBy: h.ApprovedBy, AgentVersion: h.AgentVersion,
	})
	if err != nil {
		return mapError(err)
	}
	return mapError(t.q.UseJoinToken(ctx, t.raw, uuid.UUID(h.Token)))
}

// SetHostCertificate notes the newest certificate of a host.
func (t *SystemTx) SetHostCertificate(ctx context.Context, h id.Host, serial string, notAfter time.Time) error {
	return mapError(t.q.SetHostCertificate(ctx, t.raw, db.SetHostCertificateParams{
		HostID: uuid.UUID(h), Serial: serial, NotAfter: &notAfter,
	}))
}

// HoldHostState locks a host. It fails with resource.not_found.
func (t *SystemTx) HoldHostState(ctx context.Context, h id.Host) (host.State, int64, error) {
	r, err := t.q.LockHostState(ctx, t.raw, uuid.UUID(h))
	return host.State(r.State), r.Generation, mapError(err)
}

// MoveHost is an accepted intent on a host: state, reason and, unless "", who
// approved it; the generation is raised and its workflow woken. The caller holds
// the host and has checked that the move is legal.
func (t *SystemTx) MoveHost(ctx context.Context, h id.Host, to host.State, reason, approvedBy string) error {
	p := db.MoveHostParams{HostID: uuid.UUID(h), State: string(to), Reason: reason}
	if approvedBy != "" {
		p.ApprovedBy = &approvedBy
	}
	if err := t.q.MoveHost(ctx, t.raw, p); err != nil {
		return mapError(err)
	}
	return t.AppendOutbox(ctx, OutboxHost, h.String(), string(to))
}

// Host reads one host. It fails with resource.not_found.
func (t *SystemTx) Host(ctx context.Context, h id.Host) (Host, error) {
	r, err := t.q.GetHost(ctx, t.raw, uuid.UUID(h))
	if err != nil {
		return Host{}, mapError(err)
	}
	return hostOf(db.ListHostsRow(r))
}

// Hosts lists at most size hosts by name, those after the given name, in a state
// ("" for all).
func (t *SystemTx) Hosts(ctx context.Context, state host.State, after string, size int) ([]Host, error) {
	rows, err := t.q.ListHosts(ctx, t.raw, db.ListHostsParams{State: string(state), After: after, Size: int32(size)})
	if err != nil {
		return nil, mapError(err)
	}
	return mapRows(rows, hostOf)
}

// standing says why a host takes no work, or not all of it, where no other reason
// was noted.
func standing(h db.Host) string {
	switch {
	case h.Reason != "":
		return h.Reason
	case h.Condition != "":
		return "the host asks for " + h.Condition + ": " + h.ConditionCause
	case len(h.BelowFloor) > 0:
		return "below a floor, so of one organization only: " + strings.Join(h.BelowFloor, ", ")
	}
	return ""
}

func hostOf(r db.ListHostsRow) (Host, error) {
	h := r.Host
	return Host{
		ID: id.Host(h.ID), Name: h.Name, State: host.State(h.State), Liveness: host.Liveness(h.Liveness),
		Reason: standing(h), Pool: h.PoolID, Region: r.RegionID, Cell: h.CellID, Organization: orZero[id.Org](r.BoundOrg),
		GPUCount: int(r.GpuCount), VCPU: int(h.Vcpu), RAM: units.MiB(h.RamMib),
		AgentVersion: h.AgentVersion, DriverVersion: h.DriverVersion, Simulated: h.Simulated,
		Generation: h.Generation, Revision: h.Revision, LastSeenAt: r.LastProofAt,
		Runtime: h.Runtime, BelowFloor: h.BelowFloor, Condition: h.Condition, ConditionCause: h.ConditionCause,
		Reach: Reach{
			Address: h.ReachAddress, SSHPort: int(h.ReachSshPort), SSHHostKey: h.ReachSshHostKey,
			FirstPort: int(h.ReachFirstPort), LastPort: int(h.ReachLastPort),
		},
		CreatedAt: h.CreatedAt.UTC(),
	}, nil
}

// GPUKeyset is a place in the list of GPUs, which is ordered by host, index and id.
type GPUKeyset struct {
	Host  id.Host // zero: from the start
	Index int
	GPU   id.GPU
}

// GPUs lists at most size GPUs after a place, of one host or, if zero, of all.
func (t *SystemTx) GPUs(ctx context.Context, of id.Host, after GPUKeyset, size int) ([]GPU, error) {
	rows, err := t.q.ListGPUs(ctx, t.raw, db.ListGPUsParams{
		HostID: nullable(of), AfterHost: nullable(after.Host), AfterOrdinal: int32(after.Index),
		AfterGpu: uuid.UUID(after.GPU), Size: int32(size),
	})
	if err != nil {
		return nil, mapError(err)
	}
	return mapRows(rows, gpuOf)
}

// GPU reads one. Locked takes it for the rest of the transaction. It fails with
// resource.not_found.
func (t *SystemTx) GPU(ctx context.Context, g id.GPU, lock Lock) (GPU, error) {
	if lock {
		if _, err := t.q.LockGPU(ctx, t.raw, uuid.UUID(g)); err != nil {
			return GPU{}, mapError(err)
		}
	}
	rows, err := t.q.ListGPUs(ctx, t.raw, db.ListGPUsParams{GpuID: nullable(g), Size: 1})
	if err != nil {
		return GPU{}, mapError(err)
	}
	if len(rows) == 0 {
		return GPU{}, NotFound()
	}
	return gpuOf(rows[0])
}

func gpuOf(r db.ListGPUsRow) (GPU, error) {
	g := r.Gpu
	mode, err := gpu.ParseMode(g.ModeObserved)
	if err != nil {
		return GPU{}, fault.From(err)
	}
	desired, err := gpu.ParseMode(g.ModeDesired)
	if err != nil {
		return GPU{}, fault.From(err)
	}
	bound := orZero[id.Org](r.BoundOrg)
	if bound.IsZero() {
		bound = orZero[id.Org](r.HostOrg)
	}
	return GPU{
		ID: id.GPU(g.ID), Host: id.Host(g.HostID), Index: int(g.Ordinal), UUID: g.Uuid, PCI: g.Pci,
		Model: g.Model, Name: g.Name, Mode: mode, ModeDesired: desired, ModeState: g.ModeState, ModeProblem: g.ModeProblem,
		Cordoned: g.Cordoned, Health: g.Health, HealthCause: g.HealthCause, HealthDetail: g.HealthDetail, HealthSince: g.HealthSince.UTC(),

		Memory: units.MiB(g.MemoryMib), SMs: int(g.SmCount), UnitsTotal: int(g.Units), UnitsClaimed: int(r.UnitsClaimed),
		Organization: bound, Simulated: g.Simulated, Present: g.Present,
		Generation: g.Generation, ModeChange: orZero[id.Operation](r.ModeChange),
	}, nil
}
