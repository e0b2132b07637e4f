package api

import "net/http"

// A stored answer fits every operation that honours an idempotency key: either relies
// on it.

func (a *repeated) VisitApproveHostResponse(w http.ResponseWriter) error { return a.write(w) }

func (a *repeated) VisitApproveRequestResponse(w http.ResponseWriter) error { return a.write(w) }

func (a *repeated) VisitAssignPriceBookResponse(w http.ResponseWriter) error { return a.write(w) }

func (a *repeated) VisitCancelGpuModeResponse(w http.ResponseWriter) error { return a.write(w) }

func (a *repeated) VisitCancelInvoiceResponse(w http.ResponseWriter) error { return a.write(w) }

func (a *repeated) VisitCheckInvoiceRunResponse(w http.ResponseWriter) error { return a.write(w) }

func (a *repeated) VisitCheckTaxIdResponse(w http.ResponseWriter) error { return a.write(w) }

func (a *repeated) VisitCordonHostResponse(w http.ResponseWriter) error { return a.write(w) }

func (a *repeated) VisitCreateApiKeyResponse(w http.ResponseWriter) error { return a.write(w) }

func (a *repeated) VisitCreateBudgetResponse(w http.ResponseWriter) error { return a.write(w) }

func (a *repeated) VisitCreateContractResponse(w http.ResponseWriter) error { return a.write(w) }

func (a *repeated) VisitCreateCouponResponse(w http.ResponseWriter) error { return a.write(w) }

func (a *repeated) VisitCreateCreditNoteResponse(w http.ResponseWriter) error { return a.write(w) }

func (a *repeated) VisitCreateFinanceCloseResponse(w http.ResponseWriter) error { return a.write(w) }

func (a *repeated) VisitCreateGpuCostResponse(w http.ResponseWriter) error { return a.write(w) }

func (a *repeated) VisitCreateGrantResponse(w http.ResponseWriter) error { return a.write(w) }

func (a *repeated) VisitCreateInstanceResponse(w http.ResponseWriter) error { return a.write(w) }

func (a *repeated) VisitCreateInvoiceRunResponse(w http.ResponseWriter) error { return a.write(w) }

func (a *repeated) VisitCreateJoinTokenResponse(w http.ResponseWriter) error { return a.write(w) }

func (a *repeated) VisitCreateOrganizationResponse(w http.ResponseWriter) error { return a.write(w) }

func (a *repeated) VisitCreateOrganizationApiKeyResponse(w http.ResponseWriter) error {
	return a.write(w)
}

func (a *repeated) VisitCreatePrepaymentResponse(w http.ResponseWriter) error { return a.write(w) }

func (a *repeated) VisitCreatePriceBookResponse(w http.ResponseWriter) error { return a.write(w) }

func (a *repeated) VisitCreatePricePreviewResponse(w http.ResponseWriter) error { return a.write(w) }

func (a *repeated) VisitCreatePriceVersionResponse(w http.ResponseWriter) error { return a.write(w) }

func (a *repeated) VisitCreateProjectResponse(w http.ResponseWriter) error { return a.write(w) }

func (a *repeated) VisitCreateRefundResponse(w http.ResponseWriter) error { return a.write(w) }

func (a *repeated) VisitCreateRegistryLoginResponse(w http.ResponseWriter) error { return a.write(w) }

func (a *repeated) VisitCreateReservationResponse(w http.ResponseWriter) error { return a.write(w) }

func (a *repeated) VisitCreateSshCertificateResponse(w http.ResponseWriter) error { return a.write(w) }

func (a *repeated) VisitCreateTopUpResponse(w http.ResponseWriter) error { return a.write(w) }

func (a *repeated) VisitCreateWriteOffResponse(w http.ResponseWriter) error { return a.write(w) }

func (a *repeated) VisitDeleteBudgetResponse(w http.ResponseWriter) error { return a.write(w) }

func (a *repeated) VisitDeleteInstanceResponse(w http.ResponseWriter) error { return a.write(w) }

func (a *repeated) VisitDeleteRegistryLoginResponse(w http.ResponseWriter) error { return a.write(w) }

func (a *repeated) VisitEndContractResponse(w http.ResponseWriter) error { return a.write(w) }

func (a *repeated) VisitEndReservationResponse(w http.ResponseWriter) error { return a.write(w) }

func (a *repeated) VisitImportStatementResponse(w http.ResponseWriter) error { return a.write(w) }

func (a *repeated) VisitMatchStatementLineResponse(w http.ResponseWriter) error { return a.write(w) }

func (a *repeated) VisitPublishSpotPriceResponse(w http.ResponseWriter) error { return a.write(w) }

func (a *repeated) VisitRecordTaxIdCheckResponse(w http.ResponseWriter) error { return a.write(w) }

func (a *repeated) VisitRedeemCouponResponse(w http.ResponseWriter) error { return a.write(w) }

func (a *repeated) VisitReissueInvoiceResponse(w http.ResponseWriter) error { return a.write(w) }

func (a *repeated) VisitRejectRequestResponse(w http.ResponseWriter) error { return a.write(w) }

func (a *repeated) VisitResolveDiscrepancyResponse(w http.ResponseWriter) error { return a.write(w) }

func (a *repeated) VisitReturnStatementLineResponse(w http.ResponseWriter) error { return a.write(w) }

func (a *repeated) VisitRevokeApiKeyResponse(w http.ResponseWriter) error { return a.write(w) }

func (a *repeated) VisitRevokeJoinTokenResponse(w http.ResponseWriter) error { return a.write(w) }

func (a *repeated) VisitSetGpuModeResponse(w http.ResponseWriter) error { return a.write(w) }

func (a *repeated) VisitStartInstanceResponse(w http.ResponseWriter) error { return a.write(w) }

func (a *repeated) VisitStopInstanceResponse(w http.ResponseWriter) error { return a.write(w) }

func (a *repeated) VisitUncordonHostResponse(w http.ResponseWriter) error { return a.write(w) }

func (a *repeated) VisitUpdateBudgetResponse(w http.ResponseWriter) error { return a.write(w) }

func (a *repeated) VisitUpdateInstanceResponse(w http.ResponseWriter) error { return a.write(w) }

func (a *repeated) VisitUpdateRegistryLoginResponse(w http.ResponseWriter) error { return a.write(w) }
