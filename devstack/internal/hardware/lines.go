package hardware

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tranche-cloud/tranche/openapi/wire"
)

// line is what a program printed.
type line struct {
	Event      string  `json:"event"`
	Tag        string  `json:"tag"`
	PID        int     `json:"pid"` // in its own namespace
	At         int64   `json:"at"`  // ms since 1970
	Millis     float64 `json:"ms"`  // since its start
	SMs        float64 `json:"sms"`
	Free       float64 `json:"free_mib"`
	PerSecond  float64 `json:"per_second"`
	Iterations float64 `json:"iterations"`
	Busy       float64 `json:"busy"`
	MiB        float64 `json:"mib"`
	OK         bool    `json:"ok"`
	Words      float64 `json:"words"`
	Pattern    float64 `json:"pattern"`
	NotZero    float64 `json:"not_zero"`
	Code       string  `json:"code"`
}

func parse(text []byte) []line {
	var out []line
	for row := range bytes.Lines(text) {
		// A log may put its own words before the program's.
		at := bytes.IndexByte(row, '{')
		var l line
		if at >= 0 && json.Unmarshal(bytes.TrimSpace(row[at:]), &l) == nil && l.Event != "" {
			out = append(out, l)
		}
	}
	return out
}

// lines is what the program of a name has printed so far.
func (r *run) lines(tag string) []line {
	var out []line
	files, err := filepath.Glob(filepath.Join(r.agentDir(), "logs", "*.log"))
	if err != nil {
		return nil
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			continue
		}
		for _, l := range parse(text) {
			if l.Tag == tag {
				out = append(out, l)
			}
		}
	}
	return out
}

// await waits for the nth line of an event of a program.
func (r *run) await(ctx context.Context, tag, event string, n int) (line, error) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	looks := 0
	for {
		seen := 0
		for _, l := range r.lines(tag) {
			if l.Event == event {
				if seen++; seen == n {
					return l, nil
				}
			}
			if l.Event == "error" && event != "error" {
				return l, fmt.Errorf("%s: CUDA says %s", tag, l.Code)
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return line{}, fmt.Errorf("wait for %q of %s: %w%s", event, tag, ctx.Err(), r.state(ctx, tag))
		}
		// Seldom, so that looking does not disturb what is timed.
		if looks++; looks%50 == 0 {
			if why := r.state(ctx, tag); why != "" {
				return line{}, fmt.Errorf("wait for %q of %s: %s", event, tag, why)
			}
		}
	}
}

// state says why a program will print no more: its instance does not run any more;
// "" if it may.
func (r *run) state(ctx context.Context, tag string) string {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	i, err := r.look(ctx, tag)
	if err != nil {
		return ""
	}
	switch i.Status {
	case wire.InstanceStatusStopped, wire.InstanceStatusFailed, wire.InstanceStatusInterrupted:
	default:
		return ""
	}
	if why, err := i.StatusReason.Get(); err == nil {
		return "; it is " + string(i.Status) + ": " + why.Code + ": " + why.Detail
	}
	return "; it is " + string(i.Status)
}

// rates are the rates that a program printed between two instants, in ms since 1970;
// a zero end is now.
func (r *run) rates(tag string, from, to int64) []float64 {
	var out []float64
	for _, l := range r.lines(tag) {
		// A rate is about the second before it.
		if l.Event == "rate" && l.At-1000 >= from && (to == 0 || l.At <= to) {
			out = append(out, l.PerSecond)
		}
	}
	return out
}

func mean(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	sum := 0.0
	for _, x := range v {
		sum += x
	}
	return sum / float64(len(v))
}

// median is of an odd number of values, or the upper of two in the middle.
func median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(v))[len(v)/2]
}

// spread is all values in words, from the least to the most.
func spread(v []float64) string {
	return fmt.Sprintf("%.0f", slices.Sorted(slices.Values(v)))
}

func least(v []float64) float64 {
	out := 0.0
	for i, x := range v {
		if i == 0 || x < out {
			out = x
		}
	}
	return out
}

// hostPID finds the process of a program, as the host numbers it, by its tag.
func hostPID(tag, program string) (int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0, err
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		comm, err := os.ReadFile(filepath.Join("/proc", e.Name(), "comm"))
		if err != nil || strings.TrimSpace(string(comm)) != program {
			continue
		}
		env, err := os.ReadFile(filepath.Join("/proc", e.Name(), "environ"))
		if err == nil && bytes.Contains(env, []byte("TAG="+tag+"\x00")) {
			return pid, nil
		}
	}
	return 0, errors.New("no process " + program + " of " + tag)
}
