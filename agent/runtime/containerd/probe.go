package containerd

import (
	"cmp"
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/tranche-cloud/tranche/nodeagent/runtime"
)

// Floors are the oldest versions that are used. Distributions repair older ones under
// the same number; a pool's policy may ask for more.
const (
	FloorContainerd = "1.6.20"
	FloorRunc       = "1.1.5"
)

// Facts are what a probe found.
type Facts struct {
	Containerd string // version, as the daemon says it
	Runc       string // first line of its --version
	// Remaps says that user ids are shifted in the mount, at no cost; otherwise every
	// start gives every file of the image away, which copies them on most kernels.
	Remaps bool
}

// Probe asks the daemon and the runc binary what they are, and refuses those that
// cannot work: RUNTIME_UNAVAILABLE.
func (d *Driver) Probe(ctx context.Context) (Facts, error) {
	refuse := func(format string, args ...any) *runtime.Error {
		return runtime.Refuse(runtime.Unavailable, "probe", "", "%s", fmt.Sprintf(format, args...))
	}
	version, err := d.client.Version(ctx)
	if err != nil {
		return Facts{}, refuse("containerd at %s does not answer: start it, or name its socket", d.cfg.Address).Because(err)
	}
	facts := Facts{Containerd: version.Version}
	if Older(facts.Containerd, FloorContainerd) {
		return facts, refuse("containerd is %s: install %s or later", facts.Containerd, FloorContainerd)
	}
	binary := d.cfg.Runc
	fill(&binary, "runc")
	out, err := exec.CommandContext(ctx, binary, "--version").Output()
	if err != nil {
		return facts, refuse("%s does not run: install runc", binary).Because(err)
	}
	facts.Runc, _, _ = strings.Cut(string(out), "\n")
	if err := CheckRunc(facts.Runc, d.cfg.Host.CgroupV2); err != nil {
		return facts, err
	}
	able, err := d.client.GetSnapshotterCapabilities(ctx, d.cfg.Snapshotter)
	if err != nil {
		return facts, refuse("containerd has no snapshotter %s", d.cfg.Snapshotter).Because(err)
	}
	facts.Remaps = slices.Contains(able, remapping)
	return facts, nil
}

// CheckRunc judges the first line of what an OCI runtime says about its version.
func CheckRunc(line string, cgroupV2 bool) error {
	program, _, _ := strings.Cut(line, " ")
	switch {
	case program == "crun" && !cgroupV2:
		return runtime.Refuse(runtime.Unavailable, "probe", "", "%s refuses a host whose cgroups are of version 1: install runc", line)
	case program == "runc" && Older(strings.TrimPrefix(line, "runc version "), FloorRunc):
		return runtime.Refuse(runtime.Unavailable, "probe", "", "%s is too old: install runc %s or later", line, FloorRunc)
	}
	return nil
}

var leading = regexp.MustCompile(`^v?(\d+)\.(\d+)(?:\.(\d+))?`)

// Older says whether a version is below another. What stands behind the three numbers
// is a distribution's and does not count; no version is older than everything.
func Older(version, floor string) bool {
	a, b := leading.FindStringSubmatch(version), leading.FindStringSubmatch(floor)
	if a == nil || b == nil {
		return a == nil
	}
	for n := 1; n < len(a); n++ {
		x, _ := strconv.Atoi(a[n]) // only digits, or nothing, which is 0
		y, _ := strconv.Atoi(b[n])
		if c := cmp.Compare(x, y); c != 0 {
			return c < 0
		}
	}
	return false
}
