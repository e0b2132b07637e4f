package mpsd

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/tranche-cloud/tranche/nodeagent/process"
)

const (
	pipeVariable  = "CUDA_MPS_PIPE_DIRECTORY="
	controlName   = "nvidia-cuda-mps-control"
	serverName    = "nvidia-cuda-mps-server"
	daemonizeFlag = "-d"
	// everyUserFlag gives all users one server. Each instance has a range of users of its
	// own, and a server of one user ends before that of the next starts: shares would
	// wait for each other. All are in one fault domain either way.
	everyUserFlag = "-multiuser-server"
)

// found is one process of a daemon: the daemon itself or its server.
type found struct {
	identity process.Identity
	daemon   bool
}

// running finds the daemon and the servers of a pipe folder. The pid file in it
// is not trusted, since numbers are reused; the processes themselves are asked.
// A tenant can copy name and environment but not our user and pid namespaces.
func running(pipe string) ([]found, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var out []found
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		id, err := process.Of(pid)
		if errors.Is(err, process.ErrGone) {
			continue
		}
		if err != nil {
			return nil, err
		}
		daemon, ok := belongs(pid, pipe)
		if ok && id.Alive() {
			out = append(out, found{identity: id, daemon: daemon})
		}
	}
	return out, nil
}

// belongs says whether a process is of a pipe folder, and whether it is the
// daemon. What cannot be read has ended or is not ours.
func belongs(pid int, pipe string) (daemon, ok bool) {
	args := strings0(pid, "cmdline")
	if len(args) == 0 {
		return false, false
	}
	switch filepath.Base(args[0]) {
	case controlName:
		daemon = true
		if !slices.Contains(args, daemonizeFlag) {
			return false, false // somebody's question to a daemon
		}
	case serverName:
	default:
		return false, false
	}
	if !slices.Contains(strings0(pid, "environ"), pipeVariable+pipe) {
		return false, false
	}
	for _, ns := range []string{"user", "pid"} {
		theirs, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(pid), "ns", ns))
		ours, errOurs := os.Readlink(filepath.Join("/proc/self/ns", ns))
		if err != nil || errOurs != nil || theirs != ours {
			return false, false
		}
	}
	return daemon, true
}

// strings0 reads the zero-terminated strings of a file of a process.
func strings0(pid int, name string) []string {
	raw, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), name))
	if err != nil {
		return nil
	}
	var out []string
	for part := range bytes.SplitSeq(bytes.TrimRight(raw, "\x00"), []byte{0}) {
		out = append(out, string(part))
	}
	return out
}
