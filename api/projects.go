package api

import (
	"context"

	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/org"
	"github.com/tranche-cloud/tranche/openapi/wire"
)

// CreateProject answers POST /v1/admin/organizations/{organization}/projects.
func (h *Handlers) CreateProject(ctx context.Context, req CreateProjectRequestObject) (CreateProjectResponseObject, error) {
	o, err := parse[id.Org](req.Organization)
	if err != nil {
		return nil, err
	}
	var out CreateProject201JSONResponse
	again, err := h.once(ctx, func(ctx context.Context) (visit, error) {
		made, err := h.app.CreateProject(ctx, caller(ctx), o, req.Body.Name)
		if err != nil {
			return nil, err
		}
		location := "/v1/admin/organizations/" + o.String() + "/projects/" + made.ID.String()
		out = CreateProject201JSONResponse{
			Body: projectOf(made), Headers: CreateProject201ResponseHeaders{Location: &location},
		}
		return out.VisitCreateProjectResponse, nil
	})
	return either[CreateProjectResponseObject](out, again, err)
}

// ListProjects answers GET /v1/admin/organizations/{organization}/projects.
func (h *Handlers) ListProjects(ctx context.Context, req ListProjectsRequestObject) (ListProjectsResponseObject, error) {
	o, err := parse[id.Org](req.Organization)
	if err != nil {
		return nil, err
	}
	p, err := h.pageOf(ctx, req.Params.PageSize, req.Params.PageToken)
	if err != nil {
		return nil, err
	}
	l, err := h.app.ListProjects(ctx, caller(ctx), o, p)
	if err != nil {
		return nil, err
	}
	items, next, err := listed(ctx, h, l, projectOf)
	return ListProjects200JSONResponse{Items: items, NextPageToken: next}, err
}

// GetProject answers GET /v1/admin/organizations/{organization}/projects/{project}.
func (h *Handlers) GetProject(ctx context.Context, req GetProjectRequestObject) (GetProjectResponseObject, error) {
	o, err := parse[id.Org](req.Organization)
	if err != nil {
		return nil, err
	}
	project, err := parse[id.Project](req.Project)
	if err != nil {
		return nil, err
	}
	got, err := h.app.GetProject(ctx, caller(ctx), o, project)
	if err != nil {
		return nil, err
	}
	return GetProject200JSONResponse(projectOf(got)), nil
}

func projectOf(p org.Project) wire.Project {
	return wire.Project{Id: p.ID.String(), Organization: p.Org.String(), Name: p.Name, CreatedAt: wire.At(p.CreatedAt)}
}
