// Package store owns every SQL statement of the control plane and the two kinds
// of transaction they may run in. InOrg gives an OrgTx, which sees the rows of one
// organization (role tranche_org under forced row-level security); InSystem gives
// a SystemTx, which sees all and says why. The generated queries live in
// internal/store/internal/db, so the compiler keeps SQL in this folder.
//
// It maps rows to domain types and constraint names to faults. It makes no
// decision that a domain package could make, and calls nothing over a network
// but Postgres. Times are UTC microseconds; ids are typed; money is internal/money.
package store
