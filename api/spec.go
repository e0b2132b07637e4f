package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	"github.com/tranche-cloud/tranche/openapi"
)

// rateClass names the bucket an operation draws from.
type rateClass string

const (
	rateRead    rateClass = "read"
	rateWrite   rateClass = "write"
	rateLaunch  rateClass = "launch"
	rateWebhook rateClass = "webhook" // of payment providers, by address
)

// operation is what the specification says of one operation, ready for use.
type operation struct {
	id      string
	method  string
	path    string // the pattern, as chi names it
	rate    rateClass
	scopes  []string
	codes   []string
	names   []string // path parameters in their order
	query   map[string]parameter
	headers map[string]parameter
	body    *jsonschema.Schema // nil: the operation takes no body
}

// parameter is one query or header parameter.
type parameter struct {
	name     string
	required bool
	kind     string // JSON Schema type
	schema   *jsonschema.Schema
}

// The parts of the document that the middleware reads.
type (
	specDoc struct {
		Paths      map[string]map[string]specOperation `json:"paths"`
		Components struct {
			Parameters map[string]specParameter `json:"parameters"`
			Schemas    map[string]specSchema    `json:"schemas"`
		} `json:"components"`
	}
	specOperation struct {
		ID          string          `json:"operationId"`
		Rate        rateClass       `json:"x-rate-class"`
		Scopes      []string        `json:"x-scopes"`
		Codes       []string        `json:"x-error-codes"`
		Parameters  []specParameter `json:"parameters"`
		RequestBody *struct {
			Content map[string]struct {
				Schema specSchema `json:"schema"`
			} `json:"content"`
		} `json:"requestBody"`
	}
	specParameter struct {
		Ref      string     `json:"$ref"`
		Name     string     `json:"name"`
		In       string     `json:"in"`
		Required bool       `json:"required"`
		Schema   specSchema `json:"schema"`
	}
	specSchema struct {
		Ref  string `json:"$ref"`
		Type any    `json:"type"`
	}
)

const specName = "spec.json"

// builtIn is the compiled document. It never changes.
var builtIn = sync.OnceValues(loadSpec)

// loadSpec compiles the document that is built in. It fails only where the
// document is wrong, which a test would have shown.
func loadSpec() (map[string]*operation, error) {
	var tree any
	if err := yaml.Unmarshal(openapi.Spec, &tree); err != nil {
		return nil, fmt.Errorf("reading openapi.yaml: %w", err)
	}
	raw, err := json.Marshal(tree)
	if err != nil {
		return nil, fmt.Errorf("openapi.yaml as JSON: %w", err)
	}
	plain, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return nil, fmt.Errorf("openapi.yaml as JSON: %w", err)
	}
	var doc specDoc
	if err := json.Unmarshal(raw, &doc); err != nil {
		return nil, fmt.Errorf("reading the parts of openapi.yaml: %w", err)
	}
	compiler := jsonschema.NewCompiler()
	compiler.DefaultDraft(jsonschema.Draft2020)
	compiler.AssertFormat()
	if err := compiler.AddResource(specName, plain); err != nil {
		return nil, fmt.Errorf("adding openapi.yaml: %w", err)
	}
	out := map[string]*operation{}
	for path, methods := range doc.Paths {
		for method, op := range methods {
			compiled, err := doc.compile(compiler, path, method, op)
			if err != nil {
				return nil, fmt.Errorf("operation %s: %w", op.ID, err)
			}
			out[compiled.method+" "+path] = compiled
		}
	}
	return out, nil
}

func (d specDoc) compile(c *jsonschema.Compiler, path, method string, op specOperation) (*operation, error) {
	out := &operation{
		id: op.ID, method: strings.ToUpper(method), path: path, rate: op.Rate, scopes: op.Scopes, codes: op.Codes,
		query: map[string]parameter{}, headers: map[string]parameter{},
	}
	if !slices.Contains([]rateClass{rateRead, rateWrite, rateLaunch, rateWebhook}, op.Rate) {
		return nil, fmt.Errorf("unknown rate class %q", op.Rate)
	}
	for n, p := range op.Parameters {
		at := pointer("paths", path, method, "parameters", fmt.Sprint(n), "schema")
		if name, ok := strings.CutPrefix(p.Ref, "#/components/parameters/"); ok {
			p = d.Components.Parameters[name]
			at = pointer("components", "parameters", name, "schema")
		}
		if p.In == "path" {
			out.names = append(out.names, p.Name)
			continue
		}
		schema, err := c.Compile(at)
		if err != nil {
			return nil, fmt.Errorf("parameter %s: %w", p.Name, err)
		}
		compiled := parameter{name: p.Name, required: p.Required, kind: d.kind(p.Schema), schema: schema}
		if p.In == "header" {
			out.headers[http.CanonicalHeaderKey(p.Name)] = compiled
		} else {
			out.query[p.Name] = compiled
		}
	}
	if op.RequestBody != nil {
		schema, err := c.Compile(specName + op.RequestBody.Content["application/json"].Schema.Ref)
		if err != nil {
			return nil, fmt.Errorf("body: %w", err)
		}
		out.body = schema
	}
	return out, nil
}

// kind is the JSON type of a parameter, seen through one reference.
func (d specDoc) kind(s specSchema) string {
	if name, ok := strings.CutPrefix(s.Ref, "#/components/schemas/"); ok {
		s = d.Components.Schemas[name]
	}
	kind, _ := s.Type.(string)
	return kind
}

// pointer makes the address of a part of the document.
func pointer(parts ...string) string {
	var b strings.Builder
	b.WriteString(specName + "#")
	for _, p := range parts {
		p = strings.NewReplacer("~", "~0", "/", "~1").Replace(p)
		b.WriteString("/" + url.PathEscape(p))
	}
	return b.String()
}
