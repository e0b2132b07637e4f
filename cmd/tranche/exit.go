package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/tranche-cloud/tranche/client"
)

// Exit codes.
const (
	exitOK       = 0
	exitError    = 1
	exitUsage    = 2
	exitNotFound = 3
	exitAuth     = 4
	exitConflict = 5
	exitCapacity = 6
	exitQuota    = 7
	exitTimeout  = 8 // still running
	exitDetached = 130
)

// exitOf is the one table problem code → exit code; the part before the dot
// decides where the whole code has no entry.
var exitOf = map[string]int{
	"auth": exitAuth, "resource.not_found": exitNotFound,
	"state.conflict": exitConflict, "name.taken": exitConflict, "precondition": exitConflict,
	"idempotency": exitConflict, "operation.cancelled": exitConflict,
	"capacity": exitCapacity, "offer.unavailable": exitCapacity,
	"quota": exitQuota, "budget": exitQuota,
	"approval": exitAuth, "billing": exitQuota, "refund.required": exitUsage, "issuer.unknown": exitNotFound,
	"credit": exitConflict, "payment": exitConflict, "payment.unknown_outcome": exitError, "payment.misconfigured": exitError,
	"statement": exitConflict, "issuer": exitConflict, "tax": exitConflict,
	"request": exitUsage, "offer.unknown": exitNotFound, "page_token": exitUsage,
}

// usageError is a command line that cannot be meant.
type usageError struct{ error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// stillRunning is a wait that ended before the work did.
type stillRunning struct{ operation, verb string }

func (s stillRunning) Error() string {
	return fmt.Sprintf("The operation %s is still running; `%s %s` goes on waiting.", s.operation, s.verb, s.operation)
}

// exit prints err for a person and returns its exit code.
func (a *app) exit(ctx context.Context, err error) int {
	if err == nil {
		return exitOK
	}
	if still, ok := errors.AsType[stillRunning](err); ok {
		if ctx.Err() != nil {
			fmt.Fprintf(a.err, "Detached. %s\n", still)
			return exitDetached
		}
		fmt.Fprintln(a.err, still)
		return exitTimeout
	}
	if ctx.Err() != nil {
		return exitDetached
	}
	if there, ok := errors.AsType[remoteExit](err); ok {
		return int(there)
	}
	fmt.Fprintf(a.err, "Error: %v\n", err)
	if _, ok := errors.AsType[lostSession](err); ok {
		return exitLost
	}
	if _, ok := errors.AsType[usageError](err); ok {
		return exitUsage
	}
	return exitCode(client.CodeOf(err))
}

func exitCode(code string) int {
	if n, ok := exitOf[code]; ok {
		return n
	}
	for i := range code {
		if code[i] == '.' {
			if n, ok := exitOf[code[:i]]; ok {
				return n
			}
		}
	}
	return exitError
}
