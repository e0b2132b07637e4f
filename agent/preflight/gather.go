package preflight

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"

	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
	"github.com/tranche-cloud/tranche/nodeagent/mpsd"
)

// Options says what to look at. Paths of programs are absolute; "" tries the
// usual places, never PATH.
type Options struct {
	Shared    bool
	Simulated bool
	Runtime   string // containerd or runc
	DataDir   string // where instances keep their files
	CDIDir    string // "" is /var/run/cdi

	Runc, Containerd, Toolkit, MPSControl, SMI string

	// GPUs answers about GPUs; nil without a driver, for the reason DriverError.
	GPUs        gpudrv.Reader
	DriverError error

	// Root is put before every file that is read, for tests.
	Root string
	Now  func() time.Time // nil is the machine's clock
}

// programTimeout bounds asking one program for its version.
const programTimeout = 5 * time.Second

// Gather looks at the host. What cannot be read is a fact too and judged as such;
// Gather itself never fails.
func Gather(ctx context.Context, o Options) Facts {
	f := Facts{
		Shared: o.Shared, Simulated: o.Simulated, Runtime: o.Runtime,
		Root: os.Geteuid() == 0, Capabilities: o.missingCapabilities(Default().Capabilities),
		Kernel: o.kernel(), Cgroup: o.cgroup(), UserSpaces: o.number("/proc/sys/user/max_user_namespaces"),
		Nftables: tryNftables(), Overlay: o.overlay(), CDI: tryFolder(orElse(o.CDIDir, "/var/run/cdi")),
		Data: o.filesystem(), Clock: readClock(),
		Runc:       tool(ctx, o.Runc, []string{"/usr/sbin/runc", "/usr/bin/runc", "/usr/local/sbin/runc", "/usr/local/bin/runc"}, "--version"),
		Containerd: tool(ctx, o.Containerd, []string{"/usr/bin/containerd", "/usr/local/bin/containerd"}, "--version"),
		GatheredAt: time.Now().UTC(),
	}
	if o.Now != nil {
		f.GatheredAt = o.Now().UTC()
	}
	if o.Simulated {
		return f
	}
	f.Toolkit = tool(ctx, o.Toolkit, []string{"/usr/bin/nvidia-ctk", "/usr/local/bin/nvidia-ctk"}, "--version")
	f.SMI = present(o.SMI, []string{"/usr/bin/nvidia-smi", "/usr/local/nvidia/bin/nvidia-smi", "/usr/local/bin/nvidia-smi"})
	if path, err := mpsd.Find(o.MPSControl); err != nil {
		f.MPSControl.Missing = err.Error()
	} else {
		f.MPSControl.Path = path
	}
	f.Driver = o.driver(ctx)
	f.GPUs = o.gpus(ctx)
	f.Fabric = o.fabric(ctx)
	return f
}

func orElse(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

func (o Options) read(path string) (string, error) {
	raw, err := os.ReadFile(filepath.Join(orElse(o.Root, "/"), path))
	return strings.TrimSpace(string(raw)), err
}

func (o Options) number(path string) int {
	text, err := o.read(path)
	if err != nil {
		return 0
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0
	}
	return n
}

func (o Options) kernel() string {
	text, err := o.read("/proc/sys/kernel/osrelease")
	if err != nil {
		return ""
	}
	return text
}

// capabilityBits are the kernel's numbers.
var capabilityBits = map[string]int{
	"CAP_CHOWN": unix.CAP_CHOWN, "CAP_KILL": unix.CAP_KILL, "CAP_NET_ADMIN": unix.CAP_NET_ADMIN,
	"CAP_SYS_PTRACE": unix.CAP_SYS_PTRACE, "CAP_SYS_ADMIN": unix.CAP_SYS_ADMIN, "CAP_MKNOD": unix.CAP_MKNOD,
}

// missingCapabilities is what the calling process lacks; all, if that is unknown.
func (o Options) missingCapabilities(wanted []string) []string {
	text, err := o.read("/proc/self/status")
	if err != nil {
		return wanted
	}
	var effective uint64
	for line := range strings.Lines(text) {
		if hex, ok := strings.CutPrefix(line, "CapEff:"); ok {
			effective, _ = strconv.ParseUint(strings.TrimSpace(hex), 16, 64)
		}
	}
	var missing []string
	for _, name := range wanted {
		if effective>>capabilityBits[name]&1 == 0 {
			missing = append(missing, name)
		}
	}
	return missing
}

// cgroup reads the unified hierarchy where it carries controllers, else the old
// ones.
func (o Options) cgroup() Cgroup {
	if text, err := o.read("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		return Cgroup{Version: 2, Controllers: strings.Fields(text)}
	}
	out := Cgroup{Version: 1}
	text, err := o.read("/proc/cgroups")
	if err != nil {
		return out
	}
	for line := range strings.Lines(text) {
		const columns = 4 // name, hierarchy, groups, enabled
		fields := strings.Fields(line)
		if len(fields) == columns && fields[0][0] != '#' && fields[1] != "0" && fields[3] == "1" {
			out.Controllers = append(out.Controllers, fields[0])
		}
	}
	return out
}

func (o Options) overlay() Probe {
	text, err := o.read("/proc/filesystems")
	if err != nil {
		return Probe{Why: err.Error()}
	}
	if slices.Contains(strings.Fields(text), "overlay") {
		return Probe{OK: true}
	}
	return Probe{Why: "the kernel has no overlayfs"}
}

func tryNftables() Probe {
	conn, err := nftables.New()
	if err == nil {
		_, err = conn.ListTables()
	}
	if err != nil {
		return Probe{Why: err.Error()}
	}
	return Probe{OK: true}
}

// tryFolder says whether files could be made in a folder, which may itself still
// be missing. It makes nothing.
func tryFolder(path string) Probe {
	for {
		if _, err := os.Stat(path); err == nil || path == "/" || path == "." {
			break
		}
		path = filepath.Dir(path)
	}
	if err := unix.Access(path, unix.W_OK|unix.X_OK); err != nil {
		return Probe{Why: path + ": " + err.Error()}
	}
	return Probe{OK: true}
}

// filesystem finds the mount that holds the data folder.
func (o Options) filesystem() Filesystem {
	out := Filesystem{Path: orElse(o.DataDir, "/"), Type: "unknown"}
	text, err := o.read("/proc/self/mountinfo")
	if err != nil {
		return out
	}
	longest := -1
	for line := range strings.Lines(text) {
		before, after, ok := strings.Cut(strings.TrimSpace(line), " - ")
		fields, rest := strings.Fields(before), strings.Fields(after)
		const mountPoint = 4
		if !ok || len(fields) <= mountPoint || len(rest) < 3 {
			continue
		}
		point := fields[mountPoint]
		inside := point == "/" || out.Path == point || strings.HasPrefix(out.Path, point+"/")
		if !inside || len(point) < longest {
			continue
		}
		longest = len(point)
		options := strings.Split(rest[2], ",")
		out.Type = rest[0]
		out.Quota = (rest[0] == "xfs" || rest[0] == "ext4") &&
			(slices.Contains(options, "prjquota") || slices.Contains(options, "pquota"))
	}
	return out
}

func readClock() Clock {
	var t unix.Timex
	state, err := unix.Adjtimex(&t)
	if err != nil {
		return Clock{Unknown: err.Error()}
	}
	const inError, unsynchronised = 5, 0x40
	return Clock{
		Synchronised: state != inError && t.Status&unsynchronised == 0,
		MaxError:     time.Duration(t.Maxerror) * time.Microsecond,
	}
}

// present finds a program without asking it.
func present(path string, usual []string) Tool {
	if path != "" {
		usual = []string{path}
	}
	for _, p := range usual {
		if st, err := os.Stat(p); err == nil && st.Mode().IsRegular() {
			return Tool{Path: p}
		}
	}
	return Tool{Missing: "none of " + strings.Join(usual, ", ")}
}

var versionText = regexp.MustCompile(`\bv?(\d+\.\d+[0-9A-Za-z.+~-]*)`)

// tool finds a program and asks it for its version.
func tool(ctx context.Context, path string, usual []string, ask ...string) Tool {
	out := present(path, usual)
	if out.Path == "" {
		return out
	}
	ctx, cancel := context.WithTimeout(ctx, programTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, out.Path, ask...)
	cmd.WaitDelay = time.Second
	said, err := cmd.CombinedOutput()
	if err != nil {
		return out
	}
	line, _, _ := strings.Cut(string(said), "\n")
	if m := versionText.FindStringSubmatch(line); m != nil {
		out.Version = m[1]
	}
	return out
}

// driver reads the module's version and parameters, and what the library says.
func (o Options) driver(ctx context.Context) Driver {
	var d Driver
	if text, err := o.read("/sys/module/nvidia/version"); err == nil {
		d.Module = text
	} else if text, err := o.read("/proc/driver/nvidia/version"); err == nil {
		line, _, _ := strings.Cut(text, "\n")
		if m := versionText.FindStringSubmatch(line); m != nil {
			d.Module = m[1]
		}
	}
	if o.DriverError != nil {
		d.Missing = o.DriverError.Error()
	}
	if o.GPUs != nil {
		if h, err := o.GPUs.Host(ctx); err != nil {
			d.Missing = err.Error()
		} else {
			d.Library = h.DriverVersion.Or("")
		}
	}
	params, err := o.read("/proc/driver/nvidia/params")
	if err != nil {
		return d
	}
	lines := bufio.NewScanner(strings.NewReader(params))
	for lines.Scan() {
		if v, ok := strings.CutPrefix(lines.Text(), "RmProfilingAdminOnly:"); ok {
			d.ProfilingAdminOnly = new(strings.TrimSpace(v) == "1")
		}
	}
	return d
}

func (o Options) gpus(ctx context.Context) []GPU {
	out := []GPU{}
	if o.GPUs == nil {
		return out
	}
	refs, err := o.GPUs.GPUs(ctx)
	if err != nil {
		return out
	}
	for _, ref := range refs {
		g := GPU{UUID: ref.UUID}
		id, err := o.GPUs.Identity(ctx, ref.UUID)
		g.Name, g.Lost = id.Name, gpudrv.KindOf(err) == gpudrv.GPULost
		if s, err := o.GPUs.Settings(ctx, ref.UUID); err == nil {
			if on, ok := s.ECC.Get(); ok {
				g.ECC = &on
			}
		}
		if fb, err := o.GPUs.Fabric(ctx, ref.UUID); err == nil {
			g.Fabric = fb.State.Or("")
		}
		out = append(out, g)
	}
	return out
}

// fabric counts NVSwitches and looks for their daemon.
func (o Options) fabric(ctx context.Context) FabricManager {
	var out FabricManager
	root := orElse(o.Root, "/")
	if nodes, err := os.ReadDir(filepath.Join(root, "/proc/driver/nvidia-nvswitch/devices")); err == nil {
		out.Switches = len(nodes)
	}
	names, err := filepath.Glob(filepath.Join(root, "/proc/[0-9]*/comm"))
	if err != nil {
		return out
	}
	const daemon = "nv-fabricmanager" // 16 letters: the kernel keeps 15
	for _, name := range names {
		comm, err := os.ReadFile(name)
		if err == nil && strings.TrimSpace(string(comm)) == daemon[:15] {
			out.Running = true
			out.Version = tool(ctx, "", []string{"/usr/bin/" + daemon}, "--version").Version
			break
		}
	}
	return out
}
