package app_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/internal/app"
	"github.com/tranche-cloud/tranche/internal/auth"
	"github.com/tranche-cloud/tranche/internal/clock"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/money"
	"github.com/tranche-cloud/tranche/internal/org"
	"github.com/tranche-cloud/tranche/internal/quota"
)

func TestOrganizationComesWithCounterAccountAndPriceBook(t *testing.T) {
	w := newWorld(t, clock.Real())
	book := id.New[id.PriceBook]()
	w.exec(t, `insert into price_books (id, name, currency, is_default) values ($1, 'list', 'USD', true)`, book.UUID())
	acme := w.tenant(t, "Acme", quota.Limits{Instances: 3, GPUs: 4})

	got, err := w.GetOrganization(t.Context(), w.operator, acme.org.ID)
	require.NoError(t, err)
	require.Equal(t, acme.org, got)
	require.Equal(t, org.RateLimits{Read: 6000, Write: 1200, Launch: 600}, got.Limits, "a development installation allows ten times as much")
	require.Equal(t, 1, w.count(t, `select count(*) from quota_usage where org_id = $1`, acme.org.ID.UUID()))
	require.Equal(t, 1, w.count(t, `select count(*) from billing_accounts where org_id = $1 and currency = 'USD'`, acme.org.ID.UUID()))
	require.Equal(t, 1, w.count(t, `select count(*) from organization_price_books
		where org_id = $1 and price_book_id = $2 and upper_inf(during)`, acme.org.ID.UUID(), book.UUID()))

	_, err = w.CreateOrganization(t.Context(), w.operator, app.NewOrganization{Name: "Acme", Currency: money.MustCurrency("EUR")})
	require.Equal(t, "name.taken", fault.CodeOf(err))
	_, err = w.CreateProject(t.Context(), w.operator, acme.org.ID, "default")
	require.Equal(t, "name.taken", fault.CodeOf(err))
	_, err = w.CreateProject(t.Context(), w.operator, id.New[id.Org](), "default")
	require.Equal(t, "resource.not_found", fault.CodeOf(err))
	_, err = w.CreateAPIKey(t.Context(), w.operator, id.New[id.Org](), app.NewKey{Name: "x"})
	require.Equal(t, "resource.not_found", fault.CodeOf(err))
}

func TestListsArePagedNewestFirst(t *testing.T) {
	w := newWorld(t, clock.Real())
	acme := w.tenant(t, "Acme", quota.Limits{})
	for _, name := range []string{"b", "c", "d", "e"} {
		_, err := w.CreateProject(t.Context(), w.operator, acme.org.ID, name)
		require.NoError(t, err)
	}
	var names []string
	for cursor, pages := "", 0; ; pages++ {
		require.Less(t, pages, 4)
		list, err := w.ListProjects(t.Context(), w.operator, acme.org.ID, app.Page{Cursor: cursor, Size: 2})
		require.NoError(t, err)
		for _, p := range list.Items {
			names = append(names, p.Name)
		}
		if cursor = list.Next; cursor == "" {
			break
		}
	}
	require.Equal(t, []string{"e", "d", "c", "b", "default"}, names)
	_, err := w.ListProjects(t.Context(), w.operator, acme.org.ID, app.Page{Cursor: acme.org.ID.String(), Size: 2})
	require.Equal(t, "page_token.invalid", fault.CodeOf(err))
}

func TestKeyNeverExceedsItsCreator(t *testing.T) {
	w := newWorld(t, clock.Real())
	acme, other := w.tenant(t, "Acme", quota.Limits{}), w.tenant(t, "Other", quota.Limits{})
	ctx := t.Context()
	narrow, err := w.CreateAPIKey(ctx, acme.Caller, acme.org.ID, app.NewKey{
		Name: "narrow", Scopes: []auth.Scope{auth.InstancesRead, auth.KeysWrite}, Project: acme.project,
	})
	require.NoError(t, err)
	c := w.caller(t, narrow.Secret)
	require.Equal(t, []id.Project{acme.project}, c.Projects)
	require.Equal(t, []auth.Scope{auth.InstancesRead, auth.KeysWrite}, c.Scopes)

	for name, in := range map[string]app.NewKey{
		"more scopes":     {Scopes: []auth.Scope{auth.InstancesWrite}, Project: acme.project},
		"operator scopes": {Scopes: []auth.Scope{auth.OperatorRead}, Project: acme.project},
		"more projects":   {},
	} {
		_, err := w.CreateAPIKey(ctx, c, acme.org.ID, in)
		require.Equal(t, "auth.forbidden", fault.CodeOf(err), name)
	}
	_, err = w.CreateAPIKey(ctx, acme.Caller, acme.org.ID, app.NewKey{Name: "x", Project: other.project})
	require.Equal(t, "resource.not_found", fault.CodeOf(err), "a foreign project looks like none")
	past := time.Now().Add(-time.Second)
	_, err = w.CreateAPIKey(ctx, acme.Caller, acme.org.ID, app.NewKey{Name: "x", ExpiresAt: &past})
	require.Equal(t, "request.invalid", fault.CodeOf(err))

	list, err := w.ListAPIKeys(ctx, c, app.Page{Size: 10})
	require.NoError(t, err)
	require.Len(t, list.Items, 1, "a key of one project sees the keys of that project")
	require.Equal(t, "resource.not_found", fault.CodeOf(w.RevokeAPIKey(ctx, c, acme.Key)))
	require.Equal(t, "resource.not_found", fault.CodeOf(w.RevokeAPIKey(ctx, other.Caller, acme.Key)))
}

func TestRevokedKeyAndItsTokenAreRefusedWithinFiveSeconds(t *testing.T) {
	fake := clock.NewFake(time.Now())
	w := newWorld(t, fake)
	ctx := t.Context()
	acme := w.tenant(t, "Acme", quota.Limits{})
	token, life, err := w.IssueToken(ctx, acme.Caller)
	require.NoError(t, err)
	require.Equal(t, 15*time.Minute, life)
	byToken := w.caller(t, token)
	require.True(t, byToken.FromToken)
	require.Equal(t, acme.Scopes, byToken.Scopes)

	// Revoked by another process: this one holds a cached row.
	w.exec(t, `update api_keys set revoked_at = clock_timestamp() where id = $1`, acme.Key.UUID())
	fake.Advance(5 * time.Second)
	for _, credential := range []auth.Secret{acme.secret, token} {
		_, err = w.Authenticate(ctx, credential.Reveal())
		require.Equal(t, "auth.invalid", fault.CodeOf(err))
	}
}

func TestRevokeHereIsSeenAtOnce(t *testing.T) {
	w := newWorld(t, clock.Real())
	acme := w.tenant(t, "Acme", quota.Limits{})
	for range 2 {
		require.NoError(t, w.RevokeAPIKey(t.Context(), acme.Caller, acme.Key), "revoking twice is fine")
	}
	_, err := w.Authenticate(t.Context(), acme.secret.Reveal())
	require.Equal(t, "auth.invalid", fault.CodeOf(err))
}

func TestCredentialsThatAreNotAlive(t *testing.T) {
	fake := clock.NewFake(time.Now())
	w := newWorld(t, fake)
	ctx := t.Context()
	acme := w.tenant(t, "Acme", quota.Limits{})
	soon := fake.Now().Add(time.Minute)
	short, err := w.CreateAPIKey(ctx, acme.Caller, acme.org.ID, app.NewKey{Name: "short", ExpiresAt: &soon})
	require.NoError(t, err)
	token, _, err := w.IssueToken(ctx, acme.Caller)
	require.NoError(t, err)
	_ = w.caller(t, short.Secret)

	code := func(credential string) string {
		t.Helper()
		_, err := w.Authenticate(ctx, credential)
		return fault.CodeOf(err)
	}
	require.Equal(t, "auth.missing", code(""))
	require.Equal(t, "auth.invalid", code("trn_live_nonsense"))
	require.Equal(t, "auth.invalid", code(auth.MintKey(auth.KeyTest).Text().Reveal()), "well-formed but unknown")
	require.Equal(t, "auth.invalid", code(auth.MintKeyAs(auth.KeyTest, acme.Key).Text().Reveal()), "known id, other secret")
	require.Equal(t, "auth.invalid", code("e30.e30.c2ln"))
	fake.Advance(time.Minute)
	require.Equal(t, "auth.expired", code(short.Secret.Reveal()))

	w.exec(t, `update organizations set session_epoch = session_epoch + 1 where id = $1`, acme.org.ID.UUID())
	fake.Advance(5 * time.Second)
	require.Equal(t, "auth.invalid", code(token.Reveal()), "a token of an older session")
	require.Equal(t, "", code(acme.secret.Reveal()), "the key itself starts the new session")
	w.exec(t, `update organizations set suspended_at = clock_timestamp() where id = $1`, acme.org.ID.UUID())
	fake.Advance(5 * time.Second)
	require.Equal(t, "auth.forbidden", code(acme.secret.Reveal()))
}

func TestUseOfAKeyIsNotedOnceAMinute(t *testing.T) {
	w := newWorld(t, clock.Real())
	acme := w.tenant(t, "Acme", quota.Limits{})
	lastUsed := func() time.Time {
		list, err := w.ListAPIKeys(t.Context(), acme.Caller, app.Page{Size: 1})
		require.NoError(t, err)
		require.NotNil(t, list.Items[0].LastUsedAt)
		return *list.Items[0].LastUsedAt
	}
	first := lastUsed()
	_ = w.caller(t, acme.secret)
	require.Equal(t, first, lastUsed())
}

func TestWhoami(t *testing.T) {
	w := newWorld(t, clock.Real())
	acme := w.tenant(t, "Acme", quota.Limits{})
	me, err := w.Whoami(t.Context(), acme.Caller)
	require.NoError(t, err)
	require.Equal(t, "Acme", me.OrgName)
	require.Equal(t, "main", me.KeyName)
	require.Nil(t, me.ExpiresAt)
	root, err := w.Whoami(t.Context(), w.operator)
	require.NoError(t, err)
	require.Equal(t, auth.Operator, root.Kind)
	require.Equal(t, "root", root.KeyName)
}
