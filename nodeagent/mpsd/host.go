package mpsd

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/tranche-cloud/tranche/internal/clock"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
	"github.com/tranche-cloud/tranche/nodeagent/process"
)

// Config says where the daemons of a host live.
type Config struct {
	// Root is the folder of all daemons, absolute and short: the sockets below it
	// must fit in 107 bytes. It should not survive a boot, for example below /run.
	Root string
	// Binary is the absolute path of nvidia-cuda-mps-control; "" tries the usual
	// places.
	Binary string
	// Timeout bounds one question to a daemon; 0 is 5 s. Starting and stopping take
	// up to three times as long.
	Timeout time.Duration
	Clock   clock.Clock
}

const (
	defaultTimeout = 5 * time.Second
	// slow is how much longer starting and stopping may take than a question.
	slow = 3
	// readyEvery is how often a daemon that starts is asked whether it is ready.
	readyEvery = 50 * time.Millisecond

	longestSocket = "control_privileged"
	maxSocketPath = 107

	privateFolder, sharedFolder, privateFile = 0o700, 0o755, 0o600

	deviceFile, memoryFile, pipeFolder, logFolder = "device", "memory", "pipe", "log"
)

// usualBinaries are the places of the control program; it is never taken from PATH.
var usualBinaries = []string{
	"/usr/bin/nvidia-cuda-mps-control", "/usr/local/nvidia/bin/nvidia-cuda-mps-control",
	"/usr/local/bin/nvidia-cuda-mps-control",
}

// host is the port on the real control program.
type host struct {
	root, binary string
	timeout      time.Duration
	clock        clock.Clock

	mu   sync.Mutex
	turn map[string]chan struct{}  // by device: who may talk to its daemon
	cut  map[process.Identity]bool // clients that were cut off and have not ended yet
}

// Find returns the absolute path of the control program: the given one, or one of
// the usual places if that is "".
func Find(binary string) (string, error) {
	places := usualBinaries
	if binary != "" {
		places = []string{binary}
	}
	for _, p := range places {
		if st, err := os.Stat(p); err == nil && st.Mode().IsRegular() && filepath.IsAbs(p) {
			return p, nil
		}
	}
	return "", gpudrv.Refuse(gpudrv.Unsupported, "mps_open", "",
		"no MPS control program at %s: install it with the driver or name its absolute path", strings.Join(places, ", "))
}

// Open makes the port; it starts nothing. Unsupported without the control
// program, Invalid for a root that is relative or too long.
func Open(c Config) (Control, error) {
	binary, err := Find(c.Binary)
	if err != nil {
		return nil, err
	}
	h := &host{
		root: c.Root, binary: binary, timeout: c.Timeout, clock: c.Clock,
		turn: map[string]chan struct{}{}, cut: map[process.Identity]bool{},
	}
	if h.timeout <= 0 {
		h.timeout = defaultTimeout
	}
	if h.clock == nil {
		h.clock = clock.Real()
	}
	longest := filepath.Join(h.folder("GPU-0"), pipeFolder, longestSocket)
	if !filepath.IsAbs(c.Root) || len(longest) > maxSocketPath {
		return nil, gpudrv.Refuse(gpudrv.Invalid, "mps_open", "",
			"folder %q must be absolute and at most %d bytes long", c.Root, maxSocketPath-len(longest)+len(c.Root))
	}
	if err := os.MkdirAll(h.root, sharedFolder); err != nil {
		return nil, gpudrv.Refuse(gpudrv.Broken, "mps_open", "", "make folder of daemons").Because(err)
	}
	return h, nil
}

var deviceName = regexp.MustCompile(`^(GPU|MIG)-[0-9A-Za-z/-]{1,80}$`)

func check(op, uuid string) error {
	if !deviceName.MatchString(uuid) {
		return gpudrv.Refuse(gpudrv.Invalid, op, uuid, "a device is named GPU-… or MIG-…")
	}
	return nil
}

// folder is the place of a device's daemon. The name is short, since socket paths
// are; the file in it says whose it is.
func (h *host) folder(uuid string) string {
	const nameBytes = 5
	sum := sha256.Sum256([]byte(uuid))
	return filepath.Join(h.root, hex.EncodeToString(sum[:nameBytes]))
}

func (h *host) pipe(uuid string) string { return filepath.Join(h.folder(uuid), pipeFolder) }

// environment is everything a daemon and the control program see.
func (h *host) environment(uuid string) []string {
	env := []string{
		"PATH=/usr/bin:/bin",
		"CUDA_VISIBLE_DEVICES=" + uuid,
		pipeVariable + h.pipe(uuid),
		"CUDA_MPS_LOG_DIRECTORY=" + filepath.Join(h.folder(uuid), logFolder),
	}
	if libraries, ok := os.LookupEnv("LD_LIBRARY_PATH"); ok {
		env = append(env, "LD_LIBRARY_PATH="+libraries) // where the driver's libraries may be
	}
	return env
}

// Ensure implements Control.
func (h *host) Ensure(ctx context.Context, uuid string) (Daemon, error) {
	const op = "mps_ensure"
	if err := check(op, uuid); err != nil {
		return Daemon{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, slow*h.timeout)
	defer cancel()
	d, err := h.find(op, uuid)
	if gpudrv.KindOf(err) == gpudrv.NotFound {
		if err := h.start(ctx, uuid); err != nil {
			return Daemon{}, err
		}
		d, err = h.find(op, uuid)
	}
	if err != nil {
		return Daemon{}, err
	}
	return d, h.awaitAnswer(ctx, uuid)
}

// find returns the daemon of a device that runs.
func (h *host) find(op, uuid string) (Daemon, error) {
	list, err := running(h.pipe(uuid))
	if err != nil {
		return Daemon{}, gpudrv.Refuse(gpudrv.Broken, op, uuid, "look for the daemon").Because(err)
	}
	for _, p := range list {
		if p.daemon {
			return Daemon{Device: uuid, PipeDir: h.pipe(uuid), Process: p.identity}, nil
		}
	}
	return Daemon{}, gpudrv.Refuse(gpudrv.NotFound, op, uuid, "no MPS daemon runs for the device")
}

// start runs the control program as a daemon in clean folders. A server whose
// daemon died is ended first: nobody could set or read its limits any more. The
// pipe folder itself stays, because containers may have it mounted.
func (h *host) start(ctx context.Context, uuid string) error {
	const op = "mps_start"
	if err := h.endAll(ctx, uuid); err != nil {
		return err
	}
	if err := h.prepare(uuid); err != nil {
		return gpudrv.Refuse(gpudrv.Broken, op, uuid, "make folders").Because(err)
	}
	// The daemon may keep what it inherits, so its output is a file and not a pipe
	// that would never end.
	name := filepath.Join(h.folder(uuid), logFolder, "start.log")
	out, err := os.OpenFile(name, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, privateFile)
	if err != nil {
		return gpudrv.Refuse(gpudrv.Broken, op, uuid, "open log").Because(err)
	}
	defer func() { _ = out.Close() }()
	cmd := exec.CommandContext(ctx, h.binary, daemonizeFlag, everyUserFlag)
	cmd.Env = h.environment(uuid)
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Run()
	if ctx.Err() != nil {
		return gpudrv.Refuse(gpudrv.Hung, op, uuid, "the daemon did not start in time").Because(ctx.Err())
	}
	if err != nil {
		said, _ := os.ReadFile(name)
		return gpudrv.Refuse(gpudrv.Broken, op, uuid, "start daemon: it says %q", shorten(string(said))).Because(err)
	}
	return nil
}

func (h *host) prepare(uuid string) error {
	dir, pipe := h.folder(uuid), h.pipe(uuid)
	for _, d := range []string{dir, filepath.Join(dir, logFolder)} {
		if err := os.MkdirAll(d, privateFolder); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(pipe, sharedFolder); err != nil {
		return err
	}
	if err := os.Chmod(pipe, sharedFolder); err != nil { // whatever the umask
		return err
	}
	left, err := os.ReadDir(pipe)
	if err != nil {
		return err
	}
	for _, f := range left {
		if err := os.Remove(filepath.Join(pipe, f.Name())); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(filepath.Join(dir, memoryFile)); err != nil { // the last daemon's
		return err
	}
	return os.WriteFile(filepath.Join(dir, deviceFile), []byte(uuid), privateFile)
}

// awaitAnswer returns when the daemon answers.
func (h *host) awaitAnswer(ctx context.Context, uuid string) error {
	for {
		_, err := h.servers(ctx, uuid)
		if err == nil {
			return nil
		}
		timer := h.clock.NewTimer(readyEvery)
		select {
		case <-timer.C():
		case <-ctx.Done():
			timer.Stop()
			return gpudrv.Refuse(gpudrv.Hung, "mps_ensure", uuid, "the daemon does not answer").Because(err)
		}
	}
}

// Stop implements Control.
func (h *host) Stop(ctx context.Context, uuid string) error {
	const op = "mps_stop"
	if err := check(op, uuid); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, slow*h.timeout)
	defer cancel()
	d, err := h.find(op, uuid)
	if err == nil {
		err = h.quit(ctx, d)
	}
	if err != nil && gpudrv.KindOf(err) != gpudrv.NotFound {
		return err
	}
	if err := h.endAll(ctx, uuid); err != nil {
		return err
	}
	if err := os.RemoveAll(h.folder(uuid)); err != nil {
		return gpudrv.Refuse(gpudrv.Broken, op, uuid, "remove folders").Because(err)
	}
	return nil
}

// quit asks an idle daemon to end and waits for a while; one that does not is
// left to endAll.
func (h *host) quit(ctx context.Context, d Daemon) error {
	clients, err := h.Clients(ctx, d.Device)
	if err == nil && len(clients) > 0 {
		holders := make([]gpudrv.Holder, 0, len(clients))
		for _, c := range clients {
			holders = append(holders, gpudrv.Holder{PID: c.Process.PID, Name: "mps client"})
		}
		return gpudrv.Refuse(gpudrv.InUse, "mps_stop", d.Device, "clients are connected").HeldBy(holders...)
	}
	ctx, cancel := context.WithTimeout(ctx, h.timeout)
	defer cancel()
	if _, err := h.ask(ctx, "mps_stop", d.Device, "quit"); err != nil {
		return nil //nolint:nilerr // a daemon that does not listen is ended by force
	}
	_ = d.Process.Await(ctx, h.clock)
	return nil
}

// endAll kills what is left of a device's daemon and server.
func (h *host) endAll(ctx context.Context, uuid string) error {
	left, err := running(h.pipe(uuid))
	if err != nil {
		return gpudrv.Refuse(gpudrv.Broken, "mps_stop", uuid, "look for processes").Because(err)
	}
	// The daemon first: it would start another server.
	slices.SortFunc(left, func(a, b found) int {
		if a.daemon == b.daemon {
			return a.identity.PID - b.identity.PID
		}
		if a.daemon {
			return -1
		}
		return 1
	})
	for _, p := range left {
		if err := p.identity.Kill(ctx, h.clock); err != nil {
			return gpudrv.Refuse(gpudrv.Hung, "mps_stop", uuid, "end process %s", p.identity).Because(err)
		}
	}
	return nil
}

// List implements Control.
func (h *host) List(_ context.Context) ([]Daemon, error) {
	const op = "mps_list"
	dirs, err := os.ReadDir(h.root)
	if err != nil {
		return nil, gpudrv.Refuse(gpudrv.Broken, op, "", "list daemons").Because(err)
	}
	var out []Daemon
	for _, dir := range dirs {
		name, err := os.ReadFile(filepath.Join(h.root, dir.Name(), deviceFile))
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
			continue // a crash before the first daemon started
		}
		if err != nil {
			return nil, gpudrv.Refuse(gpudrv.Broken, op, "", "list daemons").Because(err)
		}
		uuid := string(name)
		if check(op, uuid) != nil || h.folder(uuid) != filepath.Join(h.root, dir.Name()) {
			return nil, gpudrv.Refuse(gpudrv.Broken, op, "", "folder %s names no device of ours: %q", dir.Name(), shorten(uuid))
		}
		d, err := h.find(op, uuid)
		switch gpudrv.KindOf(err) {
		case "":
			out = append(out, d)
		case gpudrv.NotFound:
		default:
			return nil, err
		}
	}
	slices.SortFunc(out, func(a, b Daemon) int { return strings.Compare(a.Device, b.Device) })
	return out, nil
}

// identify names a process of a list; ok is false if it has ended meanwhile.
func identify(op, uuid string, pid int) (id process.Identity, ok bool, err error) {
	id, err = process.Of(pid)
	if errors.Is(err, process.ErrGone) {
		return process.Identity{}, false, nil
	}
	if err != nil {
		return process.Identity{}, false, gpudrv.Refuse(gpudrv.Broken, op, uuid, "name client").Because(
			fmt.Errorf("process %d: %w", pid, err))
	}
	return id, true, nil
}
