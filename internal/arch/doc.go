// Package arch holds the rules of the code base as tests: who may import whom,
// what each binary must not link, and the few habits that no linter knows.
//
// It owns no product code and nothing imports it. A failing rule names the file
// or the import, and the reason the rule exists; changing a rule means changing
// its reason first.
package arch
