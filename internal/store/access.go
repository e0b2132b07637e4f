package store

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/store/internal/db"
)

// RegistryLogin is a login of an image registry. Sealed is the password, sealed for
// the organization's id at the login's id.
type RegistryLogin struct {
	ID        id.RegistryLogin
	Registry  string // host[:port], lower case
	Username  string
	Sealed    []byte
	CreatedAt time.Time // business
	UpdatedAt time.Time // business
	Revision  int64

	Generation int64
}

// InsertRegistryLogin writes a new one. It fails with name.taken when the
// organization has a login of that registry.
func (t *OrgTx) InsertRegistryLogin(ctx context.Context, l RegistryLogin) (RegistryLogin, error) {
	r, err := t.q.PutRegistryLogin(ctx, t.raw, db.PutRegistryLoginParams{
		OrgID: uuid.UUID(t.org), LoginID: uuid.UUID(l.ID), Registry: l.Registry, Username: l.Username, PasswordSealed: l.Sealed,
	})
	return registryLogin(r), mapError(err)
}

// UpdateRegistryLogin replaces user and password. It fails with resource.not_found.
func (t *OrgTx) UpdateRegistryLogin(ctx context.Context, l RegistryLogin) (RegistryLogin, error) {
	r, err := t.q.UpdateRegistryLogin(ctx, t.raw, db.UpdateRegistryLoginParams{
		OrgID: uuid.UUID(t.org), LoginID: uuid.UUID(l.ID), Username: l.Username, PasswordSealed: l.Sealed,
	})
	return registryLogin(r), mapError(err)
}

// RegistryLogin reads one. It fails with resource.not_found.
func (t *OrgTx) RegistryLogin(ctx context.Context, l id.RegistryLogin) (RegistryLogin, error) {
	r, err := t.q.GetRegistryLogin(ctx, t.raw, uuid.UUID(t.org), uuid.UUID(l))
	return registryLogin(r), mapError(err)
}

// RegistryLogins lists them, newest first.
func (t *OrgTx) RegistryLogins(ctx context.Context, k Keyset) ([]RegistryLogin, error) {
	rows, err := t.q.ListRegistryLogins(ctx, t.raw, db.ListRegistryLoginsParams{
		OrgID: uuid.UUID(t.org), Before: k.before(), Size: int32(k.Size),
	})
	if err != nil {
		return nil, mapError(err)
	}
	return mapRows(rows, func(r db.RegistryLogin) (RegistryLogin, error) { return registryLogin(r), nil })
}

// DeleteRegistryLogin removes one; instances that name it fall back on whichever
// matches their image. It fails with resource.not_found.
func (t *OrgTx) DeleteRegistryLogin(ctx context.Context, l id.RegistryLogin) error {
	return t.Escalate(ctx, "a login is deleted", func(s *SystemTx) error {
		n, err := s.q.DeleteRegistryLogin(ctx, s.raw, uuid.UUID(t.org), uuid.UUID(l))
		if err == nil && n == 0 {
			return NotFound()
		}
		return mapError(err)
	})
}

func registryLogin(r db.RegistryLogin) RegistryLogin {
	return RegistryLogin{
		ID: id.RegistryLogin(r.ID), Registry: r.Registry, Username: r.Username, Sealed: r.PasswordSealed,
		CreatedAt: r.CreatedAt.UTC(), UpdatedAt: r.UpdatedAt.UTC(), Revision: r.Revision, Generation: r.Generation,
	}
}

// AuthorityOwner is the owner that authorities are sealed for: they are nobody's but
// the installation's.
const AuthorityOwner = "installation"

// SSHAuthority is a key of the installation that signs user certificates. Sealed is
// its ed25519 seed, sealed for AuthorityOwner at the authority's id.
type SSHAuthority struct {
	ID        id.SSHAuthority
	PublicKey string // one line of the authorized_keys form
	Sealed    []byte
	Current   bool
	CreatedAt time.Time // machine
}

// SSHAuthorities lists those that hosts accept, the current one first.
func (t *SystemTx) SSHAuthorities(ctx context.Context) ([]SSHAuthority, error) {
	rows, err := t.q.SSHAuthorities(ctx, t.raw)
	if err != nil {
		return nil, mapError(err)
	}
	return mapRows(rows, func(r db.SshAuthority) (SSHAuthority, error) {
		return SSHAuthority{
			ID: id.SSHAuthority(r.ID), PublicKey: r.PublicKey, Sealed: r.PrivateSealed, Current: r.Current, CreatedAt: r.CreatedAt.UTC(),
		}, nil
	})
}

// HoldSSHAuthorities lets no other transaction add or retire authorities.
func (t *SystemTx) HoldSSHAuthorities(ctx context.Context) error {
	return mapError(t.q.SerializeAuthorities(ctx, t.raw))
}

// InsertSSHAuthority makes a new authority the current one and tells every host;
// the older ones stay accepted until they are retired.
func (t *SystemTx) InsertSSHAuthority(ctx context.Context, a SSHAuthority) error {
	if err := t.q.DemoteSSHAuthorities(ctx, t.raw); err != nil {
		return mapError(err)
	}
	err := t.q.InsertSSHAuthority(ctx, t.raw, db.InsertSSHAuthorityParams{
		AuthorityID: uuid.UUID(a.ID), PublicKey: a.PublicKey, PrivateSealed: a.Sealed,
	})
	if err != nil {
		return mapError(err)
	}
	return t.tellSSHHosts(ctx)
}

// RetireSSHAuthority ends one that is not the current one: hosts accept it no more.
// It reports false for the current one, one that is retired, and an unknown one.
func (t *SystemTx) RetireSSHAuthority(ctx context.Context, a id.SSHAuthority) (bool, error) {
	n, err := t.q.RetireSSHAuthority(ctx, t.raw, uuid.UUID(a))
	if err != nil || n == 0 {
		return false, mapError(err)
	}
	return true, t.tellSSHHosts(ctx)
}

func (t *SystemTx) tellSSHHosts(ctx context.Context) error {
	rows, err := t.q.HostsWithSSH(ctx, t.raw)
	if err != nil {
		return mapError(err)
	}
	for _, r := range rows {
		if err := t.AppendHostDesired(ctx, r.CellID, id.Host(r.ID)); err != nil {
			return err
		}
	}
	return nil
}

// RunSecrets is what a run needs and its host must not keep, still sealed.
type RunSecrets struct {
	Org       id.Org
	Instance  id.Instance
	Image     string
	EnvSealed []byte           // nil without secrets
	Login     id.RegistryLogin // that the instance names; zero for whichever matches
}

// RunSecrets reads them for an assignment that is to run on this very host by this
// very fence; found is false for any other.
func (t *SystemTx) RunSecrets(ctx context.Context, h id.Host, asg id.Assignment, fence int64) (s RunSecrets, found bool, err error) {
	r, err := t.q.RunSecrets(ctx, t.raw, db.RunSecretsParams{AssignmentID: uuid.UUID(asg), HostID: uuid.UUID(h), Fence: fence})
	if isNoRows(err) {
		return RunSecrets{}, false, nil
	}
	return RunSecrets{
		Org: id.Org(r.OrgID), Instance: id.Instance(r.InstanceID), Image: r.Image, EnvSealed: r.EnvSealed,
		Login: orZero[id.RegistryLogin](r.RegistryLoginID),
	}, err == nil, mapError(err)
}

// LoginsFor reads the logins of an organization that may serve a registry: that of
// the registry, and the named one.
func (t *SystemTx) LoginsFor(ctx context.Context, org id.Org, registry string, named id.RegistryLogin) ([]RegistryLogin, error) {
	rows, err := t.q.LoginsFor(ctx, t.raw, db.LoginsForParams{OrgID: uuid.UUID(org), Registry: registry, LoginID: nullable(named)})
	if err != nil {
		return nil, mapError(err)
	}
	return mapRows(rows, func(r db.RegistryLogin) (RegistryLogin, error) { return registryLogin(r), nil })
}

// SetSSHKeys replaces the authorized_keys lines of an instance. Its host is told; the
// fence stays, so the run goes on. It fails with resource.not_found. The caller
// holds the instance (LoadView, Locked) and has checked the generation.
func (t *OrgTx) SetSSHKeys(ctx context.Context, p id.Project, i id.Instance, keys []string) error {
	if keys == nil {
		keys = []string{}
	}
	n, err := t.q.SetSSHKeys(ctx, t.raw, db.SetSSHKeysParams{
		OrgID: uuid.UUID(t.org), ProjectID: uuid.UUID(p), InstanceID: uuid.UUID(i), SshKeys: keys,
	})
	if err != nil {
		return mapError(err)
	}
	if n == 0 {
		return NotFound()
	}
	hosts, err := t.q.LiveAssignmentHosts(ctx, t.raw, uuid.UUID(t.org), uuid.UUID(i))
	if err != nil {
		return mapError(err)
	}
	for _, h := range hosts {
		if err := t.AppendHostDesired(ctx, h.CellID, id.Host(h.HostID)); err != nil {
			return err
		}
	}
	return nil
}
