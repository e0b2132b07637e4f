// Package injection owns what a container sees of a slice: one file of the Container
// Device Interface per slice, in the kind tranche.dev/slice, with the device nodes,
// the driver's libraries, the environment and the MPS pipe folder of that slice, and
// the way such files are merged into an OCI spec.
//
// It does not carve slices, does not build the rest of a spec (agent/runtime/oci) and
// touches no file of another kind or owner. Sizes are MiB, shares percent of the SMs.
//
// The nodes are the boundary; every variable is only for the comfort of programs.
// Numbers of nodes are read from the nodes when a container is made, never stored:
// they change with the driver. No hook is used, because a hook would run as root on
// the host under the influence of a tenant's image.
package injection

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"

	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/internal/units"
)

// DeviceKind is the kind of our devices in the Container Device Interface.
const DeviceKind = "tranche.dev/slice"

// DefaultDir is where files of running slices belong: it is empty after a boot, as
// the slices are.
const DefaultDir = "/var/run/cdi"

// DefaultMigMinors is where the driver lists the capabilities of MIG instances.
const DefaultMigMinors = "/proc/driver/nvidia-caps/mig-minors"

// Paths inside a container.
const (
	LibraryDir = "/usr/local/nvidia/lib64"
	BinaryDir  = "/usr/local/nvidia/bin"
	PipeDir    = "/run/tranche/mps"
)

// Driver says whose devices a slice has.
type Driver string

// The drivers.
const (
	NVIDIA    Driver = "nvml"
	Simulated Driver = "sim"
)

// Slice is what the files of one slice are made from. The facts come from the
// driver's answers after carving, not from a plan.
type Slice struct {
	Assignment string // assignment id
	Slot       int    // which of the assignment's slots, from 0
	Driver     Driver
	Technique  gpu.Kind
	Minor      int    // N of /dev/nvidiaN, as the driver reports it; not the index
	UUID       string // of the GPU, or of the MIG device
	// GI and CI are the MIG instance's numbers; only for MIG.
	GI, CI int
	// MPS is set for MPS clients, on a whole GPU or a MIG device.
	MPS *MPS
}

// MPS is how a slice reaches the daemon of its device.
type MPS struct {
	PipeDir string    // on the host
	Percent int       // 1 to 100; as set in the daemon
	Memory  units.MiB // as set in the daemon; 0 is no limit
}

// Kind is the typed reason of a refusal.
type Kind string

// The kinds.
const (
	Invalid        Kind = "INVALID"         // facts that make no slice
	NodeMissing    Kind = "NODE_MISSING"    // a device node is not there, or is another one
	NodeLocked     Kind = "NODE_LOCKED"     // a user namespace could not read the node
	MinorMissing   Kind = "MIG_MINOR_GONE"  // the driver does not list the MIG instance
	LibraryMissing Kind = "LIBRARY_MISSING" // the driver's user-space part is not there, or another version
	DeviceMissing  Kind = "DEVICE_MISSING"  // a spec wants a device that has no file
	Broken         Kind = "INJECTION_FAILED"
)

// Error is the error of every call.
type Error struct {
	Kind   Kind
	Device string // of the Container Device Interface, "" if it concerns none
	Detail string
	cause  error
}

// Error is one line: device, kind, detail, cause.
func (e *Error) Error() string {
	text := "inject " + e.Device + ": " + string(e.Kind) + ": " + e.Detail
	if e.cause != nil {
		text += ": " + e.cause.Error()
	}
	return text
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.cause }

// KindOf returns the kind of an injection error anywhere in the chain; Broken for
// any other error and "" for nil.
func KindOf(err error) Kind {
	if err == nil {
		return ""
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Kind
	}
	return Broken
}

func refuse(kind Kind, device, format string, args ...any) *Error {
	return &Error{Kind: kind, Device: device, Detail: fmt.Sprintf(format, args...)}
}

func (e *Error) because(cause error) *Error { e.cause = cause; return e }

// Device is the name of a slot's device within the kind, for example asg_…-0.
func Device(assignment string, slot int) string { return assignment + "-" + strconv.Itoa(slot) }

// Qualified is the full name that a container asks for, tranche.dev/slice=asg_…-0.
func Qualified(assignment string, slot int) string {
	return DeviceKind + "=" + Device(assignment, slot)
}

// assignmentPattern keeps names that are safe in a file name and legal as a device.
var assignmentPattern = regexp.MustCompile(`^[a-z][a-z0-9_]{0,62}$`)

// check refuses facts that contradict each other.
func (s Slice) check() error {
	name := Device(s.Assignment, s.Slot)
	switch {
	case !assignmentPattern.MatchString(s.Assignment):
		return refuse(Invalid, name, "assignment %q is no id: a-z, 0-9 and _ only, at most 63", s.Assignment)
	case s.Slot < 0 || s.Slot > 999:
		return refuse(Invalid, name, "slot %d is not 0 to 999", s.Slot)
	case s.Minor < 0:
		return refuse(Invalid, name, "minor number %d is negative: the driver did not report one", s.Minor)
	case s.Driver != NVIDIA && s.Driver != Simulated:
		return refuse(Invalid, name, "driver %q is neither %s nor %s", s.Driver, NVIDIA, Simulated)
	}
	return s.checkTechnique(name)
}

func (s Slice) checkTechnique(name string) error {
	switch s.Technique {
	case gpu.Whole, gpu.TimeSlice:
		if s.MPS != nil {
			return refuse(Invalid, name, "a %s slice has no MPS daemon", s.Technique)
		}
	case gpu.MIG:
		if s.UUID == "" || s.GI < 0 || s.CI < 0 {
			return refuse(Invalid, name, "a MIG slice needs its UUID and instance numbers, has %q, %d, %d", s.UUID, s.GI, s.CI)
		}
	case gpu.MPS:
		if s.MPS == nil {
			return refuse(Invalid, name, "an MPS slice needs its daemon's pipe folder and limits")
		}
	default:
		return refuse(Invalid, name, "technique %q is not whole, mig, mps or timeslice", s.Technique)
	}
	if s.MPS == nil {
		return nil
	}
	return s.MPS.check(name, s)
}

func (m MPS) check(name string, s Slice) error {
	switch {
	case s.Slot > 0:
		return refuse(Invalid, name, "a program reaches one MPS daemon, so an instance has one MPS slice")
	case m.Percent < 1 || m.Percent > 100:
		return refuse(Invalid, name, "MPS share %d is not 1 to 100 percent", m.Percent)
	case m.Memory < 0:
		return refuse(Invalid, name, "MPS memory limit %s is negative", m.Memory)
	case s.Driver == NVIDIA && !filepath.IsAbs(m.PipeDir):
		return refuse(Invalid, name, "MPS pipe folder %q is no absolute path", m.PipeDir)
	}
	return nil
}
