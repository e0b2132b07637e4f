package store

import (
	"errors"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// IsAway reports whether an error of Open or Check says that the database cannot
// be reached now but may be in a moment, as opposed to refusing this process.
func IsAway(err error) bool {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		// Refusals of the login (28…) or of the name (3D000) do not heal.
		return strings.HasPrefix(pg.Code, "57P") || strings.HasPrefix(pg.Code, "53")
	}
	for e := err; e != nil; e = errors.Unwrap(e) {
		if isConnectionError(e) {
			return true
		}
	}
	return false
}
