// Package e2e owns the end-to-end and fault tests: whole installations of real
// processes, used through the public API and the command line, killed and audited.
//
// The binaries come from the folder in TRANCHE_BIN; without it they are built
// first. GPUs are simulated. Containers are real where a test is about them, which
// needs root, containerd, runc, busybox and ssh; elsewhere the fake runtime stands in.
package e2e
