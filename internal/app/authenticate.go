package app

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/tranche-cloud/tranche/internal/auth"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/org"
	"github.com/tranche-cloud/tranche/internal/store"
)

const (
	// credentialLife bounds how long a revoked key may still work in another
	// process (I10 allows five seconds). It needs no notification to hold.
	credentialLife = 3 * time.Second
	// touchEvery is how exact last_used_at is.
	touchEvery = time.Minute
	// maxCredentials bounds the cache.
	maxCredentials = 10_000
)

// operatorLimits are the rate limits of an operator's key.
var operatorLimits = org.RateLimits{Read: 6000, Write: 1200, Launch: 600}

// Authenticated is a caller that proved who it is, with the limits that apply.
type Authenticated struct {
	auth.Principal
	Limits org.RateLimits
}

// Authenticate judges a bearer credential: an API key or an access token. It fails
// with auth.invalid or auth.expired (401), and with auth.forbidden when the
// organization is suspended. A revocation is seen here within three seconds.
func (a *App) Authenticate(ctx context.Context, bearer string) (Authenticated, error) {
	if bearer == "" {
		return Authenticated{}, auth.Missing()
	}
	if auth.LooksLikeKey(bearer) {
		return a.byKey(ctx, bearer)
	}
	return a.byToken(ctx, bearer)
}

func (a *App) byKey(ctx context.Context, text string) (Authenticated, error) {
	key, err := auth.ParseKey(text)
	if err != nil {
		return Authenticated{}, err
	}
	kind := auth.Org
	if key.Realm == auth.KeyOperator {
		kind = auth.Operator
	}
	c, err := a.credential(ctx, kind, key.ID)
	if err != nil {
		return Authenticated{}, err
	}
	if !a.Hasher.Matches(key, c.Hash) {
		return Authenticated{}, auth.Invalid()
	}
	return a.admit(ctx, kind, c)
}

// byToken takes identity and scopes from the signed token and liveness from the
// key's row. Scopes are cut to those that the key still has.
func (a *App) byToken(ctx context.Context, text string) (Authenticated, error) {
	if a.Verifier == nil {
		return Authenticated{}, auth.Invalid()
	}
	p, err := a.Verifier.Verify(text)
	if err != nil {
		return Authenticated{}, err
	}
	c, err := a.credential(ctx, p.Kind, p.Key)
	if err != nil {
		return Authenticated{}, err
	}
	if c.Epoch != p.Epoch || c.Org != p.Org {
		return Authenticated{}, auth.Invalid()
	}
	got, err := a.admit(ctx, p.Kind, c)
	if err != nil {
		return Authenticated{}, err
	}
	got.FromToken = true
	got.Scopes = slices.DeleteFunc(p.Scopes, func(s auth.Scope) bool { return !slices.Contains(c.Scopes, string(s)) })
	return got, nil
}

// admit checks that the key is alive and makes the principal.
func (a *App) admit(ctx context.Context, kind auth.PrincipalKind, c store.Credential) (Authenticated, error) {
	now := a.Clock.Now()
	switch {
	case c.RevokedAt != nil:
		return Authenticated{}, auth.Invalid()
	case c.ExpiresAt != nil && !now.Before(*c.ExpiresAt):
		return Authenticated{}, auth.Expired()
	case c.Suspended:
		return Authenticated{}, fault.New(fault.Forbidden, "auth.forbidden", "The organization is suspended.").
			Suggest("Ask the operator.")
	}
	a.touch(ctx, c, now)
	p := auth.Principal{Kind: kind, Org: c.Org, Key: c.ID, Epoch: c.Epoch}
	if !c.Project.IsZero() {
		p.Projects = []id.Project{c.Project}
	}
	for _, s := range c.Scopes {
		p.Scopes = append(p.Scopes, auth.Scope(s))
	}
	limits := c.Limits
	if kind == auth.Operator {
		limits = operatorLimits
	}
	return Authenticated{Principal: p, Limits: limits}, nil
}

// touch notes the use of a key. Losing the note harms nobody, so it never fails a
// request.
func (a *App) touch(ctx context.Context, c store.Credential, now time.Time) {
	if !a.credentials.touchDue(c.ID, c.LastUsedAt, now) {
		return
	}
	err := a.Store.InSystem(ctx, "note the use of a key", func(t *store.SystemTx) error {
		return t.TouchCredential(ctx, c)
	})
	if err != nil {
		a.Log.Warn("could not note the use of a key", "key", c.ID, "error", err)
	}
}

// credential reads a key's row, at most credentialLife old. An unknown key is
// auth.invalid and is not remembered.
func (a *App) credential(ctx context.Context, kind auth.PrincipalKind, k id.Key) (store.Credential, error) {
	e := a.credentials.entry(kind, k)
	e.mu.Lock()
	defer e.mu.Unlock()
	now := a.Clock.Now()
	if now.Before(e.freshUntil) {
		return e.row, nil
	}
	row, err := a.readCredential(ctx, kind, k)
	if err != nil {
		a.credentials.drop(kind, k)
		if fault.KindOf(err) == fault.NotFound {
			return store.Credential{}, auth.Invalid()
		}
		return store.Credential{}, err
	}
	// Counted from before the read: what was committed since is not in it.
	e.row, e.freshUntil = row, now.Add(credentialLife)
	return row, nil
}

func (a *App) readCredential(ctx context.Context, kind auth.PrincipalKind, k id.Key) (c store.Credential, err error) {
	err = a.Store.InSystem(ctx, "authenticate", func(t *store.SystemTx) error {
		if kind == auth.Operator {
			c, err = t.OperatorCredential(ctx, k)
		} else {
			c, err = t.Credential(ctx, k)
		}
		return err
	})
	return c, err
}

// credentials caches key rows. One entry is read by one request at a time; the
// others wait for it instead of asking the database too.
type credentials struct {
	mu      sync.Mutex
	by      map[credentialKey]*credentialEntry
	touched map[id.Key]time.Time
}

type credentialKey struct {
	kind auth.PrincipalKind
	key  id.Key
}

type credentialEntry struct {
	mu         sync.Mutex
	row        store.Credential
	freshUntil time.Time
}

func newCredentials() *credentials {
	return &credentials{by: map[credentialKey]*credentialEntry{}, touched: map[id.Key]time.Time{}}
}

func (c *credentials) entry(kind auth.PrincipalKind, k id.Key) *credentialEntry {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.by) >= maxCredentials {
		clear(c.by)
	}
	e, ok := c.by[credentialKey{kind, k}]
	if !ok {
		e = &credentialEntry{}
		c.by[credentialKey{kind, k}] = e
	}
	return e
}

func (c *credentials) drop(kind auth.PrincipalKind, k id.Key) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.by, credentialKey{kind, k})
}

// touchDue reports whether a use is to be written down, and takes note that it is.
func (c *credentials) touchDue(k id.Key, last *time.Time, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	seen := c.touched[k]
	if last != nil && last.After(seen) {
		seen = *last
	}
	if now.Sub(seen) < touchEvery {
		return false
	}
	if len(c.touched) >= maxCredentials {
		clear(c.touched)
	}
	c.touched[k] = now
	return true
}
