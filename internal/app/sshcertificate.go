package app

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/tranche-cloud/tranche/internal/auth"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/instance"
	"github.com/tranche-cloud/tranche/internal/sshcert"
	"github.com/tranche-cloud/tranche/internal/store"
)

// certificateLife is how long a certificate lets its holder log in; sessions that are
// open by then go on.
const certificateLife = 5 * time.Minute

// SSHPurpose is what a certificate is for.
type SSHPurpose string

// The purposes: everything that SSH can do, or the output of the main process alone.
const (
	SSHShell SSHPurpose = "shell"
	SSHLogs  SSHPurpose = "logs"
)

// NewSSHCertificate asks for a certificate of a public key, one line.
type NewSSHCertificate struct {
	PublicKey string
	Purpose   SSHPurpose
}

// SSHCertificate is a certificate and where to show it.
type SSHCertificate struct {
	Certificate string // one line
	ValidUntil  time.Time
	Host        string
	Port        int
	User        string
	HostKey     string // the only one to accept there, one line
}

// CreateSSHCertificate certifies a key for sessions with one instance, and notes it in
// the audit log. Logs can be had while the run holds its host, whether its program
// still runs or not. It fails with resource.not_found, auth.forbidden for a shell
// without the scope instances:write, request.invalid for a key that cannot be used,
// and state.conflict when there is nothing to log in to.
func (a *App) CreateSSHCertificate(ctx context.Context, c Caller, p id.Project, i id.Instance, in NewSSHCertificate) (SSHCertificate, error) {
	if in.Purpose == SSHShell && !c.Has(auth.InstancesWrite) {
		return SSHCertificate{}, fault.New(fault.Forbidden, "auth.forbidden", "A shell needs the scope instances:write.").
			Suggest("Use a key that holds this scope; `logs` needs instances:read only.")
	}
	key, err := parseSSHKey(in.PublicKey, "/public_key")
	if err != nil {
		return SSHCertificate{}, err
	}
	var at store.Endpoints
	err = a.Store.InOrg(ctx, c.Org, func(t *store.OrgTx) error {
		row, err := t.Instance(ctx, p, i)
		if err != nil {
			return err
		}
		found, err := t.EndpointsOf(ctx, []id.Instance{i})
		if err != nil {
			return err
		}
		if at, err = reachable(row, found, in.Purpose); err != nil {
			return err
		}
		return t.Audit(ctx, c.audit(c.Org, "instance.ssh."+string(in.Purpose), i.String()))
	})
	if err != nil {
		return SSHCertificate{}, err
	}
	signed, until, err := a.signFor(ctx, c, i, key, in.Purpose)
	if err != nil {
		return SSHCertificate{}, err
	}
	return SSHCertificate{
		Certificate: signed, ValidUntil: until, Host: at.Address, Port: at.SSHPort, User: i.String(), HostKey: at.SSHHostKey,
	}, nil
}

// signFor signs a certificate; its holder is the request, which the audit log has.
func (a *App) signFor(ctx context.Context, c Caller, i id.Instance, key sshcert.Key, purpose SSHPurpose) (string, time.Time, error) {
	private, err := a.sshAuthority(ctx)
	if err != nil {
		return "", time.Time{}, err
	}
	authority, err := sshcert.NewAuthority(private)
	if err != nil {
		return "", time.Time{}, fmt.Errorf("sign a certificate for %s: %w", i, err)
	}
	r := sshcert.Request{
		Key: key.PublicKey, Instance: i, Kind: sshcert.Kind(purpose), Holder: c.actor() + " " + c.RequestID, Life: certificateLife,
		Serial: serial(),
	}
	signed, err := authority.Sign(r, a.Clock.Now())
	if err != nil {
		return "", time.Time{}, fmt.Errorf("sign a certificate for %s: %w", i, err)
	}
	line := strings.TrimSpace(string(ssh.MarshalAuthorizedKey(signed)))
	return line, time.Unix(int64(signed.ValidBefore), 0).UTC(), nil
}

// serial is a number by which the audit knows a certificate; it is never zero.
func serial() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // crypto/rand never fails; it ends the program instead
	return binary.BigEndian.Uint64(b[:]) | 1
}

// reachable says where to log in, or why that is not possible now.
func reachable(row store.Instance, found map[id.Instance]store.Endpoints, purpose SSHPurpose) (store.Endpoints, error) {
	at, ok := found[row.ID]
	refuse := func(detail, suggestion string) (store.Endpoints, error) {
		return store.Endpoints{}, fault.New(fault.Conflict, "state.conflict", detail).Suggest(suggestion)
	}
	switch row.Status {
	case instance.Running:
	case instance.Preparing, instance.Interrupted:
		if purpose == SSHShell {
			return refuse(fmt.Sprintf("The instance is %s; it can be logged in to while it is running.", row.Status),
				"Wait until it runs; `progress` and `status_reason` say what it waits for.")
		}
	case instance.Queued, instance.Placing:
		return refuse(fmt.Sprintf("The instance is %s and on no host yet.", row.Status), "Wait until it runs.")
	default:
		return refuse(fmt.Sprintf("The instance is %s; its host has let go of it, and its logs went with the run.", row.Status),
			"Start it again. Ship logs that must outlast a run to a place of your own.")
	}
	if !ok || at.SSHPort == 0 {
		return refuse("The host of the instance has no SSH gateway.", "Ask the operator for hosts that tenants can reach.")
	}
	return at, nil
}
