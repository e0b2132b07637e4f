// Package workflows owns the loops of the control plane: one workflow a resource,
// which calls its next step until nothing is due, and the worker that runs them
// with the relay and the singleton loops on Postgres.
//
// It decides nothing: what comes next is instance.Next, host.Next and host.NextMode,
// carried out by internal/app in local activities. Histories hold ids and numbers, no facts:
// losing Temporal's database costs a wake-up, which the sweeper repeats.
package workflows
