package app

import (
	"log/slog"
	"time"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/internal/agentlink/ca"
	"github.com/tranche-cloud/tranche/internal/auth"
	"github.com/tranche-cloud/tranche/internal/clock"
	"github.com/tranche-cloud/tranche/internal/store"
)

// Deps is what the use cases need from outside. A role leaves nil what it never
// uses: only the API mints and verifies tokens.
type Deps struct {
	Store    *store.Store
	Clock    clock.Clock // machine time
	Hasher   auth.Hasher
	Issuer   *auth.Issuer
	Verifier *auth.Verifier
	Box      *auth.Box
	Log      *slog.Logger
	// TrustRoot goes into join tokens: agents trust the gateway by it. API only.
	TrustRoot ca.Fingerprint
	// Authority certifies hosts. Gateway only.
	Authority *ca.Authority
	// Dev marks a development installation: keys are trn_test_ keys and new
	// organizations get ten times the default rate limits.
	Dev bool
	// Seller is the issuer as invoices print it; without a name it is Tranche.
	Seller billing.Party
	// TaxIDs asks a register about tax ids; nil knows their syntax only.
	TaxIDs TaxIDValidator
	// Originals renders the files that are documents before the law. The worker stores them, the api shows what is not stored yet.
	Originals Originals
	// Grace is how long after a month its usage may still arrive, in business time;
	// 0 is DefaultGrace.
	Grace time.Duration
	// TopUps charges what standing orders pay into wallets; nil: the payment providers.
	TopUps TopUpProvider
	// Payments are the payment providers; the first one is that of new customers. None:
	// everybody pays by bank transfer.
	Payments []PaymentProvider
}

// App is the set of use cases of one process. It is safe for concurrent use.
type App struct {
	Deps
	credentials *credentials
	flights     *flights
	stock       *stock
	watch       *watch
}

// New returns the use cases over their dependencies. A nil Log discards.
func New(d Deps) *App {
	if d.Log == nil {
		d.Log = slog.New(slog.DiscardHandler)
	}
	return &App{
		Deps: d, credentials: newCredentials(), flights: newFlights(), stock: &stock{},
		watch: newWatch(d.Store, d.Clock, d.Log),
	}
}
