package auth_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tranche-cloud/tranche/internal/auth"
)

func box(t testing.TB, fill byte) *auth.Box {
	t.Helper()
	b, err := auth.NewBox(bytes.Repeat([]byte{fill}, 32))
	require.NoError(t, err)
	return b
}

func TestAnySecretOpensWhereItWasSealed(t *testing.T) {
	t.Parallel()
	b := box(t, 1)
	rapid.Check(t, func(rt *rapid.T) {
		plain := rapid.String().Draw(rt, "plain")
		owner, place := rapid.String().Draw(rt, "owner"), rapid.String().Draw(rt, "place")
		sealed, err := b.Seal(auth.NewSecret(plain), owner, place)
		require.NoError(rt, err)
		opened, err := b.Open(sealed, owner, place)
		require.NoError(rt, err)
		require.Equal(rt, plain, opened.Reveal())
	})
}

func TestASealedValueOpensNowhereElse(t *testing.T) {
	t.Parallel()
	b := box(t, 1)
	sealed, err := b.Seal(auth.NewSecret(canary), "org_a", "inst_1/TOKEN")
	require.NoError(t, err)
	require.NotContains(t, string(sealed), canary)
	_, err = b.Open(sealed, "org_b", "inst_1/TOKEN")
	require.Error(t, err, "another owner")
	_, err = b.Open(sealed, "org_a", "inst_2/TOKEN")
	require.Error(t, err, "another place")
	_, err = box(t, 2).Open(sealed, "org_a", "inst_1/TOKEN")
	require.Error(t, err, "another key")
	for bit := range 8 * len(sealed) {
		forged := bytes.Clone(sealed)
		forged[bit/8] ^= 1 << (bit % 8)
		_, err := b.Open(forged, "org_a", "inst_1/TOKEN")
		require.Error(t, err, "bit %d", bit)
	}
	for size := range len(sealed) {
		_, err := b.Open(sealed[:size], "org_a", "inst_1/TOKEN")
		require.Error(t, err, "cut to %d bytes", size)
	}
}

func TestSealingTwiceLooksDifferent(t *testing.T) {
	t.Parallel()
	b := box(t, 1)
	one, err := b.Seal(auth.NewSecret(canary), "o", "p")
	require.NoError(t, err)
	two, err := b.Seal(auth.NewSecret(canary), "o", "p")
	require.NoError(t, err)
	require.NotEqual(t, one, two)
}

func TestAFingerprintTellsEqualityToItsOwnerAlone(t *testing.T) {
	t.Parallel()
	b := box(t, 1)
	mine := b.Fingerprint(auth.NewSecret(canary), "org_a")
	require.Equal(t, mine, b.Fingerprint(auth.NewSecret(canary), "org_a"))
	require.Regexp(t, "^fp_[0-9a-f]{16}$", mine)
	require.NotEqual(t, mine, b.Fingerprint(auth.NewSecret("other"), "org_a"))
	require.NotEqual(t, mine, b.Fingerprint(auth.NewSecret(canary), "org_b"))
	require.NotEqual(t, mine, box(t, 2).Fingerprint(auth.NewSecret(canary), "org_a"))
}

func TestKeyFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		require.NoError(t, os.Chmod(path, mode))
		return path
	}
	hexText := "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
	key, err := auth.ReadKey(write("hex", hexText+"\n", 0o600))
	require.NoError(t, err)
	require.Len(t, key, 32)
	key, err = auth.ReadKey(write("base64", "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=", 0o440))
	require.NoError(t, err)
	require.Len(t, key, 32)

	for name, path := range map[string]string{
		"missing":       filepath.Join(dir, "none"),
		"open to all":   write("open", hexText, 0o644),
		"too short":     write("short", hexText[:62], 0o600),
		"neither":       write("neither", "not a key!", 0o600),
		"empty":         write("empty", "", 0o600),
		"a PEM of rest": write("pem", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", 0o600),
	} {
		_, err := auth.ReadKey(path)
		require.Error(t, err, name)
		_, err = auth.ReadSigningKey(path)
		require.Error(t, err, name)
	}
	_, err = auth.NewBox(make([]byte, 31))
	require.Error(t, err)
}
