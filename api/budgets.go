package api

import (
	"context"

	"github.com/tranche-cloud/tranche/internal/app"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/openapi/wire"
)

// CreateBudget answers POST /v1/organization/budgets.
func (h *Handlers) CreateBudget(ctx context.Context, req CreateBudgetRequestObject) (CreateBudgetResponseObject, error) {
	c, err := payer(ctx)
	if err != nil {
		return nil, err
	}
	in, err := newBudget(*req.Body)
	if err != nil {
		return nil, err
	}
	var out CreateBudget201JSONResponse
	again, err := h.once(ctx, func(ctx context.Context) (visit, error) {
		made, err := h.app.CreateBudget(ctx, c, c.Org, in)
		if err != nil {
			return nil, err
		}
		location := "/v1/organization/budgets/" + made.ID.String()
		out.Body, out.Headers.Location = budgetOf(made), &location
		return out.VisitCreateBudgetResponse, nil
	})
	return either[CreateBudgetResponseObject](out, again, err)
}

func newBudget(b wire.BudgetCreate) (in app.NewBudget, err error) {
	in = app.NewBudget{Name: b.Name, Scope: string(b.Scope), Thresholds: percents(b.Thresholds), Hard: value(b.Hard)}
	if b.Project != nil {
		if in.Project, err = named[id.Project](*b.Project, "/project"); err != nil {
			return in, err
		}
	}
	if b.Key != nil {
		if in.Key, err = named[id.Key](*b.Key, "/key"); err != nil {
			return in, err
		}
	}
	in.Amount, err = amountIn(b.Amount, "/amount")
	return in, err
}

// percents is nil for a list that is not given.
func percents(in *[]int32) []int {
	if in == nil {
		return nil
	}
	return each(*in, func(n int32) int { return int(n) })
}

// ListBudgets answers GET /v1/organization/budgets.
func (h *Handlers) ListBudgets(ctx context.Context, _ ListBudgetsRequestObject) (ListBudgetsResponseObject, error) {
	c := caller(ctx)
	got, err := h.app.ListBudgets(ctx, c, c.Org)
	if err != nil {
		return nil, err
	}
	return ListBudgets200JSONResponse{Items: each(got, budgetOf)}, nil
}

// GetBudget answers GET /v1/organization/budgets/{budget}.
func (h *Handlers) GetBudget(ctx context.Context, req GetBudgetRequestObject) (GetBudgetResponseObject, error) {
	which, err := parse[id.Budget](req.Budget)
	if err != nil {
		return nil, err
	}
	c := caller(ctx)
	got, err := h.app.GetBudget(ctx, c, c.Org, which)
	if err != nil {
		return nil, err
	}
	return GetBudget200JSONResponse(budgetOf(got)), nil
}

// UpdateBudget answers PATCH /v1/organization/budgets/{budget}.
func (h *Handlers) UpdateBudget(ctx context.Context, req UpdateBudgetRequestObject) (UpdateBudgetResponseObject, error) {
	which, err := parse[id.Budget](req.Budget)
	if err != nil {
		return nil, err
	}
	c, err := payer(ctx)
	if err != nil {
		return nil, err
	}
	in := app.BudgetChange{Name: req.Body.Name, Thresholds: percents(req.Body.Thresholds), Hard: req.Body.Hard}
	if req.Body.Amount != nil {
		amount, err := amountIn(*req.Body.Amount, "/amount")
		if err != nil {
			return nil, err
		}
		in.Amount = &amount
	}
	var out UpdateBudget200JSONResponse
	again, err := h.once(ctx, func(ctx context.Context) (visit, error) {
		got, err := h.app.UpdateBudget(ctx, c, c.Org, which, in)
		if err != nil {
			return nil, err
		}
		out.Body = budgetOf(got)
		return out.VisitUpdateBudgetResponse, nil
	})
	return either[UpdateBudgetResponseObject](out, again, err)
}

// DeleteBudget answers DELETE /v1/organization/budgets/{budget}.
func (h *Handlers) DeleteBudget(ctx context.Context, req DeleteBudgetRequestObject) (DeleteBudgetResponseObject, error) {
	which, err := parse[id.Budget](req.Budget)
	if err != nil {
		return nil, err
	}
	c, err := payer(ctx)
	if err != nil {
		return nil, err
	}
	var out DeleteBudget204Response
	again, err := h.once(ctx, func(ctx context.Context) (visit, error) {
		if err := h.app.DeleteBudget(ctx, c, c.Org, which); err != nil {
			return nil, err
		}
		return out.VisitDeleteBudgetResponse, nil
	})
	return either[DeleteBudgetResponseObject](out, again, err)
}

func budgetOf(b app.Budget) wire.Budget {
	return wire.Budget{
		Id: b.ID.String(), Name: b.Name, Scope: wire.BudgetScope(b.Scope), Project: textOrNull(b.Project.String()), Key: textOrNull(b.Key.String()),
		Amount: moneyOf(b.Amount), Thresholds: each(b.Thresholds, func(n int) int32 { return int32(n) }), Hard: b.Hard,
		Period: textOrNull(b.Period), Spent: moneyOf(b.Spent),
	}
}
