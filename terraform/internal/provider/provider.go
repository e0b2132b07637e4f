// Package provider owns the provider block: which API, which credential, which
// project. Resources and data sources live in packages of their own.
package provider

import (
	"context"
	"os"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/provider"
	"github.com/hashicorp/terraform-plugin-framework/provider/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/tranche-cloud/tranche/client"
	"github.com/tranche-cloud/tranche/terraform/internal/instance"
	"github.com/tranche-cloud/tranche/terraform/internal/offers"
)

// New returns the provider's factory; version goes into the user agent.
func New(version string) func() provider.Provider {
	return func() provider.Provider { return &tranche{version: version} }
}

type tranche struct{ version string }

type settings struct {
	APIURL types.String `tfsdk:"api_url"`
	APIKey types.String `tfsdk:"api_key"`
}

func (p *tranche) Metadata(_ context.Context, _ provider.MetadataRequest, resp *provider.MetadataResponse) {
	resp.TypeName, resp.Version = "tranche", p.version
}

func (p *tranche) Schema(_ context.Context, _ provider.SchemaRequest, resp *provider.SchemaResponse) {
	resp.Schema = schema.Schema{
		MarkdownDescription: "Rents GPUs, whole or in slices, from a Tranche installation.",
		Attributes: map[string]schema.Attribute{
			"api_url": schema.StringAttribute{Optional: true, MarkdownDescription: "Address of the API; default: `TRANCHE_API_URL`."},
			"api_key": schema.StringAttribute{Optional: true, Sensitive: true, MarkdownDescription: "API key; default: `TRANCHE_API_KEY`."},
		},
	}
}

func (p *tranche) Configure(ctx context.Context, req provider.ConfigureRequest, resp *provider.ConfigureResponse) {
	var s settings
	resp.Diagnostics.Append(req.Config.Get(ctx, &s)...)
	if s.APIURL.IsUnknown() || s.APIKey.IsUnknown() {
		return // a value of another resource, known only at apply: nothing can be asked yet
	}
	url, key := orEnv(s.APIURL, "TRANCHE_API_URL"), orEnv(s.APIKey, "TRANCHE_API_KEY")
	if url == "" {
		resp.Diagnostics.AddAttributeError(path.Root("api_url"), "No API address",
			"Set api_url in the provider block or TRANCHE_API_URL in the environment.")
	}
	if key == "" {
		resp.Diagnostics.AddAttributeError(path.Root("api_key"), "No API key",
			"Set TRANCHE_API_KEY in the environment, or api_key from a secret store.")
	}
	if resp.Diagnostics.HasError() {
		return
	}
	c, err := client.New(url, key, client.WithUserAgent("terraform-provider-tranche/"+p.version))
	if err != nil {
		resp.Diagnostics.AddAttributeError(path.Root("api_url"), "The API address cannot be used", err.Error())
		return
	}
	resp.ResourceData, resp.DataSourceData = c, c
}

func orEnv(v types.String, name string) string {
	if v.ValueString() != "" {
		return v.ValueString()
	}
	return os.Getenv(name)
}

func (p *tranche) Resources(context.Context) []func() resource.Resource {
	return []func() resource.Resource{instance.New}
}

func (p *tranche) DataSources(context.Context) []func() datasource.DataSource {
	return []func() datasource.DataSource{offers.New}
}
