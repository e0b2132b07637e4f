package network

import (
	"errors"

	"github.com/tranche-cloud/tranche/nodeagent/runtime"
)

// The kinds that a runtime driver has not; the others are runtime.PortInUse,
// runtime.LimitInvalid (the request or the settings are wrong), runtime.NotFound (the
// process is gone), runtime.Unavailable and runtime.Broken.
const (
	AddressesExhausted runtime.Kind = "ADDRESSES_EXHAUSTED" // every address of the range is held
	PortsExhausted     runtime.Kind = "PORTS_EXHAUSTED"     // every port of the range is held
)

// broken wraps an error of the kernel or the disk with what was being done. A typed
// error stays as it is.
func broken(op, name, doing string, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*runtime.Error](err); ok {
		return err
	}
	return runtime.Refuse(runtime.Broken, op, name, "%s", doing).Because(err)
}
