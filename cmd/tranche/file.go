package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxFile bounds a file that is sent as one request.
const maxFile = 1 << 20

// content reads a file, or standard input for -.
func (a *app) content(path string) ([]byte, error) {
	in := a.in
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return nil, usagef("%v", err)
		}
		defer f.Close()
		in = f
	}
	text, err := io.ReadAll(io.LimitReader(in, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	if len(text) > maxFile {
		return nil, usagef("%s is larger than 1 MiB", path)
	}
	return text, nil
}

// described reads a request from a YAML or JSON file, in the words of the API. A field
// that the API does not know is refused here. Numbers with a point stay the text they
// are, so that no amount passes through binary fractions.
func described[T any](a *app, path string) (T, error) {
	var out T
	if path == "" {
		return out, usagef("say which file with -f; - is standard input")
	}
	text, err := a.content(path)
	if err != nil {
		return out, err
	}
	var node, next yaml.Node
	documents := yaml.NewDecoder(bytes.NewReader(text))
	if err := documents.Decode(&node); err != nil {
		return out, usagef("%s is neither YAML nor JSON: %v", path, err)
	}
	if documents.Decode(&next) != io.EOF || len(node.Content) != 1 || node.Content[0].Kind != yaml.MappingNode {
		return out, usagef("%s describes no single thing: it has to be one map of fields", path)
	}
	plain, err := plainOf(node.Content[0])
	if err != nil {
		return out, usagef("%s: %v", path, err)
	}
	body, err := json.Marshal(plain)
	if err != nil {
		return out, usagef("%s: %v", path, err)
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(&out); err != nil {
		return out, usagef("%s: %s (decimals such as prices are texts: put them in quotes)", path, strings.TrimPrefix(err.Error(), "json: "))
	}
	return out, nil
}

// plainOf turns a document into what JSON has.
func plainOf(n *yaml.Node) (any, error) {
	switch n.Kind {
	case yaml.MappingNode:
		out := map[string]any{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			key := n.Content[i].Value
			if _, twice := out[key]; twice {
				return nil, fmt.Errorf("line %d: %s is there twice", n.Content[i].Line, key)
			}
			v, err := plainOf(n.Content[i+1])
			if err != nil {
				return nil, err
			}
			out[key] = v
		}
		return out, nil
	case yaml.SequenceNode:
		out := make([]any, 0, len(n.Content))
		for _, x := range n.Content {
			v, err := plainOf(x)
			if err != nil {
				return nil, err
			}
			out = append(out, v)
		}
		return out, nil
	case yaml.ScalarNode:
		switch n.Tag {
		case "!!null":
			return nil, nil //nolint:nilnil // null is a value of JSON
		case "!!bool", "!!int":
			var v any
			err := n.Decode(&v)
			return v, err
		default:
			return n.Value, nil
		}
	default:
		return nil, fmt.Errorf("line %d: aliases are not taken", n.Line)
	}
}
