package client

import (
	"context"
	"iter"
	"net/http"
	"time"

	"github.com/tranche-cloud/tranche/openapi/wire"
)

// UsageQuery selects metered use of one project in the half-open [From, To); zero
// instants mean the current month so far. The sum over any bucket size is equal.
type UsageQuery struct {
	From, To time.Time
	Bucket   Bucket // hour, day, month, none; "" is day
	GroupBy  []UsageGroup
}

// Usage lists metered quantities with their exact price.
func (c *Client) Usage(ctx context.Context, project string, q UsageQuery) iter.Seq2[UsageItem, error] {
	p := wire.GetUsageParams{Bucket: optional(q.Bucket), From: optional(q.From.UTC()), To: optional(q.To.UTC()), PageSize: sized()}
	if len(q.GroupBy) > 0 {
		p.GroupBy = &q.GroupBy
	}
	return each[UsageItem](func(token *string) (*http.Response, error) {
		p.PageToken = token
		return c.raw.GetUsage(ctx, project, &p)
	})
}

// PreviewInvoice is what the month would cost if it ended now; period is YYYY-MM,
// "" for the current one. It has neither id nor number.
func (c *Client) PreviewInvoice(ctx context.Context, period string) (Invoice, error) {
	return answer[Invoice](c.raw.PreviewInvoice(ctx, &wire.PreviewInvoiceParams{Period: optional(period)}))
}

// Whoami tells whose credential this is and what it may do.
func (c *Client) Whoami(ctx context.Context) (Identity, error) {
	return answer[Identity](c.raw.Whoami(ctx))
}

// AccessToken is a short-lived credential and its life in seconds.
type AccessToken = wire.AccessToken

// CreateToken exchanges the API key for an access token.
func (c *Client) CreateToken(ctx context.Context) (AccessToken, error) {
	return answer[AccessToken](c.raw.CreateToken(ctx))
}

// CreateAPIKey makes a key whose rights are within the caller's; its secret is shown
// in this answer only.
func (c *Client) CreateAPIKey(ctx context.Context, in APIKeyCreate, opts ...CallOption) (APIKey, error) {
	return answer[APIKey](c.raw.CreateApiKey(ctx, &wire.CreateApiKeyParams{}, in, editors(opts)...))
}

// APIKeys lists the organization's keys, without secrets.
func (c *Client) APIKeys(ctx context.Context) iter.Seq2[APIKey, error] {
	return each[APIKey](func(token *string) (*http.Response, error) {
		return c.raw.ListApiKeys(ctx, &wire.ListApiKeysParams{PageSize: sized(), PageToken: token})
	})
}

// RevokeAPIKey makes a key useless everywhere within five seconds.
func (c *Client) RevokeAPIKey(ctx context.Context, key string, opts ...CallOption) error {
	_, err := read(c.raw.RevokeApiKey(ctx, key, &wire.RevokeApiKeyParams{}, editors(opts)...))
	return err
}
