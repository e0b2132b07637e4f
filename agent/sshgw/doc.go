// Package sshgw owns the SSH gateway of a host: the one address on which tenants reach
// their instances. The user name is the instance id; a key of the instance's desired
// state or a short-lived certificate of a trusted authority lets in; what follows is
// passed on, channel by channel, to the guest, which dialled the gateway beforehand.
//
// The gateway needs neither agent nor control plane while it runs: all it knows is the
// folder of its desired state (State), which the agent writes and the gateway reads
// again when it changes. It holds no runtime socket, opens no file that a tenant can
// write, and can run as an unprivileged process of its own. Nobody is told whether an
// instance exists, only that he may not enter.
//
// Every session is audited when it opens and when it closes, each exactly once, also
// over a kill of the gateway (Spool). Sizes are bytes, instants are wall time in UTC.
package sshgw
