package group_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/internal/group"
)

var errFirst = errors.New("first")

func TestTheFirstErrorEndsTheOthersAndIsReturned(t *testing.T) {
	t.Parallel()
	ended := 0
	waits := func(ctx context.Context) error {
		<-ctx.Done()
		ended++ // one such job alone: no lock
		require.ErrorIs(t, context.Cause(ctx), errFirst)
		return ctx.Err()
	}
	err := group.Run(t.Context(), waits, func(context.Context) error { return nil }, func(context.Context) error { return errFirst })
	require.Equal(t, errFirst, err)
	require.Equal(t, 1, ended, "it waits for all")
}

func TestAJobThatIsDoneEndsNobodyElse(t *testing.T) {
	t.Parallel()
	done := make(chan struct{})
	err := group.Run(t.Context(),
		func(context.Context) error { close(done); return nil },
		func(ctx context.Context) error { <-done; return ctx.Err() })
	require.NoError(t, err)
	require.NoError(t, group.Run(t.Context()), "no jobs")
}

func TestTheEndOfTheCallerEndsAll(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	waits := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	cancel()
	require.ErrorIs(t, group.Run(ctx, waits, waits), context.Canceled)
}
