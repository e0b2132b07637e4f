package boundary

import (
	"regexp"
	"strings"

	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/units"
	"github.com/tranche-cloud/tranche/nodeagent"
	"github.com/tranche-cloud/tranche/nodeagent/carve"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv/remote"
	"github.com/tranche-cloud/tranche/nodeagent/runtime"
)

// Bounds of arguments. They are far above what the control plane allows a tenant.
const (
	maxImage     = 512
	maxCommand   = 1024 // arguments
	maxKeys      = 256
	maxLine      = 16 << 10 // bytes of a key, an argument, a value
	maxEnviron   = 1024     // variables
	maxTotal     = 1 << 20  // bytes of arguments, or of variables
	maxSlots     = 64
	maxPorts     = 256
	maxPIDs      = 4096
	maxInstances = 4096
	maxVCPU      = 1 << 14
	maxMemory    = units.MiB(1 << 30)
	maxUnit      = 1024
	lastPort     = 65535
	// firstPID is the first process that is not the system's own.
	firstPID = 2
)

var (
	wordForm    = regexp.MustCompile(`^[A-Za-z0-9_./:@-]{0,128}$`)
	uuidForm    = regexp.MustCompile(`^[A-Za-z0-9-]{1,64}$`)
	deviceForm  = regexp.MustCompile(`^[A-Za-z0-9./:-]{1,128}$`)
	profileForm = regexp.MustCompile(`^[A-Za-z0-9.+_-]{0,64}$`)
	hostForm    = regexp.MustCompile(`^[A-Za-z0-9.-]{0,63}$`)
	nameForm    = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,255}$`)
)

// invalid refuses arguments; it never quotes them, for they may be secret.
func invalid(format string, a ...any) error {
	return gpudrv.Refuse(gpudrv.Invalid, "helper", "", format, a...)
}

// nothing is the arguments of a verb that has none.
type nothing struct{}

func (nothing) check() error { return nil }

// readArgs names one call of gpudrv.Reader.
type readArgs struct {
	Op   string      `json:"op"`
	Args remote.Args `json:"args"`
}

func (a readArgs) check() error {
	if !nameForm.MatchString(a.Op) {
		return invalid("the call has no name")
	}
	return a.Args.Check()
}

// gpuArgs names a GPU, and a mode where a verb wants one.
type gpuArgs struct {
	GPU  string   `json:"gpu"`
	Mode gpu.Mode `json:"mode,omitzero"`
}

func (a gpuArgs) check() error {
	if !uuidForm.MatchString(a.GPU) {
		return invalid("the GPU's UUID is not one")
	}
	return nil
}

// sliceArgs names a slice, and processes where a verb wants them.
type sliceArgs struct {
	ID        string   `json:"id"`
	Slot      gpu.Slot `json:"slot"`
	Org       string   `json:"org,omitempty"`
	Split     gpu.Mode `json:"split,omitzero"`
	Technique gpu.Kind `json:"technique,omitempty"`
	PIDs      []int    `json:"pids,omitempty"`
}

func sliceOut(s carve.Slice, pids []int) sliceArgs {
	return sliceArgs{ID: s.ID, Slot: s.Slot, Org: s.Org, Split: s.Split, Technique: s.Technique, PIDs: pids}
}

func (a sliceArgs) slice() carve.Slice {
	return carve.Slice{ID: a.ID, Slot: a.Slot, Org: a.Org, Split: a.Split, Technique: a.Technique}
}

func (a sliceArgs) check() error {
	if !wordForm.MatchString(a.ID) || !wordForm.MatchString(a.Org) || !profileForm.MatchString(string(a.Technique)) {
		return invalid("the slice's names are not legal")
	}
	if len(a.PIDs) > maxPIDs {
		return invalid("%d processes are too many", len(a.PIDs))
	}
	for _, pid := range a.PIDs {
		if pid < firstPID {
			return invalid("process %d is not a tenant's", pid)
		}
	}
	return checkSlot(a.Slot)
}

func checkSlot(s gpu.Slot) error {
	legal := func(n int) bool { return n >= 0 && n <= maxUnit }
	switch {
	case !uuidForm.MatchString(s.GPU):
		return invalid("the slot's GPU is not a UUID")
	case !s.Mode.Valid():
		return invalid("the slot's mode is none")
	case !legal(s.Profile) || !legal(s.Start) || !legal(s.Size) || !legal(s.Compute) || !profileForm.MatchString(s.Name):
		return invalid("the slot's place is not legal")
	}
	return nil
}

// runArgs is a container that shall run: a runtime.Spec without what the helper adds.
type runArgs struct {
	Name     string            `json:"name"`
	Run      int               `json:"run"`
	Instance string            `json:"instance"`
	Org      string            `json:"org,omitempty"`
	Hostname string            `json:"hostname,omitempty"`
	Image    string            `json:"image"`
	Login    *runtime.Login    `json:"login,omitempty"`
	Command  []string          `json:"command,omitempty"`
	Env      map[string]string `json:"env,omitempty"`
	Slots    []gpu.Slot        `json:"slots"`
	Devices  []string          `json:"devices,omitempty"`
	VCPU     int               `json:"vcpu"`
	RAM      units.MiB         `json:"ram_mib"`
	Shm      units.MiB         `json:"shm_mib,omitempty"`
	PIDs     int               `json:"pids,omitempty"`
	Ports    []runtime.Port    `json:"ports,omitempty"`
	Keys     []string          `json:"keys,omitempty"`
	Secrets  map[string]string `json:"secrets,omitempty"`
}

func runOut(s runtime.Spec) runArgs {
	return runArgs{
		Name: s.Name, Run: s.Run, Instance: s.Instance, Org: s.Org, Hostname: s.Hostname, Image: s.Image, Login: s.Login,
		Command: s.Command, Env: s.Env, Slots: s.Slots, Devices: s.Devices, VCPU: s.VCPU, RAM: s.RAM, Shm: s.Shm,
		PIDs: s.PIDs, Ports: s.Ports, Keys: s.Keys, Secrets: s.Secrets,
	}
}

func (a runArgs) spec(progress func(string)) runtime.Spec {
	return runtime.Spec{
		Name: a.Name, Run: a.Run, Instance: a.Instance, Org: a.Org, Hostname: a.Hostname, Image: a.Image, Login: a.Login,
		Command: a.Command, Env: a.Env, Slots: a.Slots, Devices: a.Devices, VCPU: a.VCPU, RAM: a.RAM, Shm: a.Shm,
		PIDs: a.PIDs, Ports: a.Ports, Keys: a.Keys, Secrets: a.Secrets, Extra: runtime.Extra{Progress: progress},
	}
}

func (a runArgs) check() error {
	if err := checkName(a.Name); err != nil {
		return err
	}
	switch {
	case a.Run < 0 || !wordForm.MatchString(a.Instance) || !wordForm.MatchString(a.Org) || !hostForm.MatchString(a.Hostname):
		return invalid("the run's names are not legal")
	case a.Image == "" || len(a.Image) > maxImage || !plain(a.Image):
		return invalid("the image's reference is empty, longer than %d bytes, or not plain text", maxImage)
	case a.VCPU < 0 || a.VCPU > maxVCPU || a.RAM < 0 || a.RAM > maxMemory || a.Shm < 0 || a.Shm > maxMemory || a.PIDs < 0:
		return invalid("the run's size is not legal")
	case len(a.Slots) > maxSlots || len(a.Devices) > maxSlots || len(a.Ports) > maxPorts:
		return invalid("the run has too many slots or ports")
	}
	for _, s := range a.Slots {
		if err := checkSlot(s); err != nil {
			return err
		}
	}
	for _, d := range a.Devices {
		if !deviceForm.MatchString(d) {
			return invalid("a device is not a UUID")
		}
	}
	for _, p := range a.Ports {
		legal := func(n int) bool { return n > 0 && n <= lastPort }
		if !legal(p.Container) || p.Host < 0 || p.Host > lastPort || p.Protocol != "tcp" && p.Protocol != "udp" {
			return invalid("a port is not legal")
		}
	}
	return a.checkTexts()
}

// checkTexts bounds what a tenant wrote.
func (a runArgs) checkTexts() error {
	if err := checkLines("arguments of the command", a.Command, maxCommand); err != nil {
		return err
	}
	if err := checkLines("keys", a.Keys, maxKeys); err != nil {
		return err
	}
	for _, env := range []map[string]string{a.Env, a.Secrets} {
		total := 0
		for k, v := range env {
			if total += len(k) + len(v); !nameForm.MatchString(k) || strings.ContainsRune(v, 0) {
				return invalid("a variable's name or value is not legal")
			}
		}
		if len(env) > maxEnviron || total > maxTotal {
			return invalid("the variables are too many or too long")
		}
	}
	if l := a.Login; l != nil && (len(l.Registry) > maxImage || !plain(l.Registry) || len(l.Username) > maxLine || len(l.Password) > maxLine) {
		return invalid("the registry's login is not legal")
	}
	return nil
}

func checkLines(what string, lines []string, most int) error {
	total := 0
	for _, l := range lines {
		if total += len(l); len(l) > maxTotal || strings.ContainsRune(l, 0) {
			return invalid("one of the %s is not legal", what)
		}
	}
	if len(lines) > most || total > maxTotal {
		return invalid("the %s are too many or too long", what)
	}
	return nil
}

// plain says whether a text has nothing but printable ASCII without spaces.
func plain(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' })
}

// checkName refuses a container's name that is no assignment's.
func checkName(name string) error {
	if a, err := id.Parse[id.Assignment](name); err != nil || a.String() != name {
		return invalid("the container's name is no assignment")
	}
	return nil
}

// nameArgs names a container.
type nameArgs struct {
	Name string `json:"name"`
}

func (a nameArgs) check() error { return checkName(a.Name) }

// doorArgs is who may enter.
type doorArgs struct {
	Authorities []string           `json:"authorities"`
	List        []nodeagent.Access `json:"list"`
}

func (a doorArgs) check() error {
	if err := checkLines("authorities", a.Authorities, maxKeys); err != nil {
		return err
	}
	if len(a.List) > maxInstances {
		return invalid("%d instances are too many", len(a.List))
	}
	for _, x := range a.List {
		if x.Assignment.IsZero() || x.Instance.IsZero() {
			return invalid("an entry names no instance or assignment")
		}
		if err := checkLines("keys", x.Keys, maxKeys); err != nil {
			return err
		}
	}
	return checkOneLine(a)
}

// checkOneLine refuses keys that are several lines: each would be one of its own in a
// file.
func checkOneLine(a doorArgs) error {
	all := a.Authorities
	for _, x := range a.List {
		all = append(all[:len(all):len(all)], x.Keys...)
	}
	for _, l := range all {
		if strings.ContainsAny(l, "\r\n") || len(l) > maxLine {
			return invalid("a key is more than one line, or longer than %d bytes", maxLine)
		}
	}
	return nil
}
