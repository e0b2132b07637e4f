// Package api owns the public HTTP API: the router, the checks every request
// passes before a handler runs, one file of handlers a resource, and the one
// table from a failure's kind to an HTTP status (problem.go).
//
// It owns no decision of the product: a handler turns a request into a call of
// internal/app and the result into the wire shape of openapi/wire. Requests,
// answers and refusals follow openapi/openapi.yaml, from which the strict server
// (server.gen.go) and the request validation are made.
//
// The checks run in this order, see (*API).checks: header size, route, declared
// body size, credential, rate limit, path ids and rights (so 404 and 403 come
// before 400), shape of parameters and body. Durations are real time, rates are
// requests a minute, sizes are bytes.
package api
