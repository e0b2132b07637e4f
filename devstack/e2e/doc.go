// Package e2e owns the end-to-end and fault tests: whole installations of real
// processes, used through the public API, killed and audited.
//
// The binaries come from the folder in TRANCHE_BIN; without it they are built
// first. GPUs are simulated.
package e2e
