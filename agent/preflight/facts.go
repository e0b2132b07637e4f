// Package preflight says whether a host may carry tenants' work: it gathers facts
// about the host and judges them by a policy that is data. Every finding names
// what is there, what is wanted, why, and how to get it.
//
// It changes nothing on the host and owns no state. The same judgement before the
// first start (`tranche-agent preflight`) and hourly afterwards (BelowFloor, for
// the inventory) keeps the two from drifting apart.
package preflight

import "time"

// Facts is what a host looks like. Versions are as the programs print them; ""
// means that the thing is missing, and then Missing may say why.
type Facts struct {
	// Shared is set for hosts whose GPUs may carry slices of several holders.
	Shared bool `json:"shared"`
	// Simulated hosts have no driver and no GPU of their own.
	Simulated bool `json:"simulated"`
	// Runtime is the container runtime in use: containerd or runc.
	Runtime string `json:"runtime"`

	Root         bool          `json:"root"`
	Capabilities []string      `json:"missing_capabilities"` // of those the agent needs
	Kernel       string        `json:"kernel"`
	Cgroup       Cgroup        `json:"cgroup"`
	UserSpaces   int           `json:"max_user_namespaces"`
	Nftables     Probe         `json:"nftables"`
	Overlay      Probe         `json:"overlay"`
	CDI          Probe         `json:"cdi"` // the folder of CDI files can be written
	Data         Filesystem    `json:"data"`
	Clock        Clock         `json:"clock"`
	Runc         Tool          `json:"runc"`
	Containerd   Tool          `json:"containerd"`
	Toolkit      Tool          `json:"nvidia_container_toolkit"`
	MPSControl   Tool          `json:"mps_control"`
	SMI          Tool          `json:"nvidia_smi"`
	Driver       Driver        `json:"driver"`
	GPUs         []GPU         `json:"gpus"`
	Fabric       FabricManager `json:"fabric_manager"`
	GatheredAt   time.Time     `json:"gathered_at"`
}

// Probe is one thing that was tried.
type Probe struct {
	OK  bool   `json:"ok"`
	Why string `json:"why,omitempty"` // when not OK
}

// Tool is one program.
type Tool struct {
	Path    string `json:"path,omitempty"`
	Version string `json:"version,omitempty"`
	Missing string `json:"missing,omitempty"`
}

// Cgroup is the control groups of the host.
type Cgroup struct {
	Version     int      `json:"version"` // 1 or 2
	Controllers []string `json:"controllers"`
}

// Filesystem is where instances keep their files.
type Filesystem struct {
	Path  string `json:"path"`
	Type  string `json:"type"`
	Quota bool   `json:"project_quota"`
}

// Clock is the host's clock.
type Clock struct {
	Synchronised bool          `json:"synchronised"`
	MaxError     time.Duration `json:"max_error_ns"`
	Unknown      string        `json:"unknown,omitempty"`
}

// Driver is the NVIDIA driver.
type Driver struct {
	Module  string `json:"module"`  // version of the loaded kernel module
	Library string `json:"library"` // version that the library reports
	Missing string `json:"missing,omitempty"`
	// ProfilingAdminOnly is the module's parameter of that meaning; nil if unknown.
	ProfilingAdminOnly *bool `json:"profiling_admin_only"`
}

// GPU is one GPU as far as the policy asks.
type GPU struct {
	UUID   string `json:"uuid"`
	Name   string `json:"name"`
	ECC    *bool  `json:"ecc"` // nil: not reported
	Fabric string `json:"fabric"`
	Lost   bool   `json:"lost"`
}

// FabricManager is the daemon that NVSwitch machines need.
type FabricManager struct {
	Switches int    `json:"switches"`
	Running  bool   `json:"running"`
	Version  string `json:"version,omitempty"`
}
