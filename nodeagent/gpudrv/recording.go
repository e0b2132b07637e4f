package gpudrv

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/tranche-cloud/tranche/internal/gpu"
)

// RecordingFormat is the version of the JSON form of recordings.
const RecordingFormat = 1

// Recording is every answer of a driver at one time, for the replay driver.
type Recording struct {
	Format     int           `json:"format"`
	RecordedAt time.Time     `json:"recorded_at"`
	Host       Host          `json:"host"`
	GPUs       []RecordedGPU `json:"gpus"`
}

// RecordedGPU is the answers about one GPU.
type RecordedGPU struct {
	Ref          Ref                        `json:"ref"`
	Identity     Answer[Identity]           `json:"identity"`
	Memory       Answer[Memory]             `json:"memory"`
	Mode         Answer[gpu.Mode]           `json:"mode"`
	MIGMode      Answer[Value[MIGMode]]     `json:"mig_mode"`
	Profiles     Answer[[]Profile]          `json:"profiles"`
	Placements   map[int]Answer[Placements] `json:"placements"` // by profile id
	GPUInstances Answer[[]GPUInstance]      `json:"gpu_instances"`
	Shares       Answer[[]Share]            `json:"shares"`
	Processes    Answer[[]Process]          `json:"processes"`
	Settings     Answer[Settings]           `json:"settings"`
	Health       Answer[Health]             `json:"health"`
	Telemetry    Answer[Telemetry]          `json:"telemetry"`
	Topology     Answer[Topology]           `json:"topology"`
	// Nil in recordings of versions that did not ask.
	Capabilities *Answer[Capabilities] `json:"capabilities,omitempty"`
	Usage        *Answer[[]SliceUsage] `json:"usage,omitempty"`
	Fabric       *Answer[Fabric]       `json:"fabric,omitempty"`
}

// Answer is what a call gave: Value, or the kind and detail of its error.
type Answer[T any] struct {
	Value  T      `json:"value"`
	Kind   Kind   `json:"error,omitempty"`
	Detail string `json:"detail,omitempty"`
}

// Get gives the answer again as the driver did.
func (a Answer[T]) Get(op, gpu string) (T, error) {
	if a.Kind == "" {
		return a.Value, nil
	}
	var zero T
	return zero, Refuse(a.Kind, op, gpu, "%s", a.Detail)
}

// Record asks a driver everything once. It fails only if the host or the list of
// GPUs cannot be read; other errors are recorded as answers.
func Record(ctx context.Context, r Reader, at time.Time) (Recording, error) {
	h, err := r.Host(ctx)
	if err != nil {
		return Recording{}, fmt.Errorf("record host: %w", err)
	}
	refs, err := r.GPUs(ctx)
	if err != nil {
		return Recording{}, fmt.Errorf("record gpus: %w", err)
	}
	rec := Recording{Format: RecordingFormat, RecordedAt: at.UTC(), Host: h}
	for _, ref := range refs {
		rec.GPUs = append(rec.GPUs, recordGPU(ctx, r, ref))
	}
	return rec, nil
}

func recordGPU(ctx context.Context, r Reader, ref Ref) RecordedGPU {
	id := ref.UUID
	g := RecordedGPU{
		Ref:          ref,
		Identity:     answer(r.Identity(ctx, id)),
		Memory:       answer(r.Memory(ctx, id)),
		Mode:         answer(r.Mode(ctx, id)),
		MIGMode:      answer(r.MIGMode(ctx, id)),
		Profiles:     answer(r.Profiles(ctx, id)),
		Placements:   map[int]Answer[Placements]{},
		GPUInstances: answer(r.GPUInstances(ctx, id)),
		Shares:       answer(r.Shares(ctx, id)),
		Processes:    answer(r.Processes(ctx, id)),
		Settings:     answer(r.Settings(ctx, id)),
		Health:       answer(r.Health(ctx, id)),
		Telemetry:    answer(r.Telemetry(ctx, id)),
		Topology:     answer(r.Topology(ctx, id)),
		Capabilities: new(answer(r.Capabilities(ctx, id))),
		Usage:        new(answer(r.Usage(ctx, id))),
		Fabric:       new(answer(r.Fabric(ctx, id))),
	}
	for _, p := range g.Profiles.Value {
		g.Placements[p.ID] = answer(r.Placements(ctx, id, p.ID))
	}
	return g
}

func answer[T any](v T, err error) Answer[T] {
	if err == nil {
		return Answer[T]{Value: v}
	}
	a := Answer[T]{Kind: KindOf(err), Detail: err.Error()}
	if e, ok := errors.AsType[*Error](err); ok {
		a.Detail = e.Detail
	}
	return a
}

// MarshalJSON writes the value, or null with the error.
func (a Answer[T]) MarshalJSON() ([]byte, error) {
	type plain struct {
		Value  *T     `json:"value"`
		Kind   Kind   `json:"error,omitempty"`
		Detail string `json:"detail,omitempty"`
	}
	out := plain{Kind: a.Kind, Detail: a.Detail}
	if a.Kind == "" {
		out.Value = &a.Value
	}
	return json.Marshal(out)
}

// ParseRecording reads the JSON of a Recording strictly: unknown members and
// other formats are refused.
func ParseRecording(text []byte) (Recording, error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	var rec Recording
	if err := dec.Decode(&rec); err != nil {
		return Recording{}, fmt.Errorf("read recording: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return Recording{}, errors.New("read recording: text after the end")
	}
	if rec.Format != RecordingFormat {
		return Recording{}, fmt.Errorf("recording has format %d, this version reads %d", rec.Format, RecordingFormat)
	}
	return rec, nil
}
