package auth_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/tranche-cloud/tranche/internal/auth"
)

const canary = "canary-7f3a"

func TestNoPrinterShowsASecret(t *testing.T) {
	t.Parallel()
	secret := auth.NewSecret(canary)
	// fmt does not call the methods of unexported fields.
	hidden := struct {
		secret auth.Secret
		list   []auth.Secret
	}{secret, []auth.Secret{secret}}
	shown := struct{ Secret auth.Secret }{secret}

	var out bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%t", "%e", "%c", "%T"} {
		for _, value := range []any{secret, &secret, hidden, &hidden, shown} {
			fmt.Fprintf(&out, verb+"\n", value)
		}
	}
	encoded, err := json.Marshal(shown)
	require.NoError(t, err)
	require.JSONEq(t, `{"Secret":"[redacted]"}`, string(encoded))
	out.Write(encoded)
	encoded, err = yaml.Marshal(shown)
	require.NoError(t, err)
	out.Write(encoded)
	slog.New(slog.NewJSONHandler(&out, nil)).Info("m", "s", secret, "h", hidden, "g", shown)
	slog.New(slog.NewTextHandler(&out, nil)).Info("m", "s", secret, "h", hidden, "g", shown)
	fmt.Fprintln(&out, fmt.Errorf("wrapped: %v", secret))

	require.NotContains(t, out.String(), canary)
	require.NotContains(t, out.String(), fmt.Sprintf("%x", canary))
	require.Contains(t, out.String(), "[redacted]")
	require.Equal(t, canary, secret.Reveal())
}

func TestNoPrinterShowsAKeyOrAPepper(t *testing.T) {
	t.Parallel()
	key := auth.MintKey(auth.KeyLive)
	text := key.Text().Reveal()
	hasher, err := auth.NewHasher([]byte("pepper-pepper-pepper-pepper-pepper"))
	require.NoError(t, err)
	var out bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q"} {
		fmt.Fprintf(&out, verb+"\n", key)
		fmt.Fprintf(&out, verb+"\n", struct{ key auth.Key }{key})
		fmt.Fprintf(&out, verb+"\n", hasher)
	}
	encoded, err := json.Marshal(key)
	require.NoError(t, err)
	out.Write(encoded)
	slog.New(slog.NewJSONHandler(&out, nil)).Info("m", "k", key)
	require.NotContains(t, out.String(), text[len(text)-59:len(text)-7])
	require.NotContains(t, out.String(), "pepper-pepper")
	require.Contains(t, out.String(), key.String())
}

func TestTheZeroSecretIsEmpty(t *testing.T) {
	t.Parallel()
	require.True(t, auth.Secret{}.IsZero())
	require.Empty(t, auth.Secret{}.Reveal())
	require.False(t, auth.NewSecret("x").IsZero())
}
