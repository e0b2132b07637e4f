package injection

import (
	"slices"
	"strings"

	oci "github.com/opencontainers/runtime-spec/specs-go"
	"tags.cncf.io/container-device-interface/pkg/cdi"
)

// Variables that are lists: one device's value joins those of the others.
const (
	libraryPath    = "LD_LIBRARY_PATH"
	programPath    = "PATH"
	visibleDevices = "CUDA_VISIBLE_DEVICES"
)

// defaultPath is where programs are found in an image that says nothing.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Inject merges the named devices of some folders into a spec, in their order. Edits of
// the environment win over what the spec has, with two exceptions: our library and
// program folders are put in front of the spec's LD_LIBRARY_PATH and PATH, whose own
// entries stay behind them. The visible devices of several slices are joined.
func Inject(spec *oci.Spec, dirs, devices []string) error {
	if len(devices) == 0 {
		return nil
	}
	cache, err := cdi.NewCache(cdi.WithSpecDirs(dirs...), cdi.WithAutoRefresh(false))
	if err != nil {
		return refuse(Broken, "", "open folders %v", dirs).because(err)
	}
	if spec.Process == nil {
		spec.Process = &oci.Process{}
	}
	own := map[string]string{
		libraryPath: lookup(spec.Process.Env, libraryPath),
		programPath: lookup(spec.Process.Env, programPath),
	}
	if own[programPath] == "" {
		own[programPath] = defaultPath
	}
	given := map[string][]string{}
	for _, device := range devices {
		clear := func(entry string) bool { return strings.HasPrefix(entry, visibleDevices+"=") }
		spec.Process.Env = slices.DeleteFunc(spec.Process.Env, clear)
		unknown, err := cache.InjectDevices(spec, device)
		if len(unknown) > 0 {
			return refuse(DeviceMissing, device, "no readable file in %v has this device", dirs).because(err)
		}
		if err != nil {
			return refuse(Broken, device, "apply its edits").because(err)
		}
		collect(given, cache.GetDevice(device))
	}
	join(spec, given, own)
	unique(spec)
	return nil
}

// collect adds a device's values of the list variables.
func collect(given map[string][]string, device *cdi.Device) {
	for _, entry := range device.ContainerEdits.Env {
		name, value, _ := strings.Cut(entry, "=")
		list := name == libraryPath || name == programPath || name == visibleDevices
		if list && !slices.Contains(given[name], value) {
			given[name] = append(given[name], value)
		}
	}
}

func join(spec *oci.Spec, given map[string][]string, own map[string]string) {
	for _, name := range []string{libraryPath, programPath, visibleDevices} {
		values := given[name]
		if len(values) == 0 {
			continue
		}
		separator := ","
		if name != visibleDevices {
			separator = ":"
			values = append(values, remaining(own[name], values)...)
		}
		entry := name + "=" + strings.Join(values, separator)
		at := slices.IndexFunc(spec.Process.Env, func(e string) bool { return strings.HasPrefix(e, name+"=") })
		if at < 0 {
			spec.Process.Env = append(spec.Process.Env, entry)
			continue
		}
		spec.Process.Env[at] = entry
	}
}

// remaining are the entries of a search path that are not among ours. Empty entries,
// which mean the working folder, are dropped.
func remaining(path string, ours []string) []string {
	var entries []string
	for entry := range strings.SplitSeq(path, ":") {
		if entry != "" && !slices.Contains(ours, entry) {
			entries = append(entries, entry)
		}
	}
	return entries
}

func lookup(env []string, name string) string {
	value := ""
	for _, entry := range env {
		if v, found := strings.CutPrefix(entry, name+"="); found {
			value = v
		}
	}
	return value
}

// unique drops rules of the device cgroup that several slices of one instance share,
// looking only behind the last denial: what stands before it means something else.
func unique(spec *oci.Spec) {
	if spec.Linux == nil || spec.Linux.Resources == nil {
		return
	}
	var rules []oci.LinuxDeviceCgroup
	start := 0
	for _, rule := range spec.Linux.Resources.Devices {
		same := func(r oci.LinuxDeviceCgroup) bool {
			return r.Type == rule.Type && r.Access == rule.Access &&
				number(r.Major) == number(rule.Major) && number(r.Minor) == number(rule.Minor)
		}
		if rule.Allow && slices.ContainsFunc(rules[start:], same) {
			continue
		}
		rules = append(rules, rule)
		if !rule.Allow {
			start = len(rules)
		}
	}
	spec.Linux.Resources.Devices = rules
}

func number(n *int64) int64 {
	if n == nil {
		return -1
	}
	return *n
}
