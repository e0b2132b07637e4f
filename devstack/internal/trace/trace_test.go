package trace_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tranche-cloud/tranche/devstack/internal/trace"
)

const header = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"

func TestParseReadsThePublishedColumns(t *testing.T) {
	tasks, err := trace.Parse(strings.NewReader(header +
		"a,12000,16384,1,460,,LS,Running,427061,12902960,427065\n" +
		"b,12000,16384,0,0,,BE,Succeeded,5,9,6\n" +
		"c,12000,16384,1,1000,T4|P100,LS,Pending,10,40,\n"))
	require.NoError(t, err)
	require.Equal(t, []trace.Task{
		{Name: "a", GPUs: 1, Milli: 460, Created: 427061, Deleted: 12902960, Scheduled: 427065},
		{Name: "b", Created: 5, Deleted: 9, Scheduled: 6},
		{Name: "c", GPUs: 1, Milli: 1000, Created: 10, Deleted: 40, Scheduled: 10},
	}, tasks)
	require.Equal(t, 30*time.Second, tasks[2].Life(), "a task that was never placed counts from its creation")
}

func TestParseNamesWhatIsWrong(t *testing.T) {
	for text, want := range map[string]string{
		"":                                 "header",
		"name,num_gpu\n":                   `"gpu_milli" is missing`,
		header + "a,1,1,9,1000,,,,1,2,1\n": "line 2: num_gpu 9",
		header + "a,1,1,1,0,,,,1,2,1\n":    "gpu_milli 0",
		header + "a,1,1,1,1001,,,,1,2,1\n": "gpu_milli 1001",
		header + "a,1,1,1,1000,,,,5,4,5\n": "out of order",
		header + "a,1,1,x,1000,,,,5,6,5\n": "num_gpu",
		header + "a,1,1\n":                 "wrong number of fields",
	} {
		_, err := trace.Parse(strings.NewReader(text))
		require.ErrorContains(t, err, want, text)
	}
}

func TestDensestWindowIsTheShortestOfConsecutiveGPUArrivals(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tasks := trace.Generate(rapid.Uint64().Draw(t, "seed"), rapid.IntRange(1, 60).Draw(t, "tasks"))
		n := rapid.IntRange(1, 70).Draw(t, "n")
		window := trace.Densest(tasks, n)
		all := trace.Densest(tasks, 0)
		require.Len(t, window, min(n, len(all)))
		if len(window) == 0 {
			return
		}
		span := func(w []trace.Task) int64 { return w[len(w)-1].Created - w[0].Created }
		for from := 0; from+len(window) <= len(all); from++ {
			require.LessOrEqual(t, span(window), span(all[from:from+len(window)]))
		}
		for _, task := range window {
			require.Positive(t, task.GPUs)
		}
	})
}

func TestPlanMapsSharesAndSpreadsOrganizations(t *testing.T) {
	var window []trace.Task
	for i, milli := range []int{1, 250, 251, 428, 429, 500, 501, 1000} {
		window = append(window, trace.Task{GPUs: 1, Milli: milli, Created: int64(100 + i), Scheduled: int64(103 + i), Deleted: int64(110 + i)})
	}
	window = append(window, trace.Task{GPUs: 2, Milli: 1000}, trace.Task{GPUs: 1, Milli: 1000, Created: 200, Scheduled: 200, Deleted: 200})
	arrivals, skipped := trace.Plan(window, 3)
	require.Equal(t, 1, skipped)
	var shapes []trace.Shape
	var orgs []int
	for _, a := range arrivals {
		shapes, orgs = append(shapes, a.Shape), append(orgs, a.Organization)
	}
	require.Equal(t, []trace.Shape{trace.Quarter, trace.Quarter, trace.ThreeSevenths, trace.ThreeSevenths,
		trace.Half, trace.Half, trace.Whole, trace.Whole, trace.Whole}, shapes)
	require.Equal(t, []int{0, 1, 2, 0, 1, 2, 0, 1, 0}, orgs, "by index in the window, the skipped one included")
	require.Equal(t, 7*time.Second, arrivals[0].Life)
	require.Equal(t, time.Second, arrivals[1].At)
}

func TestGeneratedTraceIsReadBackAlike(t *testing.T) {
	tasks := trace.Generate(7, 200)
	require.Equal(t, tasks, trace.Generate(7, 200))
	require.NotEqual(t, tasks, trace.Generate(8, 200))
	var text bytes.Buffer
	require.NoError(t, trace.Write(&text, tasks))
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, trace.DefaultFile), text.Bytes(), 0o600))
	read, err := trace.Load(dir)
	require.NoError(t, err)
	require.Equal(t, tasks, read)
}
