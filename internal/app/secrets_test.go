package app_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/internal/agentlink"
	"github.com/tranche-cloud/tranche/internal/app"
	"github.com/tranche-cloud/tranche/internal/auth"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/instance"
	"github.com/tranche-cloud/tranche/internal/quota"
)

const (
	canaryEnv   = "canary-7f3a-env"
	canaryLogin = "canary-7f3a-login"
)

// secretive is a stage whose instance has a secret and a private image.
func secretive(t *testing.T) *stage {
	t.Helper()
	s := &stage{shop: newShop(t, quota.Limits{Instances: 10, GPUs: 10})}
	_, err := s.CreateRegistryLogin(t.Context(), s.acme.Caller, app.NewRegistryLogin{
		Registry: "ghcr.io", Username: "bot", Password: auth.NewSecret(canaryLogin),
	})
	require.NoError(t, err)
	wish := s.wish("one")
	wish.Image = "ghcr.io/acme/model:1"
	wish.Env = []app.EnvVar{{Name: "MODE", Value: "fast"}, {Name: "TOKEN", Secret: auth.NewSecret(canaryEnv)}}
	i, err := s.CreateInstance(t.Context(), s.acme.Caller, wish)
	require.NoError(t, err)
	s.inst = i.ID
	s.advance(t)
	var asg, h [16]byte
	require.NoError(t, s.db.OwnerPool(t).QueryRow(t.Context(), `select id, host_id from assignments`).Scan(&asg, &h))
	s.asg = asg
	s.session = s.world.session(t, h, "boot")
	return s
}

func (s *stage) asks(t *testing.T, asg id.Assignment, fence int64) agentlink.Secrets {
	t.Helper()
	got, err := s.Secrets(t.Context(), s.session, agentlink.SecretsRequest{Assignment: asg, Fence: fence})
	require.NoError(t, err)
	return got
}

// Secrets go to the host that is to run the assignment, by its fence, and nowhere else.
func TestSecretsGoToTheirHostOnly(t *testing.T) {
	s := secretive(t)
	d, err := s.Desired(t.Context(), s.session.Host)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"MODE": "fast"}, d.Orders[0].Env)
	require.True(t, d.Orders[0].HasSecrets)
	require.Equal(t, s.acme.org.ID, d.Orders[0].Org)
	require.NotContains(t, fmt.Sprintf("%+v", d), "canary")

	got := s.asks(t, s.asg, 1)
	require.Equal(t, map[string]string{"TOKEN": canaryEnv}, got.Env)
	require.Equal(t, &agentlink.Login{Registry: "ghcr.io", Username: "bot", Password: canaryLogin}, got.Login)

	for name, ask := range map[string]func() agentlink.Secrets{
		"another fence": func() agentlink.Secrets { return s.asks(t, s.asg, 2) },
		"nobody's":      func() agentlink.Secrets { return s.asks(t, id.New[id.Assignment](), 1) },
		"another host's": func() agentlink.Secrets {
			w := s.world.withAgents(t)
			other, _ := w.joinHost(t, "b", true)
			mine := s.session
			defer func() { s.session = mine }()
			s.session = w.session(t, other.Host, "boot")
			return s.asks(t, s.asg, 1)
		},
	} {
		refused := ask()
		require.Contains(t, refused.Refused, "state.conflict", name)
		require.Nil(t, refused.Env, name)
		require.Nil(t, refused.Login, name)
	}
	_, err = s.StopInstance(t.Context(), s.acme.Caller, s.acme.project, s.inst, appMatchAny)
	require.NoError(t, err)
	require.NotEmpty(t, s.asks(t, s.asg, 2).Refused, "of a stopped run")
}

// A password goes to its own registry only.
func TestALoginServesItsRegistryOnly(t *testing.T) {
	for image, registry := range map[string]string{
		"ubuntu": "docker.io", "acme/model:1": "docker.io", "ghcr.io/acme/x": "ghcr.io", "GHCR.io/acme/x": "ghcr.io",
		"localhost/x": "localhost", "localhost:5000/x@sha256:00": "localhost:5000", "index.docker.io/library/x": "docker.io",
		"ghcr.io": "docker.io", "ghcr.io.evil.test/acme/x": "ghcr.io.evil.test",
	} {
		require.Equal(t, registry, app.RegistryOf(image), image)
	}
	s := secretive(t)
	s.exec(t, `update instances set image = 'ghcr.io.evil.test/acme/x'`)
	require.Nil(t, s.asks(t, s.asg, 1).Login)
	s.exec(t, `update instances set registry_login_id = (select id from registry_logins)`)
	got := s.asks(t, s.asg, 1)
	require.Contains(t, got.Refused, "another registry")
	require.Nil(t, got.Env)
	require.Nil(t, got.Login)
}

// Nothing of a secret is written down: not in a log, not in a row.
func TestSecretsAreWrittenNowhere(t *testing.T) {
	s := secretive(t)
	var log bytes.Buffer
	s.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	got := s.asks(t, s.asg, 1)
	s.Log.Info("what a careless line would say", "secrets", got, "login", *got.Login)
	s.sees(t, s.slice(instance.RunRunning, 0, none))
	_, err := s.TakeEvent(t.Context(), s.session, time.Now(), agentlink.Event{ID: 1, Kind: "session.opened", Subject: s.asg.String()})
	require.NoError(t, err)
	require.NotContains(t, log.String(), "canary")

	rows, err := s.db.OwnerPool(t).Query(t.Context(), `select relname::text from pg_class
		where relkind in ('r', 'p') and relnamespace = 'public'::regnamespace`)
	require.NoError(t, err)
	var tables []string
	for rows.Next() {
		var name string
		require.NoError(t, rows.Scan(&name))
		tables = append(tables, name)
	}
	require.NoError(t, rows.Err())
	for _, table := range tables {
		// bytea shows as hexadecimal in a row's text: both forms are looked for.
		require.Zero(t, s.count(t, `select count(*) from `+table+` x where x::text like '%canary-7f3a%'
			or x::text like '%'||encode('canary-7f3a', 'hex')||'%'`), table)
	}
}

// The authority is made once, sealed, and delivered to every host; a rotation adds.
func TestSSHAuthorities(t *testing.T) {
	s := newStage(t)
	for range 3 {
		require.NoError(t, s.EnsureSSHAuthority(t.Context()))
	}
	d, err := s.Desired(t.Context(), s.session.Host)
	require.NoError(t, err)
	require.Len(t, d.SSHAuthorities, 1)
	require.True(t, strings.HasPrefix(d.SSHAuthorities[0], "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI"), d.SSHAuthorities[0])
	require.NoError(t, s.RotateSSHAuthority(t.Context(), s.operator))
	d, err = s.Desired(t.Context(), s.session.Host)
	require.NoError(t, err)
	require.Len(t, d.SSHAuthorities, 2, "certificates of the older one are still good")
	require.Equal(t, 1, s.count(t, `select count(*) from ssh_authorities where current`))
}
