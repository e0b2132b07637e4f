package instance

import (
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/tranche-cloud/tranche/client"
)

var portType = map[string]attr.Type{"container_port": types.Int32Type, "protocol": types.StringType}

var endpointType = map[string]attr.Type{
	"kind": types.StringType, "protocol": types.StringType, "host": types.StringType, "port": types.Int32Type,
	"container_port": types.Int32Type, "user": types.StringType, "host_key": types.StringType,
}

// keys are the SSH keys as the service takes them: file() leaves a line end behind.
func (m *model) keys() []string {
	keys := []string{}
	for _, v := range m.SSHKeys.Elements() {
		if text, ok := v.(types.String); ok {
			keys = append(keys, strings.TrimSpace(text.ValueString()))
		}
	}
	return keys
}

func (m *model) ports() []client.Port {
	var ports []client.Port
	for _, v := range m.Ports.Elements() {
		o, ok := v.(types.Object)
		if !ok {
			continue
		}
		var p client.Port
		if n, ok := o.Attributes()["container_port"].(types.Int32); ok {
			p.ContainerPort = n.ValueInt32()
		}
		if text, ok := o.Attributes()["protocol"].(types.String); ok && !text.IsNull() {
			protocol := client.PortProtocol(text.ValueString())
			p.Protocol = &protocol
		}
		ports = append(ports, p)
	}
	return ports
}

// readAccess takes over keys, ports and endpoints. What says the same in other words
// (a line end after a key, no protocol for tcp) stays as the user wrote it.
func (m *model) readAccess(i client.Instance) {
	written := m.SSHKeys.Elements()
	if len(i.SshKeys) > 0 || !m.SSHKeys.IsNull() {
		keys := make([]attr.Value, len(i.SshKeys))
		for n, key := range i.SshKeys {
			keys[n] = types.StringValue(key)
			if n < len(written) {
				if text, ok := written[n].(types.String); ok && strings.Join(strings.Fields(text.ValueString()), " ") == key {
					keys[n] = text
				}
			}
		}
		m.SSHKeys = types.ListValueMust(types.StringType, keys)
	}
	if len(i.Ports) > 0 || !m.Ports.IsNull() {
		m.Ports = types.ListValueMust(types.ObjectType{AttrTypes: portType}, m.portValues(i.Ports))
	}
	endpoints := make([]attr.Value, len(i.Endpoints))
	for n, e := range i.Endpoints {
		endpoints[n] = types.ObjectValueMust(endpointType, map[string]attr.Value{
			"kind": types.StringValue(string(e.Kind)), "protocol": types.StringValue(string(e.Protocol)),
			"host": types.StringValue(e.Host), "port": types.Int32Value(e.Port),
			"container_port": numberOf(e.ContainerPort.Get()), "user": textOf(e.User.Get()), "host_key": textOf(e.HostKey.Get()),
		})
	}
	m.Endpoints = types.ListValueMust(types.ObjectType{AttrTypes: endpointType}, endpoints)
}

func (m *model) portValues(ports []client.Port) []attr.Value {
	written := m.ports()
	values := make([]attr.Value, len(ports))
	for n, p := range ports {
		protocol := types.StringNull()
		if p.Protocol != nil && (n >= len(written) || written[n].Protocol != nil || *p.Protocol != "tcp") {
			protocol = types.StringValue(string(*p.Protocol))
		}
		values[n] = types.ObjectValueMust(portType, map[string]attr.Value{
			"container_port": types.Int32Value(p.ContainerPort), "protocol": protocol,
		})
	}
	return values
}

func numberOf(n int32, err error) attr.Value {
	if err != nil {
		return types.Int32Null()
	}
	return types.Int32Value(n)
}

func textOf(s string, err error) attr.Value {
	if err != nil {
		return types.StringNull()
	}
	return types.StringValue(s)
}
