package api

import (
	"context"

	"github.com/tranche-cloud/tranche/internal/app"
	"github.com/tranche-cloud/tranche/internal/auth"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/money"
	"github.com/tranche-cloud/tranche/internal/store"
	"github.com/tranche-cloud/tranche/openapi/wire"
)

// ListApprovals answers GET /v1/admin/approvals.
func (h *Handlers) ListApprovals(ctx context.Context, req ListApprovalsRequestObject) (ListApprovalsResponseObject, error) {
	p, err := h.pageOf(ctx, req.Params.PageSize, req.Params.PageToken)
	if err != nil {
		return nil, err
	}
	l, err := h.app.ListApprovals(ctx, caller(ctx), p)
	if err != nil {
		return nil, err
	}
	items, next, err := listed(ctx, h, l, approvalOf)
	return ListApprovals200JSONResponse{Items: items, NextPageToken: next}, err
}

// GetApproval answers GET /v1/admin/approvals/{approval}.
func (h *Handlers) GetApproval(ctx context.Context, req GetApprovalRequestObject) (GetApprovalResponseObject, error) {
	which, err := parse[id.Approval](req.Approval)
	if err != nil {
		return nil, err
	}
	got, err := h.app.GetApproval(ctx, caller(ctx), which)
	if err != nil {
		return nil, err
	}
	return GetApproval200JSONResponse(approvalOf(got)), nil
}

// ApproveRequest answers POST /v1/admin/approvals/{approval}/actions/approve.
func (h *Handlers) ApproveRequest(ctx context.Context, req ApproveRequestRequestObject) (ApproveRequestResponseObject, error) {
	which, err := parse[id.Approval](req.Approval)
	if err != nil {
		return nil, err
	}
	var out ApproveRequest200JSONResponse
	again, err := h.once(ctx, func(ctx context.Context) (visit, error) {
		got, err := h.app.Approve(ctx, caller(ctx), which)
		if err != nil {
			return nil, err
		}
		out.Body = approvalOf(got)
		return out.VisitApproveRequestResponse, nil
	})
	return either[ApproveRequestResponseObject](out, again, err)
}

// RejectRequest answers POST /v1/admin/approvals/{approval}/actions/reject.
func (h *Handlers) RejectRequest(ctx context.Context, req RejectRequestRequestObject) (RejectRequestResponseObject, error) {
	which, err := parse[id.Approval](req.Approval)
	if err != nil {
		return nil, err
	}
	var out RejectRequest200JSONResponse
	again, err := h.once(ctx, func(ctx context.Context) (visit, error) {
		got, err := h.app.RejectApproval(ctx, caller(ctx), which)
		if err != nil {
			return nil, err
		}
		out.Body = approvalOf(got)
		return out.VisitRejectRequestResponse, nil
	})
	return either[RejectRequestResponseObject](out, again, err)
}

// ListApprovalRules answers GET /v1/admin/approval-rules.
func (h *Handlers) ListApprovalRules(ctx context.Context, _ ListApprovalRulesRequestObject) (ListApprovalRulesResponseObject, error) {
	rules, err := h.app.ApprovalRules(ctx, caller(ctx))
	if err != nil {
		return nil, err
	}
	return ListApprovalRules200JSONResponse{Items: each(rules, approvalRuleOf)}, nil
}

// PutApprovalRule answers PUT /v1/admin/approval-rules/{approval_kind}.
func (h *Handlers) PutApprovalRule(ctx context.Context, req PutApprovalRuleRequestObject) (PutApprovalRuleResponseObject, error) {
	kind := wire.ApprovalKind(req.ApprovalKind)
	if !kind.Valid() || kind == wire.ApprovalKindApprovalRule {
		return nil, auth.NotFound()
	}
	rule := app.ApprovalRule{Kind: app.ApprovalKind(kind)}
	if req.Body.Above != nil {
		above, err := amountIn(*req.Body.Above, "/above")
		if err != nil {
			return nil, err
		}
		rule.Above = above
	}
	if err := h.app.SetApprovalRule(ctx, caller(ctx), rule); err != nil {
		return nil, err
	}
	rules, err := h.app.ApprovalRules(ctx, caller(ctx))
	if err != nil {
		return nil, err
	}
	return PutApprovalRule200JSONResponse{Items: each(rules, approvalRuleOf)}, nil
}

func approvalOf(a store.Approval) wire.Approval {
	return wire.Approval{
		Id: a.ID.String(), Kind: wire.ApprovalKind(a.Kind), Request: string(a.Body), Amount: moneyOrNull(a.Amount),
		State: wire.ApprovalState(a.State), RequestedBy: a.RequestedBy, DecidedBy: textOrNull(a.DecidedBy),
		CreatedAt: wire.At(a.CreatedAt), DecidedAt: timeOrNull(a.DecidedAt), ExecutedAt: timeOrNull(a.ExecutedAt),
		ExpiresAt: wire.At(a.ExpiresAt),
	}
}

func approvalRuleOf(r store.ApprovalRule) wire.ApprovalRule {
	above := money.Amount{}
	if !r.Currency.IsZero() {
		above = money.NewAmount(r.Above, r.Currency)
	}
	return wire.ApprovalRule{
		Kind: wire.ApprovalKind(r.Kind), Above: moneyOrNull(above), UpdatedBy: r.UpdatedBy, UpdatedAt: wire.At(r.UpdatedAt),
	}
}
