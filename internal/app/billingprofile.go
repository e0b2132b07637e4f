package app

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/billing/tax"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/store"
)

// The outcomes of a question about a tax id.
const (
	outcomeValid   = "valid"
	outcomeInvalid = "invalid"
	outcomeUnknown = "unknown"
)

// TaxIDAnswer is what a register says of a tax id.
type TaxIDAnswer struct {
	Outcome      string // valid, invalid, unknown
	Source       string // who answered
	Consultation string // the number the answer has there
}

// TaxIDValidator asks a register whether a tax id is one. It is called outside of any
// transaction; an error counts as unknown, and unknown bears tax.
type TaxIDValidator interface {
	Validate(ctx context.Context, i tax.ID, country string) (TaxIDAnswer, error)
}

// syntaxOnly knows how ids are written and nothing about who has them.
type syntaxOnly struct{}

func (syntaxOnly) Validate(context.Context, tax.ID, string) (TaxIDAnswer, error) {
	return TaxIDAnswer{Outcome: outcomeUnknown, Source: "syntax"}, nil
}

// The bounds of a billing profile.
const (
	maxPartyName    = 200
	maxPartyLines   = 8
	maxPartyLine    = 200
	maxPostcode     = 16
	maxEndpoint     = 100
	maxConsultation = 100
)

var (
	countryCode = regexp.MustCompile(`^([A-Z]{2})?$`)
	endpoint    = regexp.MustCompile(`^[0-9A-Z]{2,4}:[!-~]{1,90}$`)
)

// BillingProfile reads an organization as a buyer.
func (a *App) BillingProfile(ctx context.Context, c Caller, o id.Org) (p store.BillingProfile, err error) {
	if err := ownOrOperator(c, o); err != nil {
		return p, err
	}
	err = a.Store.InSystem(ctx, "read a billing profile", func(t *store.SystemTx) error {
		p, _, err = t.BillingProfile(ctx, o)
		return err
	})
	return p, err
}

// SetBillingProfile writes an organization as a buyer: documents drafted from now on
// have it. A new tax id is asked about at once, outside of any transaction. A tenant
// keeps its issuer. It fails with request.invalid, also for a tax id of another
// country, and with issuer.unknown.
func (a *App) SetBillingProfile(ctx context.Context, c Caller, o id.Org, p store.BillingProfile) (store.BillingProfile, error) {
	if err := ownOrOperator(c, o); err != nil {
		return store.BillingProfile{}, err
	}
	p, err := normalProfile(p)
	if err != nil {
		return store.BillingProfile{}, err
	}
	var old store.BillingProfile
	err = a.Store.InSystem(ctx, "write a billing profile", func(t *store.SystemTx) error {
		if old, _, err = t.BillingProfile(ctx, o); err != nil {
			return err
		}
		if p.Issuer == "" || operatorOnly(c) != nil {
			p.Issuer = old.Issuer
		}
		if err := t.SetBillingProfile(ctx, o, p); err != nil {
			return err
		}
		return t.Audit(ctx, c.audit(o, "billing_profile.set", o.String()))
	})
	if err != nil {
		return store.BillingProfile{}, err
	}
	if p.TaxID != "" && p.TaxID != old.TaxID {
		if _, err := a.CheckTaxID(store.Apart(ctx), c, o); err != nil {
			a.Log.Warn("a tax id was not asked about", "org_id", o.String(), "error", err)
		}
	}
	return p, nil
}

func normalProfile(p store.BillingProfile) (store.BillingProfile, error) {
	p.Country, p.Postcode = strings.ToUpper(strings.TrimSpace(p.Country)), strings.TrimSpace(p.Postcode)
	if p.Status == "" {
		p.Status = tax.Business
	}
	long := func(s string) bool { return len(s) > maxPartyLine || strings.ContainsAny(s, "\n\r") }
	switch {
	case len(p.Name) > maxPartyName || strings.ContainsAny(p.Name, "\n\r"):
		return p, refused("/name", "rule", fmt.Sprintf("A name has at most %d characters in one line.", maxPartyName))
	case len(p.Address) > maxPartyLines || slices.ContainsFunc(p.Address, long):
		return p, refused("/address", "rule", fmt.Sprintf("An address has at most %d lines of %d characters.", maxPartyLines, maxPartyLine))
	case !countryCode.MatchString(p.Country):
		return p, refused("/country", "rule", "A country is two letters (ISO 3166-1), such as DE; Greece is GR, the United Kingdom GB.")
	case len(p.Postcode) > maxPostcode:
		return p, refused("/postcode", "rule", fmt.Sprintf("A postcode has at most %d characters.", maxPostcode))
	case p.Status != tax.Business && p.Status != tax.Consumer:
		return p, refused("/status", "rule", "A buyer is a business or a consumer.")
	case p.Locale != "" && !slices.Contains(billing.Locales, p.Locale):
		return p, refused("/locale", "rule", "Documents are written in en, de or zh.")
	case len(p.Endpoint) > maxEndpoint || p.Endpoint != "" && !endpoint.MatchString(p.Endpoint):
		return p, refused("/endpoint", "rule", "An e-invoice address is scheme:id, such as 9930:DE123456789.")
	case p.TaxID == "":
		return p, nil
	}
	parsed, err := tax.ParseID(string(p.TaxID), p.Country)
	p.TaxID = parsed
	return p, err
}

// CheckTaxID asks about an organization's tax id and keeps the answer. A register
// that does not answer is kept as unknown: tax is charged until it says valid. It
// fails with tax_id.missing.
func (a *App) CheckTaxID(ctx context.Context, c Caller, o id.Org) (store.TaxIDCheck, error) {
	p, err := a.BillingProfile(ctx, c, o)
	if err != nil {
		return store.TaxIDCheck{}, err
	}
	if p.TaxID == "" {
		return store.TaxIDCheck{}, noTaxID()
	}
	var validator TaxIDValidator = syntaxOnly{}
	if a.TaxIDs != nil {
		validator = a.TaxIDs
	}
	answer, err := validator.Validate(ctx, p.TaxID, p.Country)
	if err != nil {
		a.Log.Warn("a tax id could not be validated", "org_id", o.String(), "error", err)
		answer.Outcome = outcomeUnknown
	}
	return a.keepTaxIDCheck(ctx, c, o, p.TaxID, answer)
}

// RecordTaxIDCheck keeps an answer that an operator got by hand. It fails with
// request.invalid and tax_id.missing.
func (a *App) RecordTaxIDCheck(ctx context.Context, c Caller, o id.Org, answer TaxIDAnswer) (store.TaxIDCheck, error) {
	if err := operatorOnly(c); err != nil {
		return store.TaxIDCheck{}, err
	}
	if answer.Source == "" || len(answer.Consultation) > maxConsultation || len(answer.Source) > maxConsultation {
		return store.TaxIDCheck{}, refused("/source", "rule", "An answer names who gave it, and its number where it has one.")
	}
	p, err := a.BillingProfile(ctx, c, o)
	if err != nil {
		return store.TaxIDCheck{}, err
	}
	if p.TaxID == "" {
		return store.TaxIDCheck{}, noTaxID()
	}
	return a.keepTaxIDCheck(ctx, c, o, p.TaxID, answer)
}

func (a *App) keepTaxIDCheck(ctx context.Context, c Caller, o id.Org, i tax.ID, answer TaxIDAnswer) (kept store.TaxIDCheck, err error) {
	switch answer.Outcome {
	case outcomeValid, outcomeInvalid, outcomeUnknown:
	default:
		return kept, refused("/outcome", "rule", "An answer is valid, invalid or unknown.")
	}
	err = a.Store.InSystem(ctx, "keep an answer about a tax id", func(t *store.SystemTx) error {
		kept, err = t.InsertTaxIDCheck(ctx, o, i, store.TaxIDCheck{
			Outcome: answer.Outcome, Source: answer.Source, Consultation: answer.Consultation,
		})
		if err != nil {
			return err
		}
		return t.Audit(ctx, c.audit(o, "tax_id.check", o.String()))
	})
	return kept, err
}

func noTaxID() error {
	return fault.New(fault.Conflict, "tax_id.missing", "The organization has no tax id.").Suggest("Write it into the billing profile.")
}

// ownOrOperator refuses whoever is neither an operator nor of the organization.
func ownOrOperator(c Caller, o id.Org) error {
	if c.Org == o {
		return nil
	}
	if operatorOnly(c) != nil {
		return store.NotFound()
	}
	return nil
}
