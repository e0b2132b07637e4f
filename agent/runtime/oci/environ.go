package oci

import "strings"

const defaultPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Of an image: nothing that loads code into every program, nothing that speaks to the
// GPU stack or looks like ours.
var (
	imageNames    = []string{"LD_PRELOAD", "LD_AUDIT"}
	imagePrefixes = []string{"NVIDIA_", "CUDA_", "TRANCHE_"}
)

// Of a tenant: nothing that chooses devices or the MPS daemon.
var (
	tenantNames    = []string{"NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES", "CUDA_VISIBLE_DEVICES"}
	tenantPrefixes = []string{"CUDA_MPS_", "TRANCHE_"}
)

// reserved reports whether a tenant's variable is left out.
func reserved(name string) bool { return matches(name, tenantNames, tenantPrefixes) }

func matches(name string, names, prefixes []string) bool {
	for _, n := range names {
		if name == n {
			return true
		}
	}
	for _, p := range prefixes {
		if strings.HasPrefix(name, p) {
			return true
		}
	}
	return false
}

// environ is the image's environment with the tenant's over it.
func environ(in Input) []string {
	var out []string
	at := map[string]int{}
	set := func(name, value string) {
		if name == "" || strings.ContainsAny(name+value, "\x00") || strings.Contains(name, "=") {
			return
		}
		if i, ok := at[name]; ok {
			out[i] = name + "=" + value
			return
		}
		at[name] = len(out)
		out = append(out, name+"="+value)
	}
	name, value, _ := strings.Cut(defaultPath, "=")
	set(name, value)
	set("HOSTNAME", hostname(in.Spec))
	set("HOME", in.User.home())
	for _, pair := range in.Image.Env {
		name, value, _ := strings.Cut(pair, "=")
		if !matches(name, imageNames, imagePrefixes) {
			set(name, value)
		}
	}
	for _, name := range sorted(in.Spec.Env) {
		if !reserved(name) {
			set(name, in.Spec.Env[name])
		}
	}
	return out
}
