// Package offers owns the data source tranche_offers: what the credential's
// organization can buy now, with prices as decimal text and availability.
package offers

import (
	"context"
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/tranche-cloud/tranche/client"
)

// New returns the data source.
func New() datasource.DataSource { return &source{} }

type source struct{ api *client.Client }

type query struct {
	GPUModel types.String `tfsdk:"gpu_model"`
	Mode     types.String `tfsdk:"mode"`
	Offers   []offer      `tfsdk:"offers"`
}

type offer struct {
	ID            types.String `tfsdk:"id"`
	GPUModel      types.String `tfsdk:"gpu_model"`
	Mode          types.String `tfsdk:"mode"`
	Profile       types.String `tfsdk:"profile"`
	GPUCount      types.Int64  `tfsdk:"gpu_count"`
	MemoryMiB     types.Int64  `tfsdk:"memory_mib"`
	VCPU          types.Int64  `tfsdk:"vcpu"`
	RAMMiB        types.Int64  `tfsdk:"ram_mib"`
	Region        types.String `tfsdk:"region"`
	IsolationGPU  types.String `tfsdk:"isolation_gpu"`
	IsolationHost types.String `tfsdk:"isolation_host"`
	PricePerHour  types.String `tfsdk:"price_per_hour"`
	Currency      types.String `tfsdk:"currency"`
	Available     types.Int64  `tfsdk:"available"`
	Simulated     types.Bool   `tfsdk:"simulated"`
}

func (s *source) Metadata(_ context.Context, req datasource.MetadataRequest, resp *datasource.MetadataResponse) {
	resp.TypeName = req.ProviderTypeName + "_offers"
}

func (s *source) Schema(_ context.Context, _ datasource.SchemaRequest, resp *datasource.SchemaResponse) {
	text := func(what string) schema.StringAttribute {
		return schema.StringAttribute{Computed: true, MarkdownDescription: what}
	}
	number := func(what string) schema.Int64Attribute {
		return schema.Int64Attribute{Computed: true, MarkdownDescription: what}
	}
	resp.Schema = schema.Schema{
		MarkdownDescription: "What can be bought now.",
		Attributes: map[string]schema.Attribute{
			"gpu_model": schema.StringAttribute{Optional: true, MarkdownDescription: "Only this model, for example `H200-141`."},
			"mode":      schema.StringAttribute{Optional: true, MarkdownDescription: "Only `whole`, `mig`, `mps` or `timeslice`."},
			"offers": schema.ListNestedAttribute{Computed: true, NestedObject: schema.NestedAttributeObject{
				Attributes: map[string]schema.Attribute{
					"id": text("What `tranche_instance.offer` takes."), "gpu_model": text("GPU model."), "mode": text("How the GPU is shared."),
					"profile": text("Size within the mode."), "gpu_count": number("GPUs or slices."), "memory_mib": number("GPU memory, MiB."),
					"vcpu": number("CPUs."), "ram_mib": number("Main memory, MiB."), "region": text("Region."),
					"isolation_gpu": text("`dedicated`, `partitioned`, `limited` or `shared`."), "isolation_host": text("Isolation of the host."),
					"price_per_hour": text("Decimal text."), "currency": text("ISO 4217."), "available": number("How many could start now."),
					"simulated": schema.BoolAttribute{Computed: true, MarkdownDescription: "Whether the hardware is simulated."},
				},
			}},
		},
	}
}

func (s *source) Configure(_ context.Context, req datasource.ConfigureRequest, resp *datasource.ConfigureResponse) {
	if req.ProviderData == nil {
		return
	}
	api, ok := req.ProviderData.(*client.Client)
	if !ok {
		resp.Diagnostics.AddError("The provider is broken", fmt.Sprintf("It handed over a %T.", req.ProviderData))
		return
	}
	s.api = api
}

func (s *source) Read(ctx context.Context, req datasource.ReadRequest, resp *datasource.ReadResponse) {
	var q query
	resp.Diagnostics.Append(req.Config.Get(ctx, &q)...)
	if resp.Diagnostics.HasError() {
		return
	}
	q.Offers = []offer{}
	for o, err := range s.api.Offers(ctx) {
		if err != nil {
			resp.Diagnostics.AddError("The offers cannot be read", err.Error())
			return
		}
		if matches(q.GPUModel, o.GpuModel) && matches(q.Mode, string(o.Mode)) {
			q.Offers = append(q.Offers, row(o))
		}
	}
	resp.Diagnostics.Append(resp.State.Set(ctx, &q)...)
}

func matches(want types.String, got string) bool {
	return want.ValueString() == "" || want.ValueString() == got
}

func row(o client.Offer) offer {
	r := offer{
		ID: types.StringValue(o.Id), GPUModel: types.StringValue(o.GpuModel), Mode: types.StringValue(string(o.Mode)),
		Profile: types.StringNull(), GPUCount: types.Int64Value(int64(o.GpuCount)), MemoryMiB: types.Int64Value(int64(o.MemoryMib)),
		VCPU: types.Int64Value(int64(o.Vcpu)), RAMMiB: types.Int64Value(int64(o.RamMib)), Region: types.StringValue(o.Region),
		IsolationGPU: types.StringValue(string(o.Isolation.Gpu)), IsolationHost: types.StringValue(string(o.Isolation.Host)),
		PricePerHour: types.StringValue(o.PricePerHour.Amount), Currency: types.StringValue(o.PricePerHour.Currency),
		Available: types.Int64Value(int64(o.Available)), Simulated: types.BoolValue(o.Simulated),
	}
	if p, err := o.Profile.Get(); err == nil {
		r.Profile = types.StringValue(p)
	}
	return r
}
