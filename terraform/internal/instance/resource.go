package instance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/tranche-cloud/tranche/client"
)

// New returns the resource.
func New() resource.Resource { return &instance{} }

var (
	_ resource.ResourceWithConfigure   = (*instance)(nil)
	_ resource.ResourceWithImportState = (*instance)(nil)
)

type instance struct{ api *client.Client }

func (r *instance) Metadata(_ context.Context, req resource.MetadataRequest, resp *resource.MetadataResponse) {
	resp.TypeName = req.ProviderTypeName + "_instance"
}

func (r *instance) Configure(_ context.Context, req resource.ConfigureRequest, resp *resource.ConfigureResponse) {
	if req.ProviderData == nil {
		return
	}
	api, ok := req.ProviderData.(*client.Client)
	if !ok {
		resp.Diagnostics.AddError("The provider is broken", fmt.Sprintf("It handed over a %T.", req.ProviderData))
		return
	}
	r.api = api
}

func (r *instance) Create(ctx context.Context, req resource.CreateRequest, resp *resource.CreateResponse) {
	var m model
	resp.Diagnostics.Append(req.Plan.Get(ctx, &m)...)
	in, diags := creation(ctx, m)
	resp.Diagnostics.Append(diags...)
	if resp.Diagnostics.HasError() {
		return
	}
	i, err := r.accept(ctx, m, in)
	if err != nil {
		resp.Diagnostics.AddError("The instance was not accepted", err.Error())
		return
	}
	// From here the instance exists: it must be in the state whatever happens next.
	m.read(i)
	resp.Diagnostics.Append(resp.State.Set(ctx, &m)...)
	if resp.Diagnostics.HasError() {
		return
	}
	within, cancel := context.WithTimeout(ctx, timeout(m.Timeouts, "create"))
	defer cancel()
	now, err := r.api.WaitInstance(within, i.Project, i.Id, "running")
	if now.Id != "" {
		m.read(now)
		resp.Diagnostics.Append(resp.State.Set(ctx, &m)...)
	}
	if err != nil {
		resp.Diagnostics.AddError("The instance does not run", refusal(err, within, i.Id))
	}
}

// accept creates the instance, or adopts the one that an earlier, cut-off apply
// created under the same client token.
func (r *instance) accept(ctx context.Context, m model, in client.InstanceCreate) (client.Instance, error) {
	project := projectOf(m)
	i, err := r.api.CreateInstance(ctx, project, in, client.IdempotencyKey(*in.ClientToken))
	if err == nil || m.ClientToken.ValueString() == "" || client.CodeOf(err) != "state.conflict" {
		return i, err
	}
	for found, lookup := range r.api.Instances(ctx, project, client.InstanceFilter{ClientToken: *in.ClientToken}) {
		if lookup != nil {
			return found, errors.Join(err, lookup)
		}
		if found.Offer == in.Offer && found.Image == in.Image && !isGone(found) {
			return found, nil
		}
	}
	return i, err
}

func creation(ctx context.Context, m model) (client.InstanceCreate, diag.Diagnostics) {
	var diags diag.Diagnostics
	in := client.InstanceCreate{Offer: m.Offer.ValueString(), Image: m.Image.ValueString()}
	token := m.ClientToken.ValueString()
	if token == "" {
		token = client.NewIdempotencyKey()
	}
	in.ClientToken = &token
	if v := m.Name.ValueString(); v != "" {
		in.Name = &v
	}
	if !m.Command.IsNull() {
		var command []string
		diags.Append(m.Command.ElementsAs(ctx, &command, false)...)
		in.Command = &command
	}
	if !m.Labels.IsNull() {
		labels := map[string]string{}
		diags.Append(m.Labels.ElementsAs(ctx, &labels, false)...)
		in.Labels = &labels
	}
	if !m.Env.IsNull() {
		env := map[string]string{}
		diags.Append(m.Env.ElementsAs(ctx, &env, false)...)
		secret := true
		vars := make([]client.EnvVar, 0, len(env))
		for name, value := range env {
			vars = append(vars, client.EnvVar{Name: name, Value: value, Secret: &secret})
		}
		in.Env = &vars
	}
	if keys := m.keys(); len(keys) > 0 {
		in.SshKeys = &keys
	}
	if ports := m.ports(); len(ports) > 0 {
		in.Ports = &ports
	}
	return in, diags
}

func (r *instance) Read(ctx context.Context, req resource.ReadRequest, resp *resource.ReadResponse) {
	var m model
	resp.Diagnostics.Append(req.State.Get(ctx, &m)...)
	if resp.Diagnostics.HasError() {
		return
	}
	i, err := r.api.GetInstance(ctx, projectOf(m), m.ID.ValueString())
	if client.IsNotFound(err) || (err == nil && isGone(i)) {
		resp.State.RemoveResource(ctx)
		return
	}
	if err != nil {
		resp.Diagnostics.AddError("The instance cannot be read", err.Error())
		return
	}
	m.read(i)
	resp.Diagnostics.Append(resp.State.Set(ctx, &m)...)
}

// Update sends the SSH keys; what else can change in place is how long to wait.
func (r *instance) Update(ctx context.Context, req resource.UpdateRequest, resp *resource.UpdateResponse) {
	var m model
	resp.Diagnostics.Append(req.Plan.Get(ctx, &m)...)
	if resp.Diagnostics.HasError() {
		return
	}
	var before model
	resp.Diagnostics.Append(req.State.Get(ctx, &before)...)
	if resp.Diagnostics.HasError() {
		return
	}
	var i client.Instance
	var err error
	if keys := m.keys(); slices.Equal(keys, before.keys()) {
		i, err = r.api.GetInstance(ctx, projectOf(m), m.ID.ValueString())
	} else {
		i, err = r.api.UpdateInstance(ctx, projectOf(m), m.ID.ValueString(), client.InstancePatch{SshKeys: &keys})
	}
	if err != nil {
		resp.Diagnostics.AddError("The instance was not changed", err.Error())
		return
	}
	m.read(i)
	resp.Diagnostics.Append(resp.State.Set(ctx, &m)...)
}

func (r *instance) Delete(ctx context.Context, req resource.DeleteRequest, resp *resource.DeleteResponse) {
	var m model
	resp.Diagnostics.Append(req.State.Get(ctx, &m)...)
	if resp.Diagnostics.HasError() {
		return
	}
	within, cancel := context.WithTimeout(ctx, timeout(m.Timeouts, "delete"))
	defer cancel()
	_, err := r.api.DeleteInstance(within, projectOf(m), m.ID.ValueString())
	if err == nil {
		_, err = r.api.WaitInstance(within, projectOf(m), m.ID.ValueString(), "deleted")
	}
	if err != nil && !client.IsNotFound(err) {
		resp.Diagnostics.AddError("The instance was not deleted", refusal(err, within, m.ID.ValueString()))
	}
}

// ImportState takes PROJECT/INSTANCE, or INSTANCE in the key's only project.
func (r *instance) ImportState(ctx context.Context, req resource.ImportStateRequest, resp *resource.ImportStateResponse) {
	project, id, ok := strings.Cut(req.ID, "/")
	if !ok {
		project, id = client.OnlyProject, req.ID
	}
	if id == "" || project == "" {
		resp.Diagnostics.AddError("Not an instance", "Import takes INSTANCE or PROJECT/INSTANCE, for example inst_….")
		return
	}
	resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root("id"), id)...)
	resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root("project"), types.StringValue(project))...)
}

// isGone reports whether an instance is only a tombstone, or on its way to one.
func isGone(i client.Instance) bool { return i.Status == "deleted" || i.Status == "deleting" }

func projectOf(m model) string {
	if p := m.Project.ValueString(); p != "" {
		return p
	}
	return client.OnlyProject
}

// refusal is the service's own words, or what a time-out means.
func refusal(err error, within context.Context, id string) string {
	if within.Err() != nil {
		return fmt.Sprintf("The time-out passed; %s is still being worked on and is in the state. "+
			"Apply again to go on, or raise `timeouts`.", id)
	}
	return err.Error()
}
