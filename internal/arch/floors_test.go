package arch_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	module    = "github.com/tranche-cloud/tranche"
	reasonLow = "imports point down only, so that the domain can be read and tested without the rest"
)

// root is the folder of the root module, seen from this package.
var root = filepath.Join("..", "..")

// floors says where a package lives; the longest matching path wins. Packages of
// one floor may use each other where apart is false.
var floors = []struct {
	path  string
	floor int
}{
	{"internal/id", 0},
	{"internal/money", 0},
	{"internal/fault", 0},
	{"internal/page", 0},
	{"internal/clock", 0},
	{"internal/group", 0},
	{"internal/units", 0},
	{"openapi", 0},

	{"internal/gpu", 1},
	{"internal/placement", 1},
	{"internal/instance", 1},
	{"internal/host", 1},
	{"internal/quota", 1},
	{"internal/org", 1},
	{"internal/offer", 1},
	{"internal/metering", 1},
	{"billing", 1},
	{"billing/rating", 1},
	{"billing/tax", 1},
	{"billing/payment", 1},
	{"openapi/wire", 1},

	{"migrations", 2},
	{"internal/store", 2},
	{"internal/agentlink", 2},
	{"internal/auth", 2},
	{"internal/outbox", 2},
	{"internal/sshcert", 2},
	{"internal/sheet", 2},
	{"billing/render", 2},
	{"billing/focus", 2},
	{"billing/payment/stripe", 2},

	{"internal/app", 3},

	{"api", 4},
	{"workflows", 4},
	{"web", 4},
	{"gateway", 4},
	{"nodeagent", 4},
	{"client", 4},

	{"cmd", 5},
	{"internal/testkit", 5},
	{"internal/arch", 5},
	{"sim", 5},
}

// narrow lists packages that may import less of this module than their floor
// allows.
var narrow = []struct {
	path   string
	only   []string
	reason string
}{
	{"nodeagent", []string{
		"nodeagent", "internal/agentlink", "internal/gpu", "internal/placement", "internal/instance",
		"internal/host", "internal/metering", "internal/id", "internal/fault", "internal/clock", "internal/units",
		"internal/group", "internal/sshcert",
	}, "a host holds no database credential and no control-plane code; it shares geometry and the protocol"},
	{"client", []string{
		"client", "openapi/wire", "internal/id", "internal/fault", "internal/money", "internal/clock", "internal/page", "internal/units",
	}, "the SDK is a client of the public API and is linked into other people's programs"},
	{
		"web",
		[]string{"web", "client", "openapi/wire", "internal/id", "internal/fault", "internal/money", "internal/clock", "internal/units"},
		"the console is a client of the public API",
	},
	{"cmd/tranche", []string{
		"client", "openapi/wire", "internal/id", "internal/fault", "internal/money", "internal/clock", "internal/units",
	}, "the CLI is a client of the public API"},
}

// owners lists third-party modules that only some packages may import.
var owners = []struct {
	module string
	only   []string
	reason string
}{
	{"github.com/jackc/pgx", []string{"internal/store", "migrations", "internal/testkit"}, "SQL is spoken in one place"},
	{"database/sql", []string{"migrations"}, "pgx is the one database client; the migration library alone needs database/sql"},
	{"github.com/pressly/goose", []string{"migrations"}, "one package migrates"},
	{"github.com/NVIDIA/go-nvml", []string{"nodeagent/gpudrv/nvml"}, "cgo and the driver stay behind one port"},
	{"go.temporal.io/sdk", []string{"workflows", "cmd/tranched"}, "only the worker talks to Temporal"},
	{"connectrpc.com/connect", []string{"internal/agentlink", "gateway", "nodeagent"}, "the agent stream has two ends"},
	{"github.com/golang-jwt/jwt", []string{"internal/auth"}, "tokens are judged in one place"},
	{"github.com/spf13/cobra", []string{"cmd"}, "commands belong to binaries"},
	{"github.com/stripe/stripe-go", []string{"billing/payment/stripe"}, "each payment provider stays behind one port"},
	{"github.com/go-chi/chi", []string{"api", "web", "cmd/tranched"}, "routing belongs to the HTTP edge"},
	{"github.com/go-pdf/fpdf", []string{"internal/sheet"}, "a library without maintainers stays behind one package"},
	{"github.com/parquet-go/parquet-go", []string{"billing/focus"}, "one export writes Parquet"},
	{"github.com/stretchr/testify", []string{"internal/testkit"}, "test libraries stay out of production code"},
	{"pgregory.net/rapid", []string{"internal/testkit"}, "test libraries stay out of production code"},
	{"github.com/getkin/kin-openapi", nil, "it is an oracle of tests, fifty times too slow for a request"},
	{"testing", []string{"internal/testkit"}, "test code stays out of production code"},
	{module + "/internal/testkit", []string{"internal/testkit"}, "test code stays out of production code"},
}

// forbidden lists what a binary must not link, directly or not.
var forbidden = map[string][]struct{ module, reason string }{
	"cmd/tranched": {
		{"go.temporal.io/server", "225 modules that belong to the development stack alone"},
		{"github.com/NVIDIA/go-nvml", "the control plane runs without a GPU driver"},
		{"cgo", "one static file that runs on any distribution"},
	},
	"agent": {
		{"github.com/jackc/pgx", "a host holds no database credential, so it needs no client"},
		{"go.temporal.io/sdk", "a host never talks to Temporal"},
		{"go.temporal.io/server", "a host never talks to Temporal"},
	},
	"cmd/tranche": {
		{"github.com/jackc/pgx", "the CLI is a client of the public API"},
		{"go.temporal.io", "the CLI is a client of the public API"},
		{"github.com/NVIDIA/go-nvml", "the CLI runs anywhere"},
		{"cgo", "one static file that runs anywhere"},
	},
	"terraform": {
		{"github.com/jackc/pgx", "the provider is a client of the public API"},
		{"go.temporal.io", "the provider is a client of the public API"},
		{"github.com/NVIDIA/go-nvml", "the provider runs anywhere"},
	},
}

// pkg is what `go list` says of one package.
type pkg struct {
	ImportPath string
	Standard   bool
	Imports    []string
	Deps       []string
	CgoFiles   []string
}

func (p pkg) path() string {
	return strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/")
}

func (p pkg) ours() bool { return within(p.ImportPath, module) }

// within reports whether path is base or lies below it.
func within(path, base string) bool {
	return path == base || strings.HasPrefix(path, base+"/")
}

func inAny(path string, bases []string) bool {
	return slices.ContainsFunc(bases, func(base string) bool { return within(path, base) })
}

// floorOf returns the floor of a package of ours, -1 when the table lacks it.
func floorOf(path string) int {
	floor, length := -1, -1
	for _, f := range floors {
		if within(path, f.path) && len(f.path) > length {
			floor, length = f.floor, len(f.path)
		}
	}
	return floor
}

// breaches checks every import of our packages and returns one line a breach.
func breaches(pkgs []pkg) []string {
	var found []string
	for _, p := range pkgs {
		if !p.ours() {
			continue
		}
		if floorOf(p.path()) < 0 {
			found = append(found, fmt.Sprintf("%s has no floor: add it to the table, or find the package it belongs to", p.path()))
			continue
		}
		for _, imported := range p.Imports {
			if why := refuse(p.path(), imported, standard(pkgs, imported)); why != "" {
				found = append(found, fmt.Sprintf("%s imports %s: %s", p.path(), strings.TrimPrefix(imported, module+"/"), why))
			}
		}
	}
	return found
}

func standard(pkgs []pkg, path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return !strings.Contains(first, ".") || slices.ContainsFunc(pkgs, func(p pkg) bool { return p.ImportPath == path && p.Standard })
}

// refuse returns why a package of ours must not import something, or "".
func refuse(from, imported string, isStandard bool) string {
	if within(imported, module) && suite(imported) && !suite(from) {
		return "test code stays out of production code"
	}
	for _, o := range owners {
		if within(imported, o.module) && !inAny(from, o.only) && !(suite(from) && strings.HasPrefix(o.reason, "test ")) {
			return o.reason
		}
	}
	if !within(imported, module) {
		if isStandard {
			return ""
		}
		return refuseThirdParty(from)
	}
	to := strings.TrimPrefix(imported, module+"/")
	for _, n := range narrow {
		if within(from, n.path) && !slices.Contains(n.only, to) && !inAny(to, n.only) {
			return n.reason
		}
	}
	low, high := floorOf(to), floorOf(from)
	switch {
	case low > high:
		return fmt.Sprintf("floor %d above floor %d; %s", low, high, reasonLow)
	case low == 4 && high == 4 && head(from) != head(to) && !(head(from) == "web" && head(to) == "client"):
		return "the entrances (api, workflows, web, gateway, nodeagent, client) never import each other"
	case low == 5 && high == 5 && head2(from) != head2(to) && !within(to, "internal/testkit"):
		return "binaries do not import each other"
	}
	return ""
}

// suite reports whether a package is a conformance suite, which fakes and real
// parts share: its name ends in "test", as httptest's does.
func suite(path string) bool { return strings.HasSuffix(path, "test") }

func refuseThirdParty(from string) string {
	switch floor := floorOf(from); {
	case floor == 0:
		return "floor 0 is the standard library only"
	case floor == 1 && !within(from, "openapi/wire"):
		return "floor 1 is pure domain code: the standard library and floor 0"
	}
	return ""
}

func head(path string) string { first, _, _ := strings.Cut(path, "/"); return first }

func head2(path string) string {
	parts := strings.SplitN(path, "/", 3)
	return strings.Join(parts[:min(2, len(parts))], "/")
}

// linked checks what a binary links and returns one line a breach.
func linked(binary string, main pkg, byPath map[string]pkg) []string {
	var found []string
	for _, f := range forbidden[binary] {
		for _, dep := range main.Deps {
			bad := within(dep, f.module)
			if f.module == "cgo" {
				bad = len(byPath[dep].CgoFiles) > 0 && !byPath[dep].Standard
			}
			if bad {
				found = append(found, fmt.Sprintf("%s links %s: %s", binary, dep, f.reason))
				break
			}
		}
	}
	return found
}

// list runs `go list -deps` in a module folder.
func list(t *testing.T, dir string, env ...string) map[string]pkg {
	t.Helper()
	cmd := exec.Command("go", "list", "-deps", "-json=ImportPath,Standard,Imports,Deps,CgoFiles", "./...")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), append(env, "GOWORK=off")...)
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	require.NoError(t, err, complaint.String())
	pkgs := map[string]pkg{}
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		err := decoder.Decode(&p)
		if errors.Is(err, io.EOF) {
			return pkgs
		}
		require.NoError(t, err)
		pkgs[p.ImportPath] = p
	}
}

func sorted(byPath map[string]pkg) []pkg {
	var pkgs []pkg
	for _, p := range byPath {
		pkgs = append(pkgs, p)
	}
	slices.SortFunc(pkgs, func(a, b pkg) int { return cmp.Compare(a.ImportPath, b.ImportPath) })
	return pkgs
}

func TestImportsPointDown(t *testing.T) {
	t.Parallel()
	report(t, breaches(sorted(list(t, root))))
}

func TestBinariesLinkOnlyWhatTheyNeed(t *testing.T) {
	t.Parallel()
	byPath := list(t, root, "CGO_ENABLED=1")
	var found []string
	for _, p := range sorted(byPath) {
		if !within(p.path(), "cmd") || !p.ours() || strings.Count(p.path(), "/") != 1 {
			continue
		}
		if _, known := forbidden[p.path()]; !known {
			found = append(found, p.path()+" has no row: say what this binary must not link")
		}
		found = append(found, linked(p.path(), p, byPath)...)
	}
	report(t, found)
}

func TestTheProviderUsesTheSDKAlone(t *testing.T) {
	t.Parallel()
	byPath := list(t, filepath.Join(root, "terraform"))
	var found []string
	for _, p := range sorted(byPath) {
		if !within(p.path(), "terraform") || !p.ours() {
			continue
		}
		found = append(found, linked("terraform", p, byPath)...)
		for _, imported := range p.Imports {
			to := strings.TrimPrefix(imported, module+"/")
			if within(imported, module) && !within(to, "terraform") && to != "client" {
				found = append(found, fmt.Sprintf("%s imports %s: the provider is a client of the public API", p.path(), to))
			}
		}
	}
	report(t, found)
}

func TestTheAgentUsesNoControlPlane(t *testing.T) {
	t.Parallel()
	byPath := list(t, filepath.Join(root, "agent"), "CGO_ENABLED=1")
	var found []string
	for _, p := range sorted(byPath) {
		if !within(p.path(), "agent") || !p.ours() {
			continue
		}
		found = append(found, linked("agent", p, byPath)...)
		for _, imported := range p.Imports {
			to := strings.TrimPrefix(imported, module+"/")
			if within(imported, module) && !within(to, "agent") && !inAny(to, narrow[0].only) {
				found = append(found, fmt.Sprintf("%s imports %s: %s", p.path(), to, narrow[0].reason))
			}
		}
	}
	report(t, found)
}

func TestTheCheckerSeesEachBreach(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		from, imports, want string
	}{
		"a domain package in the store":  {"internal/quota", module + "/internal/store", "imports point down"},
		"floor 0 reaching up":            {"internal/id", module + "/internal/gpu", "imports point down"},
		"two entrances":                  {"api", module + "/workflows", "never import each other"},
		"a binary in the use cases":      {"internal/app", module + "/cmd/tranched", "imports point down"},
		"pgx outside the store":          {"internal/app", "github.com/jackc/pgx/v5", "one place"},
		"a third party on floor 0":       {"internal/money", "example.org/x", "standard library only"},
		"a third party on floor 1":       {"billing/rating", "example.org/x", "pure domain"},
		"the store in the agent":         {"nodeagent/runtime", module + "/internal/store", "no database credential"},
		"a use case in the SDK":          {"client", module + "/internal/auth", "client of the public API"},
		"the store in the console":       {"web", module + "/internal/store", "client of the public API"},
		"the driver in the placement":    {"internal/placement", "github.com/NVIDIA/go-nvml/pkg/nvml", "one port"},
		"a test library in production":   {"api", "github.com/stretchr/testify/require", "test libraries"},
		"test support in production":     {"internal/store", module + "/internal/testkit/pgtest", "test code"},
		"Temporal in the gateway":        {"gateway", "go.temporal.io/sdk/client", "only the worker"},
		"a package without a floor":      {"internal/nowhere", "fmt", "no floor"},
		"one binary in another":          {"cmd/tranched", module + "/cmd/tranche", "binaries do not import"},
		"a suite in production":          {"nodeagent", module + "/nodeagent/gpudrv/gpudrvtest", "test code"},
		"the slow validator in requests": {"api", "github.com/getkin/kin-openapi/openapi3", "too slow"},
	} {
		found := breaches([]pkg{{ImportPath: module + "/" + tc.from, Imports: []string{tc.imports}}})
		require.Len(t, found, 1, name)
		require.Contains(t, found[0], tc.want, name)
	}
	for from, imported := range map[string]string{
		"internal/app":       module + "/internal/store",
		"internal/page":      module + "/internal/fault",
		"internal/placement": module + "/internal/gpu",
		"web":                module + "/client",
		"nodeagent/carve":    module + "/internal/agentlink",
		"internal/store/x":   "github.com/jackc/pgx/v5",
		"cmd/tranched":       module + "/workflows",
		"openapi/wire":       "github.com/oapi-codegen/nullable",
		"billing":            "time",
		"nodeagent/drvtest":  "testing",
	} {
		require.Empty(t, breaches([]pkg{{ImportPath: module + "/" + from, Imports: []string{imported}}}), from)
	}
}

func TestTheCheckerSeesWhatABinaryLinks(t *testing.T) {
	t.Parallel()
	byPath := map[string]pkg{
		"example.org/c": {ImportPath: "example.org/c", CgoFiles: []string{"c.go"}},
		"net":           {ImportPath: "net", Standard: true, CgoFiles: []string{"cgo.go"}},
	}
	for _, tc := range []struct {
		binary, dep string
		breaches    int
	}{
		{"cmd/tranched", "go.temporal.io/server/temporal", 1},
		{"cmd/tranched", "go.temporal.io/sdk/client", 0},
		{"cmd/tranched", "example.org/c", 1},
		{"cmd/tranched", "net", 0},
		{"agent", "github.com/jackc/pgx/v5/pgconn", 1},
		{"agent", "github.com/NVIDIA/go-nvml/pkg/nvml", 0},
		{"cmd/tranche", "go.temporal.io/sdk/client", 1},
		{"terraform", "github.com/jackc/pgx/v5", 1},
	} {
		require.Len(t, linked(tc.binary, pkg{Deps: []string{tc.dep}}, byPath), tc.breaches, "%s with %s", tc.binary, tc.dep)
	}
}

// report fails the test with every breach at once.
func report(t *testing.T, found []string) {
	t.Helper()
	slices.Sort(found)
	for _, line := range slices.Compact(found) {
		t.Error(line)
	}
}
