package injection

import (
	"debug/elf"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"

	cdi "tags.cncf.io/container-device-interface/specs-go"
)

// families are the libraries of the driver that compute programs load. Those for
// displays are not a tenant's business.
var families = []string{
	"libcuda", "libcudadebugger", "libnvidia-ml", "libnvidia-ptxjitcompiler", "libnvidia-nvvm",
	"libnvidia-nvvm70", "libnvidia-gpucomp", "libnvidia-opencl", "libnvidia-cfg", "libnvidia-allocator",
	"libnvcuvid", "libnvidia-encode", "libnvidia-opticalflow", "libnvidia-sandboxutils",
	"libnvidia-pkcs11", "libnvidia-pkcs11-openssl3", "libnvidia-present", "libnvidia-tileiras",
}

// required are those without which no program starts.
var required = []string{"libcuda", "libnvidia-ml", "libnvidia-ptxjitcompiler"}

// versioned matches libNAME.so.VERSION, the version being the driver's.
var versioned = regexp.MustCompile(`^(lib[a-z0-9-]+)\.so\.([0-9]+\.[0-9]+(?:\.[0-9]+)?)$`)

// software lists the mounts of the driver's user-space part.
func (s *Store) software(device string) ([]*cdi.Mount, error) {
	cuda, err := s.findCUDA(device)
	if err != nil {
		return nil, err
	}
	match := versioned.FindStringSubmatch(filepath.Base(cuda))
	if match == nil {
		return nil, refuse(LibraryMissing, device, "%s carries no version of a driver in its name", cuda)
	}
	version := match[2]
	if s.cfg.Version != "" && s.cfg.Version != version {
		return nil, refuse(LibraryMissing, device, "libraries are of driver %s, the kernel runs %s: reboot, or reload the modules", version, s.cfg.Version)
	}
	mounts, err := libraries(device, filepath.Dir(cuda), version)
	if err != nil {
		return nil, err
	}
	program, err := s.management(device)
	if err != nil {
		return nil, err
	}
	return append(mounts, bind(program, filepath.Join(BinaryDir, "nvidia-smi"))), nil
}

// programs are where installers put nvidia-smi.
var programs = []string{"/usr/bin/nvidia-smi", "/usr/local/nvidia/bin/nvidia-smi", "/usr/local/bin/nvidia-smi", "/opt/bin/nvidia-smi"}

// management finds nvidia-smi.
func (s *Store) management(device string) (string, error) {
	places := programs
	if s.cfg.Management != "" {
		places = []string{s.cfg.Management}
	}
	for _, place := range places {
		if program, err := filepath.EvalSymlinks(place); err == nil {
			return program, nil
		}
	}
	return "", refuse(LibraryMissing, device, "no nvidia-smi at %s: install the driver's tools", strings.Join(places, ", "))
}

func bind(host, container string) *cdi.Mount {
	return &cdi.Mount{HostPath: host, ContainerPath: container, Type: "bind", Options: readOnly()}
}

// libraries lists the mounts of one version's libraries under the names that
// programs ask for.
func libraries(device, folder, version string) ([]*cdi.Mount, error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, refuse(LibraryMissing, device, "read folder %s", folder).because(err)
	}
	var mounts []*cdi.Mount
	missing := slices.Clone(required)
	for _, entry := range entries {
		match := versioned.FindStringSubmatch(entry.Name())
		if match == nil || match[2] != version || !slices.Contains(families, match[1]) {
			continue
		}
		path, err := filepath.EvalSymlinks(filepath.Join(folder, entry.Name()))
		if err != nil {
			return nil, refuse(LibraryMissing, device, "follow %s", entry.Name()).because(err)
		}
		name, err := soname(path)
		if err != nil {
			return nil, refuse(LibraryMissing, device, "%s is no library", path).because(err)
		}
		mounts = append(mounts, bind(path, filepath.Join(LibraryDir, name)))
		if match[1] == "libcuda" {
			mounts = append(mounts, bind(path, filepath.Join(LibraryDir, "libcuda.so")))
		}
		missing = slices.DeleteFunc(missing, func(base string) bool { return base == match[1] })
	}
	if len(missing) > 0 {
		return nil, refuse(LibraryMissing, device, "%s lacks %s of driver %s: install its compute packages", folder, strings.Join(missing, ", "), version)
	}
	slices.SortStableFunc(mounts, func(a, b *cdi.Mount) int { return strings.Compare(a.ContainerPath, b.ContainerPath) })
	return mounts, nil
}

// soname reads the name under which programs load a library; it is not always the
// file's with a shorter version.
func soname(path string) (string, error) {
	file, err := elf.Open(path)
	if err != nil {
		return "", err
	}
	names, err := file.DynString(elf.DT_SONAME)
	if err = errors.Join(err, file.Close()); err != nil {
		return "", err
	}
	if len(names) != 1 || names[0] != filepath.Base(names[0]) {
		return "", errors.New("it has no name of its own")
	}
	return names[0], nil
}

// findCUDA returns the file behind libcuda.so.1.
func (s *Store) findCUDA(device string) (string, error) {
	link := filepath.Join(s.cfg.Libraries, "libcuda.so.1")
	if s.cfg.Libraries == "" {
		out, err := exec.Command("/sbin/ldconfig", "-p").Output()
		if err != nil {
			return "", refuse(LibraryMissing, device, "ask ldconfig for the driver's libraries").because(err)
		}
		if link = Lookup(string(out), "libcuda.so.1", runtime.GOARCH); link == "" {
			link = filepath.Join(LibraryDir, "libcuda.so.1") // where driver containers put it
		}
		if _, err := os.Stat(link); err != nil {
			return "", refuse(LibraryMissing, device, "ldconfig knows no libcuda.so.1: install the driver, or name its library folder")
		}
	}
	path, err := filepath.EvalSymlinks(link)
	if err != nil {
		return "", refuse(LibraryMissing, device, "follow %s", link).because(err)
	}
	return path, nil
}

// Lookup finds the path of a library in the output of ldconfig -p, for a Go
// architecture; "" if it lists none.
func Lookup(listing, name, architecture string) string {
	wanted := map[string]string{"amd64": "x86-64", "arm64": "AArch64"}[architecture]
	for line := range strings.Lines(listing) {
		head, path, found := strings.Cut(strings.TrimSpace(line), " => ")
		library, attributes, _ := strings.Cut(head, " ")
		if found && library == name && strings.Contains(attributes, wanted) {
			return path
		}
	}
	return ""
}
