package client

import (
	"context"
	"fmt"
	"iter"
	"net/http"
	"time"

	"github.com/tranche-cloud/tranche/openapi/wire"
)

// longestWait is how long the service holds one waiting request.
const longestWait = 30 * time.Second

// Offers lists what this organization can buy now, with prices and availability.
func (c *Client) Offers(ctx context.Context) iter.Seq2[Offer, error] {
	return each[Offer](func(token *string) (*http.Response, error) {
		return c.raw.ListOffers(ctx, &wire.ListOffersParams{PageSize: sized(), PageToken: token})
	})
}

// CreateInstance asks for an instance and returns it as accepted, before it runs;
// its Operation can be waited for. It fails with the problems offer.unknown,
// offer.unavailable, quota.exceeded, name.taken; lack of capacity fails the operation.
func (c *Client) CreateInstance(ctx context.Context, project string, in InstanceCreate, opts ...CallOption) (Instance, error) {
	return answer[Instance](c.raw.CreateInstance(ctx, project, &wire.CreateInstanceParams{}, in, editors(opts)...))
}

// GetInstance reads one instance; deleted ones stay readable for 30 days.
func (c *Client) GetInstance(ctx context.Context, project, instance string) (Instance, error) {
	return answer[Instance](c.raw.GetInstance(ctx, project, instance, &wire.GetInstanceParams{}))
}

// InstanceFilter narrows a list; zero fields do not.
type InstanceFilter struct {
	Status      InstanceStatus // deleted ones are listed only when asked for
	Name        string
	ClientToken string
}

// Instances lists a project's instances, newest first.
func (c *Client) Instances(ctx context.Context, project string, f InstanceFilter) iter.Seq2[Instance, error] {
	return each[Instance](func(token *string) (*http.Response, error) {
		return c.raw.ListInstances(ctx, project, &wire.ListInstancesParams{
			Status: optional(f.Status), Name: optional(f.Name), ClientToken: optional(f.ClientToken),
			PageSize: sized(), PageToken: token,
		})
	})
}

// DeleteInstance asks for deletion; billing ends at acceptance. Repeating it is safe.
func (c *Client) DeleteInstance(ctx context.Context, project, instance string, opts ...CallOption) (Instance, error) {
	return answer[Instance](c.raw.DeleteInstance(ctx, project, instance, &wire.DeleteInstanceParams{}, editors(opts)...))
}

// StartInstance asks for a new run of a stopped or failed instance.
func (c *Client) StartInstance(ctx context.Context, project, instance string, opts ...CallOption) (Instance, error) {
	return answer[Instance](c.raw.StartInstance(ctx, project, instance, &wire.StartInstanceParams{}, editors(opts)...))
}

// StopInstance ends the run and frees its slice; billing ends at acceptance.
func (c *Client) StopInstance(ctx context.Context, project, instance string, opts ...CallOption) (Instance, error) {
	return answer[Instance](c.raw.StopInstance(ctx, project, instance, &wire.StopInstanceParams{}, editors(opts)...))
}

// GetOperation reads a long-running request as it stands.
func (c *Client) GetOperation(ctx context.Context, operation string) (Operation, error) {
	return answer[Operation](c.raw.GetOperation(ctx, operation, &wire.GetOperationParams{}))
}

// Operations lists a project's operations, newest first.
func (c *Client) Operations(ctx context.Context, project string) iter.Seq2[Operation, error] {
	return each[Operation](func(token *string) (*http.Response, error) {
		return c.raw.ListOperations(ctx, project, &wire.ListOperationsParams{PageSize: sized(), PageToken: token})
	})
}

// WaitOperation waits until the operation ends or ctx does. It returns the final
// operation, and an *OperationError unless it succeeded.
func (c *Client) WaitOperation(ctx context.Context, operation string) (Operation, error) {
	for {
		wait := seconds(ctx)
		op, err := answer[Operation](c.raw.GetOperation(ctx, operation, &wire.GetOperationParams{Wait: &wait}))
		if err != nil {
			return op, err
		}
		switch op.Status {
		case wire.OperationStatusSucceeded:
			return op, nil
		case wire.OperationStatusFailed, wire.OperationStatusCancelled:
			return op, operationError(op)
		}
		if err := ctx.Err(); err != nil {
			return op, err
		}
	}
}

// WaitInstance waits until the instance reaches the status, fails, or ctx ends. It
// fails with an *OperationError if the instance ended up failed instead.
func (c *Client) WaitInstance(ctx context.Context, project, instance string, want WaitStatus) (Instance, error) {
	for {
		timeout := seconds(ctx)
		i, err := answer[Instance](c.raw.GetInstance(ctx, project, instance,
			&wire.GetInstanceParams{WaitFor: &want, Timeout: &timeout}))
		if err != nil || string(i.Status) == string(want) {
			return i, err
		}
		if !i.Transitioning {
			return i, unreached(i, want)
		}
		if err := ctx.Err(); err != nil {
			return i, err
		}
	}
}

// seconds is how long one waiting request may be held, in the API's form.
func seconds(ctx context.Context) string {
	wait := longestWait
	if end, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(end))
	}
	return fmt.Sprintf("%ds", max(1, int(wait.Seconds())))
}

func operationError(op Operation) error {
	e := &OperationError{Operation: op, Code: "operation." + string(op.Status), Detail: "The operation was overtaken by a newer one."}
	if p, err := op.Problem.Get(); err == nil {
		e.Code, e.Detail = p.Code, p.Detail
		if s, err := p.Suggestion.Get(); err == nil {
			e.Suggestion = s
		}
	}
	return e
}

func unreached(i Instance, want WaitStatus) error {
	e := &OperationError{Code: "state.conflict", Detail: fmt.Sprintf("The instance is %s, not %s, and nothing is under way.", i.Status, want)}
	if r, err := i.StatusReason.Get(); err == nil {
		e.Code, e.Detail = r.Code, r.Detail
	}
	if ref, err := i.Operation.Get(); err == nil {
		e.Operation.Id, e.Operation.Kind, e.Operation.Status = ref.Id, ref.Kind, ref.Status
	}
	return e
}
