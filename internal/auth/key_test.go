package auth_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/internal/auth"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
)

func TestAKeyIsReadBackFromItsText(t *testing.T) {
	t.Parallel()
	for _, realm := range []auth.Realm{auth.KeyLive, auth.KeyTest, auth.KeyOperator} {
		key := auth.MintKey(realm)
		text := key.Text().Reveal()
		require.True(t, strings.HasPrefix(text, "trn_"+string(realm)+"_"), text)
		require.True(t, auth.LooksLikeKey(text))
		require.LessOrEqual(t, len(text), auth.MaxKeyLength)
		again, err := auth.ParseKey(text)
		require.NoError(t, err)
		require.Equal(t, key.ID, again.ID)
		require.Equal(t, realm, again.Realm)
		require.Equal(t, text, again.Text().Reveal())
	}
}

func TestTwoKeysOfOneIDDiffer(t *testing.T) {
	t.Parallel()
	kid := id.New[id.Key]()
	one, two := auth.MintKeyAs(auth.KeyLive, kid), auth.MintKeyAs(auth.KeyLive, kid)
	require.NotEqual(t, one.Text().Reveal(), two.Text().Reveal())
}

func TestOneWrongCharacterIsRefusedByTheChecksum(t *testing.T) {
	t.Parallel()
	text := auth.MintKey(auth.KeyLive).Text().Reveal()
	for i := range len(text) {
		for _, c := range []byte("0zA_\x00") {
			if text[i] == c {
				continue
			}
			_, err := auth.ParseKey(text[:i] + string(c) + text[i+1:])
			require.Equal(t, "auth.invalid", fault.CodeOf(err), "position %d, %q", i, c)
			require.Equal(t, fault.Unauthenticated, fault.KindOf(err))
		}
	}
}

func TestMalformedKeysAreRefused(t *testing.T) {
	t.Parallel()
	good := auth.MintKey(auth.KeyTest).Text().Reveal()
	for name, text := range map[string]string{
		"empty":           "",
		"the brand alone": "trn_",
		"no secret":       good[:40],
		"cut off":         good[:len(good)-1],
		"with a tail":     good + "0",
		"upper case":      strings.ToUpper(good),
		"another realm":   strings.Replace(good, "trn_test_", "trn_root_", 1),
		"realm swapped":   strings.Replace(good, "trn_test_", "trn_live_", 1),
		"leading space":   " " + good,
		"huge":            good + strings.Repeat("a", 1<<20),
		"no brand":        strings.TrimPrefix(good, "trn_"),
	} {
		_, err := auth.ParseKey(text)
		require.Equal(t, "auth.invalid", fault.CodeOf(err), name)
	}
}

func TestOnlyTheRightKeyAndPepperMatchAHash(t *testing.T) {
	t.Parallel()
	hasher, err := auth.NewHasher(bytes.Repeat([]byte{1}, 32))
	require.NoError(t, err)
	other, err := auth.NewHasher(bytes.Repeat([]byte{2}, 32))
	require.NoError(t, err)
	key := auth.MintKey(auth.KeyLive)
	hash := hasher.Hash(key)
	require.Len(t, hash, 32)
	require.True(t, hasher.Matches(key, hash))
	require.False(t, hasher.Matches(auth.MintKeyAs(auth.KeyLive, key.ID), hash))
	require.False(t, other.Matches(key, hash))
	require.False(t, hasher.Matches(key, nil))
	require.NotContains(t, string(hash), key.Text().Reveal())
	_, err = auth.NewHasher(make([]byte, 31))
	require.Error(t, err)
}

func FuzzParseKey(f *testing.F) {
	f.Add(auth.MintKey(auth.KeyLive).Text().Reveal())
	f.Add("trn_op_")
	f.Add("trn_live_00000000000000000000000000_x")
	f.Fuzz(func(t *testing.T, text string) {
		key, err := auth.ParseKey(text)
		if err != nil {
			require.Equal(t, "auth.invalid", fault.CodeOf(err))
			return
		}
		require.Equal(t, text, key.Text().Reveal(), "a key has one spelling")
	})
}
