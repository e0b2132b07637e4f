package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/instance"
	"github.com/tranche-cloud/tranche/internal/money"
	"github.com/tranche-cloud/tranche/internal/offer"
	"github.com/tranche-cloud/tranche/internal/quota"
	"github.com/tranche-cloud/tranche/internal/store/internal/db"
	"github.com/tranche-cloud/tranche/internal/units"
)

// LockQuota locks the organization's counter for the rest of the transaction and
// returns limits and what is held. Creates of one organization queue here.
func (t *OrgTx) LockQuota(ctx context.Context) (quota.Limits, quota.Usage, error) {
	r, err := t.q.LockQuota(ctx, t.raw, uuid.UUID(t.org))
	return quota.Limits{Instances: int(r.QuotaInstances), GPUs: int(r.QuotaGpus)},
		quota.Usage{Instances: int(r.Instances), GPUs: int(r.Gpus)}, mapError(err)
}

// EnvVar is one variable of an instance's environment. A secret's value is not in
// it: the sealed bytes of the row hold all of them, and Fingerprint tells equal ones.
type EnvVar struct {
	Name        string `json:"name"`
	Value       string `json:"value,omitempty"`
	Fingerprint string `json:"fingerprint,omitempty"` // "": not a secret
}

// NewInstance is an accepted create.
type NewInstance struct {
	ID          id.Instance
	Project     id.Project
	Operation   id.Operation
	RequestID   string
	Name        string
	Offer       PricedOffer // as sold: pool, SKU and the price that is locked
	Image       string
	Command     []string
	Env         []EnvVar
	EnvSealed   []byte // nil without secrets
	SSHKeys     []string
	Ports       []Port
	Shm         units.MiB        // 0: half of the memory
	Login       id.RegistryLogin // zero: whichever matches the image's registry
	Labels      map[string]string
	ClientToken string // "": none
	Recovery    string
	Simulated   bool
	DeadlineAt  time.Time // machine
	Audit       AuditRow  // who accepts; operation and resource are known
}

// InsertInstance writes an accepted create: the instance, its claim on quota, its
// operation, and its event, audit and outbox rows, all at one business instant
// after the locks that the transaction holds. It fails with name.taken, with
// state.conflict for a client_token used before, and with resource.not_found for a
// foreign project. It returns what a read of the new instance would.
func (t *OrgTx) InsertInstance(ctx context.Context, n NewInstance) (Instance, error) {
	n.Env, n.Command = append([]EnvVar{}, n.Env...), append([]string{}, n.Command...)
	if n.Labels == nil {
		n.Labels = map[string]string{}
	}
	n.SSHKeys, n.Ports = append([]string{}, n.SSHKeys...), append([]Port{}, n.Ports...)
	ports, err := json.Marshal(n.Ports)
	if err != nil {
		return Instance{}, fmt.Errorf("write the ports: %w", err)
	}
	env, err := json.Marshal(n.Env)
	if err != nil {
		return Instance{}, fmt.Errorf("write the environment: %w", err)
	}
	labels, err := json.Marshal(n.Labels)
	if err != nil {
		return Instance{}, fmt.Errorf("write the labels: %w", err)
	}
	event, err := json.Marshal(map[string]string{
		"offer": n.Offer.ID, "name": n.Name, "operation": n.Operation.String(),
	})
	if err != nil {
		return Instance{}, fmt.Errorf("write the event: %w", err)
	}
	t.tell(ChannelOutbox, "")
	at, err := t.q.InsertInstance(ctx, t.raw, db.InsertInstanceParams{
		OrgID: uuid.UUID(t.org), InstanceID: uuid.UUID(n.ID), ProjectID: uuid.UUID(n.Project), Name: n.Name,
		OfferID: n.Offer.ID, SkuID: n.Offer.SKU.ID, PoolID: n.Offer.Pool, Gpus: int32(n.Offer.SKU.Shape.Count),
		Image: n.Image, Command: n.Command, Env: env, EnvSealed: n.EnvSealed, Labels: labels,
		SshKeys: n.SSHKeys, Ports: ports, ShmMib: int64(n.Shm), RegistryLoginID: nullable(n.Login),
		ClientToken: textOrNull(n.ClientToken), Recovery: n.Recovery,
		OperationID: nullable(n.Operation), RequestID: n.RequestID, DeadlineAt: &n.DeadlineAt,
		PriceBookID: nullable(n.Offer.Book), PriceVersionID: nullable(n.Offer.Version),
		Price: n.Offer.Price.Decimal(), Currency: n.Offer.Price.Currency().Code(), Simulated: n.Simulated,
		EventData: event, OutboxKey: n.ID.String(),
		Actor: n.Audit.Actor, Credential: n.Audit.Credential, Result: n.Audit.Result,
	})
	if err != nil {
		return Instance{}, mapError(err)
	}
	return n.accepted(at), nil
}

// accepted is the instance as the insert at a business instant left it.
func (n NewInstance) accepted(at time.Time) Instance {
	return Instance{
		ID: n.ID, Project: n.Project, Name: n.Name, Offer: n.Offer.ID, Pool: n.Offer.Pool, SKU: n.Offer.SKU,
		Image: n.Image, Command: n.Command, Env: n.Env, Labels: n.Labels, ClientToken: n.ClientToken, Recovery: n.Recovery,
		SSHKeys: n.SSHKeys, Ports: n.Ports, Shm: n.Shm, Login: n.Login, Interruptions: []Interruption{},
		Desired: instance.WantRunning, Status: instance.Queued, Generation: 1, Revision: 1,
		Operation: Operation{ID: n.Operation, Kind: "instance.create", Status: OperationQueued},
		Price:     *n.Offer.Price, Simulated: n.Simulated, CreatedAt: at, At: at,
	}
}

// Instance is an instance as its tenant reads it, without slots and usage.
type Instance struct {
	ID          id.Instance
	Project     id.Project
	Name        string
	Offer       string
	Pool        string
	SKU         offer.SKU
	Image       string
	Command     []string
	Env         []EnvVar
	SSHKeys     []string
	Ports       []Port
	Shm         units.MiB        // 0: half of the memory
	Login       id.RegistryLogin // zero: whichever matches the image's registry
	Labels      map[string]string
	ClientToken string
	Recovery    string
	// Interruptions are the latest ones, newest first; each has span, cause and credit.
	Interruptions []Interruption
	Desired       instance.Desired
	Status        instance.Status
	Failure       instance.Problem
	Generation    int64
	Revision      int64
	Operation     Operation   // ID, Kind and Status alone
	Price         money.Price // per hour: the lower of the lock and today's list
	Simulated     bool
	CreatedAt     time.Time
	DeletedAt     *time.Time
	At            time.Time // business instant of the read
}

// InstanceFilter narrows a list; zero fields do not filter. Deleted instances are
// left out unless Status or ID asks for them, and are gone after thirty days.
type InstanceFilter struct {
	Project     id.Project
	ID          id.Instance
	Status      instance.Status
	Name        string
	ClientToken string
}

// Instances lists instances of a project, newest first.
func (t *OrgTx) Instances(ctx context.Context, f InstanceFilter, k Keyset) ([]Instance, error) {
	rows, err := t.q.InstanceRows(ctx, t.raw, db.InstanceRowsParams{
		OrgID: uuid.UUID(t.org), ProjectID: uuid.UUID(f.Project), InstanceID: nullable(f.ID),
		Status: textOrNull(string(f.Status)), Name: textOrNull(f.Name), ClientToken: textOrNull(f.ClientToken),
		WithDeleted: f.Status == instance.Deleted || !f.ID.IsZero() || f.ClientToken != "",
		Before:      k.before(), Size: int32(k.Size),
	})
	if err != nil {
		return nil, mapError(err)
	}
	return mapRows(rows, instanceOf)
}

// Instance reads one instance of a project. It fails with resource.not_found.
func (t *OrgTx) Instance(ctx context.Context, p id.Project, i id.Instance) (Instance, error) {
	found, err := t.Instances(ctx, InstanceFilter{Project: p, ID: i}, Keyset{Size: 1})
	if err != nil {
		return Instance{}, err
	}
	if len(found) == 0 {
		return Instance{}, NotFound()
	}
	return found[0], nil
}

func instanceOf(r db.InstanceRowsRow) (Instance, error) {
	i := r.Instance
	k, err := sku(r.Sku)
	if err != nil {
		return Instance{}, err
	}
	out := Instance{
		ID: id.Instance(i.ID), Project: id.Project(i.ProjectID), Name: i.Name, Offer: i.OfferID, Pool: i.PoolID, SKU: k,
		Image: i.Image, Command: i.Command, Recovery: i.Recovery,
		SSHKeys: i.SshKeys, Shm: units.MiB(i.ShmMib), Login: orZero[id.RegistryLogin](i.RegistryLoginID),
		Desired: instance.Desired(i.Desired), Status: instance.Status(i.Status),
		Failure:    instance.Problem{Code: i.StatusCode, Detail: i.StatusDetail},
		Generation: i.Generation, Revision: i.Revision, Simulated: i.Simulated,
		Operation: Operation{ID: orZero[id.Operation](i.OperationID), Kind: r.OperationKind, Status: r.OperationStatus},
		CreatedAt: i.CreatedAt, DeletedAt: i.DeletedAt, At: r.At,
	}
	if i.ClientToken != nil {
		out.ClientToken = *i.ClientToken
	}
	if err := json.Unmarshal(i.Env, &out.Env); err != nil {
		return Instance{}, fmt.Errorf("read the environment of %s: %w", out.ID, err)
	}
	if err := json.Unmarshal(r.Interruptions, &out.Interruptions); err != nil {
		return Instance{}, fmt.Errorf("read the interruptions of %s: %w", out.ID, err)
	}
	if err := json.Unmarshal(i.Ports, &out.Ports); err != nil {
		return Instance{}, fmt.Errorf("read the ports of %s: %w", out.ID, err)
	}
	if err := json.Unmarshal(i.Labels, &out.Labels); err != nil {
		return Instance{}, fmt.Errorf("read the labels of %s: %w", out.ID, err)
	}
	if out.Price, err = parsePrice(r.Price, i.Currency); err != nil {
		return Instance{}, fmt.Errorf("read the price of %s: %w", out.ID, err)
	}
	return out, nil
}

// HeldSlot is one slot that an instance holds.
type HeldSlot struct {
	Mode        gpu.Mode
	Profile     string // of a mig slot
	Start, Size int    // units of the mode
	Memory      units.MiB
	SMs         int
	DeviceUUID  string // as the process sees it; "" until the agent reported it
}

// SlotsOf returns the slots that instances hold, a quarantined or unreachable
// assignment's included.
func (t *OrgTx) SlotsOf(ctx context.Context, instances []id.Instance) (map[id.Instance][]HeldSlot, error) {
	ids := make([]uuid.UUID, len(instances))
	for i, v := range instances {
		ids[i] = uuid.UUID(v)
	}
	rows, err := t.q.InstanceSlots(ctx, t.raw, uuid.UUID(t.org), ids)
	if err != nil {
		return nil, mapError(err)
	}
	out := map[id.Instance][]HeldSlot{}
	for _, r := range rows {
		mode, err := gpu.ParseMode(r.GpuMode)
		if err != nil {
			return nil, fmt.Errorf("read a slot of %s: %w", id.Instance(r.InstanceID), err)
		}
		s := HeldSlot{
			Mode: mode, Profile: r.Profile, Start: int(r.StartUnit), Size: int(r.SizeUnits),
			Memory: units.MiB(r.MemoryMib), SMs: int(r.SmCount),
		}
		if n := int(r.Ordinal); n < len(r.DeviceUuids) {
			s.DeviceUUID = r.DeviceUuids[n]
		}
		out[id.Instance(r.InstanceID)] = append(out[id.Instance(r.InstanceID)], s)
	}
	return out, nil
}

// Revisions returns the revision of each of the instances and operations that
// exists. Waiters compare it with what they saw.
func (t *SystemTx) Revisions(ctx context.Context, ids [][16]byte) (map[[16]byte]int64, error) {
	raw := make([]uuid.UUID, len(ids))
	for i, v := range ids {
		raw[i] = v
	}
	rows, err := t.q.Revisions(ctx, t.raw, raw)
	if err != nil {
		return nil, mapError(err)
	}
	out := make(map[[16]byte]int64, len(rows))
	for _, r := range rows {
		out[r.ID] = r.Revision
	}
	return out, nil
}
