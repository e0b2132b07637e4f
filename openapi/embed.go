// Package openapi owns the contract of the public API: one OpenAPI 3.1 document
// from which server, client and wire models are generated.
//
// It only carries the document. Reading it (request validation, rate classes)
// is api's, and the generated models are in openapi/wire.
package openapi

import _ "embed"

// Spec is the document, YAML.
//
//go:embed openapi.yaml
var Spec []byte
