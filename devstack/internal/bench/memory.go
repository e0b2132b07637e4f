package bench

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/tranche-cloud/tranche/devstack/internal/market"
	"github.com/tranche-cloud/tranche/devstack/internal/stack"
)

var discard = slog.New(slog.DiscardHandler)

// parts are the processes whose use of the processor is told apart.
var parts = []string{"tranched", "postgres", "temporal", "agents"}

// ticks a second of /proc/PID/stat; fixed on Linux.
const ticks = 100

// memory tells the resident memory with 1,000 instances on 40 hosts.
func (r *run) memory(context.Context) error {
	pid, err := r.pid("all")
	if err != nil {
		return err
	}
	own, err := resident(pid)
	if err != nil {
		return err
	}
	var sum, largest float64
	for _, h := range market.Wide(hosts) {
		pid, err := r.pid(stack.AgentName(h.Name))
		if err != nil {
			return err
		}
		agent, err := resident(pid)
		if err != nil {
			return err
		}
		sum += agent
		largest = max(largest, agent)
	}
	size := fmt.Sprintf("%d hosts/%d instances", hosts, together+2*accepted)
	r.add(
		Record{ID: "M1", Case: "tranched all/" + size, Metric: "resident", Unit: "MiB", Value: own, N: 1, Goal: "<= 200"},
		Record{ID: "M2", Case: "tranche-agent/" + size, Metric: "resident, mean", Unit: "MiB", Value: sum / hosts, N: hosts},
		Record{ID: "M2", Case: "tranche-agent/" + size, Metric: "resident, largest", Unit: "MiB", Value: largest, N: hosts, Goal: "<= 60"},
	)
	return nil
}

func (r *run) pid(name string) (int, error) {
	p, err := r.stack.Process(name)
	if err != nil {
		return 0, err
	}
	return p.PID(), nil
}

// resident is a process's resident memory in MiB.
func resident(pid int) (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, fmt.Errorf("read the memory of process %d: %w", pid, err)
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, err := strconv.ParseFloat(strings.Fields(value)[0], 64)
			return kib / 1024, err
		}
	}
	return 0, fmt.Errorf("process %d tells no memory", pid)
}

// cpu is the processor time in seconds that each part has used so far.
func (r *run) cpu() (map[string]float64, error) {
	owner := map[int]string{}
	for name, part := range map[string]string{"all": "tranched", "postgres": "postgres", "temporal": "temporal"} {
		pid, err := r.pid(name)
		if err != nil {
			return nil, err
		}
		owner[pid] = part
	}
	for _, h := range market.Wide(hosts) {
		pid, err := r.pid(stack.AgentName(h.Name))
		if err != nil {
			return nil, err
		}
		owner[pid] = "agents"
	}
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, err
	}
	used := map[string]float64{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it ended in between
		}
		// The name in parentheses may hold anything; the numbers follow it.
		fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file))) // the pattern has digits only
		parent, _ := strconv.Atoi(fields[1])
		part := owner[pid]
		if part == "" {
			part = owner[parent] // a backend of Postgres
		}
		if part == "" {
			continue
		}
		// Own time, and that of children that ended: closed connections.
		for _, field := range fields[11:15] {
			n, err := strconv.ParseFloat(field, 64)
			if err != nil {
				return nil, fmt.Errorf("read %s: %w", file, err)
			}
			used[part] += n / ticks
		}
	}
	return used, nil
}
