package app_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/internal/app"
	"github.com/tranche-cloud/tranche/internal/clock"
	"github.com/tranche-cloud/tranche/internal/quota"
	"github.com/tranche-cloud/tranche/internal/store"
)

// hurried is a clock by which a minute passes between two looks: nothing that is
// remembered is ever fresh.
type hurried struct {
	clock.Clock
	looks atomic.Int64
}

func (h *hurried) Now() time.Time {
	return h.Clock.Now().Add(time.Duration(h.looks.Add(1)) * time.Minute)
}

// A create holds a connection while it asks what the fleet is; a list asks before it
// has one. Neither may wait for the other when the pool is used up.
func TestCreatesAndListsOfOffersDoNotWaitForEachOther(t *testing.T) {
	s := newShop(t, quota.Limits{Instances: 1000, GPUs: 1000})
	narrow, err := store.Open(t.Context(), s.db.AppDSN, 2, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	t.Cleanup(narrow.Close)
	deps := s.Deps
	deps.Store, deps.Clock = narrow, &hurried{Clock: clock.Real()}
	a := app.New(deps)

	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	for buyer := range 4 {
		wg.Go(func() {
			for n := range 10 {
				if _, err := a.CreateInstance(ctx, s.acme.Caller, s.wish(fmt.Sprintf("n%d-%d", buyer, n))); err != nil {
					t.Errorf("create: %v", err)
					return
				}
			}
		})
		wg.Go(func() {
			for range 20 {
				if _, err := a.ListOffers(ctx, s.acme.Caller, app.OfferFilter{}, app.Page{Size: 10}); err != nil {
					t.Errorf("list: %v", err)
					return
				}
			}
		})
	}
	wg.Wait()
	require.Equal(t, 40, s.count(t, `select count(*) from instances`))
}
