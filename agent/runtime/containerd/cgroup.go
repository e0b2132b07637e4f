package containerd

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// hierarchies are where a cgroup may have a folder: below the mount of version 2, and
// below those of version 1.
var hierarchies = []string{"/sys/fs/cgroup", "/sys/fs/cgroup/*"}

func foldersOf(cgroup string) []string {
	var folders []string
	for _, pattern := range hierarchies {
		found, err := filepath.Glob(pattern + cgroup)
		if err == nil { // the patterns are good
			folders = append(folders, found...)
		}
	}
	return folders
}

// oomKills counts the processes that the kernel ended for want of memory; 0 is also
// that the group is gone.
func (d *Driver) oomKills(cgroup string) int {
	for _, folder := range foldersOf(cgroup) {
		for _, file := range []string{"memory.events", "memory.oom_control"} {
			text, err := os.ReadFile(filepath.Join(folder, file))
			if err != nil {
				continue
			}
			for line := range strings.Lines(string(text)) {
				if value, found := strings.CutPrefix(line, "oom_kill "); found {
					n, err := strconv.Atoi(strings.TrimSpace(value))
					if err == nil && n > 0 {
						return n
					}
				}
			}
		}
	}
	return 0
}

// removeCgroup removes what runc left of a group: empty folders, if anything.
func removeCgroup(cgroup string) error {
	for _, folder := range foldersOf(cgroup) {
		if err := os.Remove(folder); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
