package app

import (
	"context"
	"regexp"
	"strings"
	"time"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/billing/ledger"
	"github.com/tranche-cloud/tranche/billing/wallet"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/money"
	"github.com/tranche-cloud/tranche/internal/store"
)

// Wallet is what an organization can spend, and what months cost beyond it.
type Wallet struct {
	store.Wallet
	Spendable money.Exact // net
	Held      money.Exact // of Spendable: by what runs
	Overruns  []store.Overrun
}

// GetWallet reads a wallet as of its last tick.
func (a *App) GetWallet(ctx context.Context, _ Caller, org id.Org) (out Wallet, err error) {
	err = a.Store.InOrg(ctx, org, func(t *store.OrgTx) error {
		if out.Wallet, err = t.Wallet(ctx, org); err != nil {
			return err
		}
		if out.Spendable, err = out.Wallet.Spendable(); err != nil {
			return err
		}
		c := out.Prepaid.Currency()
		claims, err := t.WalletClaims(ctx, org, c, id.Instance{})
		if err != nil {
			return err
		}
		if out.Held, err = claimed(c, claims); err != nil {
			return err
		}
		out.Overruns, err = t.Overruns(ctx, org, c)
		return err
	})
	return out, err
}

// SetMoneyMode says whether an organization pays by invoice (postpaid) or from its
// wallet (prepaid). Operators only. It fails with request.invalid for another mode.
func (a *App) SetMoneyMode(ctx context.Context, c Caller, org id.Org, m wallet.Mode) error {
	if err := operatorOnly(c); err != nil {
		return err
	}
	if m != wallet.Postpaid && m != wallet.PrepaidMode {
		return fault.New(fault.Invalid, "request.invalid", "There is no such mode.").
			With(fault.Field{Pointer: "/mode", Code: "enum", Detail: "must be postpaid or prepaid"})
	}
	return a.Store.InSystem(ctx, "set a money mode", func(t *store.SystemTx) error {
		if _, err := t.LockWallet(ctx, org); err != nil {
			return err
		}
		if err := t.SetMoneyMode(ctx, org, m); err != nil {
			return err
		}
		return t.Audit(ctx, c.audit(org, "wallet.set_mode", string(m)))
	})
}

// SetAutoTopUp gives a standing order to pay in when the balance runs low; the zero
// value ends it. It fails with request.invalid.
func (a *App) SetAutoTopUp(ctx context.Context, c Caller, org id.Org, order wallet.AutoTopUp) error {
	return a.Store.InSystem(ctx, "set an automatic top-up", func(t *store.SystemTx) error {
		w, err := t.LockWallet(ctx, org)
		if err != nil {
			return err
		}
		if order != (wallet.AutoTopUp{}) {
			if err := order.Check(w.Prepaid.Currency()); err != nil {
				return err
			}
		}
		if err := t.SetAutoTopUp(ctx, org, order); err != nil {
			return err
		}
		return t.Audit(ctx, c.audit(org, "wallet.set_auto_top_up", ""))
	})
}

// Prepayment is money that an operator received outside of any provider. Reference
// is its own, of the bank statement for example: it counts once.
type Prepayment struct {
	Reference string
	Amount    money.Amount // gross
}

// RecordPrepayment adds money to a wallet, once per reference. It reports false if
// it was added before. Operators only. It fails with request.invalid, and with
// state.conflict if the reference came with another amount.
func (a *App) RecordPrepayment(ctx context.Context, c Caller, org id.Org, in Prepayment) (fresh bool, err error) {
	if err := operatorOnly(c); err != nil {
		return false, err
	}
	if in.Reference == "" || len(in.Reference) > maxReference {
		return false, fault.New(fault.Invalid, "request.invalid", "A prepayment has a reference of its own.").
			With(fault.Field{Pointer: "/reference", Code: "length", Detail: "must have 1 to 200 characters"})
	}
	err = a.Store.InSystem(ctx, "record a prepayment", func(t *store.SystemTx) error {
		fresh, err = a.receivePrepayment(ctx, t, prepayment{
			Org: org, Source: derived("prepayment", org, in.Reference), Gross: in.Amount, From: ledger.Bank, Name: in.Reference,
		})
		if err != nil {
			return err
		}
		if !fresh {
			return samePrepayment(ctx, t, org, in)
		}
		return t.Audit(ctx, c.audit(org, "wallet.record_prepayment", in.Reference))
	})
	return fresh, err
}

// samePrepayment fails where a reference was recorded with another amount.
func samePrepayment(ctx context.Context, t *store.SystemTx, org id.Org, in Prepayment) error {
	lot, err := t.GrantOf(ctx, org, derived("prepayment", org, in.Reference))
	if err != nil || lot.Amount == in.Amount {
		return err
	}
	return fault.New(fault.Conflict, "state.conflict", "The reference was recorded with "+lot.Amount.String()+".").
		Suggest("Give another payment a reference of its own.")
}

// maxReference bounds the text that names a payment.
const maxReference = 200

// Grant is a lot of a wallet.
type Grant = wallet.Lot

// NewGrant gives promotional money. Expires zero: never; an empty scope: for
// everything.
type NewGrant struct {
	Name     string
	Amount   money.Amount
	Priority int // lower first
	Expires  time.Time
	Scope    billing.Scope
}

// CreateGrant gives an organization promotional money, which reduces the net of what
// it buys. Operators only. It fails with request.invalid and resource.not_found.
func (a *App) CreateGrant(ctx context.Context, c Caller, org id.Org, in NewGrant) (g Grant, err error) {
	if err := operatorOnly(c); err != nil {
		return Grant{}, err
	}
	err = a.Store.InSystem(ctx, "give a grant", func(t *store.SystemTx) error {
		g, err = give(ctx, t, c, org, id.New[id.Grant](), in, nil)
		return err
	})
	return g, err
}

// give inserts a promotional lot and posts it; source nil is the grant itself.
func give(ctx context.Context, t *store.SystemTx, c Caller, org id.Org, g id.Grant, in NewGrant, source *[16]byte) (Grant, error) {
	w, err := t.LockWallet(ctx, org)
	if err != nil {
		return Grant{}, err
	}
	if err := positive(in.Amount, w.Promo.Currency()); err != nil {
		return Grant{}, err
	}
	at, err := t.BusinessNow(ctx)
	if err != nil {
		return Grant{}, err
	}
	if !in.Expires.IsZero() && !in.Expires.After(at) {
		return Grant{}, fault.New(fault.Invalid, "request.invalid", "A grant expires in the future.").
			With(fault.Field{Pointer: "/expires_at", Code: "range", Detail: "must be after " + at.Format(time.RFC3339)})
	}
	lot := wallet.Lot{
		Grant: g, Kind: wallet.Promo, Name: in.Name, Priority: in.Priority, Expires: metering.Instant(in.Expires), Scope: in.Scope,
		Amount: in.Amount, Remaining: in.Amount, Tax: money.NewAmount(0, in.Amount.Currency()), Source: g, CreatedAt: at,
	}
	if in.Expires.IsZero() {
		lot.Expires = time.Time{}
	}
	if source != nil {
		lot.Source = *source
	}
	if _, err := t.InsertGrant(ctx, org, store.NewLot{Lot: lot, By: c.actor()}); err != nil {
		return Grant{}, err
	}
	journal, err := ledger.GrantIssued(ledger.Entry{Org: org, Reference: g, On: at}, in.Amount)
	if err != nil {
		return Grant{}, err
	}
	if err := t.Post(ctx, journal); err != nil {
		return Grant{}, err
	}
	return lot, t.Audit(ctx, c.audit(org, "grant.create", g.String()))
}

// ListGrants lists the lots of a wallet, newest first.
func (a *App) ListGrants(ctx context.Context, _ Caller, org id.Org, p Page) (List[Grant], error) {
	k, err := keyset[id.Grant](p)
	if err != nil {
		return List[Grant]{}, err
	}
	var items []Grant
	err = a.Store.InOrg(ctx, org, func(t *store.OrgTx) error {
		items, err = t.ListGrants(ctx, org, k)
		return err
	})
	return paged(items, p.Size, func(g Grant) string { return g.Grant.String() }), err
}

// Coupon is a code that gives each organization a promotional grant once.
type Coupon = store.Coupon

var couponCode = regexp.MustCompile(`^[A-Z0-9-]{4,40}$`)

// CreateCoupon makes a code. Operators only. It fails with request.invalid and
// name.taken.
func (a *App) CreateCoupon(ctx context.Context, c Caller, in Coupon) error {
	if err := operatorOnly(c); err != nil {
		return err
	}
	bad := func(pointer, detail string) error {
		return fault.New(fault.Invalid, "request.invalid", "The coupon is not valid: "+pointer[1:]+" "+detail+".").
			With(fault.Field{Pointer: pointer, Code: "value", Detail: detail})
	}
	switch {
	case !couponCode.MatchString(in.Code):
		return bad("/code", "must be 4 to 40 of A-Z, 0-9 and -")
	case in.Amount.Sign() <= 0:
		return bad("/amount", "must be more than 0")
	case in.MaxUses < 1 || in.MaxUses > 1e9:
		return bad("/max_uses", "must be at least 1")
	case in.GrantDays < 0 || in.GrantDays > 36500:
		return bad("/grant_days", "must be 0 to 36500")
	}
	return a.Store.InSystem(ctx, "create a coupon", func(t *store.SystemTx) error {
		at, err := t.BusinessNow(ctx)
		if err != nil {
			return err
		}
		if !in.ValidUntil.IsZero() && !in.ValidUntil.After(at) {
			return bad("/valid_until", "must be after "+at.Format(time.RFC3339))
		}
		if err := t.InsertCoupon(ctx, in, c.actor()); err != nil {
			return err
		}
		return t.Audit(ctx, c.audit(id.Org{}, "coupon.create", in.Code))
	})
}

// RedeemCoupon gives the caller's organization the grant of a code, once. It fails
// with coupon.invalid, coupon.used, and request.invalid for another currency.
func (a *App) RedeemCoupon(ctx context.Context, c Caller, code string) (g Grant, err error) {
	code = strings.ToUpper(strings.TrimSpace(code))
	err = a.Store.InSystem(ctx, "redeem a coupon", func(t *store.SystemTx) error {
		if _, err := t.LockWallet(ctx, c.Org); err != nil {
			return err
		}
		at, err := t.BusinessNow(ctx)
		if err != nil {
			return err
		}
		grant := id.New[id.Grant]()
		coupon, err := t.UseCoupon(ctx, c.Org, code, grant, at)
		if err != nil {
			return err
		}
		in := NewGrant{Name: coupon.Name, Amount: coupon.Amount, Priority: coupon.Priority}
		if coupon.GrantDays > 0 {
			in.Expires = at.AddDate(0, 0, coupon.GrantDays)
		}
		source := derived("coupon", code, c.Org)
		g, err = give(ctx, t, c, c.Org, grant, in, &source)
		return err
	})
	return g, err
}
