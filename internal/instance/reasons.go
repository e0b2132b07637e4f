package instance

import (
	"slices"
	"strings"
)

// Blame says whose doing the end or the refusal of a run is.
type Blame int

// The blames. A host that could not start a run for a reason that concerns only it
// is a reason to try another host; what a tenant's request causes would fail there
// as well.
const (
	Unknown    Blame = iota // no reason, or one that this table does not know
	Tenant                  // the tenant's image, command, limits, or its own program
	HostBusy                // this host cannot take it now, another may
	AsCredited              // the platform's if the agent credits it, else the tenant's
	Platform                // a fault of host, GPU or runtime
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
	"MPS_BYPASS":          {"gpu.client_ended", Tenant},
	"PROCESS_LIMIT":       {"gpu.client_ended", Tenant},
	"MEMORY_LIMIT":        {"gpu.client_ended", Tenant},
	"OUT_OF_MEMORY":       {"run.out_of_memory", Tenant},
	"PORT_IN_USE":         {"port.in_use", HostBusy},
	"IN_USE":              {"gpu.in_use", HostBusy},
	"NO_ROOM":             {"gpu.in_use", HostBusy},
	"PORTS_EXHAUSTED":     {"host.full", HostBusy},
	"ADDRESSES_EXHAUSTED": {"host.full", HostBusy},
	"INVALID":             {"gpu.unsupported", HostBusy},
	"HUNG":                {"gpu.fault", Platform},
	"FAILED":              {"gpu.fault", Platform},
	"NEEDS_RESET":         {"gpu.fault", Platform},
	"GPU_LOST":            {"gpu.fault", Platform},
	"GPU_HUNG":            {"gpu.fault", Platform},
	"GPU_FAILED":          {"gpu.fault", Platform},
	"GPU_FAULT":           {"gpu.fault", Platform},
	"SLICE_LOST":          {"gpu.fault", Platform},
	"MPS_SERVER":          {"gpu.fault", Platform},
	"UNSUPPORTED":         {"gpu.unsupported", HostBusy},
	"GPU_DRAINED":         {"gpu.drained", Platform},
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
	{"XID_", reason{"gpu.fault", AsCredited}}, // which is which is the policy of the node
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

// Code is a public problem code that the end or the refusal of a run can have.
type Code struct {
	Name, Title string
	Sentence    string // begins what a tenant is told; the agent's detail follows
	Remedy      string
	Tenant      bool // the tenant's doing
}

// Codes lists them, by name.
func Codes() []Code { return slices.Clone(codes) }

var codes = []Code{
	{"command.failed", "Command failed", "The command is not in the image, or cannot be run.", "Correct `command`, or the image.", true},
	{"command.missing", "No command", "Neither the request nor the image names a command.", "Give a `command`.", true},
	{"gpu.client_ended", "Program ended", "A program of the instance was ended because it went past its share of the GPU.", "Use less, or choose a larger offer.", true},
	{"gpu.drained", "GPU drained", "The operator needed the GPU empty.", "Start the instance again: it gets another GPU. `recovery: restart` does so by itself.", false},
	{"gpu.fault", "GPU fault", "The GPU failed.", "Start the instance again; `recovery: restart` does so by itself. Time without it is not billed.", false},
	{"gpu.in_use", "GPU in use", "The GPU was not free.", "Try again.", false},
	{"gpu.unsupported", "Not supported by the GPU", "The GPU does not support what was asked of it.", "Choose another offer.", false},
	{"host.driver_mismatch", "Driver mismatch", "The host's GPU driver was changed while it was in use.", "Try again.", false},
	{"host.full", "Host full", "The host had no address or port left.", "Try again.", false},
	{"host.rebooted", "Host rebooted", "The host was rebooted.", "Start the instance again; `recovery: restart` does so by itself. Time without it is not billed.", false},
	{"image.invalid", "Unusable image", "The image cannot be used.", "Name an image for this platform.", true},
	{"image.not_found", "No such image", "The registry has no such image.", "Check the image's name and tag.", true},
	{"image.refused", "Image refused", "The image is not allowed here, or is too large.", "Choose another image.", true},
	{"image.unauthorized", "Image needs a login", "The registry wants other credentials for the image.", "Add a registry login, or correct it.", true},
	{"image.unavailable", "Image unavailable", "The registry does not answer, or too slowly.", "Try again later, or use another registry.", true},
	{"limit.invalid", "Limit out of range", "A limit is below the minimum or above what the host has.", "Correct the limit.", true},
	{"port.in_use", "Port in use", "A published port was taken on the host.", "Try again.", false},
	{"run.exited", "Run ended", "The main process of the instance ended.", "Look at the logs, and start the instance again.", true},
	{"run.lost", "Run lost", "The run is not on its host any more.", "Start the instance again; `recovery: restart` does so by itself. Time without it is not billed.", false},
	{"run.out_of_memory", "Out of memory", "The instance used more memory than it has.", "Use less, or choose a larger offer.", true},
	{"run.unproven", "Run unproven", "The host does not show that the run goes on.", "Wait: it is not billed meanwhile.", false},
	{"runtime.unavailable", "Runtime unavailable", "The host's container runtime does not work.", "Try again.", false},
	{"scrub.failed", "GPU not clean", "The GPU could not be cleaned.", "Try again.", false},
}

func codeOf(name string) Code {
	for _, c := range codes {
		if c.Name == name {
			return c
		}
	}
	return Code{}
}

// RemedyOf says what a tenant can do about a problem of a run.
func RemedyOf(code string) string {
	if c := codeOf(code); c.Remedy != "" {
		return c.Remedy
	}
	return "Try again, or choose another offer."
}

// Public turns an agent's reason into what its tenant is told: a stable code, and a
// sentence with the agent's detail. An unknown code stays as it is.
func Public(p Problem) Problem {
	r, ok := reasonOf(p.Code)
	if !ok {
		return p
	}
	detail := codeOf(r.public).Sentence
	if p.Detail != "" {
		detail += " (" + strings.TrimSuffix(p.Detail, ".") + ")"
	}
	return Problem{Code: r.public, Detail: detail}
}
