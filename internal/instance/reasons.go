package instance

import "strings"

// Blame says whose doing the end or the refusal of a run is.
type Blame int

// The blames. A host that could not start a run for a reason that concerns only it
// is a reason to try another host; what a tenant's request causes would fail there
// as well.
const (
	Unknown  Blame = iota // no reason, or one that this table does not know
	Tenant                // the tenant's image, command, limits, or its own program
	HostBusy              // this host cannot take it now, another may
	Platform              // a fault of host, GPU or runtime
)

// reason is what one code of an agent means.
type reason struct {
	public string // problem code that clients branch on
	blame  Blame
}

// reasons is the one table agent code → public problem code. XID_ and IMAGE_ codes
// that it does not list fall back on their prefix.
var reasons = map[string]reason{
	"IMAGE_NOT_FOUND":    {"image.not_found", Tenant},
	"IMAGE_UNAUTHORIZED": {"image.unauthorized", Tenant},
	"IMAGE_REFUSED":      {"image.refused", Tenant},
	"IMAGE_UNAVAILABLE":  {"image.unavailable", Tenant},
	"IMAGE_INVALID":      {"image.invalid", Tenant},
	"COMMAND_MISSING":    {"command.missing", Tenant},
	"COMMAND_FAILED":     {"command.failed", Tenant},
	"LIMIT_INVALID":      {"limit.invalid", Tenant},
	"SECRETS_REFUSED":    {"image.unauthorized", Tenant},

	"CLIENT_ENDED":        {"gpu.client_ended", Tenant}, // a program went past its share
	"CLIENT_MEMORY":       {"gpu.client_ended", Tenant},
	"CLIENT_COUNT":        {"gpu.client_ended", Tenant},
	"CLIENT_OUTSIDE":      {"gpu.client_ended", Tenant},
	"GPU_CLIENT_ENDED":    {"gpu.client_ended", Tenant},
	"OUT_OF_MEMORY":       {"run.out_of_memory", Tenant},
	"PORT_IN_USE":         {"port.in_use", HostBusy},
	"IN_USE":              {"gpu.in_use", HostBusy},
	"NO_ROOM":             {"gpu.in_use", HostBusy},
	"NEEDS_RESET":         {"gpu.fault", Platform},
	"GPU_LOST":            {"gpu.fault", Platform},
	"GPU_HUNG":            {"gpu.fault", Platform},
	"GPU_FAILED":          {"gpu.fault", Platform},
	"GPU_FAULT":           {"gpu.fault", Platform},
	"SLICE_LOST":          {"gpu.fault", Platform},
	"MPS_SERVER":          {"gpu.fault", Platform},
	"UNSUPPORTED":         {"gpu.unsupported", HostBusy},
	"HOST_REBOOT":         {"host.rebooted", Platform},
	"LIB_MISMATCH":        {"host.driver_mismatch", Platform},
	"PROCESS_LOST":        {"run.lost", Platform},
	"RUN_MISSING":         {"run.lost", Platform},
	"RUNTIME_UNAVAILABLE": {"runtime.unavailable", Platform},
	"RUNTIME_FAILED":      {"runtime.unavailable", Platform},
	"SCRUB_FAILED":        {"scrub.failed", Platform},
}

// families are the prefixes of codes that are not listed one by one.
var families = []struct {
	prefix string
	reason
}{
	{"XID_", reason{"gpu.fault", Platform}},
	{"GPU_", reason{"gpu.fault", Platform}},
	{"SXID_", reason{"gpu.fault", Platform}},
	{"IMAGE_", reason{"image.invalid", Tenant}},
	{"COMMAND_", reason{"command.failed", Tenant}},
	{"LIMIT_", reason{"limit.invalid", Tenant}},
}

func reasonOf(code string) (reason, bool) {
	if r, ok := reasons[code]; ok {
		return r, true
	}
	for _, f := range families {
		if strings.HasPrefix(code, f.prefix) {
			return f.reason, true
		}
	}
	return reason{}, false
}

// BlameOf says whose doing an agent's code is.
func BlameOf(code string) Blame {
	r, _ := reasonOf(code)
	return r.blame
}

// sentences begin what a tenant is told; the agent's own detail follows.
var sentences = map[string]string{
	"image.not_found":      "The registry has no such image.",
	"image.unauthorized":   "The registry wants other credentials for the image.",
	"image.refused":        "The image is not allowed here, or is too large.",
	"image.unavailable":    "The registry does not answer, or too slowly.",
	"image.invalid":        "The image cannot be used.",
	"command.missing":      "Neither the request nor the image names a command.",
	"command.failed":       "The command is not in the image, or cannot be run.",
	"limit.invalid":        "A limit is below the minimum or above what the host has.",
	"gpu.client_ended":     "A program of the instance was ended because it went past its share of the GPU.",
	"run.out_of_memory":    "The instance used more memory than it has.",
	"port.in_use":          "A published port was taken on the host.",
	"gpu.in_use":           "The GPU was not free.",
	"gpu.fault":            "The GPU failed.",
	"gpu.unsupported":      "The GPU does not support what was asked of it.",
	"host.rebooted":        "The host was rebooted.",
	"host.driver_mismatch": "The host's GPU driver was changed while it was in use.",
	"run.lost":             "The run is not on its host any more.",
	"runtime.unavailable":  "The host's container runtime does not work.",
	"scrub.failed":         "The GPU could not be cleaned.",
}

// Codes lists every public problem code that a run's end or refusal can have.
func Codes() []string {
	out := make([]string, 0, len(sentences))
	for code := range sentences {
		out = append(out, code)
	}
	return out
}

// Public turns an agent's reason into what its tenant is told: a stable code, and a
// sentence with the agent's detail. An unknown code stays as it is.
func Public(p Problem) Problem {
	r, ok := reasonOf(p.Code)
	if !ok {
		return p
	}
	detail := sentences[r.public]
	if p.Detail != "" {
		detail += " " + strings.TrimSuffix(p.Detail, ".") + "."
	}
	return Problem{Code: r.public, Detail: detail}
}
