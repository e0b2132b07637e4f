package app

import (
	"context"
	"fmt"
	"time"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/billing/tax"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/money"
	"github.com/tranche-cloud/tranche/internal/store"
)

// The settings of the default issuer as long as no version of it was written.
const (
	defaultPaymentDays = 14
	defaultRetention   = 10
)

// issuerAt returns the profile of an issuer in force. The default issuer without a
// version is the installation's seller.
func (a *App) issuerAt(ctx context.Context, t partyReader, slug string, at time.Time) (billing.Issuer, error) {
	i, written, err := t.IssuerAt(ctx, slug, at)
	if err != nil || written {
		return i, err
	}
	if slug != billing.DefaultIssuer {
		return billing.Issuer{}, fault.New(fault.Conflict, "issuer.not_in_force",
			fmt.Sprintf("The issuer %s has no profile at %s.", slug, at.Format(time.RFC3339))).
			Suggest("Write a version of the issuer that starts earlier.")
	}
	seller := a.seller()
	i.LegalName, i.Address, i.Country, i.TaxID, i.TimeZone = seller.Name, seller.Address, seller.Country, seller.TaxID, "UTC"
	if seller.Bank != nil {
		i.Bank = *seller.Bank
	}
	i.PaymentDays, i.Locale, i.TaxPoint = defaultPaymentDays, "en", billing.AtConsumption
	i.Retention, i.Original = defaultRetention, billing.FormatPDF
	return i, nil
}

func (a *App) seller() billing.Party {
	if a.Seller.Name == "" {
		return billing.Party{Name: "Tranche"}
	}
	return a.Seller
}

// PutIssuer writes a version of an issuer, in force from EffectiveFrom on (zero: now)
// until the next; the first version makes the issuer. It fails with request.invalid,
// issuer.prefix_taken, issuer.prefix_fixed for another prefix than the issuer's, and
// with state.conflict for a version that starts in the past or where one starts.
func (a *App) PutIssuer(ctx context.Context, c Caller, i billing.Issuer) (billing.Issuer, error) {
	if err := operatorOnly(c); err != nil {
		return billing.Issuer{}, err
	}
	if err := i.Check(); err != nil {
		return billing.Issuer{}, err
	}
	if i.TaxID != "" {
		parsed, err := tax.ParseID(i.TaxID, i.Country)
		if err != nil {
			return billing.Issuer{}, err
		}
		i.TaxID = string(parsed)
	}
	err := a.Store.InSystem(ctx, "write an issuer", func(t *store.SystemTx) error {
		now, err := t.BusinessNow(ctx)
		if err != nil {
			return err
		}
		if i.EffectiveFrom.IsZero() {
			i.EffectiveFrom = now
		}
		i.EffectiveFrom = i.EffectiveFrom.UTC().Truncate(time.Microsecond)
		if i.EffectiveFrom.Before(now.Add(-time.Minute)) {
			return fault.New(fault.Conflict, "state.conflict", "A version of an issuer cannot start in the past.").
				Suggest("Leave effective_from out for now.")
		}
		old, _, err := t.IssuerAt(ctx, i.Slug, i.EffectiveFrom)
		if err == nil && old.Prefix != i.Prefix {
			return fault.New(fault.Conflict, "issuer.prefix_fixed", fmt.Sprintf("The prefix of %s is %s and never changes.", i.Slug, old.Prefix)).
				Suggest("Make another issuer for another series.")
		}
		if err != nil && fault.CodeOf(err) != "issuer.unknown" {
			return err
		}
		if err := t.InsertIssuer(ctx, i, c.actor()); err != nil {
			return err
		}
		return t.Audit(ctx, c.audit(id.Org{}, "issuer.put", i.Slug))
	})
	return i, err
}

// GetIssuer reads the profile of an issuer in force at an instant (zero: now). It
// fails with issuer.unknown and issuer.not_in_force.
func (a *App) GetIssuer(ctx context.Context, c Caller, slug string, at time.Time) (i billing.Issuer, err error) {
	if err := operatorOnly(c); err != nil {
		return i, err
	}
	err = a.Store.InSystem(ctx, "read an issuer", func(t *store.SystemTx) error {
		if at.IsZero() {
			if at, err = t.BusinessNow(ctx); err != nil {
				return err
			}
		}
		i, err = a.issuerAt(ctx, t, slug, at)
		return err
	})
	return i, err
}

// ListIssuers lists the issuers that have a profile in force, by name.
func (a *App) ListIssuers(ctx context.Context, c Caller) (list []billing.Issuer, err error) {
	if err := operatorOnly(c); err != nil {
		return nil, err
	}
	err = a.Store.InSystem(ctx, "list issuers", func(t *store.SystemTx) error {
		now, err := t.BusinessNow(ctx)
		if err != nil {
			return err
		}
		slugs, err := t.IssuerSlugs(ctx)
		if err != nil {
			return err
		}
		list = nil
		for _, slug := range slugs {
			i, err := a.issuerAt(ctx, t, slug, now)
			if fault.CodeOf(err) == "issuer.not_in_force" {
				continue
			}
			if err != nil {
				return err
			}
			list = append(list, i)
		}
		return nil
	})
	return list, err
}

// PutTaxTable writes the next version of an issuer's tax table; documents made from
// now on are judged by it. It fails with request.invalid for a table that could decide
// two ways, issuer.unknown and approval.required.
func (a *App) PutTaxTable(ctx context.Context, c Caller, issuer string, table tax.Table) (version int, err error) {
	if err := operatorOnly(c); err != nil {
		return 0, err
	}
	if err := table.Check(); err != nil {
		return 0, err
	}
	permit, err := a.RequireApproval(ctx, c, ApproveTaxTable, map[string]any{"issuer": issuer, "table": table}, money.Amount{})
	if err != nil {
		return 0, err
	}
	err = a.Store.InSystem(ctx, "write a tax table", func(t *store.SystemTx) error {
		now, err := t.BusinessNow(ctx)
		if err != nil {
			return err
		}
		if _, _, err := t.IssuerAt(ctx, issuer, now); err != nil {
			return err
		}
		if err := permit.Spend(ctx, t); err != nil {
			return err
		}
		if version, err = t.InsertTaxTable(ctx, issuer, table, c.actor()); err != nil {
			return err
		}
		return t.Audit(ctx, c.audit(id.Org{}, "tax_table.put", issuer))
	})
	return version, err
}

// GetTaxTable reads the newest tax table of an issuer and its version, 0 for none.
func (a *App) GetTaxTable(ctx context.Context, c Caller, issuer string) (table tax.Table, version int, err error) {
	if err := operatorOnly(c); err != nil {
		return tax.Table{}, 0, err
	}
	err = a.Store.InSystem(ctx, "read a tax table", func(t *store.SystemTx) error {
		table, version, err = t.TaxTable(ctx, issuer)
		return err
	})
	return table, version, err
}
