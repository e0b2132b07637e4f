package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tranche-cloud/tranche/client"
	"github.com/tranche-cloud/tranche/openapi/wire"
)

var bookColumns = []column[client.PriceBook]{
	{"ID", func(b client.PriceBook) string { return b.Id }},
	{"NAME", func(b client.PriceBook) string { return b.Name }},
	{"CURRENCY", func(b client.PriceBook) string { return b.Currency }},
	{"DEFAULT", func(b client.PriceBook) string { return fmt.Sprint(b.Default) }},
	{"VERSIONS", func(b client.PriceBook) string { return fmt.Sprint(len(b.Versions)) }},
}

// bookPrice is a price with the version that it is of.
type bookPrice struct {
	version client.PriceVersion
	price   client.OfferPrice
}

func (a *app) showBook(b client.PriceBook) error {
	if a.output == "json" {
		return document(a.out, b)
	}
	if err := one(a, b, bookColumns); err != nil {
		return err
	}
	fmt.Fprintln(a.out)
	var rows []bookPrice
	for _, v := range b.Versions {
		for _, p := range v.Prices {
			rows = append(rows, bookPrice{v, p})
		}
	}
	return list(a, rows, []column[bookPrice]{
		{"VERSION", func(p bookPrice) string { return fmt.Sprint(p.version.Version) }},
		{"FROM", func(p bookPrice) string { return p.version.EffectiveFrom.String() }},
		{"OFFER", func(p bookPrice) string { return p.price.Offer }},
		{"METER", func(p bookPrice) string {
			if p.price.Meter == nil {
				return "gpu"
			}
			return string(*p.price.Meter)
		}},
		{"PRICE", func(p bookPrice) string { return p.price.PricePerHour }},
		{"TIERS", func(p bookPrice) string { return tiers(p.price.Tiers) }},
	})
}

// tiers writes the steps of a price: graduated ≤100 2.00, 1.50.
func tiers(t *wire.PriceTiers) string {
	if t == nil {
		return "-"
	}
	steps := make([]string, len(t.Steps))
	for i, s := range t.Steps {
		steps[i] = s.Price
		if s.UpTo != nil {
			steps[i] = "≤" + *s.UpTo + " " + s.Price
		}
	}
	text := string(t.Kind) + " " + strings.Join(steps, ", ")
	if t.PackageSize != nil {
		text += " a " + *t.PackageSize
	}
	return text
}

var assignmentColumns = []column[client.PriceBookAssignment]{
	{"PRICE BOOK", func(b client.PriceBookAssignment) string { return b.PriceBook }},
	{"NAME", func(b client.PriceBookAssignment) string { return b.Name }},
	{"FROM", func(b client.PriceBookAssignment) string { return b.From.String() }},
	{"TO", func(b client.PriceBookAssignment) string { return or(b.To, client.Timestamp.String) }},
}

func (a *app) prices() *cobra.Command {
	c := &cobra.Command{Use: "price", Aliases: []string{"prices"}, Short: "What things cost; price books and spot prices (operators)"}
	c.AddCommand(
		a.priceRules(), a.pricePreview(),
		a.ask("ls", "List price books", cobra.NoArgs, func(ctx context.Context, sdk *client.Client, _ []string) error {
			all, err := client.Collect(sdk.Admin().PriceBooks(ctx))
			if err != nil {
				return err
			}
			return list(a, all, bookColumns)
		}),
		a.ask("get BOOK", "Show a price book with its versions", cobra.ExactArgs(1), func(ctx context.Context, sdk *client.Client, args []string) error {
			b, err := sdk.Admin().GetPriceBook(ctx, args[0])
			if err != nil {
				return err
			}
			return a.showBook(b)
		}),
		a.priceCreate(), a.priceVersion(), a.priceAssign(),
		a.ask("assignments ORG", "List the price books of an organization", cobra.ExactArgs(1), func(ctx context.Context, sdk *client.Client, args []string) error {
			all, err := sdk.Admin().PriceBookAssignments(ctx, args[0])
			if err != nil {
				return err
			}
			return list(a, all, assignmentColumns)
		}),
		a.priceSpot(),
	)
	return c
}

func (a *app) priceCreate() *cobra.Command {
	var file string
	c := a.ask("create -f FILE", "Make a price book with its first version", cobra.NoArgs, func(ctx context.Context, sdk *client.Client, _ []string) error {
		in, err := described[client.PriceBookCreate](a, file)
		if err != nil {
			return err
		}
		b, err := sdk.Admin().CreatePriceBook(ctx, in)
		if err != nil {
			return err
		}
		return a.showBook(b)
	})
	c.Long = "Make a price book from a YAML or JSON file with the fields of the API: name, currency, default, effective_from and prices,\n" +
		"each with offer, meter, and price_per_hour or tiers."
	fileFlag(c, &file)
	return c
}

func fileFlag(c *cobra.Command, to *string) {
	c.Flags().StringVarP(to, "file", "f", "", "YAML or JSON file; - is standard input")
}

func (a *app) priceVersion() *cobra.Command {
	var file string
	c := a.ask("version BOOK -f FILE", "Announce the next version of a price book", cobra.ExactArgs(1), func(ctx context.Context, sdk *client.Client, args []string) error {
		in, err := described[client.PriceVersionCreate](a, file)
		if err != nil {
			return err
		}
		if _, err := sdk.Admin().CreatePriceVersion(ctx, args[0], in); err != nil {
			return err
		}
		b, err := sdk.Admin().GetPriceBook(ctx, args[0])
		if err != nil {
			return err
		}
		return a.showBook(b)
	})
	fileFlag(c, &file)
	return c
}

func (a *app) priceAssign() *cobra.Command {
	var from string
	c := a.ask("assign ORG BOOK [--from TIME]", "Give an organization a price book from a month on", cobra.ExactArgs(2),
		func(ctx context.Context, sdk *client.Client, args []string) error {
			at, err := optionalInstant("from", from)
			if err != nil {
				return err
			}
			all, err := sdk.Admin().AssignPriceBook(ctx, args[0], client.PriceBookAssign{PriceBook: args[1], From: at})
			if err != nil {
				return err
			}
			return list(a, all, assignmentColumns)
		})
	c.Flags().StringVar(&from, "from", "", "first instant of a month (UTC), RFC 3339 (default: the next one)")
	return c
}

// optionalInstant is nil for a flag that is not given.
func optionalInstant(flag, text string) (*client.Timestamp, error) {
	at, err := instant(flag, text)
	if err != nil || at.IsZero() {
		return nil, err
	}
	out := wire.At(at)
	return &out, nil
}

func (a *app) priceSpot() *cobra.Command {
	var in client.SpotPriceCreate
	var of, from string
	c := a.ask("spot OFFER --price PRICE [--from TIME]", "Publish the next spot price of an offer", cobra.ExactArgs(1),
		func(ctx context.Context, sdk *client.Client, args []string) error {
			m, err := amount("price", of)
			if err != nil {
				return err
			}
			in.Offer, in.PricePerHour, in.Currency = args[0], m.Amount, m.Currency
			if in.From, err = optionalInstant("from", from); err != nil {
				return err
			}
			p, err := sdk.Admin().PublishSpotPrice(ctx, in)
			if err != nil {
				return err
			}
			return one(a, p, []column[client.SpotPrice]{
				{"OFFER", func(p client.SpotPrice) string { return p.Offer }},
				{"PRICE/H", func(p client.SpotPrice) string { return price(p.PricePerHour) }},
				{"FROM", func(p client.SpotPrice) string { return p.From.String() }},
			})
		})
	c.Example = "  tranche price spot h200-mig-1g --price \"0.21 USD\""
	c.Flags().StringVar(&of, "price", "", "an hour with its currency")
	c.Flags().StringVar(&from, "from", "", "from this instant, RFC 3339 (default: now)")
	return c
}
