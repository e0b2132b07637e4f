package carve

import (
	"context"
	"errors"
	"fmt"

	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
)

// Target is a GPU as a technique sees it before it acts.
type Target struct {
	Device   gpu.Device
	Mode     gpu.Mode
	BootID   string
	Recovery string // what the driver asks for, "none" on a good GPU
}

// Look reads what a technique needs to know about a GPU, its profiles included.
func Look(ctx context.Context, r gpudrv.Reader, uuid string) (Target, error) {
	return look(ctx, r, uuid, gpudrv.Device)
}

// Glance is Look without the profiles: enough for every mode but mig.
func Glance(ctx context.Context, r gpudrv.Reader, uuid string) (Target, error) {
	return look(ctx, r, uuid, gpudrv.Undivided)
}

func look(
	ctx context.Context, r gpudrv.Reader, uuid string,
	read func(context.Context, gpudrv.Reader, string) (gpu.Device, error),
) (Target, error) {
	host, err := r.Host(ctx)
	if err != nil {
		return Target{}, fmt.Errorf("read host: %w", err)
	}
	d, err := read(ctx, r, uuid)
	if err != nil {
		return Target{}, fmt.Errorf("read gpu: %w", err)
	}
	m, err := r.Mode(ctx, uuid)
	if err != nil {
		return Target{}, fmt.Errorf("read gpu mode: %w", err)
	}
	h, err := r.Health(ctx, uuid)
	if err != nil {
		return Target{}, fmt.Errorf("read gpu health: %w", err)
	}
	return Target{
		Device: d, Mode: m, BootID: host.BootID, Recovery: h.RecoveryAction.Or("none"),
	}, nil
}

// Admit applies the one feasibility rule to a new slot beside what exists, and
// says no in the words of the driver port. A GPU that the driver wants reset or
// rebooted takes nothing new: NeedsReset.
func (t Target) Admit(held []gpu.Slot, s gpu.Slot) error {
	if t.Recovery != "none" {
		return gpudrv.Refuse(gpudrv.NeedsReset, "admit", s.GPU, "driver asks for %s", t.Recovery)
	}
	err := gpu.Fits(t.Device, t.Mode, held, s)
	if err == nil {
		return nil
	}
	kind := gpudrv.Invalid
	switch gpu.ReasonOf(err) {
	case gpu.WrongMode, gpu.UnknownProfile:
		kind = gpudrv.Unsupported
	case gpu.NoRoom:
		kind = gpudrv.NoRoom
	}
	detail := err.Error()
	if r, ok := errors.AsType[*gpu.Refusal](err); ok {
		detail = r.Detail
	}
	return gpudrv.Refuse(kind, "admit", s.GPU, "%s", detail)
}
