package injection

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	cdi "tags.cncf.io/container-device-interface/specs-go"
)

// lastReserved is the highest capability that is not a slice's: 1 changes MIG
// instances, 2 watches every tenant.
const lastReserved = 2

// checkNode refuses a node that is missing, is no character device, has another
// minor number than it must (-1: any) or cannot be opened by a mapped user.
func (s *Store) checkNode(device, relative string, minor int) error {
	path := filepath.Join(s.cfg.Devices, relative)
	info, err := os.Lstat(path)
	if err != nil {
		return refuse(NodeMissing, device, "no node %s: load the driver's modules, nvidia-modprobe makes the nodes", path).because(err)
	}
	if info.Mode()&fs.ModeCharDevice == 0 {
		return refuse(NodeMissing, device, "%s is no character device", path)
	}
	var stat unix.Stat_t
	if err := unix.Stat(path, &stat); err != nil {
		return refuse(NodeMissing, device, "read node %s", path).because(err)
	}
	if got := int(unix.Minor(stat.Rdev)); minor >= 0 && got != minor {
		return refuse(NodeMissing, device, "%s has minor number %d, not %d: it is another device", path, got, minor)
	}
	if info.Mode().Perm()&0o004 == 0 {
		return refuse(NodeLocked, device, "%s has mode %#o: a user namespace cannot read it, set DeviceFileMode of the driver", path, info.Mode().Perm())
	}
	return nil
}

// readMinors reads the driver's list of capabilities, without those that no slice
// may have.
func readMinors(device, path string) (map[string]int, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, refuse(MinorMissing, device, "read %s", path).because(err)
	}
	minors := map[string]int{}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) != 2 {
			continue
		}
		if minor, err := strconv.Atoi(fields[1]); err == nil && minor > lastReserved {
			minors[fields[0]] = minor
		}
	}
	return minors, nil
}

func (s *Store) mockNode(name string) string { return filepath.Join(s.cfg.Mock, name) }

// simulatedNodes makes a clone of /dev/null. Its path is the same inside and
// outside, because within a user namespace the runtime binds a node at its own path.
func (s *Store) simulatedNodes(name string) ([]*cdi.DeviceNode, error) {
	path := s.mockNode(name)
	if err := os.MkdirAll(s.cfg.Mock, 0o755); err != nil {
		return nil, refuse(Broken, name, "make folder %s", s.cfg.Mock).because(err)
	}
	const null = 1<<8 | 3
	err := unix.Mknod(path, unix.S_IFCHR|0o666, null)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, refuse(Broken, name, "make node %s", path).because(err)
	}
	if err := os.Chmod(path, 0o666); err != nil {
		return nil, refuse(Broken, name, "open node %s to all", path).because(err)
	}
	return []*cdi.DeviceNode{{Path: path, Type: "c", Permissions: "rw"}}, nil
}

// mockNodes lists the simulated nodes; the folder is ours alone.
func (s *Store) mockNodes() ([]string, error) {
	entries, err := os.ReadDir(s.cfg.Mock)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, refuse(Broken, "", "read folder %s", s.cfg.Mock).because(err)
	}
	var names []string
	for _, entry := range entries {
		if entry.Type()&fs.ModeCharDevice != 0 {
			names = append(names, entry.Name())
		}
	}
	return names, nil
}
