package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"github.com/tranche-cloud/tranche/internal/fault"
)

const (
	headerIdempotency = "Idempotency-Key"
	headerIfMatch     = "If-Match"

	maxFields = 20  // refused fields named in one problem
	maxEcho   = 100 // bytes of a name that is repeated in a problem
)

// checkShape refuses parameters and a body that the specification does not
// allow, all of them at once where it can.
func checkShape(c *call, r *http.Request) *fault.Error {
	if f := checkQuery(c, r.URL); f != nil {
		return f
	}
	if f := checkHeaders(c.op, r.Header); f != nil {
		return f
	}
	if _, honoured := c.op.headers[headerIdempotency]; honoured {
		c.key = r.Header.Get(headerIdempotency)
	}
	if c.op.body == nil {
		if len(c.body) > 0 {
			return invalid(codeInvalid, "This operation takes no body.")
		}
		return nil
	}
	if f := checkContentType(r.Header); f != nil {
		return f
	}
	value, f := parseJSON(c.body)
	if f != nil {
		return f
	}
	if err := c.op.body.Validate(value); err != nil {
		return refusedFields(err, "")
	}
	c.value = value
	return nil
}

func checkContentType(h http.Header) *fault.Error {
	if len(h.Values("Content-Encoding")) > 0 {
		return invalid(codeMalformed, "Compressed bodies are not accepted.")
	}
	media, params, err := mime.ParseMediaType(h.Get("Content-Type"))
	if err != nil || media != "application/json" || len(h.Values("Content-Type")) != 1 {
		return invalid(codeMalformed, "The Content-Type must be application/json.")
	}
	if charset, ok := params["charset"]; ok && !strings.EqualFold(charset, "utf-8") {
		return invalid(codeMalformed, "The body must be UTF-8.")
	}
	return nil
}

func checkQuery(c *call, u *url.URL) *fault.Error {
	op := c.op
	values, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return invalid(codeInvalid, "The query string cannot be read.")
	}
	// A pattern takes a broken byte for U+FFFD and lets it pass; a database does not.
	if text, err := url.QueryUnescape(u.RawQuery); err != nil || !utf8.ValidString(text) {
		return invalid(codeInvalid, "The query string is not UTF-8.")
	}
	c.query = values
	var unknown, bad []fault.Field
	for name, got := range values {
		p, known := op.query[name]
		switch {
		case !known:
			unknown = append(unknown, fault.Field{Pointer: clip(name), Code: "unknown", Detail: "There is no such parameter."})
		case len(got) > 1:
			bad = append(bad, fault.Field{Pointer: name, Code: "repeated", Detail: "The parameter is given more than once."})
		default:
			if err := p.schema.Validate(p.value(got[0])); err != nil {
				bad = append(bad, fieldsOf(err, name)...)
			}
		}
	}
	for name, p := range op.query {
		if p.required && !values.Has(name) {
			bad = append(bad, fault.Field{Pointer: name, Code: "required", Detail: "The parameter is missing."})
		}
	}
	return oneFault(unknown, bad)
}

// value makes of a parameter's text what its schema speaks of. Text that is not
// of the type stays text, so that the schema refuses it.
func (p parameter) value(text string) any {
	switch p.kind {
	case "integer":
		if _, err := strconv.ParseInt(text, 10, 64); err == nil {
			return json.Number(text)
		}
	case "boolean":
		if text == "true" || text == "false" {
			return text == "true"
		}
	case "array":
		out := []any{}
		for part := range strings.SplitSeq(text, ",") {
			out = append(out, part)
		}
		return out
	}
	return text
}

func checkHeaders(op *operation, h http.Header) *fault.Error {
	for name, p := range op.headers {
		got := h.Values(name)
		switch {
		case len(got) > 1:
			return invalid(codeInvalid, "The header "+name+" is given more than once.",
				fault.Field{Pointer: name, Code: "repeated", Detail: "Give it once."})
		case len(got) == 0 && !p.required:
		case len(got) == 0 && name == headerIdempotency:
			return invalid("idempotency.missing", "The header Idempotency-Key is missing.")
		case len(got) == 0:
			return invalid(codeInvalid, "The header "+name+" is missing.",
				fault.Field{Pointer: name, Code: "required", Detail: "The header is missing."})
		default:
			if err := p.schema.Validate(got[0]); err != nil {
				return refusedFields(err, name)
			}
			if name == headerIfMatch {
				if _, f := parseETag(got[0]); f != nil {
					return f
				}
			}
		}
	}
	return nil
}

// refusedFields turns a schema's refusal into a failure. Under a name the value
// is a parameter or header of that name.
func refusedFields(err error, name string) *fault.Error {
	var unknown, bad []fault.Field
	for _, field := range fieldsOf(err, name) {
		if field.Code == "unknown" {
			unknown = append(unknown, field)
		} else {
			bad = append(bad, field)
		}
	}
	return oneFault(unknown, bad)
}

func oneFault(unknown, bad []fault.Field) *fault.Error {
	all := append(unknown, bad...)
	if len(all) == 0 {
		return nil
	}
	slices.SortStableFunc(all, func(a, b fault.Field) int { return strings.Compare(a.Pointer, b.Pointer) })
	code, detail := codeInvalid, "The request has a part that is missing or not allowed."
	if len(unknown) > 0 {
		code, detail = codeUnknownField, "The request names something that does not exist."
	}
	return invalid(code, detail, all[:min(len(all), maxFields)]...)
}

// fieldsOf lists the leaves of a validation error. It never repeats a value.
func fieldsOf(err error, parameter string) []fault.Field {
	var failed *jsonschema.ValidationError
	if !errors.As(err, &failed) {
		return []fault.Field{{Pointer: parameter, Code: "invalid", Detail: "The value is not allowed."}}
	}
	var out []fault.Field
	var walk func(e *jsonschema.ValidationError)
	walk = func(e *jsonschema.ValidationError) {
		_, ofName := e.ErrorKind.(*kind.PropertyNames) // its cause has no place
		if len(e.Causes) > 0 && !ofName {
			for _, cause := range e.Causes {
				walk(cause)
			}
			return
		}
		out = append(out, leafFields(e, parameter)...)
	}
	walk(failed)
	return out
}

func leafFields(e *jsonschema.ValidationError, name string) []fault.Field {
	at := name
	if name == "" {
		at = jsonPointer(e.InstanceLocation)
	}
	if _, ok := e.ErrorKind.(*kind.PropertyNames); ok {
		// jsonschema v6.0.3 shares the location's memory with later errors here.
		at = placeOf(e.SchemaURL)
	}
	switch k := e.ErrorKind.(type) {
	case *kind.AdditionalProperties:
		out := make([]fault.Field, len(k.Properties))
		for i, p := range k.Properties {
			out[i] = fault.Field{Pointer: clip(at + "/" + escape(p)), Code: "unknown", Detail: "There is no such field."}
		}
		return out
	case *kind.Required:
		out := make([]fault.Field, len(k.Missing))
		for i, p := range k.Missing {
			out[i] = fault.Field{Pointer: at + "/" + escape(p), Code: "required", Detail: "The field is missing."}
		}
		return out
	}
	code := "invalid"
	if path := e.ErrorKind.KeywordPath(); len(path) > 0 {
		code = path[len(path)-1]
	}
	return []fault.Field{{Pointer: clip(at), Code: code, Detail: explain(e.ErrorKind)}}
}

// placeOf is where a schema under named properties looks at.
func placeOf(schemaURL string) string {
	var b strings.Builder
	parts := strings.Split(schemaURL, "/")
	for i := 1; i < len(parts); i++ {
		if parts[i-1] == "properties" {
			b.WriteString("/" + parts[i])
		}
	}
	return b.String()
}

// explain says what a schema wants, without the value that was sent.
func explain(k jsonschema.ErrorKind) string {
	switch k := k.(type) {
	case *kind.Type:
		return "The value must be of type " + strings.Join(k.Want, " or ") + "."
	case *kind.Enum:
		return fmt.Sprintf("The value must be one of %v.", k.Want)
	case *kind.Minimum:
		return "The value must be at least " + k.Want.RatString() + "."
	case *kind.Maximum:
		return "The value must be at most " + k.Want.RatString() + "."
	case *kind.MinLength:
		return fmt.Sprintf("The text must have at least %d characters.", k.Want)
	case *kind.MaxLength:
		return fmt.Sprintf("The text must have at most %d characters.", k.Want)
	case *kind.Pattern:
		return "The text must match " + k.Want + " ."
	case *kind.Format:
		return "The text must be a " + k.Want + "."
	case *kind.MinItems:
		return fmt.Sprintf("The list must have at least %d items.", k.Want)
	case *kind.MaxItems:
		return fmt.Sprintf("The list must have at most %d items.", k.Want)
	case *kind.UniqueItems:
		return "The list must not repeat an item."
	case *kind.MaxProperties:
		return fmt.Sprintf("There must be at most %d entries.", k.Want)
	case *kind.PropertyNames:
		return "A name is not allowed."
	default:
		return "The value is not allowed."
	}
}

func jsonPointer(parts []string) string {
	var b strings.Builder
	for _, p := range parts {
		b.WriteString("/" + escape(p))
	}
	return b.String()
}

func escape(p string) string { return strings.NewReplacer("~", "~0", "/", "~1").Replace(p) }

// clip bounds what is repeated of a name that the caller chose.
func clip(s string) string {
	if len(s) > maxEcho {
		s = strings.ToValidUTF8(s[:maxEcho], "") + "…"
	}
	return s
}
