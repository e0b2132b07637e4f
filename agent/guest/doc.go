// Package guest owns the host's side of the guest, the static program that is process
// 1 of every instance (agent/cmd/tranche-guest): a host-only folder with sockets for
// each instance, what a guest is told at its start, and what it reports.
//
// The guest dials and the host listens. The folder is mounted into the instance
// read-only, as a folder, so that a listener that was started again is found again;
// the host opens nothing that a tenant can write, and dials nobody. Who connects is
// checked by the kernel's word (SO_PEERCRED) before a byte is read. What a guest says
// is bounded in size, rate and time, and is evidence about its own instance only.
//
// It does not start containers, does not serve SSH (agent/sshgw does, on a socket in
// the same folder), and keeps no secret: those are fetched when a guest asks and are
// gone when they are sent. Instants are the host's uptime.
package guest
