package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/tranche-cloud/tranche/nodeagent/runtime"
)

// unlimited is what v1 says for no limit, on machines of any page size, or more.
const unlimited = 1 << 62

// Stats reads the counters of a group. A counter that this kernel does not have is
// −1. The error of a group that is not there is fs.ErrNotExist.
func (t *Tree) Stats(group string) (runtime.Stats, error) {
	folders, err := t.folders(group)
	if err != nil {
		return runtime.Stats{}, err
	}
	probe := folders[0]
	if !t.v2 {
		probe = filepath.Join(t.root, "memory", group)
	}
	if _, err := os.Stat(probe); err != nil {
		return runtime.Stats{}, fmt.Errorf("read cgroup %s: %w", group, err)
	}
	if t.v2 {
		return t.unified(probe), nil
	}
	return t.perController(group), nil
}

func (t *Tree) unified(dir string) runtime.Stats {
	file := func(name string) string { return filepath.Join(dir, name) }
	read, written := perDevice(file("io.stat"))
	return runtime.Stats{
		CPU:         duration(keyed(file("cpu.stat"), "usage_usec"), time.Microsecond),
		Throttled:   duration(keyed(file("cpu.stat"), "throttled_usec"), time.Microsecond),
		MemoryBytes: working(number(file("memory.current")), keyed(file("memory.stat"), "inactive_file")),
		MemoryLimit: limited(number(file("memory.max"))),
		PIDs:        number(file("pids.current")),
		OOMKills:    keyed(file("memory.events"), "oom_kill"),
		ReadBytes:   read, WrittenBytes: written,
	}
}

func (t *Tree) perController(group string) runtime.Stats {
	file := func(controller, name string) string { return filepath.Join(t.root, controller, group, name) }
	read, written := perOperation(file("blkio", "blkio.throttle.io_service_bytes_recursive"))
	if read < 0 {
		read, written = perOperation(file("blkio", "blkio.throttle.io_service_bytes"))
	}
	return runtime.Stats{
		CPU:         duration(number(file("cpuacct", "cpuacct.usage")), time.Nanosecond),
		Throttled:   duration(keyed(file("cpu", "cpu.stat"), "throttled_time"), time.Nanosecond),
		MemoryBytes: working(number(file("memory", "memory.usage_in_bytes")), keyed(file("memory", "memory.stat"), "total_inactive_file")),
		MemoryLimit: limited(number(file("memory", "memory.limit_in_bytes"))),
		PIDs:        number(file("pids", "pids.current")),
		OOMKills:    keyed(file("memory", "memory.oom_control"), "oom_kill"),
		ReadBytes:   read, WrittenBytes: written,
	}
}

// number reads a file of one number; −1 if there is none.
func number(file string) int64 {
	text, err := os.ReadFile(file)
	if err != nil {
		return -1
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return -1
	}
	return n
}

// keyed reads one number of a file of "key number" lines.
func keyed(file, key string) int64 {
	text, err := os.ReadFile(file)
	if err != nil {
		return -1
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) == 2 && fields[0] == key {
			if n, err := strconv.ParseInt(fields[1], 10, 64); err == nil {
				return n
			}
		}
	}
	return -1
}

// perDevice sums lines like "8:0 rbytes=1 wbytes=2".
func perDevice(file string) (read, written int64) {
	text, err := os.ReadFile(file)
	if err != nil {
		return -1, -1
	}
	for field := range strings.FieldsSeq(string(text)) {
		key, value, _ := strings.Cut(field, "=")
		n, err := strconv.ParseInt(value, 10, 64)
		switch {
		case err != nil:
		case key == "rbytes":
			read += n
		case key == "wbytes":
			written += n
		}
	}
	return read, written
}

// perOperation sums lines like "8:0 Read 1".
func perOperation(file string) (read, written int64) {
	text, err := os.ReadFile(file)
	if err != nil {
		return -1, -1
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) != 3 {
			continue
		}
		n, err := strconv.ParseInt(fields[2], 10, 64)
		switch {
		case err != nil:
		case fields[1] == "Read":
			read += n
		case fields[1] == "Write":
			written += n
		}
	}
	return read, written
}

func duration(n int64, unit time.Duration) time.Duration {
	if n < 0 {
		return -1
	}
	return time.Duration(n) * unit
}

// working leaves out what the kernel gives back as soon as anybody wants it.
func working(used, inactive int64) int64 {
	if used < 0 {
		return -1
	}
	return max(0, used-max(0, inactive))
}

func limited(n int64) int64 {
	if n >= unlimited {
		return -1
	}
	return n
}

// Gone reports that an error says that a group is not there.
func Gone(err error) bool { return errors.Is(err, fs.ErrNotExist) }
