package store

import (
	"context"

	"github.com/google/uuid"

	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
)

// sharing is the transaction that a context carries; org or system is who it speaks
// for at this moment, the other is nil. It is used by one goroutine, as a transaction
// is.
type sharing struct {
	store  *Store
	org    *OrgTx
	system *SystemTx
	// base is the organization that the whole transaction belongs to, zero for none.
	base   id.Org
	failed error
}

type sharingKey struct{}

// ShareOrg is InOrg for several use cases that must commit together: each InOrg
// and InSystem called with the context that fn gets joins this transaction and
// switches only the role, for as long as it lasts; they may be nested. If one of them failed, nothing commits, even when fn
// returns nil.
func (s *Store) ShareOrg(ctx context.Context, org id.Org, fn func(context.Context, *OrgTx) error) error {
	return s.InOrg(ctx, org, func(t *OrgTx) error {
		sh := &sharing{store: s, org: t, base: org}
		return sh.end(fn(context.WithValue(ctx, sharingKey{}, sh), t))
	})
}

// ShareSystem is ShareOrg for a transaction that sees every organization.
func (s *Store) ShareSystem(ctx context.Context, reason string, fn func(context.Context, *SystemTx) error) error {
	return s.InSystem(ctx, reason, func(t *SystemTx) error {
		sh := &sharing{store: s, system: t}
		return sh.end(fn(context.WithValue(ctx, sharingKey{}, sh), t))
	})
}

// shared returns the transaction to join, or nil.
func (s *Store) shared(ctx context.Context) *sharing {
	sh, ok := ctx.Value(sharingKey{}).(*sharing)
	if !ok || sh.store != s {
		return nil
	}
	return sh
}

func (sh *sharing) end(err error) error {
	if err != nil {
		return err
	}
	return sh.failed
}

func (sh *sharing) note(err error) error {
	if err != nil && sh.failed == nil {
		sh.failed = err
	}
	return err
}

func (sh *sharing) inOrg(ctx context.Context, org id.Org, fn func(*OrgTx) error) error {
	switch {
	case !sh.base.IsZero() && sh.base != org, sh.org != nil && sh.org.org != org:
		return sh.note(fault.New(fault.Internal, "internal", "A shared transaction belongs to one organization."))
	case sh.org != nil:
		return sh.note(mapError(fn(sh.org)))
	}
	outer := sh.system
	defer func() { sh.org, sh.system = nil, outer }()
	return sh.note(outer.confine(ctx, org, sh.base, func(t *OrgTx) error {
		sh.org, sh.system = t, nil
		return fn(t)
	}))
}

func (sh *sharing) inSystem(ctx context.Context, reason string, fn func(*SystemTx) error) error {
	if sh.system != nil {
		return sh.note(mapError(fn(sh.system)))
	}
	outer := sh.org
	defer func() { sh.org, sh.system = outer, nil }()
	return sh.note(outer.Escalate(ctx, reason, func(t *SystemTx) error {
		sh.org, sh.system = nil, t
		return fn(t)
	}))
}

// confine goes on in the same transaction as tranche_org of one organization, and
// leaves the setting of the organization as it was. It is the counterpart of
// OrgTx.Escalate.
func (t *SystemTx) confine(ctx context.Context, org, before id.Org, fn func(*OrgTx) error) error {
	_, err := t.raw.Exec(ctx, `select set_config('role', 'tranche_org', true), set_config('tranche.org_id', $1, true)`,
		uuid.UUID(org).String())
	if err != nil {
		return mapError(err)
	}
	confined := &OrgTx{tx: tx{raw: t.raw, q: t.q}, org: org}
	if err := fn(confined); err != nil {
		return mapError(err)
	}
	t.told = append(t.told, confined.told...)
	back := ""
	if !before.IsZero() {
		back = uuid.UUID(before).String()
	}
	_, err = t.raw.Exec(ctx, `select set_config('role', 'tranche_system', true), set_config('tranche.org_id', $1, true)`, back)
	return mapError(err)
}
