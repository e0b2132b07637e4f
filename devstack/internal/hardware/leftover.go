package hardware

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// teardown deletes everything, ends the installation and looks for what is left.
func (r *run) teardown(ctx context.Context) error {
	if err := r.clear(ctx); err != nil {
		return err
	}
	if err := r.setMode(ctx, "whole"); err != nil {
		return err
	}
	said, err := r.stack.Doctor(ctx)
	r.holds("the audit is clean", err == nil, lastLine(said))
	if err := r.stack.StopHost(ctx, hostName); err != nil {
		return err
	}
	dir := r.agentDir()
	ours := func() []string { return processesOf("nvidia-cuda-mps", "tranche-guest", "spin", "allocate", "runc") }
	// A daemon that was told to quit needs a moment.
	within, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	for len(ours()) > 0 && pause(within, "processes are left") == nil {
	}
	r.nothing("processes on the GPU", smiProcesses(ctx))
	r.nothing("processes of ours", ours())
	r.nothing("mounts below the agent's folder", mountsBelow(dir))
	r.nothing("device files", matches("/var/run/cdi/*tranche*"))
	r.nothing("control groups", matches("/sys/fs/cgroup/*tranche*/*", "/sys/fs/cgroup/*/*tranche*/*"))
	r.nothing("network namespaces", matches("/run/netns/*", "/var/run/netns/*"))
	return nil
}

// nothing adds how much is left of something.
func (r *run) nothing(what string, left []string) {
	r.add(Figure{Name: "left: " + what, Value: float64(len(left)), Unit: "", Want: "0", OK: len(left) == 0, Note: strings.Join(left, " ")})
}

func lastLine(text []byte) string {
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return lines[len(lines)-1]
}

func smiProcesses(ctx context.Context) []string {
	out, err := exec.CommandContext(ctx, "nvidia-smi", "--query-compute-apps=pid,name", "--format=csv,noheader").Output()
	if err != nil {
		return []string{fmt.Sprintf("unknown: %v", err)}
	}
	return strings.FieldsFunc(string(out), func(c rune) bool { return c == '\n' })
}

// processesOf lists processes by the beginning of their names.
func processesOf(names ...string) []string {
	var out []string
	found, err := filepath.Glob("/proc/[0-9]*/comm")
	if err != nil {
		return nil
	}
	for _, file := range found {
		comm, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		for _, name := range names {
			if strings.HasPrefix(string(comm), name) {
				out = append(out, strings.TrimSpace(string(comm))+"("+filepath.Base(filepath.Dir(file))+")")
			}
		}
	}
	return out
}

func mountsBelow(dir string) []string {
	text, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return []string{err.Error()}
	}
	var out []string
	for row := range strings.Lines(string(text)) {
		fields := strings.Fields(row)
		if len(fields) > 1 && strings.HasPrefix(fields[1], dir+"/") {
			out = append(out, fields[1])
		}
	}
	return out
}

func matches(patterns ...string) []string {
	var out []string
	for _, p := range patterns {
		found, err := filepath.Glob(p)
		if err != nil {
			continue
		}
		for _, f := range found {
			if st, err := os.Stat(f); err == nil && (st.IsDir() || !strings.Contains(p, "cgroup")) {
				out = append(out, f)
			}
		}
	}
	return out
}
