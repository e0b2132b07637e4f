package health

import (
	_ "embed"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

//go:embed policy.yaml
var builtin []byte

// Bucket is what an Xid code means; policy.yaml says what each does.
type Bucket string

// The buckets.
const (
	RestartApp  Bucket = "restart_app"
	Ignore      Bucket = "ignore"
	Contained   Bucket = "contained"
	DoubleBit   Bucket = "double_bit"
	Follow      Bucket = "follow"
	DriverSays  Bucket = "driver_says"
	ResetGPU    Bucket = "reset_gpu"
	NVLinkGroup Bucket = "nvlink_group"
	RestartHost Bucket = "restart_host"
	AwaitReboot Bucket = "await_reboot"
	RestartVM   Bucket = "restart_vm"
	Update      Bucket = "update"
	Inspect     Bucket = "inspect"
	Alarm       Bucket = "alarm"
)

// buckets are all of them, and whether the time that runs lose is credited.
var buckets = map[Bucket]bool{
	RestartApp: false, Ignore: false, Contained: true, DoubleBit: true, Follow: true, DriverSays: true, ResetGPU: true,
	NVLinkGroup: true, RestartHost: true, AwaitReboot: true, RestartVM: true, Update: true, Inspect: true, Alarm: true,
}

// ResetScope is what must be reset together.
type ResetScope string

// The scopes. A host is reset by its reboot.
const (
	ResetOne   ResetScope = "gpu"
	ResetGroup ResetScope = "nvlink_group"
	ResetHost  ResetScope = "host"
)

// otherGPUs stands for every architecture that Resets does not name.
const otherGPUs = "other"

// Rule is what one code means.
type Rule struct {
	Do       Bucket
	Credited bool
}

// Policy is what errors mean and what is done about them.
type Policy struct {
	Revision string // of the table, for the record
	Rules    map[int]Rule
	Resets   map[string]ResetScope // by architecture
	// EndClients ends the run whose program took more than its slice; else its
	// tenant is told and the run goes on.
	EndClients bool
}

// Rule returns what a code means; an unknown one is an alarm, and known is false.
func (p *Policy) Rule(code int) (r Rule, known bool) {
	if r, known = p.Rules[code]; known {
		return r, true
	}
	return Rule{Do: Alarm, Credited: true}, false
}

// scope is what must be reset together on an architecture.
func (p *Policy) scope(architecture string) ResetScope {
	if s, ok := p.Resets[strings.ToLower(architecture)]; ok {
		return s
	}
	if s, ok := p.Resets[otherGPUs]; ok {
		return s
	}
	return ResetOne
}

// DefaultPolicy is the table that comes with the agent.
func DefaultPolicy() *Policy {
	p := &Policy{Rules: map[int]Rule{}, Resets: map[string]ResetScope{}}
	if err := p.take(builtin); err != nil {
		panic("health: the policy in the program: " + err.Error())
	}
	return p
}

// maxPolicyLength bounds an operator's file, in bytes.
const maxPolicyLength = 1 << 20

// LoadPolicy is the default with the codes, resets and settings of a file replaced.
// Errors name the file, the line and what is allowed.
func LoadPolicy(path string) (*Policy, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open Xid policy: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxPolicyLength+1))
	if err != nil {
		return nil, fmt.Errorf("read Xid policy %s: %w", path, err)
	}
	if len(text) > maxPolicyLength {
		return nil, fmt.Errorf("read Xid policy %s: longer than %d bytes", path, maxPolicyLength)
	}
	p, err := ParsePolicy(text)
	if err != nil {
		return nil, fmt.Errorf("read Xid policy %s: %w", path, err)
	}
	return p, nil
}

// ParsePolicy is LoadPolicy of a text.
func ParsePolicy(text []byte) (*Policy, error) {
	p := DefaultPolicy()
	return p, p.take(text)
}

// policyFile is the form of the file.
type policyFile struct {
	Version     int                  `yaml:"version"`
	Revision    string               `yaml:"revision"`
	Rules       []ruleLine           `yaml:"rules"`
	Resets      map[string]yaml.Node `yaml:"resets"`
	ClientEnded string               `yaml:"client_ended"`
}

// take replaces what a file says.
func (p *Policy) take(text []byte) error {
	dec := yaml.NewDecoder(strings.NewReader(string(text)))
	dec.KnownFields(true)
	var f policyFile
	if err := dec.Decode(&f); err != nil {
		if errors.Is(err, io.EOF) {
			return errors.New("empty: write `version: 1` and what differs from the default")
		}
		return err
	}
	if err := dec.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return errors.New("more than one YAML document")
	}
	if f.Version != 1 {
		return fmt.Errorf("version: %d is not known, only 1", f.Version)
	}
	if f.Revision != "" {
		p.Revision = f.Revision
	}
	said := map[int]int{} // line by code
	for _, r := range f.Rules {
		for _, c := range r.codes {
			if line, twice := said[c]; twice {
				return fmt.Errorf("line %d: code %d is also on line %d", r.line, c, line)
			}
			said[c] = r.line
			p.Rules[c] = r.rule
		}
	}
	for arch, n := range f.Resets {
		scope := ResetScope(n.Value)
		if scope != ResetOne && scope != ResetGroup && scope != ResetHost {
			return fmt.Errorf("line %d: resets: %q is none of %s, %s, %s", n.Line, n.Value, ResetOne, ResetGroup, ResetHost)
		}
		p.Resets[strings.ToLower(arch)] = scope
	}
	switch f.ClientEnded {
	case "":
	case "end_run", "tell":
		p.EndClients = f.ClientEnded == "end_run"
	default:
		return fmt.Errorf("client_ended: %q is neither end_run nor tell", f.ClientEnded)
	}
	return nil
}

// ruleLine is one entry of rules.
type ruleLine struct {
	line  int
	codes []int
	rule  Rule
}

// UnmarshalYAML reads a mapping of codes, do and, if it differs, credited.
func (r *ruleLine) UnmarshalYAML(n *yaml.Node) error {
	var in struct {
		Codes    []string `yaml:"codes"`
		Do       Bucket   `yaml:"do"`
		Credited *bool    `yaml:"credited"`
	}
	r.line = n.Line
	if n.Kind != yaml.MappingNode {
		return fmt.Errorf("line %d: a rule is a mapping such as {codes: [13, 144-150], do: restart_app}", n.Line)
	}
	for i := 0; i < len(n.Content); i += 2 {
		if k := n.Content[i]; !slices.Contains([]string{"codes", "do", "credited"}, k.Value) {
			return fmt.Errorf("line %d: unknown key %q: a rule has codes, do and credited", k.Line, k.Value)
		}
	}
	if err := n.Decode(&in); err != nil {
		return err
	}
	credited, ok := buckets[in.Do]
	if !ok {
		return fmt.Errorf("line %d: do: %q is none of %s", n.Line, in.Do, bucketNames())
	}
	if in.Credited != nil {
		credited = *in.Credited
	}
	r.rule = Rule{Do: in.Do, Credited: credited}
	if len(in.Codes) == 0 {
		return fmt.Errorf("line %d: a rule needs codes", n.Line)
	}
	for _, text := range in.Codes {
		low, high, err := codeRange(text)
		if err != nil {
			return fmt.Errorf("line %d: %w", n.Line, err)
		}
		for c := low; c <= high; c++ {
			r.codes = append(r.codes, c)
		}
	}
	return nil
}

func bucketNames() string {
	var names []string
	for _, b := range slices.Sorted(maps.Keys(buckets)) {
		names = append(names, string(b))
	}
	return strings.Join(names, ", ")
}

// maxCode is the highest code that a policy may name.
const maxCode = 9999

// codeRange reads 13 or 144-150.
func codeRange(text string) (low, high int, err error) {
	a, b, isRange := strings.Cut(text, "-")
	if !isRange {
		b = a
	}
	low, err = strconv.Atoi(a)
	if err == nil {
		high, err = strconv.Atoi(b)
	}
	if err != nil || low < 1 || high < low || high > maxCode {
		return 0, 0, fmt.Errorf("codes: %q is neither a code from 1 to %d nor a range such as 144-150", text, maxCode)
	}
	return low, high, nil
}
