package runtimetest

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/nodeagent/runtime"
)

var limitTests = []test{
	{"want of memory ends a program, and is said", func(b *bench) {
		s := b.spec("sh", "-c", "echo ready; dd if=/dev/zero of=/dev/null bs=200M count=1; sleep 1000")
		c := b.start(s)
		require.False(b, c.OOM)
		require.Eventually(b, func() bool {
			c, _ := b.find(s.Name)
			return c.OOM
		}, patience, poll)
		c, _ = b.find(s.Name)
		require.Equal(b, runtime.Running, c.State, "its shell lives on")
		stats, err := b.driver.Stats(b.Context(), s.Name)
		require.NoError(b, err)
		require.Positive(b, stats.OOMKills)
		require.EqualValues(b, s.RAM.Bytes(), stats.MemoryLimit)
	}},
	{"want of memory of the main program is kept", func(b *bench) {
		s := b.spec("dd", "if=/dev/zero", "of=/dev/null", "bs=200M", "count=1")
		b.start(s)
		c := b.exited(s.Name)
		require.Equal(b, 137, c.ExitCode)
		require.True(b, c.OOM)
		b.restart()
		again, ok := b.find(s.Name)
		require.True(b, ok)
		require.True(b, again.OOM)
	}},
	{"processes are counted", func(b *bench) {
		s := b.spec()
		s.PIDs = 16
		b.start(s)
		var said bytes.Buffer
		_, err := b.driver.Exec(b.Context(), s.Name, runtime.Exec{
			Args: []string{"sh", "-c", "i=0; while test $i -lt 20; do sleep 100 >/dev/null 2>&1 & i=$((i+1)); done"}, Stderr: &said,
		})
		require.NoError(b, err)
		require.Contains(b, said.String(), "fork")
		stats, err := b.driver.Stats(b.Context(), s.Name)
		require.NoError(b, err)
		require.LessOrEqual(b, stats.PIDs, int64(16))
		require.Greater(b, stats.PIDs, int64(1))
	}},
	{"CPU time is limited, counted and rises", func(b *bench) {
		s := b.spec("sh", "-c", "i=0; while test $i -lt 24; do (while :; do :; done) & i=$((i+1)); done; wait")
		b.prefer(b.start(s))
		var first runtime.Stats
		require.Eventually(b, func() bool {
			stats, err := b.driver.Stats(b.Context(), s.Name)
			require.NoError(b, err)
			first = stats
			return stats.Throttled > 0 && stats.CPU > 100*time.Millisecond
		}, patience, poll)
		require.Eventually(b, func() bool {
			stats, err := b.driver.Stats(b.Context(), s.Name)
			require.NoError(b, err)
			require.GreaterOrEqual(b, stats.Throttled, first.Throttled)
			return stats.CPU > first.CPU
		}, patience, poll)
	}},
	{"memory and blocks are counted", func(b *bench) {
		s := b.spec()
		b.start(s)
		before, err := b.driver.Stats(b.Context(), s.Name)
		require.NoError(b, err)
		b.sh(s.Name, "dd if=/dev/zero of=/dev/shm/x bs=1M count=16 2>/dev/null")
		after, err := b.driver.Stats(b.Context(), s.Name)
		require.NoError(b, err)
		require.Greater(b, after.MemoryBytes, before.MemoryBytes+8<<20, "a tmpfs is memory")
		require.GreaterOrEqual(b, after.WrittenBytes, int64(0))
		require.GreaterOrEqual(b, after.ReadBytes, int64(0))
	}},
	{"shared memory and locked memory", func(b *bench) {
		half, asked := b.spec(), b.spec()
		asked.Shm = 8
		b.start(half)
		b.start(asked)
		size := "df -k /dev/shm | awk 'NR == 2 {print $2}'"
		require.Equal(b, "32768", b.sh(half.Name, size))
		require.Equal(b, "8192", b.sh(asked.Name, size))
		require.Equal(b, "1777", b.sh(half.Name, "stat -c %a /dev/shm"))
		locked := strings.Fields(b.sh(half.Name, "grep '^Max locked memory' /proc/self/limits"))
		n, err := strconv.ParseInt(locked[3], 10, 64)
		require.NoError(b, err)
		require.LessOrEqual(b, n, half.RAM.Bytes())
		require.Positive(b, n)
	}},
	{"limits that nobody can live with are refused", func(b *bench) {
		s := b.spec()
		s.RAM = 1
		b.fails(s, runtime.LimitInvalid)
		s.RAM, s.VCPU = 64, 0
		b.fails(s, runtime.LimitInvalid)
		s.VCPU, s.PIDs = 1, 2
		b.fails(s, runtime.LimitInvalid)
		s.PIDs, s.RAM = 0, 1<<30
		b.fails(s, runtime.LimitInvalid)
	}},
}

// prefer gives a container far more weight than anything else has, so that it is its
// own limit that slows it and not the machine's other work.
func (b *bench) prefer(c runtime.Container) {
	b.Helper()
	for file, weight := range map[string]string{
		"/sys/fs/cgroup/cpu" + c.Cgroup + "/cpu.shares": "262144", "/sys/fs/cgroup" + c.Cgroup + "/cpu.weight": "10000",
	} {
		if _, err := os.Stat(file); err == nil {
			require.NoError(b, os.WriteFile(file, []byte(weight), 0o600))
			above := filepath.Join(filepath.Dir(filepath.Dir(file)), filepath.Base(file))
			was, err := os.ReadFile(above)
			require.NoError(b, err)
			require.NoError(b, os.WriteFile(above, []byte(weight), 0o600))
			b.Cleanup(func() { require.NoError(b, os.WriteFile(above, was, 0o600)) })
		}
	}
}
