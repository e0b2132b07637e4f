// Package client is the public Go SDK of Tranche: typed requests, retries that
// honour Retry-After, an idempotency key on every mutation, iterators over lists,
// and waiters for long-running operations.
//
//	c, err := client.New("https://api.example.com", os.Getenv("TRANCHE_API_KEY"))
//	inst, err := c.CreateInstance(ctx, client.OnlyProject, client.InstanceCreate{
//		Offer: "h200-mig-1g-16gib", Image: "ghcr.io/acme/trainer:1",
//	})
//	op, err := c.WaitOperation(ctx, inst.Operation.MustGet().Id)
//
// The requests are generated from openapi/openapi.yaml; this package adds what a
// person would write around them and no state beyond the HTTP client. A refusal of
// the service is a *Problem: branch on its Code. Money and quantities are decimal
// text; the SDK never turns them into floats.
package client
