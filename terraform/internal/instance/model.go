// Package instance owns the resource tranche_instance: one virtual GPU instance.
//
// Its rules: the id is in the state before anything is waited for, so no time-out or
// refusal leaves an orphan; a problem of the service reaches the user as it is; only
// "there is no such resource" removes it from the state.
package instance

import (
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/tranche-cloud/tranche/client"
)

type model struct {
	ID            types.String `tfsdk:"id"`
	Project       types.String `tfsdk:"project"`
	Name          types.String `tfsdk:"name"`
	Offer         types.String `tfsdk:"offer"`
	Image         types.String `tfsdk:"image"`
	Command       types.List   `tfsdk:"command"`
	Env           types.Map    `tfsdk:"env"`
	Labels        types.Map    `tfsdk:"labels"`
	ClientToken   types.String `tfsdk:"client_token"`
	SSHKeys       types.List   `tfsdk:"ssh_keys"`
	Ports         types.List   `tfsdk:"ports"`
	Endpoints     types.List   `tfsdk:"endpoints"`
	Status        types.String `tfsdk:"status"`
	IsolationGPU  types.String `tfsdk:"isolation_gpu"`
	IsolationHost types.String `tfsdk:"isolation_host"`
	PricePerHour  types.String `tfsdk:"price_per_hour"`
	Currency      types.String `tfsdk:"currency"`
	CreatedAt     types.String `tfsdk:"created_at"`
	Simulated     types.Bool   `tfsdk:"simulated"`
	Timeouts      types.Object `tfsdk:"timeouts"`
}

// read takes over what the service says. What the user did not write and the service
// has none of stays null, so that a second plan is empty. Environment values are kept
// from the configuration: the service never tells a secret.
func (m *model) read(i client.Instance) {
	m.ID, m.Project, m.Name = types.StringValue(i.Id), types.StringValue(i.Project), types.StringValue(i.Name)
	m.Offer, m.Image = types.StringValue(i.Offer), types.StringValue(i.Image)
	m.Status, m.Simulated = types.StringValue(string(i.Status)), types.BoolValue(i.Simulated)
	m.IsolationGPU = types.StringValue(string(i.Isolation.Gpu))
	m.IsolationHost = types.StringValue(string(i.Isolation.Host))
	m.PricePerHour = types.StringValue(i.PricePerHour.Amount)
	m.Currency = types.StringValue(i.PricePerHour.Currency)
	m.CreatedAt = types.StringValue(i.CreatedAt.String())
	if token, err := i.ClientToken.Get(); err == nil {
		m.ClientToken = types.StringValue(token)
	} else {
		m.ClientToken = types.StringNull()
	}
	if len(i.Command) > 0 || !m.Command.IsNull() {
		m.Command = types.ListValueMust(types.StringType, texts(i.Command))
	}
	if len(i.Labels) > 0 || !m.Labels.IsNull() {
		labels := map[string]attr.Value{}
		for k, v := range i.Labels {
			labels[k] = types.StringValue(v)
		}
		m.Labels = types.MapValueMust(types.StringType, labels)
	}
	m.readEnv(i)
	m.readAccess(i)
}

// readEnv notices variables that appeared or vanished; values it keeps.
func (m *model) readEnv(i client.Instance) {
	if len(i.Env) == 0 && m.Env.IsNull() {
		return
	}
	known := m.Env.Elements()
	env := map[string]attr.Value{}
	for _, v := range i.Env {
		if kept, ok := known[v.Name]; ok {
			env[v.Name] = kept
			continue
		}
		value, _ := v.Value.Get() // a secret that is not ours to know reads as ""
		env[v.Name] = types.StringValue(value)
	}
	m.Env = types.MapValueMust(types.StringType, env)
}

func texts(all []string) []attr.Value {
	vs := make([]attr.Value, len(all))
	for i, s := range all {
		vs[i] = types.StringValue(s)
	}
	return vs
}
