package payment_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/billing/payment"
	"github.com/tranche-cloud/tranche/internal/id"
)

func TestWordsHoldWhatIsNamed(t *testing.T) {
	t.Parallel()
	const number = "TR-2026-000001"
	for _, reference := range []string{
		number, "invoice tr 2026 000001, thanks", "TR2026000001", "RE TR20 2600 0001/x", "tr.2026.000001 and TR-2026-000002",
	} {
		require.True(t, payment.Names(reference, number), reference)
		require.Contains(t, payment.Words(reference), payment.Normal(number), reference)
	}
	require.NotContains(t, payment.Words("TR-2026-0000011"), payment.Normal(number))
	require.Empty(t, payment.Words("thank you very much"))
	org := id.New[id.Org]()
	require.Equal(t, []id.Org{org}, payment.Organizations(payment.Words("for "+org.String()+" ok")))
}
