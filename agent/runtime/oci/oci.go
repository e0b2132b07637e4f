// Package oci owns the OCI spec of a container: it turns what a tenant asked for and
// what its image says into the one spec that every runtime driver of the agent hands
// to runc. The isolation of an instance is decided here and nowhere else.
//
// It starts nothing and pulls nothing, and reads the disk only where a function says
// so: HostFacts, FindUser, and Build for the CDI files of the devices it was given.
// Sizes are MiB as in runtime.Spec; the spec itself has bytes.
//
// The rules:
//   - Every namespace is the container's own, the user namespace included: 65,536 ids
//     from Extra.IDBase.
//   - The command of the tenant replaces the image's entrypoint and command as a
//     whole; without one the image's entrypoint and command run. Extra.Init stands in
//     front of either.
//   - The device cgroup is the boundary to the GPUs, never the environment. Still, an
//     image cannot preload a library or set the variables of the GPU stack, and a
//     tenant cannot set those that choose devices.
//   - What the devices' CDI files say comes last and wins.
package oci

import (
	"fmt"
	"maps"
	"path"
	"slices"

	"github.com/containerd/containerd/v2/contrib/seccomp"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/tranche-cloud/tranche/nodeagent/runtime"
)

// IDs is how many uids and gids a container has.
const IDs = 65536

// Image is what an image says about running it.
type Image struct {
	Entrypoint, Command []string
	Env                 []string // NAME=value
	WorkingDir          string   // "" is /
	User                string   // as in the image: name or uid, with :group or not
}

// Input is all that a spec is made from.
type Input struct {
	Spec   runtime.Spec
	Image  Image
	User   User   // of FindUser
	RootFS string // path on the host, owned by the mapped ids
	Cgroup string // absolute below the cgroup mount, for example /tranche/asg_…
	Host   Host
	// CDIDirs are the folders whose CDI files name Spec.Extra.CDI.
	CDIDirs []string
}

// capabilities are those of the mapped root: what package managers and an SSH server
// need within their own user namespace, and no raw socket, device node or chroot.
var capabilities = []string{
	"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL", "CAP_SETGID", "CAP_SETUID",
	"CAP_SETPCAP", "CAP_NET_BIND_SERVICE", "CAP_SETFCAP",
}

var maskedPaths = []string{
	"/proc/acpi", "/proc/asound", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
	"/proc/sched_debug", "/proc/scsi", "/proc/timer_list", "/proc/timer_stats",
	"/sys/devices/virtual/powercap", "/sys/firmware",
}

var readonlyPaths = []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}

// Build makes the spec. Its errors are *runtime.Error of op "start": LIMIT_INVALID,
// COMMAND_MISSING, RUNTIME_UNAVAILABLE for a host without seccomp, RUNTIME_FAILED for wrong input of
// the agent itself.
func Build(in Input) (*specs.Spec, error) {
	if err := Check(in.Spec, in.Host); err != nil {
		return nil, err
	}
	if err := checkInput(in); err != nil {
		return nil, err
	}
	args, err := command(in)
	if err != nil {
		return nil, err
	}
	mounts, err := mountsOf(in)
	if err != nil {
		return nil, err
	}
	spec := &specs.Spec{
		Version:  specs.Version,
		Root:     &specs.Root{Path: in.RootFS},
		Hostname: hostname(in.Spec),
		Mounts:   mounts,
		Process: &specs.Process{
			Args: args, Cwd: workingDir(in), Env: environ(in), User: processUser(in),
			NoNewPrivileges: true,
			Capabilities: &specs.LinuxCapabilities{
				Bounding: capabilities, Effective: capabilities, Permitted: capabilities,
			},
			Rlimits: rlimits(in),
		},
		Linux: &specs.Linux{
			Namespaces:  namespaces(),
			UIDMappings: mapping(in.Spec), GIDMappings: mapping(in.Spec),
			CgroupsPath: in.Cgroup, Resources: resources(in),
			MaskedPaths: maskedPaths, ReadonlyPaths: readonlyPaths,
			RootfsPropagation: "private",
		},
	}
	spec.Linux.Seccomp = seccomp.DefaultProfile(spec)
	if err := inject(spec, in); err != nil {
		return nil, err
	}
	return spec, nil
}

func checkInput(in Input) error {
	s := in.Spec
	switch {
	case in.RootFS == "" || in.RootFS[0] != '/' || in.Cgroup == "" || in.Cgroup[0] != '/':
		return refuse(runtime.Broken, s, "root file system %q and cgroup %q must be absolute paths", in.RootFS, in.Cgroup)
	case s.Extra.IDBase == 0 || s.Extra.IDBase > 1<<32-1-IDs:
		return refuse(runtime.Broken, s, "ids from %d do not make a user namespace of %d ids that leaves out root", s.Extra.IDBase, IDs)
	case !in.Host.Seccomp:
		return refuse(runtime.Unavailable, s, "this kernel has no seccomp filter, without which no tenant's program runs: use a kernel with CONFIG_SECCOMP_FILTER")
	}
	return nil
}

// command applies the rule of the package doc.
func command(in Input) ([]string, error) {
	args := in.Spec.Command
	if len(args) == 0 {
		args = slices.Concat(in.Image.Entrypoint, in.Image.Command)
	}
	if len(in.Spec.Extra.Init) == 0 && (len(args) == 0 || args[0] == "") {
		return nil, refuse(runtime.CommandMissing, in.Spec, "neither the instance nor its image names a program: give the instance a command")
	}
	return slices.Concat(in.Spec.Extra.Init, args), nil
}

// processUser is who runs process 1: the image's user, or root inside where Init is to
// become that user itself.
func processUser(in Input) specs.User {
	if len(in.Spec.Extra.Init) > 0 {
		return specs.User{}
	}
	return in.User.user()
}

// workingDir is the image's; Init enters it by itself.
func workingDir(in Input) string {
	if len(in.Spec.Extra.Init) > 0 {
		return "/"
	}
	return path.Clean("/" + in.Image.WorkingDir)
}

// Learn tells the caller of a start what it needs to know of the image.
func Learn(s runtime.Spec, digest string, image Image) {
	if s.Extra.Learn != nil {
		s.Extra.Learn(runtime.Image{Digest: digest, User: image.User, Workdir: image.WorkingDir})
	}
}

func hostname(s runtime.Spec) string {
	if s.Hostname != "" {
		return s.Hostname
	}
	return s.Instance
}

func namespaces() []specs.LinuxNamespace {
	var out []specs.LinuxNamespace
	for _, kind := range []specs.LinuxNamespaceType{
		specs.UserNamespace, specs.PIDNamespace, specs.IPCNamespace, specs.UTSNamespace, specs.MountNamespace,
		specs.NetworkNamespace, specs.CgroupNamespace,
	} {
		out = append(out, specs.LinuxNamespace{Type: kind})
	}
	return out
}

func mapping(s runtime.Spec) []specs.LinuxIDMapping {
	return []specs.LinuxIDMapping{{ContainerID: 0, HostID: s.Extra.IDBase, Size: IDs}}
}

func refuse(kind runtime.Kind, s runtime.Spec, format string, args ...any) *runtime.Error {
	return runtime.Refuse(kind, "start", s.Name, "%s", fmt.Sprintf(format, args...))
}

// sorted returns the keys in order, so that equal input makes an equal spec.
func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
