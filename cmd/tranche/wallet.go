package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/oapi-codegen/nullable"
	"github.com/spf13/cobra"

	"github.com/tranche-cloud/tranche/client"
	"github.com/tranche-cloud/tranche/openapi/wire"
)

// ask makes a command that connects and then does its work.
func (a *app) ask(use, short string, args cobra.PositionalArgs, do func(ctx context.Context, sdk *client.Client, args []string) error) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short, Args: args}
	if use == "ls" || strings.HasPrefix(use, "ls ") {
		c.Aliases = []string{"list"}
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		sdk, err := a.connect()
		if err != nil {
			return err
		}
		return do(c.Context(), sdk, args)
	}
	return c
}

// amount reads 12.34 USD.
func amount(flag, text string) (client.MoneyInput, error) {
	number, currency, _ := strings.Cut(strings.TrimSpace(text), " ")
	if number == "" || currency == "" {
		return client.MoneyInput{}, usagef("--%s takes an amount and its currency, such as \"100.00 USD\", not %q", flag, text)
	}
	return client.MoneyInput{Amount: number, Currency: strings.ToUpper(currency)}, nil
}

func priceInput(m client.MoneyInput) string { return m.Amount + " " + m.Currency }

var walletFields = []column[client.Wallet]{
	{"MODE", func(w client.Wallet) string { return string(w.Mode) }},
	{"PREPAID", func(w client.Wallet) string { return money(w.Prepaid) }},
	{"PROMO", func(w client.Wallet) string { return money(w.Promo) }},
	{"PROMO HELD", func(w client.Wallet) string { return money(w.PromoHeld) }},
	{"SPENDABLE", func(w client.Wallet) string { return price(w.Spendable) + " before tax" }},
	{"HELD", func(w client.Wallet) string { return price(w.Held) }},
	{"TAX", func(w client.Wallet) string { return percent(w.TaxRate) }},
	{"AUTO TOP-UP", func(w client.Wallet) string { return or(w.AutoTopUp, topUp) }},
	{"EXHAUSTED", func(w client.Wallet) string { return or(w.ExhaustedAt, client.Timestamp.String) }},
}

func topUp(o client.AutoTopUpOrder) string {
	return fmt.Sprintf("%s when below %s, at most %s a month", priceInput(o.Amount), priceInput(o.Threshold), priceInput(o.MonthlyMax))
}

var grantColumns = []column[client.Grant]{
	{"ID", func(g client.Grant) string { return g.Id }},
	{"KIND", func(g client.Grant) string { return string(g.Kind) }},
	{"NAME", func(g client.Grant) string { return g.Name }},
	{"PRIORITY", func(g client.Grant) string { return fmt.Sprint(g.Priority) }},
	{"AMOUNT", func(g client.Grant) string { return money(g.Amount) }},
	{"REMAINING", func(g client.Grant) string { return money(g.Remaining) }},
	{"EXPIRES", func(g client.Grant) string { return or(g.ExpiresAt, client.Timestamp.String) }},
}

func (a *app) wallet() *cobra.Command {
	c := &cobra.Command{Use: "wallet", Short: "Prepaid balance, grants and the standing order to pay in"}
	c.AddCommand(
		a.ask("get", "Show what can be spent", cobra.NoArgs, func(ctx context.Context, sdk *client.Client, _ []string) error {
			w, err := sdk.GetWallet(ctx)
			if err != nil {
				return err
			}
			return one(a, w, walletFields)
		}),
		a.ask("grants", "List grants and payments in, newest first", cobra.NoArgs, func(ctx context.Context, sdk *client.Client, _ []string) error {
			all, err := client.Collect(sdk.Grants(ctx))
			if err != nil {
				return err
			}
			return list(a, all, grantColumns)
		}),
		a.ask("redeem CODE", "Redeem a coupon", cobra.ExactArgs(1), func(ctx context.Context, sdk *client.Client, args []string) error {
			g, err := sdk.RedeemCoupon(ctx, args[0])
			if err != nil {
				return err
			}
			return one(a, g, grantColumns)
		}),
		a.ask("payments", "List payments, newest first", cobra.NoArgs, func(ctx context.Context, sdk *client.Client, _ []string) error {
			all, err := client.Collect(sdk.Payments(ctx))
			if err != nil {
				return err
			}
			return list(a, all, paymentColumns)
		}),
		a.ask("top-up AMOUNT", "Pay in from the stored card, such as \"100 USD\"", cobra.ExactArgs(1),
			func(ctx context.Context, sdk *client.Client, args []string) error {
				m, err := amount("amount", args[0])
				if err != nil {
					return err
				}
				got, err := sdk.CreateTopUp(ctx, m)
				if err != nil {
					return err
				}
				return one(a, got, attemptColumns)
			}),
		a.walletAutoTopUp(),
	)
	return c
}

func (a *app) walletAutoTopUp() *cobra.Command {
	var below, pay, most string
	var off bool
	c := &cobra.Command{
		Use: "auto-top-up --below AMOUNT --pay AMOUNT --max AMOUNT | --off", Short: "Pay in when the balance is low", Args: cobra.NoArgs,
		Example: "  tranche wallet auto-top-up --below \"20 USD\" --pay \"100 USD\" --max \"500 USD\"",
		RunE: func(c *cobra.Command, _ []string) error {
			if off == (below != "" || pay != "" || most != "") {
				return usagef("auto-top-up takes either --below, --pay and --max, or --off")
			}
			var in client.AutoTopUp
			if !off {
				var order client.AutoTopUpOrder
				for _, x := range []struct {
					flag, text string
					to         *client.MoneyInput
				}{{"below", below, &order.Threshold}, {"pay", pay, &order.Amount}, {"max", most, &order.MonthlyMax}} {
					got, err := amount(x.flag, x.text)
					if err != nil {
						return err
					}
					*x.to = got
				}
				in.Order = nullable.NewNullableWithValue(order)
			}
			sdk, err := a.connect()
			if err != nil {
				return err
			}
			got, err := sdk.PutAutoTopUp(c.Context(), in)
			if err != nil {
				return err
			}
			return one(a, got, []column[client.AutoTopUp]{{"AUTO TOP-UP", func(t client.AutoTopUp) string { return or(t.Order, topUp) }}})
		},
	}
	c.Flags().StringVar(&below, "below", "", "pay in when the prepaid balance is below this")
	c.Flags().StringVar(&pay, "pay", "", "this much each time")
	c.Flags().StringVar(&most, "max", "", "at most this much a calendar month")
	c.Flags().BoolVar(&off, "off", false, "end the standing order")
	return c
}

var paymentColumns = []column[client.Payment]{
	{"ID", func(p client.Payment) string { return p.Id }},
	{"RECEIVED", func(p client.Payment) string { return p.ReceivedAt.String() }},
	{"PROVIDER", func(p client.Payment) string { return p.Provider }},
	{"AMOUNT", func(p client.Payment) string { return money(p.Amount) }},
	{"APPLIED", func(p client.Payment) string { return money(p.Allocated) }},
	{"REFUNDED", func(p client.Payment) string { return money(p.Refunded) }},
	{"UNAPPLIED", func(p client.Payment) string { return money(p.Unapplied) }},
}

var attemptColumns = []column[client.PaymentAttempt]{
	{"ID", func(p client.PaymentAttempt) string { return p.Id }},
	{"AMOUNT", func(p client.PaymentAttempt) string { return money(p.Amount) }},
	{"STATE", func(p client.PaymentAttempt) string { return string(p.State) }},
	{"REASON", func(p client.PaymentAttempt) string { return or(p.Reason, same) }},
	{"CONFIRM AT", func(p client.PaymentAttempt) string { return or(p.ConfirmUrl, same) }},
}

var budgetColumns = []column[client.Budget]{
	{"ID", func(b client.Budget) string { return b.Id }},
	{"NAME", func(b client.Budget) string { return b.Name }},
	{"SCOPE", func(b client.Budget) string {
		return strings.TrimSuffix(string(b.Scope)+" "+or(b.Project, same)+or(b.Key, same), " --")
	}},
	{"AMOUNT", func(b client.Budget) string { return money(b.Amount) }},
	{"SPENT", func(b client.Budget) string { return money(b.Spent) }},
	{"TELLS AT", func(b client.Budget) string { return strings.Trim(fmt.Sprint(b.Thresholds), "[]") + " %" }},
	{"STOPS", func(b client.Budget) string { return strconv.FormatBool(b.Hard) }},
}

func (a *app) budget() *cobra.Command {
	c := &cobra.Command{Use: "budget", Aliases: []string{"budgets"}, Short: "What something should cost at most in a month"}
	c.AddCommand(
		a.ask("ls", "List budgets", cobra.NoArgs, func(ctx context.Context, sdk *client.Client, _ []string) error {
			all, err := sdk.Budgets(ctx)
			if err != nil {
				return err
			}
			return list(a, all, budgetColumns)
		}),
		a.ask("get BUDGET", "Show one budget", cobra.ExactArgs(1), func(ctx context.Context, sdk *client.Client, args []string) error {
			b, err := sdk.GetBudget(ctx, args[0])
			if err != nil {
				return err
			}
			return one(a, b, budgetColumns)
		}),
		a.ask("rm BUDGET", "Delete a budget", cobra.ExactArgs(1), func(ctx context.Context, sdk *client.Client, args []string) error {
			return sdk.DeleteBudget(ctx, args[0])
		}),
		a.budgetCreate(), a.budgetUpdate(),
	)
	return c
}

func (a *app) budgetCreate() *cobra.Command {
	var of, project, key string
	var thresholds []int32
	var hard bool
	c := &cobra.Command{
		Use: "create NAME --amount AMOUNT", Short: "Watch the organization, a project or a key", Args: cobra.ExactArgs(1),
		Example: "  tranche budget create training --amount \"500 USD\" --project proj_… --hard",
		RunE: func(c *cobra.Command, args []string) error {
			if project != "" && key != "" {
				return usagef("a budget is of a project or of a key, not both")
			}
			m, err := amount("amount", of)
			if err != nil {
				return err
			}
			in := client.BudgetCreate{Name: args[0], Scope: wire.BudgetScopeOrganization, Amount: m, Hard: &hard}
			if project != "" {
				in.Scope, in.Project = wire.BudgetScopeProject, &project
			}
			if key != "" {
				in.Scope, in.Key = wire.BudgetScopeKey, &key
			}
			if len(thresholds) > 0 {
				in.Thresholds = &thresholds
			}
			sdk, err := a.connect()
			if err != nil {
				return err
			}
			b, err := sdk.CreateBudget(c.Context(), in)
			if err != nil {
				return err
			}
			return one(a, b, budgetColumns)
		},
	}
	c.Flags().StringVar(&of, "amount", "", "net amount of a month with its currency")
	c.Flags().StringVar(&project, "project", "", "only this project")
	c.Flags().StringVar(&key, "key", "", "only what this key created")
	c.Flags().Int32SliceVar(&thresholds, "tell-at", nil, "percent at which it tells (default: 50,80,100)")
	c.Flags().BoolVar(&hard, "hard", false, "stop what runs at the amount, and refuse starts")
	return c
}

func (a *app) budgetUpdate() *cobra.Command {
	var of string
	var hard bool
	c := &cobra.Command{
		Use: "update BUDGET [--amount AMOUNT] [--hard=BOOL]", Short: "Change a budget", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			var in client.BudgetPatch
			if of != "" {
				m, err := amount("amount", of)
				if err != nil {
					return err
				}
				in.Amount = &m
			}
			if c.Flags().Changed("hard") {
				in.Hard = &hard
			}
			if in == (client.BudgetPatch{}) {
				return usagef("update takes --amount or --hard")
			}
			sdk, err := a.connect()
			if err != nil {
				return err
			}
			b, err := sdk.UpdateBudget(c.Context(), args[0], in)
			if err != nil {
				return err
			}
			return one(a, b, budgetColumns)
		},
	}
	c.Flags().StringVar(&of, "amount", "", "net amount of a month with its currency")
	c.Flags().BoolVar(&hard, "hard", false, "stop what runs at the amount, and refuse starts")
	return c
}

var reservationColumns = []column[client.Reservation]{
	{"ID", func(r client.Reservation) string { return r.Id }},
	{"NAME", func(r client.Reservation) string { return r.Name }},
	{"COVERS", func(r client.Reservation) string { return r.Family + " in " + r.Region }},
	{"UNITS", func(r client.Reservation) string { return fmt.Sprint(r.Units) }},
	{"FROM", func(r client.Reservation) string { return r.From.String() }},
	{"TO", func(r client.Reservation) string { return r.To.String() }},
	{"PRICE/H", func(r client.Reservation) string { return or(r.PricePerHour, price) }},
}

func (a *app) reservation() *cobra.Command {
	c := &cobra.Command{Use: "reservation", Aliases: []string{"reservations"}, Short: "Capacity that is paid for whether used or not"}
	c.AddCommand(
		a.ask("ls", "List reservations, newest first", cobra.NoArgs, func(ctx context.Context, sdk *client.Client, _ []string) error {
			all, err := client.Collect(sdk.Reservations(ctx))
			if err != nil {
				return err
			}
			return list(a, all, reservationColumns)
		}),
		a.ask("get RESERVATION", "Show one reservation", cobra.ExactArgs(1), func(ctx context.Context, sdk *client.Client, args []string) error {
			r, err := sdk.GetReservation(ctx, args[0])
			if err != nil {
				return err
			}
			return one(a, r, reservationColumns)
		}),
		a.reservationCreate(),
	)
	return c
}

func (a *app) reservationCreate() *cobra.Command {
	var in client.ReservationCreate
	var name, from, to string
	c := &cobra.Command{
		Use: "create --project PROJECT --offer OFFER --units N --to TIME", Short: "Reserve capacity; it cannot be given back", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if in.Project == "" || in.Offer == "" || to == "" {
				return usagef("create needs --project, --offer and --to")
			}
			until, err := instant("to", to)
			if err != nil {
				return err
			}
			since, err := instant("from", from)
			if err != nil {
				return err
			}
			in.To = wire.At(until)
			if !since.IsZero() {
				at := wire.At(since)
				in.From = &at
			}
			if name != "" {
				in.Name = &name
			}
			sdk, err := a.connect()
			if err != nil {
				return err
			}
			r, err := sdk.CreateReservation(c.Context(), in)
			if err != nil {
				return err
			}
			return one(a, r, reservationColumns)
		},
	}
	f := c.Flags()
	f.StringVar(&in.Project, "project", "", "who pays")
	f.StringVar(&in.Offer, "offer", "", "what to reserve; all of its GPU model and mode is covered")
	f.Int32Var(&in.Units, "units", 1, "slices at once")
	f.StringVar(&name, "name", "", "name (default: the offer)")
	f.StringVar(&from, "from", "", "from this instant, RFC 3339 (default: now)")
	f.StringVar(&to, "to", "", "before this instant, RFC 3339")
	return c
}
