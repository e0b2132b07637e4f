package store_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/internal/store"
)

// A server that dies under a statement is away; one that says no is not.
func TestLossOfTheConnectionIsAway(t *testing.T) {
	reset := &net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", syscall.ECONNRESET)}
	pipe := &net.OpError{Op: "write", Net: "tcp", Err: os.NewSyscallError("write", syscall.EPIPE)}
	for _, err := range []error{reset, fmt.Errorf("load the view: %w", pipe), io.ErrUnexpectedEOF,
		&pgconn.PgError{Code: "57P03"}} {
		require.True(t, store.IsAway(err), "%v", err)
	}
	for _, err := range []error{errors.New("other"), &pgconn.PgError{Code: "28P01"}, &pgconn.PgError{Code: "42601"}} {
		require.False(t, store.IsAway(err), "%v", err)
	}
}
