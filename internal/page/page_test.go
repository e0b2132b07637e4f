package page_test

import (
	"bytes"
	"encoding/base64"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/page"
)

var scope = page.Scope{Principal: "org_a", Operation: "listInstances", Filter: "status=running"}

func sealer(t testing.TB) *page.Sealer {
	t.Helper()
	s, err := page.NewSealer(bytes.Repeat([]byte{7}, 32))
	require.NoError(t, err)
	return s
}

func TestATokenGivesItsCursorBackToTheSameScope(t *testing.T) {
	t.Parallel()
	s := sealer(t)
	token, err := s.Seal(scope, `{"name":"a","id":"b"}`)
	require.NoError(t, err)
	cursor, err := s.Open(scope, token)
	require.NoError(t, err)
	require.Equal(t, `{"name":"a","id":"b"}`, cursor)
}

func TestTheEmptyTokenIsTheFirstPage(t *testing.T) {
	t.Parallel()
	cursor, err := sealer(t).Open(scope, "")
	require.NoError(t, err)
	require.Empty(t, cursor)
	token, err := sealer(t).Seal(scope, "")
	require.NoError(t, err)
	require.Empty(t, token)
}

func TestATokenIsRefusedOutsideItsScope(t *testing.T) {
	t.Parallel()
	s := sealer(t)
	token, err := s.Seal(scope, "cursor")
	require.NoError(t, err)
	for name, other := range map[string]page.Scope{
		"another principal":                 {Principal: "org_b", Operation: scope.Operation, Filter: scope.Filter},
		"another operation":                 {Principal: scope.Principal, Operation: "listHosts", Filter: scope.Filter},
		"another filter":                    {Principal: scope.Principal, Operation: scope.Operation, Filter: "status=stopped"},
		"the same letters, split elsewhere": {Principal: "org_alist", Operation: "Instances", Filter: scope.Filter},
	} {
		_, err := s.Open(other, token)
		require.Equal(t, "page_token.invalid", fault.CodeOf(err), name)
		require.Equal(t, fault.Invalid, fault.KindOf(err), name)
	}
}

func TestATokenOfAnotherKeyIsRefused(t *testing.T) {
	t.Parallel()
	other, err := page.NewSealer(bytes.Repeat([]byte{8}, 32))
	require.NoError(t, err)
	token, err := other.Seal(scope, "cursor")
	require.NoError(t, err)
	_, err = sealer(t).Open(scope, token)
	require.Equal(t, "page_token.invalid", fault.CodeOf(err))
}

func TestAnyChangedBitIsRefused(t *testing.T) {
	t.Parallel()
	s := sealer(t)
	token, err := s.Seal(scope, "cursor")
	require.NoError(t, err)
	raw, err := base64.RawURLEncoding.DecodeString(token)
	require.NoError(t, err)
	for bit := range 8 * len(raw) {
		forged := bytes.Clone(raw)
		forged[bit/8] ^= 1 << (bit % 8)
		_, err := s.Open(scope, base64.RawURLEncoding.EncodeToString(forged))
		require.Equal(t, "page_token.invalid", fault.CodeOf(err), "bit %d", bit)
	}
}

func TestMalformedTokensAreRefused(t *testing.T) {
	t.Parallel()
	for _, token := range []string{"a", "====", "\x00", strings.Repeat("A", 1<<20), "AQ", "AQAAAAAAAAAAAAAAAAAAAAAAAA", "\n"} {
		_, err := sealer(t).Open(scope, token)
		require.Equal(t, "page_token.invalid", fault.CodeOf(err))
	}
}

func TestALongCursorIsAMistakeOfTheList(t *testing.T) {
	t.Parallel()
	_, err := sealer(t).Seal(scope, strings.Repeat("x", 513))
	require.Error(t, err)
	token, err := sealer(t).Seal(scope, strings.Repeat("x", 512))
	require.NoError(t, err)
	_, err = sealer(t).Open(scope, token)
	require.NoError(t, err)
}

func TestAShortKeyIsRefused(t *testing.T) {
	t.Parallel()
	_, err := page.NewSealer(make([]byte, 31))
	require.Error(t, err)
}

func TestSizes(t *testing.T) {
	t.Parallel()
	for requested, want := range map[int]int{0: 50, 1: 1, 50: 50, 200: 200} {
		got, err := page.Size(requested)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	for _, requested := range []int{-1, 201, 1 << 40} {
		_, err := page.Size(requested)
		require.Equal(t, "request.invalid", fault.CodeOf(err))
	}
}

func TestTheFilterIgnoresPagingAndOrder(t *testing.T) {
	t.Parallel()
	first := page.Filter(url.Values{"status": {"running"}, "name": {"a b"}, "page_token": {"x"}, "page_size": {"9"}})
	second := page.Filter(url.Values{"name": {"a b"}, "status": {"running"}})
	require.Equal(t, second, first)
	require.Equal(t, "name=a+b&status=running", first)
}

func FuzzOpen(f *testing.F) {
	s := sealer(f)
	token, err := s.Seal(scope, "cursor")
	require.NoError(f, err)
	f.Add(token)
	f.Add("")
	f.Add("AQ==")
	f.Fuzz(func(t *testing.T, text string) {
		cursor, err := s.Open(scope, text)
		switch {
		case err != nil:
			require.Equal(t, "page_token.invalid", fault.CodeOf(err))
		case text == "":
			require.Empty(t, cursor)
		default:
			// Only a token of ours opens, and it has one spelling.
			again, err := s.Seal(scope, cursor)
			require.NoError(t, err)
			require.Equal(t, again, text)
		}
	})
}
