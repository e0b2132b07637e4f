package stack

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tranche-cloud/tranche/devstack/internal/process"
)

// Real containers need root, and these programs of the distribution.
var containerPrograms = []string{"containerd", "containerd-shim-runc-v2", "runc", "busybox"}

// CanContain says why this machine cannot run real containers, nil if it can.
func CanContain() error {
	if os.Geteuid() != 0 {
		return errors.New("real containers need root")
	}
	for _, p := range containerPrograms {
		if _, err := exec.LookPath(p); err != nil {
			return fmt.Errorf("real containers need %s: install containerd, runc and busybox-static", p)
		}
	}
	return nil
}

// containers is a private containerd and a registry, for the agents of a stack.
type containers struct {
	run      string // short, for sockets live below it; removed at the end
	registry string // host:port
	hosts    []string
}

const containerdConfig = `version = 2
root = %q
state = %q
disabled_plugins = [
  "io.containerd.grpc.v1.cri", "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.internal.v1.tracing",
]
[grpc]
  address = %q
[plugins."io.containerd.internal.v1.opt"]
  path = %q
`

// startContainers brings up what agents with real containers need.
func (s *Stack) startContainers(ctx context.Context) error {
	run, err := os.MkdirTemp("/run", "tranche-")
	if err != nil {
		return fmt.Errorf("make the folder of sockets: %w", err)
	}
	if err := os.Chmod(run, 0o711); err != nil { //nolint:gosec // containers' ids pass through, by name
		return err
	}
	s.containers = &containers{run: run}
	dir := filepath.Join(s.Dir, "containerd")
	if err := os.MkdirAll(dir, 0o711); err != nil { //nolint:gosec // likewise
		return err
	}
	config := filepath.Join(dir, "config.toml")
	text := fmt.Sprintf(containerdConfig, filepath.Join(dir, "root"), filepath.Join(run, "state"), s.containers.socket(), filepath.Join(dir, "opt"))
	if err := writeFile(config, []byte(text)); err != nil {
		return err
	}
	err = s.run(ctx, process.Spec{
		Name: "containerd", Path: "containerd", Args: []string{"--config", config}, Log: s.log("containerd"),
		Ready: func(ctx context.Context) error { return dialSocket(ctx, s.containers.socket()) },
	})
	if err != nil {
		return err
	}
	port, err := freePort()
	if err != nil {
		return err
	}
	s.containers.registry = address(port)
	return s.run(ctx, process.Spec{
		Name: "registry", Path: s.binary("tranche-registry"), Args: []string{"serve", "--listen", s.containers.registry},
		Log: s.log("registry"),
		Ready: func(ctx context.Context) error {
			return get(ctx, "http://"+s.containers.registry+"/v2/busybox/manifests/latest")
		},
	})
}

// Image is a small image that agents of this stack can run: a real one where
// containers are real, else any name.
func (s *Stack) Image() string {
	if s.containers == nil {
		return "registry.example/trainer:1"
	}
	return s.containers.registry + "/busybox:latest"
}

// RunDir is the folder of the containers' sockets and mounts, "" without containers.
func (s *Stack) RunDir() string {
	if s.containers == nil {
		return ""
	}
	return s.containers.run
}

func (c *containers) socket() string { return filepath.Join(c.run, "containerd.sock") }

// arguments are what an agent is told about its containers. Several hosts share this
// machine, so each has its own corner of everything; none has a network, which would
// be this machine's own.
func (s *Stack) arguments(host string) []string {
	if s.containers == nil {
		return []string{"--runtime=fake"}
	}
	c := s.containers
	if !slices.Contains(c.hosts, host) {
		c.hosts = append(c.hosts, host)
	}
	const idsOfHost = 64 << 16
	short := strconv.FormatUint(uint64(crc32.ChecksumIEEE([]byte(host))), 36)
	return []string{
		"--runtime=containerd", "--containerd=" + c.socket(), "--containerd-namespace=tranche-" + short, "--network=none",
		"--image-allow=" + c.registry + "/", "--ssh-listen=127.0.0.1:0", "--run-dir=" + filepath.Join(c.run, short), "--cdi-dir=" + filepath.Join(c.run, "cdi-"+short),
		"--first-id=" + strconv.Itoa(1<<20+slices.Index(c.hosts, host)*idsOfHost), "--guest=" + s.binary("tranche-guest"),
	}
}

// purgeWithin bounds the removal of one host's containers.
const purgeWithin = 30 * time.Second

// purge removes what containers are left on each host, and the sockets' folder. The
// agents have ended; containerd still runs.
func (s *Stack) purge(ctx context.Context) error {
	if s.containers == nil {
		return nil
	}
	var errs []error
	for _, host := range s.containers.hosts {
		_, err := s.Purge(ctx, host)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Purge removes the containers that a host still has and returns what the command
// said: a line for each container. The host's agent must not run.
func (s *Stack) Purge(ctx context.Context, host string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, purgeWithin)
	defer cancel()
	args := append([]string{"purge", "--yes", "--driver=sim", "--fleet", filepath.Join(s.Dir, "fleet.yaml"), "--host", host,
		"--data-dir", filepath.Join(s.Dir, "agents", host)}, s.arguments(host)...)
	out, err := exec.CommandContext(ctx, s.binary("tranche-agent"), args...).CombinedOutput() //nolint:gosec // our own binary
	said := strings.TrimSpace(string(out))
	if err != nil {
		return said, fmt.Errorf("remove the containers of %s: %w: %s", host, err, said)
	}
	return said, nil
}

func dialSocket(ctx context.Context, path string) error {
	c, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
	if err != nil {
		return err
	}
	return c.Close()
}

// freePort finds a port that nobody uses now.
func freePort() (int, error) {
	ports, release, err := FreePorts()
	if err != nil {
		return 0, err
	}
	release()
	return ports.API, nil
}
