package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tranche-cloud/tranche/client"
	"github.com/tranche-cloud/tranche/openapi/wire"
)

var gpuColumns = []column[client.GPU]{
	{"ID", func(g client.GPU) string { return g.Id }},
	{"HOST", func(g client.GPU) string { return g.Host }},
	{"INDEX", func(g client.GPU) string { return fmt.Sprint(g.Index) }},
	{"MODEL", func(g client.GPU) string { return g.Model }},
	{"MODE", gpuMode},
	{"HEALTH", gpuHealth},
	{"CLAIMED", func(g client.GPU) string { return fmt.Sprintf("%d/%d", g.UnitsClaimed, g.UnitsTotal) }},
	{"ORGANIZATION", func(g client.GPU) string { return or(g.Organization, same) }},
	{"SIMULATED", func(g client.GPU) string { return fmt.Sprint(g.Simulated) }},
}

// gpuMode is the mode, and the one it is on its way to.
func gpuMode(g client.GPU) string {
	text := g.Mode
	if g.ModeDesired != g.Mode {
		text += " → " + g.ModeDesired
	}
	if g.ModeState != "settled" {
		text += " (" + string(g.ModeState) + ")"
	}
	if problem, err := g.ModeProblem.Get(); err == nil {
		text += ": " + problem
	}
	return text
}

func gpuHealth(g client.GPU) string {
	text := string(g.Health)
	if !g.Present {
		text = "absent"
	}
	if cause, err := g.HealthCause.Get(); err == nil {
		text += ": " + cause
	}
	return text
}

func (a *app) gpu() *cobra.Command {
	c := &cobra.Command{Use: "gpu", Aliases: []string{"gpus"}, Short: "GPUs, their health and mode (operators)"}
	c.AddCommand(
		&cobra.Command{
			Use: "ls", Aliases: []string{"list"}, Short: "List GPUs by host and index", Args: cobra.NoArgs,
			RunE: func(c *cobra.Command, _ []string) error {
				sdk, err := a.connect()
				if err != nil {
					return err
				}
				all, err := client.Collect(sdk.Admin().GPUs(c.Context()))
				if err != nil {
					return err
				}
				return list(a, all, gpuColumns)
			},
		},
		&cobra.Command{
			Use: "get GPU", Short: "Show one GPU", Args: cobra.ExactArgs(1),
			RunE: func(c *cobra.Command, args []string) error {
				sdk, err := a.connect()
				if err != nil {
					return err
				}
				g, err := sdk.Admin().GetGPU(c.Context(), args[0])
				if err != nil {
					return err
				}
				return one(a, g, append(slices.Clone(gpuColumns),
					column[client.GPU]{"DETAIL", func(g client.GPU) string { return or(g.HealthDetail, same) }},
					column[client.GPU]{"OPERATION", func(g client.GPU) string { return or(g.ModeChange, same) }},
					column[client.GPU]{"UUID", func(g client.GPU) string { return g.Uuid }}))
			},
		},
		a.gpuSetMode(), a.gpuCancel(), a.gpuWait(),
	)
	return c
}

func (a *app) gpuSetMode() *cobra.Command {
	var whenEmpty, dryRun, wait bool
	var drainBy string
	var timeout time.Duration
	c := &cobra.Command{
		Use:   "set-mode GPU MODE (--when-empty | --drain-by TIME) [--dry-run] [--wait]",
		Short: "Change the mode of a GPU: nothing new from now on, then empty, switch, test, sell",
		Long: `Change the mode of a GPU: whole, mig, mps:4x25 (shares, percent each) or timeslice:2.

From now on nothing new is placed on it. When it is empty, its host switches it, tests it, and it is sold again.
--when-empty waits until its instances have left by themselves; --drain-by stops those that are still there then:
their interruption is credited, and an instance with recovery restart starts on another GPU.`,
		Example: `  tranche gpu set-mode gpu_… mps:4x25 --when-empty --dry-run
  tranche gpu set-mode gpu_… mig --drain-by 2h --wait`,
		Args: cobra.ExactArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			if whenEmpty == (drainBy != "") {
				return usagef("set-mode takes either --when-empty or --drain-by TIME")
			}
			in := client.GPUModeChange{Mode: args[1]}
			if whenEmpty {
				in.WhenEmpty = &whenEmpty
			} else {
				at, err := moment(drainBy, time.Now())
				if err != nil {
					return err
				}
				stamp := wire.At(at)
				in.DrainBy = &stamp
			}
			sdk, err := a.connect()
			if err != nil {
				return err
			}
			admin := sdk.Admin()
			seen, err := admin.GetGPU(c.Context(), args[0])
			if err != nil {
				return err
			}
			if dryRun {
				effect, err := admin.GPUModeEffect(c.Context(), seen.Id, in, client.IfGeneration(seen.Generation))
				if err != nil {
					return err
				}
				return a.printEffect(effect)
			}
			op, err := admin.SetGPUMode(c.Context(), seen.Id, in, client.IfGeneration(seen.Generation))
			if err != nil {
				return err
			}
			if !wait {
				fmt.Fprintf(a.err, "`tranche gpu wait %s` waits for it; `tranche gpu cancel-set-mode %s` takes it back until the switch.\n", op.Id, seen.Id)
				return a.printAdminOperation(op)
			}
			return a.waitMode(c.Context(), admin, op.Id, timeout)
		},
	}
	f := c.Flags()
	f.BoolVar(&whenEmpty, "when-empty", false, "wait until its instances have left by themselves")
	f.StringVar(&drainBy, "drain-by", "", "stop what is still there at this instant (RFC 3339), or in so much time (2h30m)")
	f.BoolVar(&dryRun, "dry-run", false, "show which instances and offers it concerns and what the GPU earns before and after, and do nothing")
	f.BoolVar(&wait, "wait", false, "wait until the GPU is sold in its new mode")
	f.DurationVar(&timeout, "timeout", time.Hour, "how long to wait; the change goes on after it")
	return c
}

// moment reads an instant, or a time from now.
func moment(text string, now time.Time) (time.Time, error) {
	if d, err := time.ParseDuration(text); err == nil && d > 0 {
		return now.Add(d), nil
	}
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return at, usagef("--drain-by takes an instant such as 2026-12-01T02:00:00Z or a time from now such as 2h30m, not %q", text)
	}
	return at, nil
}

func (a *app) gpuWait() *cobra.Command {
	var timeout time.Duration
	c := &cobra.Command{
		Use: "wait OPERATION", Short: "Wait until a change of mode ends", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			sdk, err := a.connect()
			if err != nil {
				return err
			}
			return a.waitMode(c.Context(), sdk.Admin(), args[0], timeout)
		},
	}
	c.Flags().DurationVar(&timeout, "timeout", time.Hour, "how long to wait; the change goes on after it")
	return c
}

func (a *app) waitMode(ctx context.Context, admin client.Admin, operation string, timeout time.Duration) error {
	fmt.Fprintf(a.err, "waiting for %s (Ctrl-C detaches)\n", operation)
	waiting, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	op, err := admin.WaitOperation(waiting, operation)
	if err != nil && waiting.Err() != nil {
		return stillRunning{operation: operation, verb: "tranche gpu wait"}
	}
	if err != nil {
		return err
	}
	return a.printAdminOperation(op)
}

func (a *app) gpuCancel() *cobra.Command {
	return &cobra.Command{
		Use: "cancel-set-mode GPU", Short: "Take a change of mode back; possible until the host begins to switch", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			sdk, err := a.connect()
			if err != nil {
				return err
			}
			op, err := sdk.Admin().CancelGPUMode(c.Context(), args[0])
			if err != nil {
				return err
			}
			return a.printAdminOperation(op)
		},
	}
}

func (a *app) printAdminOperation(op client.AdminOperation) error {
	return one(a, op, []column[client.AdminOperation]{
		{"ID", func(o client.AdminOperation) string { return o.Id }},
		{"KIND", func(o client.AdminOperation) string { return o.Kind }},
		{"RESOURCE", func(o client.AdminOperation) string { return o.Resource }},
		{"STATUS", func(o client.AdminOperation) string { return string(o.Status) }},
		{"STEP", func(o client.AdminOperation) string { return or(o.Step, same) }},
		{"DETAIL", func(o client.AdminOperation) string { return or(o.Detail, same) }},
	})
}

func (a *app) printEffect(e client.GPUModeEffect) error {
	if a.output == "json" {
		return document(a.out, e)
	}
	fmt.Fprintf(a.out, "%s: %s → %s\n\nInstances on it: %d\n", e.Gpu, plain(e.From), plain(e.To), len(e.Instances))
	for _, i := range e.Instances {
		fmt.Fprintf(a.out, "  %s  %s  %s  %s/h\n", i.Id, i.Organization, i.Status, price(i.PricePerHour))
	}
	a.printOffers("Offers it serves now", e.OffersLost)
	a.printOffers("Offers it serves then", e.OffersGained)
	fmt.Fprintln(a.out, "\nAn hour, in list prices of the whole GPU:")
	for _, r := range e.Revenue {
		fmt.Fprintf(a.out, "  now %s, then %s; its instances pay %s %s\n", r.BeforePerHour, r.AfterPerHour, r.InstancesPerHour, r.Currency)
	}
	return nil
}

func (a *app) printOffers(title string, offers []client.GPUOffer) {
	fmt.Fprintf(a.out, "%s: %d\n", title, len(offers))
	for _, o := range offers {
		fmt.Fprintf(a.out, "  %d × %s  %s/h each\n", o.Slots, plain(o.Offer), or(o.PricePerHour, price))
	}
}

func (a *app) events() *cobra.Command {
	var f client.EventFilter
	var limit int
	c := &cobra.Command{
		Use: "events", Aliases: []string{"event"}, Short: "What happened to hosts, GPUs and instances, newest first (operators)", Args: cobra.NoArgs,
		Example: "  tranche events --type gpu. --limit 20\n  tranche events --subject gpu_…",
		RunE: func(c *cobra.Command, _ []string) error {
			sdk, err := a.connect()
			if err != nil {
				return err
			}
			all := []client.Event{}
			for e, err := range sdk.Admin().Events(c.Context(), f) {
				if err != nil {
					return err
				}
				if all = append(all, e); len(all) >= limit {
					break
				}
			}
			return list(a, all, []column[client.Event]{
				{"AT", func(e client.Event) string { return e.At.String() }},
				{"TYPE", func(e client.Event) string { return e.Type }},
				{"SUBJECT", func(e client.Event) string { return e.Subject }},
				{"ORGANIZATION", func(e client.Event) string { return or(e.Organization, same) }},
				{"DATA", func(e client.Event) string { return facts(e.Data) }},
			})
		},
	}
	c.Flags().StringVar(&f.Type, "type", "", "only this type; with a trailing dot all that begin with it")
	c.Flags().StringVar(&f.Subject, "subject", "", "only of this host, GPU, instance or operation")
	c.Flags().IntVar(&limit, "limit", 50, "at most so many")
	return c
}

// facts are the data of an event in one line, by name.
func facts(data map[string]any) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(data)) {
		text, ok := data[name].(string)
		if !ok {
			raw, err := json.Marshal(data[name])
			if err != nil {
				continue
			}
			text = string(raw)
		}
		if text != "" {
			parts = append(parts, name+"="+text)
		}
	}
	return strings.Join(parts, " ")
}

// readings are the readings of a sample in one line, by name.
func readings(of map[string]int64) string {
	parts := make([]string, 0, len(of))
	for _, name := range slices.Sorted(maps.Keys(of)) {
		parts = append(parts, fmt.Sprintf("%s=%d", name, of[name]))
	}
	return joined(parts)
}
