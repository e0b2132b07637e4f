package preflight

// Level is how bad a finding is.
type Level string

// The levels.
const (
	Pass Level = "pass"
	Warn Level = "warn" // works, but something is less than it should be
	Fail Level = "fail" // no tenants' work here
)

// Minimum is the lowest version of something.
type Minimum struct {
	// Fail and Warn are the versions below which the finding has that level; "" is
	// none.
	Fail, Warn string
	Why        string
}

// Policy is the floors of a host: data, so that a new floor is a change of one
// line.
type Policy struct {
	// DriverBranches are the driver's supported branches with their floors. A driver
	// of another branch below Newest fails; one above is taken with a warning.
	DriverBranches map[int]Minimum
	Runc           Minimum
	Containerd     Minimum
	Toolkit        Minimum // where installed
	Kernel         Minimum
	// Capabilities are what the agent needs beside being root.
	Capabilities []string
	// Controllers are the control groups that limits are made of.
	Controllers []string
	// MaxClockError is the largest error of a synchronised clock, in milliseconds.
	MaxClockError int
}

// Default is the policy of this version.
func Default() Policy {
	const drivers = "older drivers of the branch have published vulnerabilities that a tenant can reach"
	return Policy{
		DriverBranches: map[int]Minimum{
			535: {Fail: "535.261.03", Warn: "535.288.01", Why: drivers},
			570: {Fail: "570.172.08", Warn: "570.211.01", Why: drivers},
			580: {Fail: "580.65.06", Warn: "580.126.09", Why: drivers},
			590: {Fail: "590.44.01", Warn: "590.48.01", Why: drivers},
			615: {Fail: "615.0", Why: drivers},
		},
		Runc: Minimum{
			Fail: "1.1.5", Warn: "1.2.8",
			Why: "escapes from containers through /proc and file descriptors (CVE-2024-21626, CVE-2025-31133, CVE-2025-52565, CVE-2025-52881); distributions may have carried the repairs back",
		},
		Containerd: Minimum{
			Fail: "1.6.20", Warn: "1.7.29",
			Why: "the agent speaks to 1.6.20 and later; local attacks on its folders (CVE-2024-25621) are repaired in 1.7.29",
		},
		Toolkit: Minimum{Fail: "1.17.8", Why: "an image could run code on the host through a hook (CVE-2025-23266, CVE-2025-23267)"},
		Kernel: Minimum{
			Fail: "5.10", Warn: "5.15",
			Why: "user namespaces with overlays need 5.11 or a backport, and older kernels get no repairs",
		},
		Capabilities:  []string{"CAP_SYS_ADMIN", "CAP_NET_ADMIN", "CAP_MKNOD", "CAP_SYS_PTRACE", "CAP_KILL", "CAP_CHOWN"},
		Controllers:   []string{"cpu", "cpuset", "memory", "pids"},
		MaxClockError: 1000, //nolint:mnd // one second: certificates and samples carry seconds
	}
}
