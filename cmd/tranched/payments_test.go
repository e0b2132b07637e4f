package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCardPaymentsNeedBothSecrets(t *testing.T) {
	t.Parallel()
	s := &settings{keyDir: t.TempDir()}
	none, err := s.paymentProviders()
	require.NoError(t, err)
	require.Empty(t, none, "without secrets everybody pays by transfer")
	write := func(name string) {
		require.NoError(t, os.WriteFile(filepath.Join(s.keyDir, name), []byte("secret\n"), 0o600))
	}
	write(stripeKeyFile)
	_, err = s.paymentProviders()
	require.Equal(t, exitUsage, code(err))
	require.ErrorContains(t, err, stripeWebhookFile)
	require.NotContains(t, err.Error(), "secret\n")
	write(stripeWebhookFile)
	got, err := s.paymentProviders()
	require.NoError(t, err)
	require.Len(t, got, 1)
	require.Equal(t, "stripe", got[0].Name())
}
