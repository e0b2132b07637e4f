// Package stack owns a whole Tranche installation on one machine: a private
// Postgres, an embedded Temporal server, the roles of tranched and simulated
// agents, each a real child process, with their folder, ports and credentials.
//
// It does not build binaries and does not use the API beyond waiting for it;
// what is sold on the installation is package market. Everything listens on
// 127.0.0.1.
package stack
