package guest

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strconv"
	"strings"
)

// ErrStranger is what the checks of this file fail with, wrapped, for a process that
// is not the guest of the instance whose socket it found.
var ErrStranger = errors.New("not the guest of this instance")

// First returns a Peer that admits process 1 of the container whose control group is
// given (path below the cgroup mount, for example /tranche/asg_…). Nobody inside a
// container can enter another one's group, nor become its process 1.
func First(cgroup string) Peer {
	return func(pid int) error {
		if err := inCgroup(pid, cgroup); err != nil {
			return err
		}
		return isFirst(pid)
	}
}

func inCgroup(pid int, cgroup string) error {
	want := path.Clean("/" + cgroup)
	if want == "/" {
		return fmt.Errorf("%w: its control group is not known", ErrStranger)
	}
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cgroup")
	if err != nil {
		return fmt.Errorf("%w: %w", ErrStranger, err)
	}
	for line := range strings.Lines(string(text)) {
		_, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ":")
		_, group, _ := strings.Cut(rest, ":")
		// One hierarchy is enough: only the runtime can put a process there.
		if group == want || strings.HasPrefix(group, want+"/") {
			return nil
		}
	}
	return fmt.Errorf("%w: in another control group", ErrStranger)
}

// isFirst checks that the process is number 1 in a process namespace below ours.
func isFirst(pid int) error {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return fmt.Errorf("%w: %w", ErrStranger, err)
	}
	for line := range strings.Lines(string(text)) {
		if numbers, ok := strings.CutPrefix(line, "NSpid:"); ok {
			fields := strings.Fields(numbers)
			// Exactly one level below: who makes namespaces of his own inside an instance
			// is process 1 there as well.
			if len(fields) == 2 && fields[1] == "1" {
				return nil
			}
		}
	}
	return fmt.Errorf("%w: not process 1", ErrStranger)
}
