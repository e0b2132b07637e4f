package app_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"log/slog"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/internal/app"
	"github.com/tranche-cloud/tranche/internal/auth"
	"github.com/tranche-cloud/tranche/internal/clock"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/money"
	"github.com/tranche-cloud/tranche/internal/org"
	"github.com/tranche-cloud/tranche/internal/quota"
	"github.com/tranche-cloud/tranche/internal/store"
	"github.com/tranche-cloud/tranche/internal/testkit/pgtest"
)

// world is an App on a database of its own, with an operator.
type world struct {
	*app.App
	db       pgtest.Database
	owner    *pgxpool.Pool
	operator app.Caller
}

// newWorld uses the machine's clock; tests of expiry pass another.
func newWorld(t *testing.T, c clock.Clock) world {
	t.Helper()
	db := pgtest.New(t)
	st, err := store.Open(t.Context(), db.AppDSN, 8, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	t.Cleanup(st.Close)
	hasher, err := auth.NewHasher(bytes.Repeat([]byte{1}, 32))
	require.NoError(t, err)
	box, err := auth.NewBox(bytes.Repeat([]byte{2}, 32))
	require.NoError(t, err)
	signing := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{3}, ed25519.SeedSize))
	issuer, err := auth.NewIssuer(auth.IssuerConfig{Issuer: "https://api.test", Audience: "tranche", Key: signing, Clock: c})
	require.NoError(t, err)
	verifier, err := auth.NewVerifier(auth.VerifierConfig{
		Issuer: "https://api.test", Audience: "tranche", Clock: c,
		Keys: []ed25519.PublicKey{signing.Public().(ed25519.PublicKey)},
	})
	require.NoError(t, err)
	w := world{db: db, owner: db.OwnerPool(t), App: app.New(app.Deps{
		Store: st, Clock: c, Hasher: hasher, Issuer: issuer, Verifier: verifier, Box: box, Dev: true,
	})}
	key, err := w.CreateOperator(t.Context(), "root")
	require.NoError(t, err)
	w.operator = w.caller(t, key.Secret)
	return w
}

// caller authenticates a credential.
func (w world) caller(t *testing.T, secret auth.Secret) app.Caller {
	t.Helper()
	got, err := w.Authenticate(t.Context(), secret.Reveal())
	require.NoError(t, err)
	return app.Caller{Principal: got.Principal, RequestID: id.New[id.Request]().String()}
}

// customer is an organization with a project and a key for all of it.
type customer struct {
	app.Caller
	org     org.Organization
	project id.Project
	secret  auth.Secret
}

func (w world) tenant(t *testing.T, name string, q quota.Limits) customer {
	t.Helper()
	ctx := t.Context()
	o, err := w.CreateOrganization(ctx, w.operator, app.NewOrganization{
		Name: name, Currency: money.MustCurrency("USD"), Quota: q,
	})
	require.NoError(t, err)
	p, err := w.CreateProject(ctx, w.operator, o.ID, "default")
	require.NoError(t, err)
	k, err := w.CreateAPIKey(ctx, w.operator, o.ID, app.NewKey{Name: "main"})
	require.NoError(t, err)
	return customer{Caller: w.caller(t, k.Secret), org: o, project: p.ID, secret: k.Secret}
}

// exec runs a statement as the owner of the tables.
func (w world) exec(t *testing.T, sql string, args ...any) {
	t.Helper()
	_, err := w.owner.Exec(context.WithoutCancel(t.Context()), sql, args...)
	require.NoError(t, err)
}

// count runs a query for one number as the owner of the tables.
func (w world) count(t *testing.T, sql string, args ...any) int {
	t.Helper()
	var n int
	require.NoError(t, w.owner.QueryRow(t.Context(), sql, args...).Scan(&n))
	return n
}
