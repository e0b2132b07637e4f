package sim

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
)

// Bounds of a fault file.
const (
	maxScriptLength = 1 << 20
	maxSteps        = 10_000
	maxTimes        = 1_000_000
	maxAt           = 366 * 24 * time.Hour
)

// Script is what shall happen to the simulated hosts of a fleet, as a fault file
// describes it (docs/operations/simulator.md). The zero Script is nothing.
type Script struct{ steps []step }

// step is one line of the file.
type step struct {
	line  int
	do    string
	host  string // "" is every host
	gpu   int    // position on the host; -1 is every GPU
	at    time.Duration
	every time.Duration // 0: once
	on    string        // op; "" goes by time
	call  int           // the how-manieth call of on
	times int           // of call faults, of every

	op, name, kind, action string
	pid, code, gi, ci      int
	start, duty, number    int
	mib                    int64
	hang, late, hide       bool
}

// action is what `do` may say: the keys that go with it beside those of every step,
// and what it does.
type action struct {
	keys []string
	need []string // of keys
	take func(d *Driver, uuid string, s step) error
	// host: it concerns the host and not a GPU.
	host bool
}

// common are the keys that every step may have.
var common = []string{"do", "host", "at", "every", "times", "on", "call"}

// Actions lists what `do` may say.
func Actions() []string { return slices.Sorted(maps.Keys(actions())) }

// Calls lists the names of driver calls that a fault file may use.
func Calls() []string { return slices.Sorted(maps.Keys(ops)) }

// LoadScript reads a fault file. Errors name the line.
func LoadScript(path string) (Script, error) {
	f, err := os.Open(path)
	if err != nil {
		return Script{}, fmt.Errorf("open fault file: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxScriptLength+1))
	if err != nil {
		return Script{}, fmt.Errorf("read fault file: %w", err)
	}
	s, err := ParseScript(text)
	if err != nil {
		return Script{}, fmt.Errorf("fault file %s: %w", path, err)
	}
	return s, nil
}

// ParseScript reads the YAML text of a fault file: a mapping with the one key
// faults, a list of steps. Unknown, doubled and missing keys and values out of
// range are errors that name the line and what is allowed.
func ParseScript(text []byte) (Script, error) {
	if len(text) > maxScriptLength {
		return Script{}, fmt.Errorf("longer than %d bytes", maxScriptLength)
	}
	dec := yaml.NewDecoder(strings.NewReader(string(text)))
	var doc yaml.Node
	if err := dec.Decode(&doc); err != nil {
		if errors.Is(err, io.EOF) {
			return Script{}, errors.New("empty: write `faults:` and a list of steps")
		}
		return Script{}, err
	}
	if err := dec.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return Script{}, errors.New("more than one YAML document")
	}
	root := doc.Content[0]
	if root.Kind != yaml.MappingNode || len(root.Content) != 2 || root.Content[0].Value != "faults" ||
		root.Content[1].Kind != yaml.SequenceNode {
		return Script{}, fmt.Errorf("line %d: a fault file is `faults:` and a list of steps, nothing else", root.Line)
	}
	list := root.Content[1].Content
	if len(list) > maxSteps {
		return Script{}, fmt.Errorf("%d steps, at most %d", len(list), maxSteps)
	}
	var out Script
	for _, node := range list {
		s, err := parseStep(node)
		if err != nil {
			return Script{}, err
		}
		out.steps = append(out.steps, s)
	}
	return out, nil
}

func at(line int, format string, args ...any) error {
	return fmt.Errorf("line %d: %s", line, fmt.Sprintf(format, args...))
}

func parseStep(node *yaml.Node) (step, error) {
	if node.Kind != yaml.MappingNode {
		return step{}, at(node.Line, "a step is a mapping such as {do: xid, at: 30s, gpu: 0, code: 79}")
	}
	s := step{line: node.Line, gpu: -1, call: 1, times: 1, gi: -1, ci: -1}
	given := map[string]bool{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		if given[key.Value] {
			return step{}, at(key.Line, "%q is said twice", key.Value)
		}
		given[key.Value] = true
		set, ok := setters[key.Value]
		if !ok {
			return step{}, at(key.Line, "unknown key %q", key.Value)
		}
		if value.Kind != yaml.ScalarNode {
			return step{}, at(value.Line, "%s must be a plain value", key.Value)
		}
		if err := set(&s, value.Value); err != nil {
			return step{}, at(value.Line, "%s: %v", key.Value, err)
		}
	}
	return s, s.check(given)
}

// check compares the keys with what the action takes.
func (s step) check(given map[string]bool) error {
	a, ok := actions()[s.do]
	if !ok {
		return at(s.line, "do: %q is none of %s", s.do, strings.Join(Actions(), ", "))
	}
	allowed := append(slices.Clone(common), a.keys...)
	if !a.host {
		allowed = append(allowed, "gpu")
	}
	for _, key := range slices.Sorted(maps.Keys(given)) {
		if !slices.Contains(allowed, key) {
			return at(s.line, "do: %s does not take %q, only %s", s.do, key, strings.Join(allowed, ", "))
		}
	}
	for _, key := range a.need {
		if !given[key] {
			return at(s.line, "do: %s needs %q", s.do, key)
		}
	}
	switch {
	case given["on"] && (given["at"] || given["every"]):
		return at(s.line, "say either `at` (and `every`) or `on`")
	case given["call"] && !given["on"]:
		return at(s.line, "`call` needs `on`")
	case slices.Contains(a.keys, "op") && given["every"] && given["times"]:
		return at(s.line, "`times` counts calls here: it cannot go with `every`")
	case s.do == "fail" && s.hang == (s.kind != ""):
		return at(s.line, "do: fail needs either `kind` or `hang: true`")
	}
	return nil
}

// setters read one value each.
var setters = map[string]func(*step, string) error{
	"do":        text(func(s *step) *string { return &s.do }),
	"host":      text(func(s *step) *string { return &s.host }),
	"name":      text(func(s *step) *string { return &s.name }),
	"gpu":       number(func(s *step) *int { return &s.gpu }, 0, maxHostGPUs-1),
	"at":        duration(func(s *step) *time.Duration { return &s.at }, 0),
	"every":     duration(func(s *step) *time.Duration { return &s.every }, time.Millisecond),
	"times":     number(func(s *step) *int { return &s.times }, 1, maxTimes),
	"call":      number(func(s *step) *int { return &s.call }, 1, maxTimes),
	"on":        call(func(s *step) *string { return &s.on }),
	"op":        call(func(s *step) *string { return &s.op }),
	"kind":      kind,
	"action":    oneOf(func(s *step) *string { return &s.action }, recoveryActions...),
	"code":      number(func(s *step) *int { return &s.code }, 1, 1000),
	"gi":        number(func(s *step) *int { return &s.gi }, 0, 63),
	"ci":        number(func(s *step) *int { return &s.ci }, 0, 63),
	"pid":       number(func(s *step) *int { return &s.pid }, 1, 1<<30),
	"start":     number(func(s *step) *int { return &s.start }, 0, 63),
	"duty":      number(func(s *step) *int { return &s.duty }, 0, 100),
	"count":     number(func(s *step) *int { return &s.number }, 0, 1<<30),
	"link":      number(func(s *step) *int { return &s.number }, 0, links-1),
	"celsius":   number(func(s *step) *int { return &s.number }, 1, 200),
	"used_mib":  wide(func(s *step) *int64 { return &s.mib }, 0, 1<<30),
	"hang":      flag(func(s *step) *bool { return &s.hang }),
	"late":      flag(func(s *step) *bool { return &s.late }),
	"hide_pipe": flag(func(s *step) *bool { return &s.hide }),
}

var recoveryActions = []string{"none", "reset", "reboot", "drain_p2p", "drain_reset", "recover_imex", "bus_reset", "system_reboot"}

var kinds = []string{
	string(gpudrv.InUse), string(gpudrv.NoRoom), string(gpudrv.NeedsReset), string(gpudrv.GPULost),
	string(gpudrv.Unsupported), string(gpudrv.Invalid), string(gpudrv.NotFound), string(gpudrv.Mismatch),
	string(gpudrv.Broken),
}

func text(at func(*step) *string) func(*step, string) error {
	return func(s *step, v string) error {
		const longest = 100
		if v == "" || len(v) > longest {
			return fmt.Errorf("must have 1 to %d characters", longest)
		}
		*at(s) = v
		return nil
	}
}

func oneOf(at func(*step) *string, words ...string) func(*step, string) error {
	return func(s *step, v string) error {
		if !slices.Contains(words, v) {
			return fmt.Errorf("%q is none of %s", v, strings.Join(words, ", "))
		}
		*at(s) = v
		return nil
	}
}

func kind(s *step, v string) error {
	return oneOf(func(s *step) *string { return &s.kind }, kinds...)(s, v)
}

// call reads the name of a driver call, or write for all that change something.
func call(at func(*step) *string) func(*step, string) error {
	return func(s *step, v string) error {
		if _, ok := ops[v]; !ok && v != OpWrite {
			return fmt.Errorf("%q is none of %s, %s", v, OpWrite, strings.Join(slices.Sorted(maps.Keys(ops)), ", "))
		}
		*at(s) = v
		return nil
	}
}

func wide(at func(*step) *int64, low, high int64) func(*step, string) error {
	return func(s *step, v string) error {
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil || n < low || n > high {
			return fmt.Errorf("%q is not a number from %d to %d", v, low, high)
		}
		*at(s) = n
		return nil
	}
}

func number(at func(*step) *int, low, high int64) func(*step, string) error {
	return func(s *step, v string) error {
		var n int64
		if err := wide(func(*step) *int64 { return &n }, low, high)(s, v); err != nil {
			return err
		}
		*at(s) = int(n)
		return nil
	}
}

func duration(at func(*step) *time.Duration, low time.Duration) func(*step, string) error {
	return func(s *step, v string) error {
		d, err := time.ParseDuration(v)
		if err != nil || d < low || d > maxAt {
			return fmt.Errorf("%q is not a time from %s to %s such as 90s or 5m", v, low, maxAt)
		}
		*at(s) = d
		return nil
	}
}

func flag(at func(*step) *bool) func(*step, string) error {
	return func(s *step, v string) error {
		if v != "true" && v != "false" {
			return fmt.Errorf("%q is neither true nor false", v)
		}
		*at(s) = v == "true"
		return nil
	}
}

// Check compares the script with the fleet that it is for: hosts and positions of
// GPUs must exist. Errors name the line.
func (s Script) Check(f Fleet) error {
	for _, st := range s.steps {
		hosts := f.Hosts
		if st.host != "" {
			h, ok := f.Host(st.host)
			if !ok {
				return at(st.line, "host: the fleet has no host %q", st.host)
			}
			hosts = []FleetHost{h}
		}
		for _, h := range hosts {
			if n := len(h.Devices()); st.gpu >= n {
				return at(st.line, "gpu: host %s has gpus 0 to %d, not %d", h.Name, n-1, st.gpu)
			}
		}
	}
	return nil
}
