// Package sim is a simulated GPU driver in pure Go: exact catalogues of real
// models, the driver's constraints, positional and reused GPU instance ids,
// in-use errors, mode switches, reboots, lost GPUs and hung calls.
//
// It owns the truth of a simulated host: its state is one fsynced file, so that
// slices outlive a killed agent as they outlive one on real hardware, and are
// gone after Reboot. It does not share code with package gpu's rule: each checks
// the other in tests.
//
// It does not run containers or CUDA. Everything it reports says simulated.
package sim
