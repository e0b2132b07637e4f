// Package server owns an embedded Temporal server on Postgres: its
// configuration, its schema and its one namespace.
//
// It does not own the Postgres cluster (package postgres) nor any workflow. It
// is for development and tests: one node on the loopback interface, without TLS
// and without authorization.
package server
