package nodeagent

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/tranche-cloud/tranche/internal/agentlink"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
)

// GPUs lists the GPUs that the host has shown, in this boot or an earlier one, by
// UUID; those that Forget dropped are not among them.
func (k *Keeper) GPUs() []string { return k.known() }

// Holders names what is on a GPU: assignments, and what this agent does not know.
func (k *Keeper) Holders(uuid string) []string { return k.holders(uuid) }

// Mend has GPUs reset that nothing is on: it waits for the turn on each, calls reset
// for each, brings them back into their modes, and calls test for each. Nothing is
// carved on them meanwhile. It fails with InUse, having done nothing, while anything
// of ours or of strangers is on one of them.
func (k *Keeper) Mend(ctx context.Context, uuids []string, reset, test func(ctx context.Context, uuid string) error) error {
	leave, err := k.enterQueues(append([]string(nil), uuids...))
	if err != nil {
		return err
	}
	defer leave()
	for _, uuid := range uuids {
		if held := k.holders(uuid); len(held) > 0 {
			return gpudrv.Refuse(gpudrv.InUse, "reset", uuid, "%s is on the gpu", strings.Join(held, ", "))
		}
	}
	for _, uuid := range uuids {
		if err := reset(ctx, uuid); err != nil {
			return err
		}
	}
	var errs []error
	for _, uuid := range uuids {
		if want, ok := k.wantedMode(uuid); ok {
			if err := k.host.Carve.EnsureMode(ctx, uuid, want); err != nil {
				errs = append(errs, fmt.Errorf("restore the mode after the reset: %w", err))
				continue
			}
		}
		if err := test(ctx, uuid); err != nil {
			errs = append(errs, err)
		}
		k.relook(uuid)
	}
	return errors.Join(errs...)
}

// Healths is the health of each GPU that the host has shown, by UUID.
func (k *Keeper) Healths() map[string]GPUHealth {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := map[string]GPUHealth{}
	for uuid := range k.devices {
		out[uuid] = k.graded(uuid)
	}
	return out
}

// Condition is what concerns the host as a whole, and why.
func (k *Keeper) Condition() (is agentlink.Condition, cause string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.condition.is, k.condition.cause
}
