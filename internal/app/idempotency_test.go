package app_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/internal/app"
	"github.com/tranche-cloud/tranche/internal/clock"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/quota"
)

func once(tn customer, key, body string) app.Once {
	return app.Once{
		Org: tn.org.ID, Principal: tn.String(), Method: "POST", Path: "/v1/projects/p/things",
		Key: key, Fingerprint: []byte(body),
	}
}

func TestIdempotentReplaysTheSameAnswer(t *testing.T) {
	w := newWorld(t, clock.Real())
	acme := w.tenant(t, "Acme", quota.Limits{})
	var runs atomic.Int32
	work := func(context.Context) (app.Answer, error) {
		n := runs.Add(1)
		return app.Answer{Status: 201, Headers: map[string]string{"ETag": `"g1"`}, Body: fmt.Appendf(nil, `{"n": %d}`, n)}, nil
	}
	first, replayed, err := w.Idempotent(t.Context(), once(acme, "k", "a"), work)
	require.NoError(t, err)
	require.False(t, replayed)
	again, replayed, err := w.Idempotent(t.Context(), once(acme, "k", "a"), work)
	require.NoError(t, err)
	require.True(t, replayed)
	require.Equal(t, first.Status, again.Status)
	require.Equal(t, first.Headers, again.Headers)
	require.JSONEq(t, string(first.Body), string(again.Body))

	_, _, err = w.Idempotent(t.Context(), once(acme, "k", "b"), work)
	require.Equal(t, "idempotency.mismatch", fault.CodeOf(err))
	other := w.tenant(t, "Other", quota.Limits{})
	_, replayed, err = w.Idempotent(t.Context(), once(other, "k", "b"), work)
	require.NoError(t, err)
	require.False(t, replayed, "keys of two organizations do not meet")
	require.EqualValues(t, 2, runs.Load())
}

func TestIdempotentFailureStoresNothing(t *testing.T) {
	w := newWorld(t, clock.Real())
	acme := w.tenant(t, "Acme", quota.Limits{})
	boom := errors.New("boom")
	_, _, err := w.Idempotent(t.Context(), once(acme, "k", "a"), func(ctx context.Context) (app.Answer, error) {
		_, err := w.CreateAPIKey(ctx, acme.Caller, acme.org.ID, app.NewKey{Name: "lost"})
		require.NoError(t, err)
		return app.Answer{}, boom
	})
	require.ErrorIs(t, err, boom)
	// A use case that failed must not be papered over either.
	_, _, err = w.Idempotent(t.Context(), once(acme, "k", "a"), func(ctx context.Context) (app.Answer, error) {
		_, _ = w.CreateAPIKey(ctx, acme.Caller, acme.org.ID, app.NewKey{Name: "lost"})
		_ = w.RevokeAPIKey(ctx, acme.Caller, w.operator.Key)
		return app.Answer{Status: 200}, nil
	})
	require.Equal(t, "resource.not_found", fault.CodeOf(err))
	require.Zero(t, w.count(t, `select count(*) from api_keys where name = 'lost'`))
	require.Zero(t, w.count(t, `select count(*) from idempotency_keys`))
}

func TestIdempotentOperatorJoinsSystemAndTenantWork(t *testing.T) {
	w := newWorld(t, clock.Real())
	acme := w.tenant(t, "Acme", quota.Limits{})
	o := app.Once{Principal: "operator", Method: "POST", Path: "/v1/admin/x", Key: "k", Fingerprint: []byte("a")}
	_, _, err := w.Idempotent(t.Context(), o, func(ctx context.Context) (app.Answer, error) {
		if _, err := w.CreateProject(ctx, w.operator, acme.org.ID, "second"); err != nil {
			return app.Answer{}, err
		}
		if _, err := w.CreateAPIKey(ctx, acme.Caller, acme.org.ID, app.NewKey{Name: "tenant's"}); err != nil {
			return app.Answer{}, err
		}
		_, err := w.CreateProject(ctx, w.operator, acme.org.ID, "third")
		return app.Answer{Status: 201}, err
	})
	require.NoError(t, err)
	require.Equal(t, 3, w.count(t, `select count(*) from projects where org_id = $1`, acme.org.ID.UUID()))
	require.Equal(t, 1, w.count(t, `select count(*) from api_keys where name = 'tenant''s'`))
}

// Two processes do not share memory; the row decides between them.
func TestIdempotentBurstOverTwoProcessesWorksOnce(t *testing.T) {
	w := newWorld(t, clock.Real())
	acme := w.tenant(t, "Acme", quota.Limits{})
	second := app.New(w.Deps)
	const burst = 1000
	var runs, answered atomic.Int32
	var wg sync.WaitGroup
	for i := range burst {
		wg.Go(func() {
			a := w.App
			if i%2 == 1 {
				a = second
			}
			answer, _, err := a.Idempotent(t.Context(), once(acme, "k", "a"), func(ctx context.Context) (app.Answer, error) {
				runs.Add(1)
				_, err := a.CreateAPIKey(ctx, acme.Caller, acme.org.ID, app.NewKey{Name: "burst"})
				return app.Answer{Status: 201, Body: []byte(`{}`)}, err
			})
			if err != nil {
				if fault.CodeOf(err) != "idempotency.in_flight" {
					t.Errorf("burst: %v", err)
				}
				return
			}
			if answer.Status == 201 {
				answered.Add(1)
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, 1, runs.Load())
	require.Equal(t, 1, w.count(t, `select count(*) from api_keys where name = 'burst'`))
	require.EqualValues(t, burst, answered.Load(), "nobody has to come back")
}

func TestOldIdempotencyKeysAreForgotten(t *testing.T) {
	w := newWorld(t, clock.Real())
	acme := w.tenant(t, "Acme", quota.Limits{})
	for _, k := range []string{"old", "new"} {
		_, _, err := w.Idempotent(t.Context(), once(acme, k, "a"), func(context.Context) (app.Answer, error) {
			return app.Answer{Status: 200}, nil
		})
		require.NoError(t, err)
	}
	w.exec(t, `update idempotency_keys set created_at = created_at - interval '73 hours' where key = 'old'`)
	n, err := w.ForgetKeys(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 1, n)
}

func TestIdempotentGivesUpOnAKeyThatAnotherProcessHolds(t *testing.T) {
	w := newWorld(t, clock.Real())
	acme := w.tenant(t, "Acme", quota.Limits{})
	holder, err := w.db.OwnerPool(t).Begin(t.Context())
	require.NoError(t, err)
	_, err = holder.Exec(t.Context(), `insert into idempotency_keys (org_id, principal, method, path, key, fingerprint)
		values ($1, 'p', 'POST', '/v1/projects/p/things', 'k', 'a')`, acme.org.ID.UUID())
	require.NoError(t, err)
	_, _, err = w.Idempotent(t.Context(), once(acme, "k", "a"), func(context.Context) (app.Answer, error) {
		t.Error("the work was done twice")
		return app.Answer{}, nil
	})
	require.Equal(t, "idempotency.in_flight", fault.CodeOf(err))
	require.Equal(t, time.Second, fault.From(err).RetryAfter)
	require.NoError(t, holder.Rollback(t.Context()))
	_, replayed, err := w.Idempotent(t.Context(), once(acme, "k", "a"), func(context.Context) (app.Answer, error) {
		return app.Answer{Status: 200}, nil
	})
	require.NoError(t, err)
	require.False(t, replayed)
}

// Work that takes long holds no transaction open: feeds wait for the oldest one.
func TestIdempotentApartKeepsNoTransactionOpen(t *testing.T) {
	w := newWorld(t, clock.Real())
	o := app.Once{Principal: "operator", Method: "POST", Path: "/v1/admin/x", Key: "k", Fingerprint: []byte("a")}
	runs := 0
	work := func(context.Context) (app.Answer, error) {
		runs++
		require.Zero(t, w.count(t, `select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()
			and (backend_xid is not null or state like 'idle in transaction%')`))
		return app.Answer{Status: 201, Body: fmt.Appendf(nil, `{"n": %d}`, runs)}, nil
	}
	_, replayed, err := w.IdempotentApart(t.Context(), o, func(context.Context) (app.Answer, error) { return app.Answer{}, errors.New("boom") })
	require.EqualError(t, err, "boom", "failures are not stored")
	require.False(t, replayed)
	_, replayed, err = w.IdempotentApart(t.Context(), o, work)
	require.NoError(t, err)
	require.False(t, replayed)
	again, replayed, err := w.IdempotentApart(t.Context(), o, work)
	require.NoError(t, err)
	require.True(t, replayed)
	require.Equal(t, app.Answer{Status: 201, Headers: again.Headers, Body: []byte(`{"n": 1}`)}, again)
	other := o
	other.Fingerprint = []byte("b")
	_, _, err = w.IdempotentApart(t.Context(), other, work)
	require.Equal(t, "idempotency.mismatch", fault.CodeOf(err))
	require.Equal(t, 1, runs)

	// Another process stores first: its answer is everybody's.
	second := app.New(w.Deps)
	o.Key = "raced"
	late, replayed, err := w.IdempotentApart(t.Context(), o, func(ctx context.Context) (app.Answer, error) {
		_, _, err := second.IdempotentApart(ctx, o, func(context.Context) (app.Answer, error) {
			return app.Answer{Status: 200, Body: []byte(`"first"`)}, nil
		})
		return app.Answer{Status: 200, Body: []byte(`"second"`)}, err
	})
	require.NoError(t, err)
	require.True(t, replayed)
	require.Equal(t, `"first"`, string(late.Body))
}
