// Package gpudrv is the port to a GPU driver in the product's own types. The
// adapters are nvml (real hardware), sim (a simulated driver) and replay (a
// recording of a real one); gpudrvtest holds the conformance suite for all.
//
// It owns the vocabulary: what can be read and changed, tri-state values
// (reported, not reported, failed) and typed errors. It decides nothing: which
// slice goes where is the control plane's choice, how one is made is carve's.
//
// The driver is the truth about what exists. GPUs are named by UUID; indices,
// GPU instance ids and MIG UUIDs are attributes that are renumbered and reused.
// Changes of one GPU are made one after the other by the caller; reads may run
// at any time. Every call may block until its context ends.
//
// Units: bytes for memory in use, MiB for sizes, milliwatts, millijoules,
// degrees Celsius, MHz, percent.
package gpudrv
