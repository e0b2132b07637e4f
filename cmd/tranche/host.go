package main

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tranche-cloud/tranche/client"
)

var hostColumns = []column[client.Host]{
	{"ID", func(h client.Host) string { return h.Id }},
	{"NAME", func(h client.Host) string { return h.Name }},
	{"STATE", func(h client.Host) string { return string(h.State) }},
	{"LIVENESS", func(h client.Host) string { return string(h.Liveness) }},
	{"CONDITION", condition},
	{"BELOW FLOOR", func(h client.Host) string { return joined(h.BelowFloor) }},
	{"RUNTIME", func(h client.Host) string { return or(h.Runtime, same) }},
	{"REACH", reach},
	{"POOL", func(h client.Host) string { return h.Pool }},
	{"GPUS", func(h client.Host) string { return fmt.Sprint(h.GpuCount) }},
	{"VCPU", func(h client.Host) string { return fmt.Sprint(h.Vcpu) }},
	{"RAM", func(h client.Host) string { return fmt.Sprintf("%d MiB", h.RamMib) }},
	{"ORGANIZATION", func(h client.Host) string { return or(h.Organization, same) }},
	{"SIMULATED", func(h client.Host) string { return fmt.Sprint(h.Simulated) }},
}

func condition(h client.Host) string {
	if cause, err := h.ConditionCause.Get(); err == nil {
		return string(h.Condition) + ": " + cause
	}
	return string(h.Condition)
}

func joined(words []string) string {
	if len(words) == 0 {
		return "-"
	}
	return strings.Join(words, ", ")
}

// reach is where tenants come in: the address, with the port of SSH.
func reach(h client.Host) string {
	r, err := h.Reach.Get()
	if err != nil {
		return "-"
	}
	if port, err := r.SshPort.Get(); err == nil {
		return net.JoinHostPort(r.Address, strconv.Itoa(int(port)))
	}
	return r.Address
}

func (a *app) host() *cobra.Command {
	c := &cobra.Command{Use: "host", Aliases: []string{"hosts"}, Short: "GPU hosts (operators)"}
	c.AddCommand(
		&cobra.Command{
			Use: "ls", Aliases: []string{"list"}, Short: "List hosts", Args: cobra.NoArgs,
			RunE: func(c *cobra.Command, _ []string) error {
				sdk, err := a.connect()
				if err != nil {
					return err
				}
				all, err := client.Collect(sdk.Admin().Hosts(c.Context()))
				if err != nil {
					return err
				}
				return list(a, all, hostColumns)
			},
		},
		a.hostChange("approve", "Let a pending host in", client.Admin.ApproveHost),
		a.hostChange("cordon", "Sell nothing new on the host; what runs there goes on", client.Admin.CordonHost),
		a.hostChange("uncordon", "Sell from the host again", client.Admin.UncordonHost),
	)
	return c
}

type hostVerb func(client.Admin, context.Context, string, ...client.CallOption) (client.Host, error)

// hostChange acts on the generation it has just read, so that two operators at once
// do not undo each other unseen.
func (a *app) hostChange(verb, short string, do hostVerb) *cobra.Command {
	return &cobra.Command{
		Use: verb + " HOST…", Short: short, Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			sdk, err := a.connect()
			if err != nil {
				return err
			}
			changed := make([]client.Host, 0, len(args))
			for _, id := range args {
				seen, err := sdk.Admin().GetHost(c.Context(), id)
				if err != nil {
					return fmt.Errorf("%s: %w", id, err)
				}
				h, err := do(sdk.Admin(), c.Context(), seen.Id, client.IfGeneration(seen.Generation))
				if err != nil {
					return fmt.Errorf("%s: %w", id, err)
				}
				changed = append(changed, h)
			}
			return list(a, changed, hostColumns)
		},
	}
}
