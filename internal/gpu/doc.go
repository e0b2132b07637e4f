// Package gpu owns what a GPU can be cut into: sharing modes, MIG profiles and
// their legal placements, slots, and the one feasibility rule that the placement
// engine, the claim, the quote and the node agent all use.
//
// Everything is derived from what a driver reported for that very GPU; nothing
// is hard-coded by model. The package is pure: no I/O, no clock, no randomness.
// It does not choose between GPUs (internal/placement) and talks to no driver
// (nodeagent/gpudrv).
//
// Units: memory in MiB; placements in the driver's memory slices ("memory
// units"), 8 on an H200; compute in compute slices, 7 on an H200. A slot takes
// units [Start, Start+Size): memory units in mig mode, shares in mps and
// timeslice mode, unit 0 of 1 in whole mode. A unit has at most one holder.
package gpu
