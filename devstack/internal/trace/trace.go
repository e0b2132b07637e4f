// Package trace owns production traces in the openb format (the pod lists of a
// published GPU cluster trace): reading, choosing a window, mapping tasks to
// offers, and making traces for tests.
//
// It plays nothing: that is package replay. Instants are seconds from the start
// of the trace; shares are thousandths of one GPU.
package trace

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"
)

// DefaultFile is the pod list that is played from a trace's folder.
const DefaultFile = "openb_pod_list_default.csv"

// Task is one task of a trace that asked for GPUs or not.
type Task struct {
	Name      string
	GPUs      int   // 0 to 8
	Milli     int   // share of one GPU, 1000 is all of it; below only with one GPU
	Created   int64 // seconds
	Deleted   int64
	Scheduled int64 // Created where the trace has none: it was never placed
}

// Life is how long the task held its GPUs.
func (t Task) Life() time.Duration { return time.Duration(t.Deleted-t.Scheduled) * time.Second }

// Load reads the pod list of a folder.
func Load(dir string) ([]Task, error) {
	f, err := os.Open(filepath.Join(dir, DefaultFile))
	if err != nil {
		return nil, fmt.Errorf("open the trace: %w", err)
	}
	defer f.Close()
	tasks, err := Parse(f)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", f.Name(), err)
	}
	return tasks, nil
}

var columns = []string{"name", "num_gpu", "gpu_milli", "creation_time", "deletion_time", "scheduled_time"}

// Parse reads a pod list. Columns may come in any order and others are ignored;
// a value out of range is an error that names the line.
func Parse(r io.Reader) ([]Task, error) {
	rows := csv.NewReader(r)
	rows.ReuseRecord = true
	header, err := rows.Read()
	if err != nil {
		return nil, fmt.Errorf("read the header: %w", err)
	}
	at := make([]int, len(columns))
	for i, name := range columns {
		if at[i] = slices.Index(header, name); at[i] < 0 {
			return nil, fmt.Errorf("column %q is missing", name)
		}
	}
	var tasks []Task
	for {
		row, err := rows.Read()
		if errors.Is(err, io.EOF) {
			return tasks, nil
		}
		if err != nil {
			return nil, err
		}
		fields := make([]string, len(at))
		for i, column := range at {
			fields[i] = row[column]
		}
		task, err := parseTask(fields)
		if err != nil {
			line, _ := rows.FieldPos(0)
			return nil, fmt.Errorf("line %d: %w", line, err)
		}
		tasks = append(tasks, task)
	}
}

func parseTask(fields []string) (Task, error) {
	t := Task{Name: fields[0]}
	var numbers [5]int64
	for i := range numbers {
		text := fields[i+1]
		if columns[i+1] == "scheduled_time" && text == "" {
			numbers[i] = numbers[i-2]
			continue
		}
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return t, fmt.Errorf("%s: %w", columns[i+1], err)
		}
		numbers[i] = n
	}
	t.GPUs, t.Milli = int(numbers[0]), int(numbers[1])
	t.Created, t.Deleted, t.Scheduled = numbers[2], numbers[3], numbers[4]
	switch {
	case t.GPUs < 0 || t.GPUs > 8:
		return t, fmt.Errorf("num_gpu %d, must be 0 to 8", t.GPUs)
	case t.GPUs > 0 && (t.Milli < 1 || t.Milli > 1000):
		return t, fmt.Errorf("gpu_milli %d, must be 1 to 1000", t.Milli)
	case t.Created < 0 || t.Scheduled < t.Created || t.Deleted < t.Scheduled:
		return t, fmt.Errorf("times out of order: created %d, scheduled %d, deleted %d", t.Created, t.Scheduled, t.Deleted)
	}
	return t, nil
}

// Densest returns the n consecutive arrivals of tasks with GPUs that lie closest
// together, the earliest of equals, in order of arrival; all of them when there
// are fewer than n.
func Densest(tasks []Task, n int) []Task {
	arrivals := slices.DeleteFunc(slices.Clone(tasks), func(t Task) bool { return t.GPUs == 0 })
	slices.SortStableFunc(arrivals, func(a, b Task) int { return int(a.Created - b.Created) })
	if n <= 0 || len(arrivals) <= n {
		return arrivals
	}
	best := 0
	span := func(from int) int64 { return arrivals[from+n-1].Created - arrivals[from].Created }
	for from := range len(arrivals) - n + 1 {
		if span(from) < span(best) {
			best = from
		}
	}
	return arrivals[best : best+n]
}
