// Package nodeagent is the agent of one GPU host: it keeps what exists on the host
// equal to what the control plane desires, remembers in a journal what was in
// flight, and proves over one stream what lives (40-node §1–3).
//
// A Keeper owns the host's slices: it adopts what it finds at start before it obeys
// anything, carves and starts what is ordered with a fresh fence, removes only what
// an explicit tombstone names, and never touches what it did not make. An Agent owns
// the link: enrolment, certificate, stream. The node never chooses a place, holds no
// tenant's secret, and needs no control plane for what runs already.
//
// Ages and instants are the host's monotonic uptime within one boot; memory is MiB.
package nodeagent
