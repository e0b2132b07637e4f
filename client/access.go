package client

import (
	"context"
	"iter"
	"net/http"
	"time"

	"github.com/tranche-cloud/tranche/openapi/wire"
)

// UpdateInstance changes an instance in place: nothing is stopped or started again.
func (c *Client) UpdateInstance(ctx context.Context, project, instance string, in InstancePatch, opts ...CallOption) (Instance, error) {
	return answer[Instance](c.raw.UpdateInstance(ctx, project, instance, &wire.UpdateInstanceParams{}, in, editors(opts)...))
}

// CreateSSHCertificate gets a certificate of a public key for sessions with one
// instance, valid for five minutes, and says where and to whom to show it. It fails
// with state.conflict when there is nothing to log in to; the detail says why.
func (c *Client) CreateSSHCertificate(ctx context.Context, project, instance string, in SSHCertificateCreate, opts ...CallOption) (SSHCertificate, error) {
	return answer[SSHCertificate](c.raw.CreateSshCertificate(ctx, project, instance,
		&wire.CreateSshCertificateParams{}, in, editors(opts)...))
}

// Samples lists what was measured of an instance in [from, to), by time; a zero to is
// now, a zero from an hour before to.
func (c *Client) Samples(ctx context.Context, project, instance string, from, to time.Time) iter.Seq2[Sample, error] {
	p := wire.ListSamplesParams{From: optional(from.UTC()), To: optional(to.UTC()), PageSize: sized()}
	return each[Sample](func(token *string) (*http.Response, error) {
		p.PageToken = token
		return c.raw.ListSamples(ctx, project, instance, &p)
	})
}

// CreateRegistryLogin stores a login to an image registry; one a registry. Its
// password is never read back.
func (c *Client) CreateRegistryLogin(ctx context.Context, in RegistryLoginCreate, opts ...CallOption) (RegistryLogin, error) {
	return answer[RegistryLogin](c.raw.CreateRegistryLogin(ctx, &wire.CreateRegistryLoginParams{}, in, editors(opts)...))
}

// RegistryLogins lists the organization's logins, newest first.
func (c *Client) RegistryLogins(ctx context.Context) iter.Seq2[RegistryLogin, error] {
	return each[RegistryLogin](func(token *string) (*http.Response, error) {
		return c.raw.ListRegistryLogins(ctx, &wire.ListRegistryLoginsParams{PageSize: sized(), PageToken: token})
	})
}

// GetRegistryLogin reads one login.
func (c *Client) GetRegistryLogin(ctx context.Context, login string) (RegistryLogin, error) {
	return answer[RegistryLogin](c.raw.GetRegistryLogin(ctx, login))
}

// UpdateRegistryLogin replaces a login's password.
func (c *Client) UpdateRegistryLogin(ctx context.Context, login string, in RegistryLoginPatch, opts ...CallOption) (RegistryLogin, error) {
	return answer[RegistryLogin](c.raw.UpdateRegistryLogin(ctx, login, &wire.UpdateRegistryLoginParams{}, in, editors(opts)...))
}

// DeleteRegistryLogin forgets a login.
func (c *Client) DeleteRegistryLogin(ctx context.Context, login string, opts ...CallOption) error {
	_, err := read(c.raw.DeleteRegistryLogin(ctx, login, &wire.DeleteRegistryLoginParams{}, editors(opts)...))
	return err
}
