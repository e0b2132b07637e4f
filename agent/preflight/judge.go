package preflight

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Finding is the judgement about one piece of a host.
type Finding struct {
	Check string `json:"check"`
	Level Level  `json:"level"`
	Have  string `json:"have"`
	Want  string `json:"want"`
	Why   string `json:"why,omitempty"` // warn and fail
	Fix   string `json:"fix,omitempty"` // warn and fail
	// Floor is set for checks that a host must not fall below while it runs.
	Floor bool `json:"floor"`
}

// Failed says whether any finding forbids tenants' work.
func Failed(list []Finding) bool {
	return slices.ContainsFunc(list, func(f Finding) bool { return f.Level == Fail })
}

// BelowFloor is the failed floors as one short text each, for the inventory; the
// list is empty, not nil, on a good host.
func BelowFloor(list []Finding) []string {
	out := []string{}
	for _, f := range list {
		if f.Floor && f.Level == Fail {
			out = append(out, fmt.Sprintf("%s: %s, needs %s", f.Check, f.Have, f.Want))
		}
	}
	return out
}

// Judge judges by the default policy.
func Judge(f Facts) []Finding { return Default().Judge(f) }

// Judge names every piece that is missing, too old or wrong, and every piece that
// is well. It is pure.
func (p Policy) Judge(f Facts) []Finding {
	var out []Finding
	add := func(list ...Finding) { out = append(out, list...) }
	add(rights(f, p), p.Kernel.judge("kernel", f.Kernel, "boot a newer kernel of the distribution", true))
	add(groups(f, p), userNamespaces(f), filters(f), overlay(f), cdi(f), quota(f), clock(f, p))
	add(p.Runc.tool("runc", f.Runc, "install runc from the distribution's updates", f.Runtime != ""))
	if f.Runtime == "containerd" || f.Containerd.Path != "" {
		add(p.Containerd.tool("containerd", f.Containerd, "install containerd, start it, or run with --runtime=runc", f.Runtime == "containerd"))
	}
	if f.Simulated {
		return out
	}
	add(driver(f, p)...)
	if f.Toolkit.Path != "" {
		add(p.Toolkit.tool("nvidia-container-toolkit", f.Toolkit, "upgrade nvidia-container-toolkit, or remove it: the agent writes its own CDI files", false))
	}
	add(profiling(f), mpsControl(f), smi(f))
	add(gpus(f)...)
	return out
}

func ok(check, have, want string) Finding {
	return Finding{Check: check, Level: Pass, Have: have, Want: want}
}

func rights(f Facts, p Policy) Finding {
	const check = "rights"
	want := "root with " + strings.Join(p.Capabilities, ", ")
	switch {
	case !f.Root:
		return Finding{
			Check: check, Level: Fail, Have: "not root", Want: want,
			Why: "devices, namespaces and the driver's switches are root's", Fix: "run the agent as root",
		}
	case len(f.Capabilities) > 0:
		return Finding{
			Check: check, Level: Fail, Have: "root without " + strings.Join(f.Capabilities, ", "), Want: want,
			Why: "the agent itself runs in a container or unit that was cut down", Fix: "give the agent's unit these capabilities",
		}
	}
	return ok(check, "root", want)
}

func groups(f Facts, p Policy) Finding {
	const check = "cgroups"
	have := fmt.Sprintf("version %d with %s", f.Cgroup.Version, strings.Join(f.Cgroup.Controllers, ", "))
	want := strings.Join(p.Controllers, ", ")
	var missing []string
	for _, c := range p.Controllers {
		if !slices.Contains(f.Cgroup.Controllers, c) {
			missing = append(missing, c)
		}
	}
	if len(missing) > 0 {
		return Finding{
			Check: check, Level: Fail, Have: have, Want: want,
			Why: "limits of CPU, memory and processes are made of them; missing: " + strings.Join(missing, ", "),
			Fix: "mount cgroup2 with these controllers, or boot with systemd.unified_cgroup_hierarchy=1",
		}
	}
	return ok(check, have, want)
}

func userNamespaces(f Facts) Finding {
	const check, want = "user namespaces", "at least 1"
	if f.UserSpaces < 1 {
		return Finding{
			Check: check, Level: Fail, Have: strconv.Itoa(f.UserSpaces), Want: want,
			Why: "root of a container must be nobody on the host", Fix: "sysctl user.max_user_namespaces=15000",
		}
	}
	return ok(check, strconv.Itoa(f.UserSpaces), want)
}

// tried judges a probe.
func tried(check string, p Probe, want string, level Level, why, fix string) Finding {
	if p.OK {
		return ok(check, "works", want)
	}
	return Finding{Check: check, Level: level, Have: p.Why, Want: want, Why: why, Fix: fix}
}

func filters(f Facts) Finding {
	return tried("nftables", f.Nftables, "the kernel answers", Fail,
		"instances are kept apart by packet filters", "load nf_tables, nft_nat and nft_ct, or build them into the kernel")
}

func overlay(f Facts) Finding {
	return tried("overlayfs", f.Overlay, "in /proc/filesystems", Warn,
		"without it every instance copies its whole image", "modprobe overlay")
}

func cdi(f Facts) Finding {
	return tried("cdi folder", f.CDI, "/var/run/cdi can be written", Fail,
		"containers get their GPU through a file there", "mkdir -p /var/run/cdi, and let the agent's unit write there")
}

func quota(f Facts) Finding {
	const check, want = "disk quota", "xfs or ext4 mounted with prjquota"
	have := f.Data.Type + " at " + f.Data.Path
	if f.Data.Quota {
		return ok(check, have+" with prjquota", want)
	}
	return Finding{
		Check: check, Level: Warn, Have: have + " without prjquota", Want: want,
		Why: "one instance could fill the disk of all others",
		Fix: "put the agent's data on an own xfs with prjquota (mount -o prjquota), or on ext4 with -O project,quota",
	}
}

func clock(f Facts, p Policy) Finding {
	const check = "clock"
	want := fmt.Sprintf("synchronised within %d ms", p.MaxClockError)
	worst := time.Duration(p.MaxClockError) * time.Millisecond
	have := fmt.Sprintf("error of at most %s", f.Clock.MaxError.Round(time.Millisecond))
	switch {
	case f.Clock.Unknown != "":
		return Finding{
			Check: check, Level: Warn, Have: "unknown: " + f.Clock.Unknown, Want: want,
			Why: "certificates and samples carry this clock's time", Fix: "run chrony or systemd-timesyncd",
		}
	case !f.Clock.Synchronised:
		return Finding{
			Check: check, Level: Warn, Have: "not synchronised", Want: want,
			Why: "certificates and samples carry this clock's time", Fix: "run chrony or systemd-timesyncd and let it reach a server",
		}
	case f.Clock.MaxError > worst:
		return Finding{
			Check: check, Level: Fail, Have: have, Want: want,
			Why: "use would be counted at wrong times", Fix: "let chrony step the clock (chronyc makestep)",
		}
	}
	return ok(check, have, want)
}

// judge compares a version with the floor.
func (m Minimum) judge(check, have, fix string, floor bool) Finding {
	out := Finding{Check: check, Level: Pass, Have: have, Want: m.want(), Floor: floor}
	switch {
	case !known(have):
		out.Level = Fail
		out.Have = "version unknown: " + strconv.Quote(have)
		out.Why, out.Fix = "an unknown version may be too old", fix
	case m.Fail != "" && older(have, m.Fail):
		out.Level, out.Why, out.Fix = Fail, m.Why, fix
	case m.Warn != "" && older(have, m.Warn):
		out.Level, out.Why, out.Fix = Warn, m.Why, fix
	}
	return out
}

func (m Minimum) want() string {
	if m.Warn == "" || m.Warn == m.Fail {
		return m.Fail + " or later"
	}
	return m.Fail + ", better " + m.Warn + " or later"
}

// tool judges a program, which may be missing.
func (m Minimum) tool(check string, t Tool, fix string, needed bool) Finding {
	if t.Path != "" {
		return m.judge(check, t.Version, fix, true)
	}
	level := Warn
	if needed {
		level = Fail
	}
	have := "missing"
	if t.Missing != "" {
		have += ": " + t.Missing
	}
	return Finding{Check: check, Level: level, Have: have, Want: m.want(), Why: "containers cannot run without it", Fix: fix, Floor: needed}
}

// driver judges the driver and whether library and module fit.
func driver(f Facts, p Policy) []Finding {
	const check = "driver"
	fix := "install a driver of a supported branch: " + p.branches()
	have := f.Driver.Module
	if have == "" {
		have = f.Driver.Library
	}
	if f.Driver.Missing != "" || have == "" {
		return []Finding{{
			Check: check, Level: Fail, Have: "missing: " + f.Driver.Missing, Want: p.branches(),
			Why: "no GPU answers without it", Fix: fix, Floor: true,
		}}
	}
	out := []Finding{p.judgeDriver(have, fix)}
	if f.Driver.Module != "" && f.Driver.Library != "" && f.Driver.Module != f.Driver.Library {
		out = append(out, Finding{
			Check: "driver library", Level: Fail, Floor: true,
			Have: "library " + f.Driver.Library + ", module " + f.Driver.Module, Want: "the same version",
			Why: "the driver was upgraded while the old module stayed loaded", Fix: "drain the host and reboot it",
		})
	}
	return out
}

func (p Policy) branches() string {
	var names []string
	for b := range p.DriverBranches {
		names = append(names, p.DriverBranches[b].Fail)
	}
	slices.SortFunc(names, func(a, b string) int { return compare(a, b) })
	return strings.Join(names, ", ") + ", or later of the branch"
}

func (p Policy) judgeDriver(have, fix string) Finding {
	const check = "driver"
	parts := numbers(have)
	if len(parts) == 0 {
		return Finding{Check: check, Level: Fail, Have: "version unknown: " + strconv.Quote(have), Want: p.branches(), Why: "an unknown version may be too old", Fix: fix, Floor: true}
	}
	if m, ok := p.DriverBranches[parts[0]]; ok {
		return m.judge(check, have, fix, true)
	}
	newest := 0
	for b := range p.DriverBranches {
		newest = max(newest, b)
	}
	level, why := Fail, "the branch gets no repairs any more, or was never tried"
	if parts[0] > newest {
		level, why = Warn, "the branch is newer than this version of the agent knows"
	}
	return Finding{Check: check, Level: level, Have: have, Want: p.branches(), Why: why, Fix: fix, Floor: true}
}

func profiling(f Facts) Finding {
	const check, want = "profiling counters", "RmProfilingAdminOnly=1 on shared hosts"
	switch v := f.Driver.ProfilingAdminOnly; {
	case v != nil && *v:
		out := ok(check, "for root only", want)
		out.Floor = true
		return out
	default:
		have, level := "open to tenants", Warn
		if v == nil {
			have = "unknown"
		}
		if f.Shared {
			level = Fail
		}
		return Finding{
			Check: check, Level: level, Have: have, Want: want, Floor: true,
			Why: "counters tell a tenant what its neighbour computes",
			Fix: "options nvidia NVreg_RestrictProfilingToAdminUsers=1 in /etc/modprobe.d, then reload the driver",
		}
	}
}

func mpsControl(f Facts) Finding {
	const check, want = "mps control", "nvidia-cuda-mps-control"
	if f.MPSControl.Path != "" {
		return ok(check, f.MPSControl.Path, want)
	}
	return Finding{
		Check: check, Level: Warn, Have: "missing", Want: want,
		Why: "GPUs of this host cannot be in mps mode", Fix: "install the driver's compute utilities, or say --mps-control",
	}
}

func smi(f Facts) Finding {
	const check, want = "nvidia-smi", "the driver's nvidia-smi"
	if f.SMI.Path != "" {
		return ok(check, f.SMI.Path, want)
	}
	return Finding{
		Check: check, Level: Warn, Have: "missing", Want: want,
		Why: "GPUs of this host cannot be reset and turns keep their length", Fix: "install the driver's utilities, or say --nvidia-smi",
	}
}

// gpus judges what is asked of every GPU.
func gpus(f Facts) []Finding {
	if len(f.GPUs) == 0 {
		return []Finding{{
			Check: "gpus", Level: Fail, Have: "none", Want: "at least one",
			Why: "a host without a GPU has nothing to offer", Fix: "see lspci and the kernel's log for why the driver sees none",
		}}
	}
	var lost, plain, apart []string
	for _, g := range f.GPUs {
		switch {
		case g.Lost:
			lost = append(lost, g.UUID)
		case g.ECC != nil && !*g.ECC:
			plain = append(plain, g.UUID)
		}
		if g.Fabric == "not_started" || g.Fabric == "in_progress" {
			apart = append(apart, g.UUID)
		}
	}
	out := []Finding{ok("gpus", strconv.Itoa(len(f.GPUs)), "at least one")}
	if len(lost) > 0 {
		out[0] = Finding{
			Check: "gpus", Level: Warn, Have: "off the bus: " + strings.Join(lost, ", "), Want: "all answer",
			Why: "they cannot be sold", Fix: "reboot the host; if they stay away, replace them",
		}
	}
	ecc := ok("ecc", "on, or not offered", "on")
	if len(plain) > 0 {
		level := Warn
		if f.Shared {
			level = Fail
		}
		ecc = Finding{
			Check: "ecc", Level: level, Have: "off: " + strings.Join(plain, ", "), Want: "on",
			Why: "one tenant's bit error may become another's wrong result", Fix: "nvidia-smi -e 1 -i UUID, then reset the GPU",
		}
	}
	ecc.Floor = true
	return append(out, ecc, fabric(f, apart))
}

func fabric(f Facts, apart []string) Finding {
	const check, want = "fabric manager", "running, of the driver's version, where there are NVSwitches"
	out := Finding{
		Check: check, Level: Fail, Want: want, Why: "GPUs behind NVSwitches cannot compute without it",
		Fix: "install nvidia-fabricmanager of the driver's version and start it",
	}
	switch fm := f.Fabric; {
	case fm.Switches > 0 && !fm.Running:
		out.Have = fmt.Sprintf("%d NVSwitches, not running", fm.Switches)
	case fm.Switches > 0 && fm.Version != "" && f.Driver.Module != "" && fm.Version != f.Driver.Module:
		out.Have = "version " + fm.Version + ", driver " + f.Driver.Module
	case len(apart) > 0:
		out.Level, out.Have = Warn, "the fabric is not complete for "+strings.Join(apart, ", ")
	case fm.Switches == 0:
		return ok(check, "no NVSwitch", want)
	default:
		return ok(check, "running", want)
	}
	return out
}
