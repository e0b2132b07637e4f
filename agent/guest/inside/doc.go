// Package inside owns what the guest does within an instance: it is process 1 there. It
// learns from the host whom to be and which secrets to hand on, starts the tenant's
// command, reaps orphans, forwards signals, and serves SSH, SFTP and port forwarding on
// connections that it dials to the host's gateway itself.
//
// It does not authenticate anybody (the gateway did, and nobody else can reach the
// sockets), writes no secret anywhere, and trusts nothing that it reads from the image:
// a strange file there costs the tenant's own instance a message. Exit codes are those
// of a shell: 126 cannot run, 127 not found, 128 + n for signal n.
package inside
