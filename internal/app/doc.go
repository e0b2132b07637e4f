// Package app owns the use cases: one verb is one method of App, which checks what
// the pure packages decide, owns the transaction and writes intent, feeds, outbox
// and audit rows together. Everything that enters a process (HTTP handlers, agent
// streams, workflow activities, commands) calls it.
//
// It does not know HTTP, JSON or Temporal, writes no SQL, and holds no fact of its
// own: what it keeps in memory (credentials, availability) is a cache that is at
// most seconds old. Business instants come from the database, machine instants
// from clock.Clock; money is internal/money; memory is MiB.
package app
