package fault_test

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/internal/fault"
)

func quota() *fault.Error {
	return fault.New(fault.OverQuota, "quota.exceeded", "The project may hold 4 GPUs.")
}

func TestThereAreFifteenKinds(t *testing.T) {
	t.Parallel()
	kinds := slices.Clone(fault.Kinds)
	slices.Sort(kinds)
	require.Len(t, slices.Compact(kinds), 15, "a new kind needs an ADR")
}

func TestAFailureIsFoundThroughWrapping(t *testing.T) {
	t.Parallel()
	err := fmt.Errorf("create the instance: %w", fmt.Errorf("claim: %w", quota()))
	require.Equal(t, "quota.exceeded", fault.CodeOf(err))
	require.Equal(t, fault.OverQuota, fault.KindOf(err))
	require.ErrorIs(t, err, fault.New(fault.OverQuota, "quota.exceeded", ""))
	require.NotErrorIs(t, err, fault.New(fault.OverQuota, "budget.exhausted", ""))
}

func TestAnythingElseIsInternalAndKeepsItsCausePrivate(t *testing.T) {
	t.Parallel()
	cause := errors.New("password=hunter2")
	failure := fault.From(cause)
	require.Equal(t, fault.Internal, failure.Kind)
	require.Equal(t, "internal", failure.Code)
	require.NotContains(t, failure.Detail+failure.Suggestion, "hunter2")
	require.ErrorIs(t, failure, cause)
	require.Contains(t, failure.Error(), "hunter2", "logs show the cause")
}

func TestNoErrorIsNoFailure(t *testing.T) {
	t.Parallel()
	require.Nil(t, fault.From(nil))
	require.Empty(t, fault.KindOf(nil))
	require.Empty(t, fault.CodeOf(nil))
}

func TestRefiningAFailureLeavesTheOriginalAlone(t *testing.T) {
	t.Parallel()
	plain := quota()
	first := plain.With(fault.Field{Pointer: "/count", Code: "range", Detail: "at most 4"})
	second := first.With(fault.Field{Pointer: "/name"})
	third := first.With(fault.Field{Pointer: "/image"})
	refined := plain.Suggest("Ask for more.").Because(io.EOF).After(time.Second)

	require.Equal(t, quota(), plain)
	require.Len(t, first.Fields, 1)
	require.Equal(t, "/name", second.Fields[1].Pointer)
	require.Equal(t, "/image", third.Fields[1].Pointer)
	require.Equal(t, "Ask for more.", refined.Suggestion)
	require.Equal(t, time.Second, refined.RetryAfter)
	require.ErrorIs(t, refined, io.EOF)
}
