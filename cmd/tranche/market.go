package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/tranche-cloud/tranche/client"
)

func (a *app) offers() *cobra.Command {
	c := &cobra.Command{Use: "offers", Aliases: []string{"offer"}, Short: "What can be bought"}
	c.AddCommand(&cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List offers with prices and availability", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			sdk, err := a.connect()
			if err != nil {
				return err
			}
			all, err := client.Collect(sdk.Offers(c.Context()))
			if err != nil {
				return err
			}
			return list(a, all, []column[client.Offer]{
				{"ID", func(o client.Offer) string { return o.Id }},
				{"GPU", func(o client.Offer) string { return o.GpuModel }},
				{"MODE", func(o client.Offer) string { return string(o.Mode) }},
				{"MEMORY", func(o client.Offer) string { return fmt.Sprintf("%d MiB", o.MemoryMib) }},
				{"ISOLATION", func(o client.Offer) string { return string(o.Isolation.Gpu) + "/" + string(o.Isolation.Host) }},
				{"VCPU", func(o client.Offer) string { return fmt.Sprint(o.Vcpu) }},
				{"RAM", func(o client.Offer) string { return fmt.Sprintf("%d MiB", o.RamMib) }},
				{"PRICE/H", func(o client.Offer) string { return price(o.PricePerHour) }},
				{"AVAILABLE", func(o client.Offer) string { return fmt.Sprint(o.Available) }},
				{"SIMULATED", func(o client.Offer) string { return fmt.Sprint(o.Simulated) }},
			})
		},
	})
	return c
}

func (a *app) op() *cobra.Command {
	c := &cobra.Command{Use: "op", Short: "Long-running operations"}
	var timeout time.Duration
	wait := &cobra.Command{
		Use: "wait OPERATION", Short: "Wait until an operation ends", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			sdk, err := a.connect()
			if err != nil {
				return err
			}
			waiting, cancel := context.WithTimeout(c.Context(), timeout)
			defer cancel()
			op, err := sdk.WaitOperation(waiting, args[0])
			if err != nil && waiting.Err() != nil {
				return stillRunning{args[0], "tranche op wait"}
			}
			if err != nil {
				return err
			}
			return one(a, op, []column[client.Operation]{
				{"ID", func(o client.Operation) string { return o.Id }},
				{"KIND", func(o client.Operation) string { return o.Kind }},
				{"RESOURCE", func(o client.Operation) string { return o.Resource }},
				{"STATUS", func(o client.Operation) string { return string(o.Status) }},
			})
		},
	}
	wait.Flags().DurationVar(&timeout, "timeout", 10*time.Minute, "how long to wait; the work goes on after it")
	c.AddCommand(wait)
	return c
}

func instant(flag, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return t, usagef("--%s takes an instant such as 2026-11-01T00:00:00Z, not %q", flag, text)
	}
	return t, nil
}
