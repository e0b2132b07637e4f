package api

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/tranche-cloud/tranche/internal/app"
	"github.com/tranche-cloud/tranche/internal/auth"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/org"
	"github.com/tranche-cloud/tranche/internal/page"
	"github.com/tranche-cloud/tranche/internal/store"
	"github.com/tranche-cloud/tranche/openapi/wire"
)

// staleOutbox is the age of an unsent outbox row from which work is late.
const staleOutbox = 30 * time.Second

// ForApp returns the configuration of the product: handlers, credentials, lookups
// and readiness by the use cases. Keys are those that sign access tokens.
func ForApp(a *app.App, pages *page.Sealer, keys []ed25519.PublicKey) (Config, error) {
	document, err := auth.JWKS(keys)
	if err != nil {
		return Config{}, fmt.Errorf("making the key set: %w", err)
	}
	var set wire.JwkSet
	if err := json.Unmarshal(document, &set); err != nil {
		return Config{}, fmt.Errorf("reading the key set: %w", err)
	}
	h := NewHandlers(a, pages, set)
	return Config{
		Handlers: h, Authenticate: a.Authenticate, ProjectOwner: h.projectOwner, Exists: h.exists, Ready: h.ready,
		Clock: a.Clock, Log: a.Log,
	}, nil
}

// projectOwner looks a project up among those of the caller's organization.
func (h *Handlers) projectOwner(ctx context.Context, p auth.Principal, project id.Project) (id.Org, error) {
	got, err := h.app.GetProject(ctx, app.Caller{Principal: p}, p.Org, project)
	return got.Org, err
}

// exists looks up what the ids of a path name; projects of tenants are looked up
// before, as the rights depend on them.
func (h *Handlers) exists(ctx context.Context, p auth.Principal, params map[string]string) error {
	lookups := h.lookups()
	for name, text := range params {
		look, ok := lookups[name]
		if !ok {
			continue
		}
		if err := look(ctx, app.Caller{Principal: p}, text, params); err != nil {
			return err
		}
	}
	return nil
}

// lookup fails with resource.not_found when the text names nothing visible.
type lookup func(ctx context.Context, c app.Caller, text string, params map[string]string) error

func (h *Handlers) lookups() map[string]lookup {
	return map[string]lookup{
		"instance": func(ctx context.Context, c app.Caller, text string, params map[string]string) error {
			project, err := parse[id.Project](params["project"])
			if err != nil {
				return err
			}
			return by(func(ctx context.Context, c app.Caller, i id.Instance) error {
				_, err := h.app.GetInstance(ctx, c, project, i, app.Wait{})
				return err
			})(ctx, c, text, nil)
		},
		"operation": by(func(ctx context.Context, c app.Caller, o id.Operation) error {
			if c.Kind == auth.Operator {
				_, err := h.app.GetModeChange(ctx, c, o, 0)
				return err
			}
			_, err := h.app.GetOperation(ctx, c, o, 0)
			return err
		}),
		"registry_login": by(func(ctx context.Context, c app.Caller, l id.RegistryLogin) error {
			_, err := h.app.GetRegistryLogin(ctx, c, l)
			return err
		}),
		"gpu": by(func(ctx context.Context, c app.Caller, g id.GPU) error {
			_, err := h.app.GetGPU(ctx, c, g)
			return err
		}),
		"invoice": owned(func(ctx context.Context, c app.Caller, o id.Org, i id.Invoice) error {
			c.Org = o
			_, err := h.app.GetInvoice(ctx, c, i)
			return err
		}),
		"api_key": by(h.hasKey),
		"organization": by(func(ctx context.Context, c app.Caller, o id.Org) error {
			_, err := h.app.GetOrganization(ctx, c, o)
			return err
		}),
		"host": by(func(ctx context.Context, c app.Caller, host id.Host) error {
			_, err := h.app.GetHost(ctx, c, host)
			return err
		}),
		"contract": owned(func(ctx context.Context, c app.Caller, o id.Org, x id.Contract) error {
			_, err := h.app.GetContract(ctx, c, o, x)
			return err
		}),
		"reservation": owned(func(ctx context.Context, c app.Caller, o id.Org, r id.Reservation) error {
			_, err := h.app.GetReservation(ctx, c, o, r)
			return err
		}),
		"top_up": by(func(ctx context.Context, c app.Caller, p id.PaymentAttempt) error {
			_, err := h.app.GetTopUp(ctx, c, c.Org, p)
			return err
		}),
		"budget": by(func(ctx context.Context, c app.Caller, b id.Budget) error {
			_, err := h.app.GetBudget(ctx, c, c.Org, b)
			return err
		}),
		"approval": by(func(ctx context.Context, c app.Caller, a id.Approval) error {
			_, err := h.app.GetApproval(ctx, c, a)
			return err
		}),
		"price_book": by(func(ctx context.Context, c app.Caller, b id.PriceBook) error {
			_, err := h.app.GetPriceBook(ctx, c, b)
			return err
		}),
	}
}

// ownerIn is whose the last id of a path is: of the organization that the path names,
// or of the caller's.
func ownerIn(c app.Caller, params map[string]string) string {
	if o, ok := params["organization"]; ok {
		return o
	}
	return c.Org.String()
}

// owned makes a lookup of one that takes whose it is beside the parsed id.
func owned[I interface{ ~[16]byte }, P interface {
	*I
	UnmarshalText([]byte) error
}](get func(context.Context, app.Caller, id.Org, I) error) lookup {
	return func(ctx context.Context, c app.Caller, text string, params map[string]string) error {
		o, which, err := parse2[id.Org, I, *id.Org, P](ownerIn(c, params), text)
		if err != nil {
			return err
		}
		return get(ctx, c, o, which)
	}
}

// by makes a lookup of one that takes the parsed id.
func by[I interface{ ~[16]byte }, P interface {
	*I
	UnmarshalText([]byte) error
}](get func(context.Context, app.Caller, I) error) lookup {
	return func(ctx context.Context, c app.Caller, text string, _ map[string]string) error {
		v, err := parse[I, P](text)
		if err != nil {
			return err
		}
		return get(ctx, c, v)
	}
}

// hasKey looks for a key among those of the caller's organization. It reads the
// list, for it only serves requests that are refused anyway.
func (h *Handlers) hasKey(ctx context.Context, c app.Caller, key id.Key) error {
	p := app.Page{Size: page.Max}
	for {
		l, err := h.app.ListAPIKeys(ctx, c, p)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(l.Items, func(k org.APIKey) bool { return k.ID == key }) {
			return nil
		}
		if l.Next == "" {
			return auth.NotFound()
		}
		p.Cursor = l.Next
	}
}

// ready reports the database, and work that nobody takes off the outbox: that
// degrades the service and does not end it.
func (h *Handlers) ready(ctx context.Context) []Check {
	database := Check{Name: "database", Status: CheckOK}
	if err := h.app.Store.Check(ctx); err != nil {
		h.app.Log.WarnContext(ctx, "not ready", "error", err)
		database.Status, database.Detail = CheckDown, "unreachable, of another schema version, or its clock differs"
		return []Check{database}
	}
	outbox := Check{Name: "outbox", Status: CheckOK}
	var age time.Duration
	err := h.app.Store.InSystem(ctx, "readiness", func(t *store.SystemTx) (err error) {
		age, err = t.OldestUnsent(ctx)
		return err
	})
	switch {
	case err != nil:
		h.app.Log.WarnContext(ctx, "outbox age not read", "error", err)
		outbox.Status, outbox.Detail = CheckDegraded, "its age cannot be read"
	case age > staleOutbox:
		outbox.Status, outbox.Detail = CheckDegraded, fmt.Sprintf("the oldest unsent row is %s old", age.Round(time.Second))
	}
	return []Check{database, outbox}
}
