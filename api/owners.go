package api

import (
	"context"
	"sync"

	"github.com/tranche-cloud/tranche/internal/auth"
	"github.com/tranche-cloud/tranche/internal/id"
)

// projectOwners remembers which organization a project belongs to. That never
// changes and ids are never used again, so only found projects are remembered.
type projectOwners struct {
	lookup func(context.Context, auth.Principal, id.Project) (id.Org, error)

	mu    sync.RWMutex
	known map[id.Project]id.Org
}

// owner fails with resource.not_found for a project the principal cannot see.
func (o *projectOwners) owner(ctx context.Context, p auth.Principal, project id.Project) (id.Org, error) {
	o.mu.RLock()
	org, ok := o.known[project]
	o.mu.RUnlock()
	if ok {
		return org, nil
	}
	org, err := o.lookup(ctx, p, project)
	if err != nil {
		return id.Org{}, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.known) >= maxBuckets {
		clear(o.known)
	}
	o.known[project] = org
	return org, nil
}
