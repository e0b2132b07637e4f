package client

import (
	"context"
	"iter"
	"net/http"

	"github.com/tranche-cloud/tranche/openapi/wire"
)

// CreateContract agrees a contract with an organization.
func (a Admin) CreateContract(ctx context.Context, organization string, in ContractCreate, opts ...CallOption) (Contract, error) {
	return answer[Contract](a.c.raw.CreateContract(ctx, organization, &wire.CreateContractParams{}, in, editors(opts)...))
}

// Contracts lists the contracts of an organization, newest first.
func (a Admin) Contracts(ctx context.Context, organization string) iter.Seq2[Contract, error] {
	return each[Contract](func(token *string) (*http.Response, error) {
		return a.c.raw.ListOrganizationContracts(ctx, organization, &wire.ListOrganizationContractsParams{PageSize: sized(), PageToken: token})
	})
}

// GetContract reads one contract of an organization.
func (a Admin) GetContract(ctx context.Context, organization, contract string) (Contract, error) {
	return answer[Contract](a.c.raw.GetOrganizationContract(ctx, organization, contract))
}

// EndContract ends a contract; one that has not begun is cancelled.
func (a Admin) EndContract(ctx context.Context, organization, contract string, in TermEnd, opts ...CallOption) (Contract, error) {
	return answer[Contract](a.c.raw.EndContract(ctx, organization, contract, &wire.EndContractParams{}, in, editors(opts)...))
}

// Reservations lists the reservations of an organization, newest first.
func (a Admin) Reservations(ctx context.Context, organization string) iter.Seq2[Reservation, error] {
	return each[Reservation](func(token *string) (*http.Response, error) {
		return a.c.raw.ListOrganizationReservations(ctx, organization, &wire.ListOrganizationReservationsParams{PageSize: sized(), PageToken: token})
	})
}

// EndReservation ends a reservation early.
func (a Admin) EndReservation(ctx context.Context, organization, reservation string, in TermEnd, opts ...CallOption) (Reservation, error) {
	return answer[Reservation](a.c.raw.EndReservation(ctx, organization, reservation, &wire.EndReservationParams{}, in, editors(opts)...))
}

// AssignPriceBook gives an organization a price book and returns all of its books.
func (a Admin) AssignPriceBook(ctx context.Context, organization string, in PriceBookAssign, opts ...CallOption) ([]PriceBookAssignment, error) {
	got, err := answer[wire.PriceBookAssignments](a.c.raw.AssignPriceBook(ctx, organization, &wire.AssignPriceBookParams{}, in, editors(opts)...))
	return got.Items, err
}

// PriceBookAssignments lists the price books of an organization in order of time.
func (a Admin) PriceBookAssignments(ctx context.Context, organization string) ([]PriceBookAssignment, error) {
	got, err := answer[wire.PriceBookAssignments](a.c.raw.ListPriceBookAssignments(ctx, organization))
	return got.Items, err
}

// PublishSpotPrice appends a price to an offer's spot series.
func (a Admin) PublishSpotPrice(ctx context.Context, in SpotPriceCreate, opts ...CallOption) (SpotPrice, error) {
	return answer[SpotPrice](a.c.raw.PublishSpotPrice(ctx, &wire.PublishSpotPriceParams{}, in, editors(opts)...))
}

// Approvals lists requests that wait, or waited, for a second operator, newest first.
func (a Admin) Approvals(ctx context.Context) iter.Seq2[Approval, error] {
	return each[Approval](func(token *string) (*http.Response, error) {
		return a.c.raw.ListApprovals(ctx, &wire.ListApprovalsParams{PageSize: sized(), PageToken: token})
	})
}

// GetApproval reads one request for approval.
func (a Admin) GetApproval(ctx context.Context, approval string) (Approval, error) {
	return answer[Approval](a.c.raw.GetApproval(ctx, approval))
}

// Approve consents to another operator's request, who then repeats it. It fails with
// approval.self for one's own.
func (a Admin) Approve(ctx context.Context, approval string, opts ...CallOption) (Approval, error) {
	return answer[Approval](a.c.raw.ApproveRequest(ctx, approval, &wire.ApproveRequestParams{}, editors(opts)...))
}

// Reject refuses a request, or withdraws one's own.
func (a Admin) Reject(ctx context.Context, approval string, opts ...CallOption) (Approval, error) {
	return answer[Approval](a.c.raw.RejectRequest(ctx, approval, &wire.RejectRequestParams{}, editors(opts)...))
}

// ApprovalRules lists what needs a second operator.
func (a Admin) ApprovalRules(ctx context.Context) ([]ApprovalRule, error) {
	got, err := answer[wire.ApprovalRules](a.c.raw.ListApprovalRules(ctx))
	return got.Items, err
}

// PutApprovalRule sets above which amount a kind needs a second operator; nil for kinds
// without an amount.
func (a Admin) PutApprovalRule(ctx context.Context, kind ApprovalKind, above *MoneyInput) ([]ApprovalRule, error) {
	got, err := answer[wire.ApprovalRules](a.c.raw.PutApprovalRule(ctx, string(kind), wire.ApprovalRulePut{Above: above}))
	return got.Items, err
}

// GetBillingProfile reads how an organization is invoiced.
func (a Admin) GetBillingProfile(ctx context.Context, organization string) (BillingProfile, error) {
	return answer[BillingProfile](a.c.raw.GetOrganizationBillingProfile(ctx, organization))
}

// PutBillingProfile replaces an organization's profile, and says who sells to it.
func (a Admin) PutBillingProfile(ctx context.Context, organization string, in OrganizationBillingProfilePut) (BillingProfile, error) {
	return answer[BillingProfile](a.c.raw.PutOrganizationBillingProfile(ctx, organization, in))
}

// CheckTaxID asks a register about an organization's tax id and keeps the answer.
func (a Admin) CheckTaxID(ctx context.Context, organization string, opts ...CallOption) (TaxIDCheck, error) {
	return answer[TaxIDCheck](a.c.raw.CheckTaxId(ctx, organization, &wire.CheckTaxIdParams{}, editors(opts)...))
}

// RecordTaxIDCheck keeps an answer that was got by hand.
func (a Admin) RecordTaxIDCheck(ctx context.Context, organization string, in TaxIDAnswer, opts ...CallOption) (TaxIDCheck, error) {
	return answer[TaxIDCheck](a.c.raw.RecordTaxIdCheck(ctx, organization, &wire.RecordTaxIdCheckParams{}, in, editors(opts)...))
}

// GetWallet reads the wallet of an organization.
func (a Admin) GetWallet(ctx context.Context, organization string) (Wallet, error) {
	return answer[Wallet](a.c.raw.GetOrganizationWallet(ctx, organization))
}

// PutMoneyMode sets whether an organization pays by invoice or from its wallet.
func (a Admin) PutMoneyMode(ctx context.Context, organization string, mode MoneyMode) (Wallet, error) {
	return answer[Wallet](a.c.raw.PutMoneyMode(ctx, organization, wire.MoneyModePut{Mode: mode}))
}

// CreateGrant gives an organization promotional money.
func (a Admin) CreateGrant(ctx context.Context, organization string, in GrantCreate, opts ...CallOption) (Grant, error) {
	return answer[Grant](a.c.raw.CreateGrant(ctx, organization, &wire.CreateGrantParams{}, in, editors(opts)...))
}

// Grants lists the lots of an organization's wallet, newest first.
func (a Admin) Grants(ctx context.Context, organization string) iter.Seq2[Grant, error] {
	return each[Grant](func(token *string) (*http.Response, error) {
		return a.c.raw.ListOrganizationGrants(ctx, organization, &wire.ListOrganizationGrantsParams{PageSize: sized(), PageToken: token})
	})
}

// RecordPrepayment adds money that came outside of any provider, once a reference.
func (a Admin) RecordPrepayment(ctx context.Context, organization string, in PrepaymentCreate, opts ...CallOption) (Wallet, error) {
	return answer[Wallet](a.c.raw.CreatePrepayment(ctx, organization, &wire.CreatePrepaymentParams{}, in, editors(opts)...))
}

// CreateCoupon makes a code that gives each organization a grant once.
func (a Admin) CreateCoupon(ctx context.Context, in CouponCreate, opts ...CallOption) (Coupon, error) {
	return answer[Coupon](a.c.raw.CreateCoupon(ctx, &wire.CreateCouponParams{}, in, editors(opts)...))
}

// Payments lists the payments of an organization, newest first.
func (a Admin) Payments(ctx context.Context, organization string) iter.Seq2[Payment, error] {
	return each[Payment](func(token *string) (*http.Response, error) {
		return a.c.raw.ListOrganizationPayments(ctx, organization, &wire.ListOrganizationPaymentsParams{PageSize: sized(), PageToken: token})
	})
}
