package app

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/tranche-cloud/tranche/internal/agentlink"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/store"
)

// Secrets answers what a host asks for a run: the secret environment and the login of
// the registry that the image comes from. It answers only for an assignment that is
// to run on this very host by this very fence, and says why otherwise. The answer is
// never logged, and stored nowhere. It fails with state.conflict for a superseded
// session and service.unavailable.
func (a *App) Secrets(ctx context.Context, s store.Session, r agentlink.SecretsRequest) (agentlink.Secrets, error) {
	out := agentlink.Secrets{Assignment: r.Assignment, Fence: r.Fence}
	err := a.Store.InSystem(ctx, "secrets of a run", func(t *store.SystemTx) error {
		if err := t.Hold(ctx, s); err != nil {
			return err
		}
		sealed, found, err := t.RunSecrets(ctx, s.Host, r.Assignment, r.Fence)
		if err != nil {
			return err
		}
		if !found {
			out.Refused = "state.conflict: this host is not to run that assignment by that fence."
			return nil
		}
		if out.Env, err = a.openEnv(sealed); err != nil {
			return err
		}
		out.Login, out.Refused, err = a.openLogin(ctx, t, sealed)
		return err
	})
	if err != nil || out.Refused != "" {
		return agentlink.Secrets{Assignment: r.Assignment, Fence: r.Fence, Refused: out.Refused}, err
	}
	return out, nil
}

func (a *App) openEnv(s store.RunSecrets) (map[string]string, error) {
	if s.EnvSealed == nil {
		return nil, nil
	}
	if a.Box == nil {
		return nil, noBox()
	}
	plain, err := a.Box.Open(s.EnvSealed, s.Org.String(), s.Instance.String())
	if err != nil {
		return nil, fmt.Errorf("open the environment of %s: %w", s.Instance, err)
	}
	var env map[string]string
	if err := json.Unmarshal([]byte(plain.Reveal()), &env); err != nil {
		// The error of the decoder may quote what it read.
		return nil, fmt.Errorf("open the environment of %s: it is no object of strings", s.Instance)
	}
	return env, nil
}

// openLogin picks the login that the instance names, or else that of its image's
// registry. A password goes to its own registry only.
func (a *App) openLogin(ctx context.Context, t *store.SystemTx, s store.RunSecrets) (*agentlink.Login, string, error) {
	registry := RegistryOf(s.Image)
	logins, err := t.LoginsFor(ctx, s.Org, registry, s.Login)
	if err != nil {
		return nil, "", err
	}
	for _, l := range logins {
		if l.Registry != registry {
			continue
		}
		if a.Box == nil {
			return nil, "", noBox()
		}
		password, err := a.Box.Open(l.Sealed, s.Org.String(), l.ID.String())
		if err != nil {
			return nil, "", fmt.Errorf("open the login %s: %w", l.ID, err)
		}
		return &agentlink.Login{Registry: registry, Username: l.Username, Password: password.Reveal()}, "", nil
	}
	if !s.Login.IsZero() {
		return nil, "request.invalid: the registry login of the instance is for another registry than its image's.", nil
	}
	return nil, "", nil
}

func noBox() error {
	return fault.New(fault.Unavailable, "service.unavailable", "This process has no key-encryption key.").
		Suggest("Start it with the key directory of the installation.")
}

// dockerHub is what an image without a registry comes from.
const dockerHub = "docker.io"

// RegistryOf returns the registry, host[:port], that an image reference names, in the
// form in which logins name it.
func RegistryOf(image string) string {
	first, _, found := strings.Cut(image, "/")
	if !found || !strings.ContainsAny(first, ".:") && first != "localhost" {
		return dockerHub
	}
	return canonicalRegistry(first)
}

// canonicalRegistry is the one name that a registry goes by.
func canonicalRegistry(name string) string {
	name = strings.ToLower(name)
	if name == "index.docker.io" || name == "registry-1.docker.io" {
		return dockerHub
	}
	return name
}
