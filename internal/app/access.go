package app

import (
	"context"
	"fmt"
	"slices"

	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/instance"
	"github.com/tranche-cloud/tranche/internal/offer"
	"github.com/tranche-cloud/tranche/internal/store"
	"github.com/tranche-cloud/tranche/internal/units"
)

// maxPorts bounds the published ports of an instance.
const maxPorts = 16

// Port is a port of a container that is published.
type Port struct {
	Container int
	Protocol  string // tcp or udp; "" is tcp
}

// Endpoint is where an instance is reached.
type Endpoint struct {
	Kind          string // ssh or port
	Protocol      string // tcp or udp
	Host          string
	Port          int
	ContainerPort int    // of a published port; 0 for SSH
	User, HostKey string // of SSH
}

// Interruption is time in which the platform kept an instance from running.
type Interruption = store.Interruption

// InstancePatch changes an instance in place; nil fields stay.
type InstancePatch struct{ SSHKeys *[]string }

// UpdateInstance changes an instance without a new run. It fails with
// resource.not_found, request.invalid, precondition.failed, and state.conflict when
// the instance is deleted.
func (a *App) UpdateInstance(ctx context.Context, c Caller, p id.Project, i id.Instance, m Match, change InstancePatch) (Instance, error) {
	var keys []string
	if change.SSHKeys != nil {
		var err error
		if keys, err = checkSSHKeys(*change.SSHKeys, "/ssh_keys"); err != nil {
			return Instance{}, err
		}
	}
	var out Instance
	err := a.Store.ShareOrg(ctx, c.Org, func(ctx context.Context, t *store.OrgTx) error {
		row, err := t.Instance(ctx, p, i) // before the lock: what is not visible is not locked
		if err != nil {
			return err
		}
		v, _, err := t.LoadView(ctx, i, store.Locked)
		if err != nil {
			return err
		}
		if err := m.check(v.Generation); err != nil {
			return err
		}
		if v.Desired == instance.WantDeleted {
			return conflict("The instance is deleted.")
		}
		if change.SSHKeys != nil && !slices.Equal(keys, row.SSHKeys) {
			if err := t.SetSSHKeys(ctx, p, i, keys); err != nil {
				return err
			}
			if err := t.Audit(ctx, c.audit(c.Org, "instance.update", i.String())); err != nil {
				return err
			}
		}
		if row, err = t.Instance(ctx, p, i); err != nil {
			return err
		}
		out, err = showInstance(ctx, t, row)
		return err
	})
	return out, err
}

// checkAccess refuses keys, ports and memory that no instance could have, and returns
// keys and ports in their canonical form.
func (in NewInstance) checkAccess() (keys []string, ports []store.Port, err error) {
	if keys, err = checkSSHKeys(in.SSHKeys, "/ssh_keys"); err != nil {
		return nil, nil, err
	}
	if len(in.Ports) > maxPorts {
		return nil, nil, badPort("/ports", "maxItems", fmt.Sprintf("at most %d ports", maxPorts))
	}
	for n, p := range in.Ports {
		at := fmt.Sprintf("/ports/%d", n)
		published := store.Port{Port: p.Container, Protocol: p.Protocol}
		if published.Protocol == "" {
			published.Protocol = "tcp"
		}
		if published.Port < 1 || published.Port > 65535 || published.Protocol != "tcp" && published.Protocol != "udp" {
			return nil, nil, badPort(at, "range", "a port is 1 to 65535, its protocol tcp or udp")
		}
		if slices.Contains(ports, published) {
			return nil, nil, badPort(at, "unique", "published twice")
		}
		ports = append(ports, published)
	}
	return keys, ports, nil
}

func badPort(pointer, code, detail string) error {
	return fault.New(fault.Invalid, "request.invalid", "The ports cannot be published.").
		With(fault.Field{Pointer: pointer, Code: code, Detail: detail})
}

// checkShm refuses more shared memory than the instance has.
func checkShm(shm units.MiB, s offer.Shape) error {
	if shm <= s.RAM {
		return nil
	}
	detail := fmt.Sprintf("The offer has %d MiB of RAM, and /dev/shm is a part of it.", s.RAM)
	return fault.New(fault.Unprocessable, "request.invalid", detail).
		With(fault.Field{Pointer: "/shm_mib", Code: "maximum", Detail: detail})
}

// checkLogin refuses a login that is not the organization's, or for another registry
// than the image's: a password goes to its own registry only.
func checkLogin(ctx context.Context, t *store.OrgTx, l id.RegistryLogin, image string) error {
	if l.IsZero() {
		return nil
	}
	bad := func(detail string) error {
		return fault.New(fault.Invalid, "request.invalid", "The registry login cannot be used for the image.").
			Suggest("List the registry logins; without registry_login the one of the image's registry is taken.").
			With(fault.Field{Pointer: "/registry_login", Code: "unknown", Detail: detail})
	}
	got, err := t.RegistryLogin(ctx, l)
	if fault.KindOf(err) == fault.NotFound {
		return bad("there is no such login")
	}
	if err != nil {
		return err
	}
	if got.Registry != RegistryOf(image) {
		return bad("it is for " + got.Registry + ", the image is from " + RegistryOf(image))
	}
	return nil
}

func endpointsOf(i id.Instance, e store.Endpoints) []Endpoint {
	var out []Endpoint
	if e.SSHPort > 0 {
		out = append(out, Endpoint{
			Kind: "ssh", Protocol: "tcp", Host: e.Address, Port: e.SSHPort, User: i.String(), HostKey: e.SSHHostKey,
		})
	}
	for _, p := range e.Ports {
		out = append(out, Endpoint{Kind: "port", Protocol: p.Protocol, Host: e.Address, Port: p.Host, ContainerPort: p.Port.Port})
	}
	return out
}
