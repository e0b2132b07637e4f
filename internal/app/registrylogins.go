package app

import (
	"context"
	"fmt"

	"github.com/tranche-cloud/tranche/internal/auth"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/store"
)

// RegistryLogin is a login to an image registry. Its password is never read back.
type RegistryLogin = store.RegistryLogin

// NewRegistryLogin asks to store one. Registry is host[:port] as in image names.
type NewRegistryLogin struct {
	Registry, Username string
	Password           auth.Secret
}

// CreateRegistryLogin stores a login of the caller's organization, sealed. It fails
// with auth.forbidden for a key of one project, because every project pulls with it,
// and with name.taken when the registry has one.
func (a *App) CreateRegistryLogin(ctx context.Context, c Caller, in NewRegistryLogin) (RegistryLogin, error) {
	if err := wholeOrg(c); err != nil {
		return RegistryLogin{}, err
	}
	row := RegistryLogin{ID: id.New[id.RegistryLogin](), Registry: canonicalRegistry(in.Registry), Username: in.Username}
	if err := a.sealLogin(c.Org, &row, in.Password); err != nil {
		return RegistryLogin{}, err
	}
	var out RegistryLogin
	err := a.Store.InOrg(ctx, c.Org, func(t *store.OrgTx) (err error) {
		if out, err = t.InsertRegistryLogin(ctx, row); err != nil {
			return err
		}
		return t.Audit(ctx, c.audit(c.Org, "registry_login.create", row.ID.String()))
	})
	return out, err
}

func (a *App) sealLogin(o id.Org, l *RegistryLogin, password auth.Secret) (err error) {
	if l.Sealed, err = a.Box.Seal(password, o.String(), l.ID.String()); err != nil {
		return fmt.Errorf("seal a registry login: %w", err)
	}
	return nil
}

// wholeOrg refuses a credential that is confined to projects.
func wholeOrg(c Caller) error {
	if c.Projects == nil {
		return nil
	}
	return fault.New(fault.Forbidden, "auth.forbidden", "The login serves every project, and the key is confined to one.").
		Suggest("Use a key of the whole organization.")
}

// ListRegistryLogins lists the organization's logins, newest first.
func (a *App) ListRegistryLogins(ctx context.Context, c Caller, p Page) (List[RegistryLogin], error) {
	k, err := keyset[id.RegistryLogin](p)
	if err != nil {
		return List[RegistryLogin]{}, err
	}
	var rows []RegistryLogin
	err = a.Store.InOrg(ctx, c.Org, func(t *store.OrgTx) error {
		rows, err = t.RegistryLogins(ctx, k)
		return err
	})
	return paged(rows, p.Size, func(l RegistryLogin) string { return l.ID.String() }), err
}

// GetRegistryLogin reads one. It fails with resource.not_found.
func (a *App) GetRegistryLogin(ctx context.Context, c Caller, l id.RegistryLogin) (RegistryLogin, error) {
	var out RegistryLogin
	err := a.Store.InOrg(ctx, c.Org, func(t *store.OrgTx) (err error) {
		out, err = t.RegistryLogin(ctx, l)
		return err
	})
	return out, err
}

// UpdateRegistryLogin replaces the password, and the user unless it is "". It fails
// with resource.not_found, and with auth.forbidden for a key of one project.
func (a *App) UpdateRegistryLogin(ctx context.Context, c Caller, l id.RegistryLogin, user string, password auth.Secret) (RegistryLogin, error) {
	if err := wholeOrg(c); err != nil {
		return RegistryLogin{}, err
	}
	var out RegistryLogin
	err := a.Store.InOrg(ctx, c.Org, func(t *store.OrgTx) error {
		row, err := t.RegistryLogin(ctx, l)
		if err != nil {
			return err
		}
		if user != "" {
			row.Username = user
		}
		if err := a.sealLogin(c.Org, &row, password); err != nil {
			return err
		}
		if out, err = t.UpdateRegistryLogin(ctx, row); err != nil {
			return err
		}
		return t.Audit(ctx, c.audit(c.Org, "registry_login.update", l.String()))
	})
	return out, err
}

// DeleteRegistryLogin forgets one. Instances that named it pull with the login of
// their image's registry from then on, if there is one. It fails with
// resource.not_found, and with auth.forbidden for a key of one project.
func (a *App) DeleteRegistryLogin(ctx context.Context, c Caller, l id.RegistryLogin) error {
	if err := wholeOrg(c); err != nil {
		return err
	}
	return a.Store.InOrg(ctx, c.Org, func(t *store.OrgTx) error {
		if err := t.DeleteRegistryLogin(ctx, l); err != nil {
			return err
		}
		return t.Audit(ctx, c.audit(c.Org, "registry_login.delete", l.String()))
	})
}
