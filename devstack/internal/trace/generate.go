package trace

import (
	"encoding/csv"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
)

// Generate makes a trace of n tasks; the same seed gives the same trace. Arrivals
// are a Poisson process of one each ten seconds on average, lives are exponential
// around three minutes, and shares come from the values that real tasks ask for.
func Generate(seed uint64, n int) []Task {
	const meanGap, meanLife = 10.0, 180.0
	r := rand.New(rand.NewPCG(seed, 0))
	shares := []int{1000, 1000, 1000, 810, 590, 500, 480, 460, 320, 320, 250, 230, 160}
	tasks := make([]Task, n)
	at := 0.0
	for i := range tasks {
		at += r.ExpFloat64() * meanGap
		t := Task{Name: fmt.Sprintf("task-%04d", i), GPUs: 1, Milli: shares[r.IntN(len(shares))], Created: int64(at)}
		if r.IntN(20) == 0 { // a few ask for two GPUs, and a few for none
			t.GPUs, t.Milli = 2*r.IntN(2), 1000
		}
		t.Scheduled = t.Created + int64(r.IntN(5))
		t.Deleted = t.Scheduled + 1 + int64(r.ExpFloat64()*meanLife)
		tasks[i] = t
	}
	return tasks
}

// Write writes tasks as a pod list that Parse reads.
func Write(w io.Writer, tasks []Task) error {
	rows := csv.NewWriter(w)
	header := []string{"name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec", "qos", "pod_phase",
		"creation_time", "deletion_time", "scheduled_time"}
	if err := rows.Write(header); err != nil {
		return fmt.Errorf("write the trace: %w", err)
	}
	number := func(n int64) string { return strconv.FormatInt(n, 10) }
	for _, t := range tasks {
		row := []string{t.Name, "8000", "32768", strconv.Itoa(t.GPUs), strconv.Itoa(t.Milli), "", "LS", "Running",
			number(t.Created), number(t.Deleted), number(t.Scheduled)}
		if err := rows.Write(row); err != nil {
			return fmt.Errorf("write the trace: %w", err)
		}
	}
	rows.Flush()
	if err := rows.Error(); err != nil {
		return fmt.Errorf("write the trace: %w", err)
	}
	return nil
}
