package store_test

import (
	"context"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/money"
	"github.com/tranche-cloud/tranche/internal/org"
	"github.com/tranche-cloud/tranche/internal/store"
	"github.com/tranche-cloud/tranche/internal/testkit/pgtest"
)

// What joins a shared transaction speaks for its own side again when what it called
// has returned: an operator's work is not cut short, a tenant's wall stays up.
func TestSharedTransactionsNest(t *testing.T) {
	ctx := t.Context()
	s, err := store.Open(ctx, pgtest.New(t).AppDSN, 2, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	t.Cleanup(s.Close)
	acme := org.Organization{ID: id.New[id.Org](), Name: "acme", Currency: money.MustCurrency("USD"), Limits: org.DefaultRateLimits(false)}
	emca := acme
	emca.ID, emca.Name = id.New[id.Org](), "emca"
	require.NoError(t, s.InSystem(ctx, "test", func(x *store.SystemTx) error {
		for _, o := range []org.Organization{acme, emca} {
			if _, err := x.InsertOrganization(ctx, o); err != nil {
				return err
			}
		}
		return nil
	}))
	everyone := func(x *store.SystemTx) {
		list, err := x.Organizations(ctx, store.Keyset{Size: 10})
		require.NoError(t, err)
		require.Len(t, list, 2)
	}
	onlyAcme := func(x *store.OrgTx) {
		_, err := x.Organization(ctx, acme.ID)
		require.NoError(t, err)
		_, err = x.Organization(ctx, emca.ID)
		require.Error(t, err)
	}
	nested := func(ctx context.Context) error {
		return s.InSystem(ctx, "outer", func(outer *store.SystemTx) error {
			err := s.InOrg(ctx, acme.ID, func(confined *store.OrgTx) error {
				err := s.InOrg(ctx, acme.ID, func(again *store.OrgTx) error { onlyAcme(again); return nil })
				onlyAcme(confined)
				if err != nil {
					return err
				}
				err = s.InSystem(ctx, "inner", func(inner *store.SystemTx) error { everyone(inner); return nil })
				onlyAcme(confined)
				return err
			})
			everyone(outer)
			if err != nil {
				return err
			}
			err = s.InSystem(ctx, "again", func(again *store.SystemTx) error { everyone(again); return nil })
			everyone(outer)
			return err
		})
	}
	require.NoError(t, s.ShareSystem(ctx, "test", func(ctx context.Context, x *store.SystemTx) error {
		err := nested(ctx)
		everyone(x)
		return err
	}))
	require.NoError(t, s.ShareOrg(ctx, acme.ID, func(ctx context.Context, x *store.OrgTx) error {
		err := nested(ctx)
		onlyAcme(x)
		return err
	}))
	require.Error(t, s.ShareOrg(ctx, acme.ID, func(ctx context.Context, _ *store.OrgTx) error {
		return s.InOrg(ctx, emca.ID, func(*store.OrgTx) error { return nil })
	}))
}
