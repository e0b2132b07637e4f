// Package group owns jobs that live and end together: the roles of a process, the
// loops of a role, the watchers of a host.
//
// It restarts nothing and bounds nothing; a job that must outlive a failure of its own
// sees to that itself.
package group

import (
	"context"
	"sync"
)

// Job works until it is done or ctx ends.
type Job = func(ctx context.Context) error

// Run runs all jobs at once and returns when the last has returned, with the error
// that came first, nil if none did. That error ends the context of the others and is
// its cause; a job that returns nil ends nobody else.
func Run(ctx context.Context, jobs ...Job) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	var (
		working sync.WaitGroup
		once    sync.Once
		first   error
	)
	for _, job := range jobs {
		working.Go(func() {
			if err := job(ctx); err != nil {
				once.Do(func() {
					first = err
					end(err)
				})
			}
		})
	}
	working.Wait()
	return first
}
