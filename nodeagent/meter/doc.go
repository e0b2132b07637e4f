// Package meter measures what each slice of one host uses: the GPU by profiling
// counters or the driver, CPU, memory and disk by the kernel's groups, the network by
// the host's counters. It puts one record an interval into the spool.
//
// It owns the readings, the gaps and meter.json in the data folder, which says up to
// when was measured. It does not bill: time is billed by the proof of life, and
// readings are for people and for reconciliation.
//
// For every run that is on the host at the end of an interval, and for every source,
// there is exactly one entry: readings, or a gap with its reason. Intervals of a run
// follow each other without a hole, also over restarts of the agent. What is not
// reported is absent, never zero. Readings of counters are differences over the
// interval; a counter that began anew counts from zero, so none is ever negative.
//
// Shares of time are in millionths, memory and traffic in bytes, CPU time in
// microseconds. Energy is not measured by slice: drivers only know the whole GPU's.
package meter
