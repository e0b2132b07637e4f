package app

import (
	"context"
	"fmt"
	"time"

	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/store"
)

// AuditTolerance is how long something may be under way before the doctor calls it
// an offence: two heartbeats and a batch of them, machine time.
const AuditTolerance = 30 * time.Second

// InvariantState is what the doctor says of an invariant.
type InvariantState string

// The four answers of the doctor.
const (
	InvariantOK       InvariantState = "ok"
	InvariantFound    InvariantState = "found"
	InvariantHeld     InvariantState = "held" // by a test suite, not visible in rows
	InvariantNotBuilt InvariantState = "not_built"
)

// Invariant is the doctor's finding on one invariant of the design.
type Invariant struct {
	ID       string
	Text     string
	State    InvariantState
	Suite    string // of InvariantHeld: where it is held
	Offences []store.Offence
}

// Count is how many rows break it.
func (i Invariant) Count() int {
	n := 0
	for _, o := range i.Offences {
		n += o.Count
	}
	return n
}

// invariants is the list of the design. An empty suite with the state ok is
// checked in rows.
var invariants = []Invariant{
	{ID: "I1", State: InvariantOK, Text: "a unit has one claim, sums fit, bindings hold one organization"},
	{ID: "I2", State: InvariantOK, Text: "what hosts report is accounted for and nothing stays transitional"},
	{ID: "I3", State: InvariantOK, Text: "no accepted request is lost, a failed one charges nothing"},
	{ID: "I4", State: InvariantOK, Text: "usage never overlaps and is never billed beyond its proof"},
	{ID: "I5", State: InvariantOK, Text: "journals sum to zero and documents add up"},
	{ID: "I6", State: InvariantHeld, Suite: "api two-organization suite, migrations catalog tests", Text: "nothing of one organization is visible to another"},
	{ID: "I7", State: InvariantHeld, Suite: "internal/app idempotency suite", Text: "one key and body, one resource"},
	{ID: "I8", State: InvariantHeld, Suite: "gateway and devstack fault suites", Text: "orders are fenced, old reports change nothing"},
	{ID: "I9", State: InvariantHeld, Suite: "internal/app absence suite, gateway stream suite", Text: "absence of information destroys nothing"},
	{ID: "I10", State: InvariantHeld, Suite: "internal/app credential suite", Text: "a revoked credential is refused within 5 s"},
	{ID: "I11", State: InvariantNotBuilt, Text: "the audit log is chained and verifiable"},
	{ID: "I12", State: InvariantHeld, Suite: "internal/auth redaction suite", Text: "no secret in logs, histories, bodies"},
	{ID: "I13", State: InvariantOK, Text: "quota is the sum of its claims"},
}

// rerateNewest is how many invoices one audit rates again, newest first: an older
// one was rated again by the audits of its time.
const rerateNewest = 100

// auditInvoices rates closed periods again: the documents must come out the same.
func (a *App) auditInvoices(ctx context.Context) (store.Offence, error) {
	o := store.Offence{Invariant: "I5", Check: "invoices that do not rate again to their content"}
	var issued []store.IssuedInvoice
	err := a.Store.InSystem(ctx, "audit", func(t *store.SystemTx) (err error) {
		issued, err = t.NewestInvoices(ctx, rerateNewest)
		return err
	})
	if err != nil {
		return o, err
	}
	for _, i := range issued {
		err := a.RerateInvoice(ctx, i.Org, i.ID)
		if fault.KindOf(err) == fault.Unavailable {
			return o, err
		}
		if err != nil {
			o.Count++
			o.Rows = append(o.Rows, fmt.Sprintf("invoice %s: %v", i.Number, err))
		}
	}
	return o, nil
}

// Audit checks every invariant that lives in rows and says who holds the others.
// The second result reports whether nothing was found.
func (a *App) Audit(ctx context.Context, tolerance time.Duration) ([]Invariant, bool, error) {
	var offences []store.Offence
	err := a.Store.InSystem(ctx, "audit", func(t *store.SystemTx) (err error) {
		offences, err = t.CheckInvariants(ctx, tolerance)
		return err
	})
	if err != nil {
		return nil, false, err
	}
	rerated, err := a.auditInvoices(ctx)
	if err != nil {
		return nil, false, err
	}
	accruals, err := a.auditAccruals(ctx)
	if err != nil {
		return nil, false, err
	}
	for _, o := range []store.Offence{rerated, accruals} {
		if o.Count > 0 {
			offences = append(offences, o)
		}
	}
	out := make([]Invariant, len(invariants))
	copy(out, invariants)
	for i := range out {
		for _, o := range offences {
			if o.Invariant == out[i].ID {
				out[i].State = InvariantFound
				out[i].Offences = append(out[i].Offences, o)
			}
		}
	}
	return out, len(offences) == 0, nil
}
