package runtimetest

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/nodeagent/runtime"
)

// bounding is CHOWN, DAC_OVERRIDE, FOWNER, FSETID, KILL, SETGID, SETUID, SETPCAP,
// NET_BIND_SERVICE and SETFCAP.
const bounding = "00000000800005fb"

// status reads one line of /proc/self/status of a container.
func (b *bench) status(name, key string) string {
	b.Helper()
	return b.sh(name, "awk '$1 == \""+key+":\" {print $2}' /proc/self/status")
}

var confinementTests = []test{
	{"programs are confined", func(b *bench) {
		s := b.spec()
		s.Extra.IDBase = 1 << 30
		b.start(s)
		require.Equal(b, "2", b.status(s.Name, "Seccomp"))
		require.Equal(b, "1", b.status(s.Name, "NoNewPrivs"))
		require.Equal(b, bounding, b.status(s.Name, "CapBnd"))
		require.Equal(b, bounding, b.status(s.Name, "CapEff"))
		require.Equal(b, "0000000000000000", b.status(s.Name, "CapAmb"))
		require.Equal(b, []string{"0", "1073741824", "65536"}, strings.Fields(b.sh(s.Name, "cat /proc/self/uid_map")))
		require.Equal(b, []string{"0", "1073741824", "65536"}, strings.Fields(b.sh(s.Name, "cat /proc/self/gid_map")))
	}},
	{"the main program is confined like an exec", func(b *bench) {
		s := b.spec("sh", "-c", "grep -E '^(Seccomp|NoNewPrivs|CapBnd):' /proc/self/status; echo done; sleep 1000")
		b.start(s)
		b.logged(s, "done")
		require.Contains(b, b.log(s), "Seccomp:\t2")
		require.Contains(b, b.log(s), "NoNewPrivs:\t1")
		require.Contains(b, b.log(s), "CapBnd:\t"+bounding)
	}},
	{"users without an id of their own get one", func(b *bench) {
		one, two := b.spec(), b.spec()
		b.start(one)
		b.start(two)
		base := func(s runtime.Spec) string { return strings.Fields(b.sh(s.Name, "cat /proc/self/uid_map"))[1] }
		require.NotEqual(b, base(one), base(two), "no two containers share ids")
		require.NotEqual(b, "0", base(one))
	}},
	{"namespaces are its own", func(b *bench) {
		s := b.spec()
		b.start(s)
		for _, kind := range []string{"user", "pid", "ipc", "uts", "mnt", "net", "cgroup"} {
			own, err := os.Readlink("/proc/self/ns/" + kind)
			require.NoError(b, err)
			require.NotEqual(b, own, b.sh(s.Name, "readlink /proc/self/ns/"+kind), kind)
		}
		require.Equal(b, s.Instance, b.sh(s.Name, "hostname"))
		require.Equal(b, "lo", b.sh(s.Name, "ls /sys/class/net"))
	}},
	{"the root file system is its own and writable", func(b *bench) {
		one, two := b.spec(), b.spec()
		b.start(one)
		b.start(two)
		require.Equal(b, "0 0", b.sh(one.Name, "stat -c '%u %g' /bin"))
		b.sh(one.Name, "echo x > /written && chown 1000:1000 /written && rm /bin/vi && mkdir /bin/sub")
		require.Equal(b, "1000 1000", b.sh(one.Name, "stat -c '%u %g' /written"))
		require.Equal(b, "no", b.sh(two.Name, "test -e /written && echo yes || echo no"))
		require.Equal(b, "yes", b.sh(two.Name, "test -e /bin/vi && echo yes || echo no"))
	}},
	{"the kernel's files are out of reach", func(b *bench) {
		s := b.spec()
		b.start(s)
		for _, script := range []string{
			"echo 1 > /proc/sys/kernel/panic", "echo b > /proc/sysrq-trigger", "mount -t tmpfs x /mnt",
			"mknod /x c 1 3", "touch /sys/x", "dmesg -n 1", "chroot / true",
		} {
			code, err := b.driver.Exec(b.Context(), s.Name, runtime.Exec{Args: []string{"sh", "-c", script}})
			require.NoError(b, err)
			require.NotZero(b, code, script)
		}
	}},
	{"variables that choose devices do not pass", func(b *bench) {
		s := b.spec()
		s.Image = b.h.Images.Hostile
		s.Env = map[string]string{"MINE": "2", "NVIDIA_VISIBLE_DEVICES": "all", "CUDA_MPS_PIPE_DIRECTORY": "/x", "TRANCHE_X": "1"}
		s.Command = []string{"sh", "-c", "env; echo done; sleep 1000"}
		b.start(s)
		b.logged(s, "done")
		for _, env := range []string{b.log(s), b.sh(s.Name, "env")} {
			require.Contains(b, env, "KEEP=1")
			require.Contains(b, env, "MINE=2")
			for _, name := range []string{"LD_PRELOAD", "NVIDIA_", "CUDA_", "TRANCHE_"} {
				require.NotContains(b, env, name)
			}
		}
	}},
	{"bind mounts are read-only unless the agent says", func(b *bench) {
		s := b.spec()
		file, open := filepath.Join(b.logs, "file"), filepath.Join(b.logs, "open")
		require.NoError(b, os.WriteFile(file, []byte("hello"), 0o644))
		require.NoError(b, os.Mkdir(open, 0o777))
		require.NoError(b, os.Chmod(open, 0o777))
		s.Extra.Mounts = []runtime.Mount{{Source: file, Target: "/etc/given"}, {Source: open, Target: "/open", Writable: true}}
		b.start(s)
		require.Equal(b, "hello", b.sh(s.Name, "cat /etc/given"))
		require.Equal(b, "no", b.sh(s.Name, "(echo x > /etc/given) 2>/dev/null && echo yes || echo no"))
		b.sh(s.Name, "echo x > /open/new")
		require.FileExists(b, filepath.Join(open, "new"))
	}},
}

// standardNodes are what every container sees in /dev.
var standardNodes = []string{
	"console", "core", "fd", "full", "mqueue", "null", "ptmx", "pts", "random", "shm", "stderr", "stdin", "stdout",
	"tty", "urandom", "zero",
}

var deviceTests = []test{
	{"a slice brings its devices and no other", func(b *bench) {
		s := b.spec()
		node := b.node()
		s.Extra.CDI = []string{b.cdi(s.Name, node, "rw")}
		b.start(s)
		require.Equal(b, "42", b.sh(s.Name, "echo $SLICE"))
		b.sh(s.Name, ": < "+node)
		nodes := strings.Fields(b.sh(s.Name, "ls /dev"))
		require.Contains(b, nodes, filepath.Base(node))
		require.Subset(b, append(standardNodes[:len(standardNodes):len(standardNodes)], filepath.Base(node)), nodes)
		other := b.spec()
		b.start(other)
		require.Subset(b, standardNodes, strings.Fields(b.sh(other.Name, "ls /dev")))
	}},
	{"the device cgroup is the boundary", func(b *bench) {
		s := b.spec()
		node := b.node()
		s.Extra.CDI = []string{b.cdi(s.Name, node, "r")}
		b.start(s)
		b.sh(s.Name, ": < "+node)
		require.Contains(b, b.sh(s.Name, "(: > "+node+") 2>&1 || true"), "not permitted", "readable only by the cgroup, writable by its mode")
	}},
	{"a device without a file fails the start", func(b *bench) {
		s := b.spec()
		s.Extra.CDI = []string{"tranche.dev/slice=" + s.Name + "-missing"}
		b.fails(s, runtime.Broken)
	}},
}

// node makes a device node on the host under a name of its own, a clone of one that
// any user may open and that is not among the standard ones.
func (b *bench) node() string {
	b.Helper()
	for _, source := range []string{"/dev/fuse", "/dev/net/tun", "/dev/loop-control"} {
		var info syscall.Stat_t
		if syscall.Stat(source, &info) != nil {
			continue
		}
		f, err := os.OpenFile(source, os.O_RDWR, 0)
		if err != nil {
			continue
		}
		require.NoError(b, f.Close())
		node := filepath.Join("/dev", "tranche-test-"+filepath.Base(b.logs)+filepath.Base(b.dir)+fmt.Sprint(os.Getpid()))
		require.NoError(b, syscall.Mknod(node, syscall.S_IFCHR|0o666, int(info.Rdev)))
		b.Cleanup(func() { require.NoError(b, os.Remove(node)) })
		require.NoError(b, os.Chmod(node, 0o666))
		return node
	}
	require.Fail(b, "this host has none of the device nodes that the test clones")
	return ""
}

// cdi writes the CDI file of a slice and returns the name of its device.
func (b *bench) cdi(name, node, access string) string {
	b.Helper()
	text, err := json.Marshal(map[string]any{
		"cdiVersion": "0.6.0", "kind": "tranche.dev/slice",
		"devices": []any{map[string]any{"name": name + "-0", "containerEdits": map[string]any{
			"deviceNodes": []any{map[string]any{"path": node, "permissions": access}},
			"env":         []string{"SLICE=42"},
		}}},
	})
	require.NoError(b, err)
	file := filepath.Join(b.h.CDIDir, "tranche-"+name+".json")
	require.NoError(b, os.WriteFile(file, text, 0o600))
	b.Cleanup(func() { require.NoError(b, os.Remove(file)) })
	return "tranche.dev/slice=" + name + "-0"
}
