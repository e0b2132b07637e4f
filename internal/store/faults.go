package store

import (
	"context"
	"errors"
	"io"
	"net"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tranche-cloud/tranche/internal/fault"
)

// constraintFaults is the one table constraint name → fault. A constraint that is
// not here is a broken promise of ours and comes back as internal.
var constraintFaults = map[string]*fault.Error{
	"instances_name":       fault.New(fault.Conflict, "name.taken", "A live instance of this project has that name.").Suggest("Choose another name, or delete that instance."),
	"projects_name":        fault.New(fault.Conflict, "name.taken", "A project of this organization has that name.").Suggest("Choose another name."),
	"organizations_name":   fault.New(fault.Conflict, "name.taken", "An organization has that name.").Suggest("Choose another name."),
	"projects_org":         NotFound(),
	"api_keys_org":         NotFound(),
	"api_keys_project":     NotFound(),
	"instances_project":    NotFound(),
	"hosts_name":           fault.New(fault.Conflict, "name.taken", "A host has that name.").Suggest("Choose another name, or retire that host."),
	"price_books_name":     fault.New(fault.Conflict, "name.taken", "A price book has that name."),
	"price_books_default":  fault.New(fault.Conflict, "state.conflict", "Another price book of the currency became the default just now.").Suggest("Read the price books and decide again."),
	"price_versions_start": fault.New(fault.Conflict, "state.conflict", "A version of this price book starts at that instant.").Suggest("Choose another effective_from; versions are immutable."),
	"claim_cells_pkey":     fault.New(fault.Conflict, "state.conflict", "Another claim took the slot first."),
	"hosts_vcpu_fits":      fault.New(fault.Conflict, "state.conflict", "The host's CPUs are taken."),
	"hosts_ram_fits":       fault.New(fault.Conflict, "state.conflict", "The host's memory is taken."),
	"host_bindings_pkey":   fault.New(fault.Conflict, "state.conflict", "The host is bound to another organization."),
	"claims_host_binding":  fault.New(fault.Conflict, "state.conflict", "The host is bound to another organization."),
	"gpu_bindings_pkey":    fault.New(fault.Conflict, "state.conflict", "The GPU is bound to another organization."),

	"contract_terms_no_overlap":           fault.New(fault.Conflict, "state.conflict", "A contract of the organization has a term of that kind and scope at the same time.").Suggest("End that contract first, or choose another scope or time."),
	"contracts_org":                       NotFound(),
	"reservations_org":                    NotFound(),
	"reservations_project":                NotFound(),
	"spot_prices_append":                  fault.New(fault.Conflict, "state.conflict", "The series has a spot price at that instant or later, or the instant is past.").Suggest("Append a price that begins later than the newest."),
	"spot_prices_pkey":                    fault.New(fault.Conflict, "state.conflict", "The series has a spot price at that instant.").Suggest("Append a price that begins later than the newest."),
	"organization_price_books_no_overlap": fault.New(fault.Conflict, "state.conflict", "The organization's price book changed just now.").Suggest("Read its price books and decide again."),
	"ends_early_only":                     fault.New(fault.Conflict, "state.conflict", "What is in force ends early in the future only."),

	"claim_slots_gpu_binding":      fault.New(fault.Conflict, "state.conflict", "The GPU is bound to another organization."),
	"mode_changes_open":            fault.New(fault.Conflict, "state.conflict", "A mode change of this GPU is under way.").Suggest("Wait for it, or cancel it."),
	"registry_logins_registry":     fault.New(fault.Conflict, "name.taken", "The organization has a login of that registry.").Suggest("Change or delete that login."),
	"host_ports_pkey":              fault.New(fault.Conflict, "state.conflict", "Another claim took the port first."),
	"instances_client_token":       fault.New(fault.Conflict, "state.conflict", "An instance was already created with that client_token.").Suggest("Read the instances and look for the client_token."),
	"invoices_billed_once":         fault.New(fault.Conflict, "state.conflict", "That period is already invoiced."),
	"payments_spent":               fault.New(fault.Conflict, "payment.spent", "That is more than is left of the payment.").Suggest("Read the payment: what is allocated, refunded or charged back is not there any more."),
	"payment_attempts_one_live":    fault.New(fault.Conflict, "state.conflict", "A charge of this is under way.").Suggest("Wait for its outcome."),
	"payment_attempts_once":        fault.New(fault.Conflict, "state.conflict", "That attempt was made already."),
	"approvals_two_people":         fault.New(fault.Forbidden, "approval.self", "Nobody approves a request of their own.").Suggest("Ask another operator."),
	"ledger_journals_once":         fault.New(fault.Conflict, "state.conflict", "That is in the ledger already."),
	"ledger_month_open":            fault.New(fault.Conflict, "state.conflict", "That month of the ledger is closed."),
	"month_closes_pkey":            fault.New(fault.Conflict, "state.conflict", "That month is closed already."),
	"wallets_prepaid_not_negative": fault.New(fault.Conflict, "state.conflict", "The balance was spent just now.").Suggest("Read the wallet and decide again."),
	"wallets_promo_not_negative":   fault.New(fault.Conflict, "state.conflict", "The grant was spent just now.").Suggest("Read the wallet and decide again."),
	"credit_grants_remaining":      fault.New(fault.Conflict, "state.conflict", "The grant was spent just now.").Suggest("Read the wallet and decide again."),
	"top_ups_one_open":             fault.New(fault.Conflict, "state.conflict", "A top-up of the wallet is under way."),
	"coupons_pkey":                 fault.New(fault.Conflict, "name.taken", "There is a coupon of that code."),
	"coupon_uses_pkey":             fault.New(fault.Conflict, "coupon.used", "The organization has had that coupon."),
	"gpu_costs_pkey":               fault.New(fault.Conflict, "state.conflict", "A cost of that GPU model starts at that instant.").Suggest("Choose another effective_from; costs are immutable."),
	"budgets_project":              NotFound(),
	"wallets_org":                  NotFound(),
	"invoices_finalized":           fault.New(fault.Conflict, "state.conflict", "A finalized invoice cannot change."),
	"invoices_carried_by":          fault.New(fault.Conflict, "state.conflict", "Another invoice took the carried amount on.").Suggest("Run it again."),
	"invoices_credited":            fault.New(fault.Conflict, "credit.exceeds", "The credit notes would be more than the invoice.").Suggest("Read the invoice and its credit notes, and credit what is left."),
	"invoices_advance_once":        fault.New(fault.Conflict, "state.conflict", "The payment has its advance invoice."),
	"issuers_prefix":               fault.New(fault.Conflict, "issuer.prefix_taken", "Another issuer numbers with that prefix.").Suggest("Choose another prefix; it can never change."),
	"issuer_versions_start":        fault.New(fault.Conflict, "state.conflict", "A version of the issuer starts at that instant.").Suggest("Choose another effective_from; versions are immutable."),
	"tax_tables_version":           fault.New(fault.Conflict, "state.conflict", "Another tax table was written just now.").Suggest("Read it and decide again."),
	"organizations_issuer":         fault.New(fault.Unprocessable, "issuer.unknown", "There is no such issuer.").Suggest("List the issuers."),
}

// mapError turns what Postgres said into a fault; faults and nil pass unchanged.
func mapError(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*fault.Error](err); ok {
		return err
	}
	if errors.Is(err, pgx.ErrNoRows) {
		return NotFound().Because(err)
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return unavailable(err)
	}
	pg, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		if pgconn.SafeToRetry(err) || isConnectionError(err) {
			return unavailable(err)
		}
		return err
	}
	if f, ok := constraintFaults[pg.ConstraintName]; ok {
		return f.Because(err)
	}
	switch pg.Code {
	case "40001", "40P01", "55P03", "57P01", "57P02", "57P03", "53300":
		// serialization, deadlock, lock timeout, shutdown, start-up, too many connections
		return unavailable(err)
	}
	return err
}

// isConnectionError tells the loss of the connection, at whatever step: it cannot
// be made, was closed, or broke under a statement (reset, broken pipe).
func isConnectionError(err error) bool {
	_, refused := errors.AsType[*pgconn.ConnectError](err)
	_, broke := errors.AsType[*net.OpError](err)
	return refused || broke || errors.Is(err, pgx.ErrTxClosed) || err.Error() == "conn closed" ||
		pgconn.Timeout(err) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF)
}

// NotFound is what a row that is absent, or not visible, looks like.
func NotFound() *fault.Error {
	return fault.New(fault.NotFound, "resource.not_found", "There is no such resource.").
		Suggest("Check the id and the project; deleted resources stay readable for 30 days.")
}

func unavailable(err error) *fault.Error {
	return fault.New(fault.Unavailable, "service.unavailable", "The service cannot answer right now.").
		Suggest("Try again in a moment.").Because(err)
}
