package client

import (
	"context"
	"iter"
	"net/http"

	"github.com/tranche-cloud/tranche/openapi/wire"
)

// GetGPU reads one GPU.
func (a Admin) GetGPU(ctx context.Context, gpu string) (GPU, error) {
	return answer[GPU](a.c.raw.GetGpu(ctx, gpu))
}

// SetGPUMode asks for another mode of a GPU; follow the operation with WaitOperation.
// The service wants the generation last seen: pass IfGeneration.
func (a Admin) SetGPUMode(ctx context.Context, gpu string, in GPUModeChange, opts ...CallOption) (AdminOperation, error) {
	in.DryRun = nil
	return answer[AdminOperation](a.c.raw.SetGpuMode(ctx, gpu, &wire.SetGpuModeParams{}, in, editors(opts)...))
}

// GPUModeEffect says what SetGPUMode would do, and does nothing.
func (a Admin) GPUModeEffect(ctx context.Context, gpu string, in GPUModeChange, opts ...CallOption) (GPUModeEffect, error) {
	dry := true
	in.DryRun = &dry
	return answer[GPUModeEffect](a.c.raw.SetGpuMode(ctx, gpu, &wire.SetGpuModeParams{}, in, editors(opts)...))
}

// CancelGPUMode ends a change of mode. It fails with state.conflict once the host has
// begun to switch.
func (a Admin) CancelGPUMode(ctx context.Context, gpu string, opts ...CallOption) (AdminOperation, error) {
	return answer[AdminOperation](a.c.raw.CancelGpuMode(ctx, gpu, &wire.CancelGpuModeParams{}, editors(opts)...))
}

// GetOperation reads an operator's long-running request as it stands.
func (a Admin) GetOperation(ctx context.Context, operation string) (AdminOperation, error) {
	return answer[AdminOperation](a.c.raw.GetAdminOperation(ctx, operation, &wire.GetAdminOperationParams{}))
}

// WaitOperation waits until the operation ends or ctx does. It returns the operation,
// and an *OperationError unless it succeeded.
func (a Admin) WaitOperation(ctx context.Context, operation string) (AdminOperation, error) {
	for {
		wait := seconds(ctx)
		op, err := answer[AdminOperation](a.c.raw.GetAdminOperation(ctx, operation, &wire.GetAdminOperationParams{Wait: &wait}))
		if err != nil {
			return op, err
		}
		switch op.Status {
		case wire.OperationStatusSucceeded:
			return op, nil
		case wire.OperationStatusFailed, wire.OperationStatusCancelled:
			return op, operationError(Operation{Id: op.Id, Kind: op.Kind, Status: op.Status, Problem: op.Problem})
		}
		if err := ctx.Err(); err != nil {
			return op, err
		}
	}
}

// EventFilter narrows a list; zero fields do not. A Type with a trailing dot stands for
// all that begin with it; Subject is an id.
type EventFilter struct{ Type, Subject string }

// Events lists what happened to hosts, GPUs and instances, newest first.
func (a Admin) Events(ctx context.Context, f EventFilter) iter.Seq2[Event, error] {
	return each[Event](func(token *string) (*http.Response, error) {
		return a.c.raw.ListAdminEvents(ctx, &wire.ListAdminEventsParams{
			Type: optional(f.Type), Subject: optional(f.Subject), PageSize: sized(), PageToken: token,
		})
	})
}
