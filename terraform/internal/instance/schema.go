package instance

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/listplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/mapplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/types"
)

func (r *instance) Schema(_ context.Context, _ resource.SchemaRequest, resp *resource.SchemaResponse) {
	replace := []planmodifier.String{stringplanmodifier.RequiresReplace()}
	kept := []planmodifier.String{stringplanmodifier.UseStateForUnknown()}
	chosen := []planmodifier.String{stringplanmodifier.UseStateForUnknown(), stringplanmodifier.RequiresReplaceIfConfigured()}
	known := func(what string) schema.StringAttribute {
		return schema.StringAttribute{Computed: true, PlanModifiers: kept, MarkdownDescription: what}
	}
	resp.Schema = schema.Schema{
		MarkdownDescription: "A virtual GPU instance. It is billed from the start of its run until its deletion is accepted.",
		Attributes: map[string]schema.Attribute{
			"id": known("Id."),
			"project": schema.StringAttribute{Optional: true, Computed: true, PlanModifiers: chosen,
				MarkdownDescription: "Project id; default: the key's only project."},
			"name": schema.StringAttribute{Optional: true, Computed: true, PlanModifiers: chosen,
				MarkdownDescription: "Name, unique among the project's live instances; default: from the id."},
			"offer": schema.StringAttribute{Required: true, PlanModifiers: replace, MarkdownDescription: "What to buy; see `tranche_offers`."},
			"image": schema.StringAttribute{Required: true, PlanModifiers: replace, MarkdownDescription: "Container image."},
			"command": schema.ListAttribute{Optional: true, ElementType: types.StringType, MarkdownDescription: "Command and arguments.",
				PlanModifiers: []planmodifier.List{listplanmodifier.RequiresReplace()}},
			"env": schema.MapAttribute{Optional: true, Sensitive: true, ElementType: types.StringType,
				MarkdownDescription: "Environment; sent as secrets, never read back.",
				PlanModifiers:       []planmodifier.Map{mapplanmodifier.RequiresReplace()}},
			"labels": schema.MapAttribute{Optional: true, ElementType: types.StringType, MarkdownDescription: "Labels.",
				PlanModifiers: []planmodifier.Map{mapplanmodifier.RequiresReplace()}},
			"client_token": schema.StringAttribute{Optional: true, Computed: true, PlanModifiers: chosen,
				MarkdownDescription: "Your own id of this instance, unique in the organization for life. " +
					"Set it to let an apply that was cut off adopt what it had created; default: random."},
			"ssh_keys": schema.ListAttribute{Optional: true, ElementType: types.StringType,
				MarkdownDescription: "Public keys that may log in, one line each. Changed in place: the run goes on."},
			"ports": schema.ListNestedAttribute{Optional: true, MarkdownDescription: "Ports of the container to publish.",
				PlanModifiers: []planmodifier.List{listplanmodifier.RequiresReplace()},
				NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
					"container_port": schema.Int32Attribute{Required: true, MarkdownDescription: "1 to 65535."},
					"protocol":       schema.StringAttribute{Optional: true, MarkdownDescription: "`tcp` (default) or `udp`."},
				}}},
			"endpoints": schema.ListNestedAttribute{Computed: true,
				MarkdownDescription: "Where it is reached: `ssh`, and each published port. They differ from run to run.",
				NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
					"kind":           schema.StringAttribute{Computed: true, MarkdownDescription: "`ssh` or `port`."},
					"protocol":       schema.StringAttribute{Computed: true, MarkdownDescription: "`tcp` or `udp`."},
					"host":           schema.StringAttribute{Computed: true, MarkdownDescription: "Host name or address."},
					"port":           schema.Int32Attribute{Computed: true, MarkdownDescription: "Port there."},
					"container_port": schema.Int32Attribute{Computed: true, MarkdownDescription: "Of a published port."},
					"user":           schema.StringAttribute{Computed: true, MarkdownDescription: "User of SSH."},
					"host_key":       schema.StringAttribute{Computed: true, MarkdownDescription: "Host key of SSH."},
				}}},
			"status":         schema.StringAttribute{Computed: true, MarkdownDescription: "Public status."},
			"isolation_gpu":  known("`dedicated`, `partitioned`, `limited` or `shared`."),
			"isolation_host": known("Isolation of the host."),
			"price_per_hour": known("Decimal text, locked at creation."),
			"currency":       known("ISO 4217."),
			"created_at":     known("RFC 3339."),
			"simulated":      schema.BoolAttribute{Computed: true, MarkdownDescription: "Whether the hardware is simulated."},
			"timeouts": schema.SingleNestedAttribute{Optional: true, MarkdownDescription: "How long to wait, for example `10m`.",
				Attributes: map[string]schema.Attribute{
					"create": schema.StringAttribute{Optional: true, Validators: durations, MarkdownDescription: "Default: `10m`."},
					"delete": schema.StringAttribute{Optional: true, Validators: durations, MarkdownDescription: "Default: `10m`."},
				}},
		},
	}
}
