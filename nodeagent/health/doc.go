// Package health watches the GPUs of one host: it takes the driver's events and reads
// every GPU at intervals, decides what each finding means for the GPU, for the runs on
// it and for the host, has runs ended and credited, and brings a GPU back to use once
// it is empty, by a verified reset.
//
// It owns the policy (policy.yaml: what each Xid means), the ailments of each GPU, and
// health.json in the data folder, in which they outlive the agent. It does not carve,
// does not end containers itself (the Keeper does, at its word), never reboots the
// host, and touches no GPU that is not empty.
//
// A GPU has a set of ailments, and its state is the worst of them: a mild error later
// on never makes a bad GPU look better. An ailment goes when what cures it was done
// and proven, not because nothing was heard of it any more; only those that are read
// as a state (a link that is down) go when the reading is good again.
//
// Instants are the host's uptime.
package health
