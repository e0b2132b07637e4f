package app

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"fmt"

	"github.com/tranche-cloud/tranche/internal/auth"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/store"
)

// EnsureSSHAuthority makes the installation's first SSH authority if there is none.
// Any number of processes may call it at once.
func (a *App) EnsureSSHAuthority(ctx context.Context) error {
	if a.Box == nil {
		return noBox()
	}
	return a.Store.InSystem(ctx, "ensure ssh authority", func(t *store.SystemTx) error {
		if err := t.HoldSSHAuthorities(ctx); err != nil {
			return err
		}
		have, err := t.SSHAuthorities(ctx)
		if err != nil || len(have) > 0 && have[0].Current {
			return err
		}
		return a.newSSHAuthority(ctx, t)
	})
}

// RotateSSHAuthority makes a new authority the one that signs. Certificates of the
// older ones are accepted until those are retired.
func (a *App) RotateSSHAuthority(ctx context.Context, c Caller) error {
	if a.Box == nil {
		return noBox()
	}
	return a.Store.InSystem(ctx, "rotate ssh authority", func(t *store.SystemTx) error {
		if err := t.HoldSSHAuthorities(ctx); err != nil {
			return err
		}
		if err := a.newSSHAuthority(ctx, t); err != nil {
			return err
		}
		return t.Audit(ctx, c.audit(id.Org{}, "ssh_authority.rotate", ""))
	})
}

func (a *App) newSSHAuthority(ctx context.Context, t *store.SystemTx) error {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return fmt.Errorf("make an SSH authority: %w", err)
	}
	n := store.SSHAuthority{ID: id.New[id.SSHAuthority](), PublicKey: authorizedKey(public)}
	n.Sealed, err = a.Box.Seal(auth.NewSecret(string(private.Seed())), store.AuthorityOwner, n.ID.String())
	if err != nil {
		return err
	}
	return t.InsertSSHAuthority(ctx, n)
}

// sshAuthority returns the key that signs user certificates now. It fails with
// service.unavailable without one.
func (a *App) sshAuthority(ctx context.Context) (ed25519.PrivateKey, error) {
	if a.Box == nil {
		return nil, noBox()
	}
	if err := a.EnsureSSHAuthority(ctx); err != nil {
		return nil, err
	}
	var current store.SSHAuthority
	err := a.Store.InSystem(ctx, "read ssh authority", func(t *store.SystemTx) error {
		have, err := t.SSHAuthorities(ctx)
		if err == nil && len(have) > 0 {
			current = have[0]
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	seed, err := a.Box.Open(current.Sealed, store.AuthorityOwner, current.ID.String())
	if err != nil {
		return nil, fmt.Errorf("open the SSH authority %s: %w", current.ID, err)
	}
	return ed25519.NewKeyFromSeed([]byte(seed.Reveal())), nil
}

// authorizedKey writes a key as a line of authorized_keys (RFC 4253 §6.6, RFC 8709).
func authorizedKey(public ed25519.PublicKey) string {
	const kind = "ssh-ed25519"
	blob := binary.BigEndian.AppendUint32(nil, uint32(len(kind)))
	blob = append(blob, kind...)
	blob = binary.BigEndian.AppendUint32(blob, uint32(len(public)))
	blob = append(blob, public...)
	return kind + " " + base64.StdEncoding.EncodeToString(blob)
}
