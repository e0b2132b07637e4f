package containerd

import (
	"errors"
	"regexp"

	"github.com/containerd/errdefs"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tranche-cloud/tranche/nodeagent/runtime"
)

// commandFailed is what runc says of a program that the image lacks or that no kernel
// would run. It has no codes for it.
var commandFailed = regexp.MustCompile(`exec:? "?\S+"?: .*(not found in|no such file|permission denied|format error|is a directory)`)

// typed makes an error of the port of any error of the daemon. A reason that is known
// already stays.
func typed(op, name string, err error) error {
	if err == nil {
		return nil
	}
	if known, ok := errors.AsType[*runtime.Error](err); ok {
		return known
	}
	return runtime.Refuse(kindOf(err), op, name, "containerd").Because(err)
}

func kindOf(err error) runtime.Kind {
	switch {
	case unavailable(err):
		return runtime.Unavailable
	case errdefs.IsNotFound(err):
		return runtime.NotFound
	default:
		return runtime.Broken
	}
}

// unavailable says whether the daemon did not answer.
func unavailable(err error) bool {
	if errdefs.IsUnavailable(err) {
		return true
	}
	for ; err != nil; err = errors.Unwrap(err) {
		if status.Code(err) == codes.Unavailable {
			return true
		}
	}
	return false
}

// launched is typed for the steps in which runc looks at the tenant's program.
func launched(op, name string, err error) error {
	if err == nil || unavailable(err) {
		return typed(op, name, err)
	}
	if commandFailed.MatchString(err.Error()) {
		return runtime.Refuse(runtime.CommandFailed, op, name, "the program cannot be run").Because(err)
	}
	return typed(op, name, err)
}
