package app

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/tranche-cloud/tranche/internal/auth"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/instance"
	"github.com/tranche-cloud/tranche/internal/money"
	"github.com/tranche-cloud/tranche/internal/quota"
	"github.com/tranche-cloud/tranche/internal/store"
	"github.com/tranche-cloud/tranche/internal/units"
)

const (
	// maxLabels bounds the labels of an instance.
	maxLabels = 64
	// requestWithin is when a request that tried every host is over.
	requestWithin = instance.MaxHosts*(instance.PullWithin+instance.PrepareWithin) + time.Minute
	// shownOfID is how many characters of the id an unnamed instance is called by.
	shownOfID = 8
)

// NewInstance asks for an instance. Name and Recovery have defaults: the end of
// the id, and `stop`.
type NewInstance struct {
	Project     id.Project
	Name        string
	Offer       string
	Image       string
	Command     []string // nil: the image's
	Env         []EnvVar
	Labels      map[string]string
	ClientToken string // "": none; unique in the organization for life
	Recovery    string
	SSHKeys     []string
	Ports       []Port
	Shm         units.MiB        // 0: half of the RAM
	Login       id.RegistryLogin // zero: the one of the image's registry, if any
}

// EnvVar is one variable of the main process: a Value, or a Secret that nobody
// reads again.
type EnvVar struct {
	Name   string
	Value  string
	Secret auth.Secret
}

// CreateInstance accepts a create: when it returns, the instance and its operation
// exist, quota is held and the price is locked. Placement comes later and may fail
// the operation with capacity.none.
//
// It fails with resource.not_found for a foreign project, offer.unknown,
// offer.unavailable (no price, or no hardware that could ever hold it),
// quota.exceeded, budget.exhausted, name.taken, state.conflict for a used client_token, and
// request.invalid.
func (a *App) CreateInstance(ctx context.Context, c Caller, in NewInstance) (Instance, error) {
	if err := in.check(); err != nil {
		return Instance{}, err
	}
	keys, ports, err := in.checkAccess()
	if err != nil {
		return Instance{}, err
	}
	var out Instance
	err = a.Store.ShareOrg(ctx, c.Org, func(ctx context.Context, t *store.OrgTx) error {
		if _, err := t.Project(ctx, c.Org, in.Project); err != nil {
			return err
		}
		offered, simulated, err := a.offered(ctx, t, in.Offer)
		if err != nil {
			return err
		}
		if err := checkShm(in.Shm, offered.SKU.Shape); err != nil {
			return err
		}
		if err := checkLogin(ctx, t, in.Login, in.Image); err != nil {
			return err
		}
		limits, held, err := t.LockQuota(ctx)
		if err != nil {
			return err
		}
		ask := quota.Usage{Instances: 1, GPUs: offered.SKU.Shape.Count}
		if err := quota.Check(limits, held, ask); err != nil {
			return err
		}
		admitted, err := a.admitStart(ctx, t, c, in.Project, id.Instance{}, *offered.Price)
		if err != nil {
			return err
		}
		row, err := a.accept(ctx, t, c, in, store.NewInstance{
			Offer: offered, Simulated: simulated, SSHKeys: keys, Ports: ports,
		})
		if err != nil {
			return err
		}
		if err := admitted.keep(ctx, t, row.ID, true); err != nil {
			return err
		}
		out = newInstance(row, nil, InstanceUsage{Cost: money.ZeroExact(row.Price.Currency())})
		return nil
	})
	return out, err
}

// accept writes everything that an accepted create is; n has what was found out about
// it already.
func (a *App) accept(ctx context.Context, t *store.OrgTx, c Caller, in NewInstance, n store.NewInstance) (store.Instance, error) {
	n.ID, n.Operation, n.Project, n.RequestID = id.New[id.Instance](), id.New[id.Operation](), in.Project, c.RequestID
	n.Name, n.Image, n.Command, n.Labels = in.Name, in.Image, in.Command, in.Labels
	n.ClientToken, n.Recovery, n.Shm, n.Login = in.ClientToken, in.Recovery, in.Shm, in.Login
	n.DeadlineAt = a.Clock.Now().Add(requestWithin)
	if n.Recovery == "" {
		n.Recovery = string(instance.StayStopped)
	}
	n.Audit = c.audit(c.Org, "instance.create", n.ID.String())
	if n.Name == "" {
		text := n.ID.String()
		n.Name = text[len(text)-shownOfID:]
	}
	var err error
	if n.Env, n.EnvSealed, err = a.sealEnv(c.Org, n.ID, in.Env); err != nil {
		return store.Instance{}, err
	}
	return t.InsertInstance(ctx, n)
}

// offered finds what the organization would buy, and whether hardware for it
// exists and is simulated.
func (a *App) offered(ctx context.Context, t *store.OrgTx, offerID string) (store.PricedOffer, bool, error) {
	found, err := t.OffersOfOrg(ctx, t.Org(), store.OfferFilter{ID: offerID, Size: 1})
	if err != nil {
		return store.PricedOffer{}, false, err
	}
	if len(found) == 0 {
		return store.PricedOffer{}, false, whyNotOffered(ctx, t, offerID)
	}
	ok, simulated, err := a.sellable(ctx, found[0].Pool, found[0].SKU.Shape)
	if err == nil && !ok {
		err = unavailableOffer("No host of this installation could hold this offer.")
	}
	return found[0], simulated, err
}

func whyNotOffered(ctx context.Context, t interface {
	OfferEnabled(context.Context, string) (bool, error)
}, offerID string) error {
	exists, err := t.OfferEnabled(ctx, offerID)
	if err != nil {
		return err
	}
	if exists {
		return unavailableOffer("The offer has no price for this organization.")
	}
	return fault.New(fault.Unprocessable, "offer.unknown", "There is no such offer.").
		Suggest("List the offers and choose one of them.").
		With(fault.Field{Pointer: "/offer", Code: "offer.unknown", Detail: "no such offer"})
}

func unavailableOffer(detail string) error {
	return fault.New(fault.Unprocessable, "offer.unavailable", detail).
		Suggest("List the offers and choose one of them.").
		With(fault.Field{Pointer: "/offer", Code: "offer.unavailable", Detail: "cannot be sold"})
}

// check refuses what no organization could be given.
func (in NewInstance) check() error {
	switch instance.Recovery(in.Recovery) {
	case "", instance.Restart, instance.RestartUnfenced, instance.StayStopped:
	default:
		return fault.New(fault.Invalid, "request.invalid", "There is no such recovery.").
			With(fault.Field{Pointer: "/recovery", Code: "enum", Detail: "must be stop, restart or restart_unfenced"})
	}
	if len(in.Labels) > maxLabels {
		return fault.New(fault.Invalid, "request.invalid", fmt.Sprintf("An instance has at most %d labels.", maxLabels)).
			With(fault.Field{Pointer: "/labels", Code: "range", Detail: "too many"})
	}
	seen := map[string]bool{}
	for n, v := range in.Env {
		if seen[v.Name] {
			return fault.New(fault.Invalid, "request.invalid", "A variable is set twice.").
				With(fault.Field{Pointer: fmt.Sprintf("/env/%d/name", n), Code: "unique", Detail: "set twice"})
		}
		seen[v.Name] = true
	}
	return nil
}

// sealEnv splits an environment into what everybody of the project may read and
// the sealed values of its secrets, bound to the organization and the instance.
func (a *App) sealEnv(o id.Org, i id.Instance, env []EnvVar) (open []store.EnvVar, sealed []byte, err error) {
	secrets := map[string]string{}
	for _, v := range env {
		if v.Secret.IsZero() {
			open = append(open, store.EnvVar{Name: v.Name, Value: v.Value})
			continue
		}
		secrets[v.Name] = v.Secret.Reveal()
		open = append(open, store.EnvVar{Name: v.Name, Fingerprint: a.Box.Fingerprint(v.Secret, o.String())})
	}
	if len(secrets) == 0 {
		return open, nil, nil
	}
	text, err := json.Marshal(secrets)
	if err != nil {
		return nil, nil, fmt.Errorf("write secret variables: %w", err)
	}
	sealed, err = a.Box.Seal(auth.NewSecret(string(text)), o.String(), i.String())
	return open, sealed, err
}
