// Package auth owns who a caller is and what a caller may do: API keys, access
// tokens, principals, the authorization table, and the sealing of secrets.
//
// It does not read the database. The store looks a key's row up by its public
// id; this package makes and checks the text, the keyed hash and the signature.
// It does not know HTTP: refusals are faults, mapped to status in one table.
// Lifetimes are seconds of machine time.
package auth
