package client

import (
	"context"
	"iter"
	"net/http"

	"github.com/tranche-cloud/tranche/openapi/wire"
)

// Admin returns the operator's side of the API; it needs an operator's credential.
func (c *Client) Admin() Admin { return Admin{c} }

// Admin is what operators may do.
type Admin struct{ c *Client }

// CreateOrganization makes a tenant; without a quota it may hold nothing.
func (a Admin) CreateOrganization(ctx context.Context, in OrganizationCreate, opts ...CallOption) (Organization, error) {
	return answer[Organization](a.c.raw.CreateOrganization(ctx, &wire.CreateOrganizationParams{}, in, editors(opts)...))
}

// Organizations lists all tenants.
func (a Admin) Organizations(ctx context.Context) iter.Seq2[Organization, error] {
	return each[Organization](func(token *string) (*http.Response, error) {
		return a.c.raw.ListOrganizations(ctx, &wire.ListOrganizationsParams{PageSize: sized(), PageToken: token})
	})
}

// GetOrganization reads one tenant.
func (a Admin) GetOrganization(ctx context.Context, organization string) (Organization, error) {
	return answer[Organization](a.c.raw.GetOrganization(ctx, organization))
}

// CreateProject makes a project; its name is unique in the organization.
func (a Admin) CreateProject(ctx context.Context, organization, name string, opts ...CallOption) (Project, error) {
	return answer[Project](a.c.raw.CreateProject(ctx, organization, &wire.CreateProjectParams{},
		wire.ProjectCreate{Name: name}, editors(opts)...))
}

// Projects lists an organization's projects.
func (a Admin) Projects(ctx context.Context, organization string) iter.Seq2[Project, error] {
	return each[Project](func(token *string) (*http.Response, error) {
		return a.c.raw.ListProjects(ctx, organization, &wire.ListProjectsParams{PageSize: sized(), PageToken: token})
	})
}

// CreateAPIKey makes a key of an organization, usually its first.
func (a Admin) CreateAPIKey(ctx context.Context, organization string, in APIKeyCreate, opts ...CallOption) (APIKey, error) {
	return answer[APIKey](a.c.raw.CreateOrganizationApiKey(ctx, organization,
		&wire.CreateOrganizationApiKeyParams{}, in, editors(opts)...))
}

// CreateJoinToken makes a one-time token for a host; its secret is shown only here.
func (a Admin) CreateJoinToken(ctx context.Context, in JoinTokenCreate, opts ...CallOption) (JoinToken, error) {
	return answer[JoinToken](a.c.raw.CreateJoinToken(ctx, &wire.CreateJoinTokenParams{}, in, editors(opts)...))
}

// JoinTokens lists join tokens, without secrets.
func (a Admin) JoinTokens(ctx context.Context) iter.Seq2[JoinToken, error] {
	return each[JoinToken](func(token *string) (*http.Response, error) {
		return a.c.raw.ListJoinTokens(ctx, &wire.ListJoinTokensParams{PageSize: sized(), PageToken: token})
	})
}

// Hosts lists all hosts.
func (a Admin) Hosts(ctx context.Context) iter.Seq2[Host, error] {
	return each[Host](func(token *string) (*http.Response, error) {
		return a.c.raw.ListHosts(ctx, &wire.ListHostsParams{PageSize: sized(), PageToken: token})
	})
}

// GetHost reads one host.
func (a Admin) GetHost(ctx context.Context, host string) (Host, error) {
	return answer[Host](a.c.raw.GetHost(ctx, host))
}

// ApproveHost lets a pending host in: it gets its certificate.
func (a Admin) ApproveHost(ctx context.Context, host string, opts ...CallOption) (Host, error) {
	return answer[Host](a.c.raw.ApproveHost(ctx, host, &wire.ApproveHostParams{}, editors(opts)...))
}

// CordonHost stops new instances on the host; those there go on. The service wants
// the generation last seen: pass IfGeneration.
func (a Admin) CordonHost(ctx context.Context, host string, opts ...CallOption) (Host, error) {
	return answer[Host](a.c.raw.CordonHost(ctx, host, &wire.CordonHostParams{}, editors(opts)...))
}

// UncordonHost sells from the host again.
func (a Admin) UncordonHost(ctx context.Context, host string, opts ...CallOption) (Host, error) {
	return answer[Host](a.c.raw.UncordonHost(ctx, host, &wire.UncordonHostParams{}, editors(opts)...))
}

// GPUs lists the GPUs of all hosts.
func (a Admin) GPUs(ctx context.Context) iter.Seq2[GPU, error] {
	return each[GPU](func(token *string) (*http.Response, error) {
		return a.c.raw.ListGpus(ctx, &wire.ListGpusParams{PageSize: sized(), PageToken: token})
	})
}

// PutOffer makes or replaces an offer; it is listed once it has a price.
func (a Admin) PutOffer(ctx context.Context, offer string, in OfferPut) (AdminOffer, error) {
	return answer[AdminOffer](a.c.raw.PutOffer(ctx, offer, in))
}

// Offers lists all offers, priced or not.
func (a Admin) Offers(ctx context.Context) iter.Seq2[AdminOffer, error] {
	return each[AdminOffer](func(token *string) (*http.Response, error) {
		return a.c.raw.ListAdminOffers(ctx, &wire.ListAdminOffersParams{PageSize: sized(), PageToken: token})
	})
}

// CreatePriceBook makes a price book with its first version, which may start now.
func (a Admin) CreatePriceBook(ctx context.Context, in PriceBookCreate, opts ...CallOption) (PriceBook, error) {
	return answer[PriceBook](a.c.raw.CreatePriceBook(ctx, &wire.CreatePriceBookParams{}, in, editors(opts)...))
}

// PriceBooks lists all price books.
func (a Admin) PriceBooks(ctx context.Context) iter.Seq2[PriceBook, error] {
	return each[PriceBook](func(token *string) (*http.Response, error) {
		return a.c.raw.ListPriceBooks(ctx, &wire.ListPriceBooksParams{PageSize: sized(), PageToken: token})
	})
}

// GetPriceBook reads one price book with its versions.
func (a Admin) GetPriceBook(ctx context.Context, book string) (PriceBook, error) {
	return answer[PriceBook](a.c.raw.GetPriceBook(ctx, book))
}

// CreatePriceVersion adds an immutable version, announced at least 7 days ahead.
func (a Admin) CreatePriceVersion(ctx context.Context, book string, in PriceVersionCreate, opts ...CallOption) (PriceVersion, error) {
	return answer[PriceVersion](a.c.raw.CreatePriceVersion(ctx, book, &wire.CreatePriceVersionParams{}, in, editors(opts)...))
}

// RunInvoices begins to finalize the invoices of a period, YYYY-MM, for every
// organization; follow it with WaitInvoiceRun. Repeating it changes nothing. It fails
// with state.conflict before the period and its grace are over.
func (a Admin) RunInvoices(ctx context.Context, period string, opts ...CallOption) (InvoiceRun, error) {
	return answer[InvoiceRun](a.c.raw.CreateInvoiceRun(ctx, &wire.CreateInvoiceRunParams{},
		wire.InvoiceRunCreate{Period: period}, editors(opts)...))
}

// GetInvoiceRun reads the newest run of a period as it stands.
func (a Admin) GetInvoiceRun(ctx context.Context, period string) (InvoiceRun, error) {
	return answer[InvoiceRun](a.c.raw.GetInvoiceRun(ctx, period, &wire.GetInvoiceRunParams{}))
}

// WaitInvoiceRun waits until the run of a period ends or ctx does. It returns the run,
// and an *OperationError if it failed.
func (a Admin) WaitInvoiceRun(ctx context.Context, period string) (InvoiceRun, error) {
	for {
		wait := seconds(ctx)
		run, err := answer[InvoiceRun](a.c.raw.GetInvoiceRun(ctx, period, &wire.GetInvoiceRunParams{Wait: &wait}))
		if err != nil {
			return run, err
		}
		switch run.Status {
		case wire.InvoiceRunStatusSucceeded:
			return run, nil
		case wire.InvoiceRunStatusFailed:
			e := &OperationError{Operation: Operation{Kind: "invoice_run", Status: wire.OperationStatusFailed}, Code: "operation.failed", Detail: "The invoice run failed."}
			if p, err := run.Problem.Get(); err == nil {
				e.Code, e.Detail = p.Code, p.Detail
			}
			return run, e
		}
		if err := ctx.Err(); err != nil {
			return run, err
		}
	}
}
