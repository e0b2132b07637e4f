package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tranche-cloud/tranche/client"
)

// instanceOptions are the flags that all verbs of an instance share.
type instanceOptions struct {
	project string
	noWait  bool
	timeout time.Duration
}

func (a *app) instance() *cobra.Command {
	o := &instanceOptions{}
	c := &cobra.Command{Use: "instance", Aliases: []string{"instances", "i"}, Short: "Virtual GPU instances"}
	c.PersistentFlags().StringVar(&o.project, "project", client.OnlyProject, "project id; - is the key's only one")
	c.AddCommand(a.instanceCreate(o), a.instanceLs(o), a.instanceGet(o),
		a.instanceChange(o, "stop", "End the run and free the slice; billing ends at acceptance", (*client.Client).StopInstance),
		a.instanceChange(o, "start", "Start a new run", (*client.Client).StartInstance),
		a.instanceRm(o), a.instanceUpdate(o), a.instanceSSH(o), a.instanceExec(o), a.instanceLogs(o), a.instanceSamples(o))
	return c
}

func (o *instanceOptions) waitFlags(c *cobra.Command) {
	c.Flags().BoolVar(&o.noWait, "no-wait", false, "return as soon as the request is accepted")
	c.Flags().DurationVar(&o.timeout, "timeout", 10*time.Minute, "how long to wait; the work goes on after it")
}

// settle waits for the operation of an accepted change, unless told not to, and
// prints the instance. Ending the wait never undoes the work.
func (a *app) settle(ctx context.Context, sdk *client.Client, o *instanceOptions, i client.Instance) error {
	ref, err := i.Operation.Get()
	if err != nil || o.noWait {
		return a.printInstance(i)
	}
	fmt.Fprintf(a.err, "%s %s: waiting for %s (Ctrl-C detaches)\n", ref.Kind, i.Id, ref.Id)
	waiting, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	if _, err := sdk.WaitOperation(waiting, ref.Id); err != nil {
		if waiting.Err() != nil {
			return stillRunning{ref.Id, "tranche op wait"}
		}
		return err
	}
	now, err := sdk.GetInstance(ctx, i.Project, i.Id)
	if err != nil {
		return err
	}
	return a.printInstance(now)
}

var instanceColumns = []column[client.Instance]{
	{"ID", func(i client.Instance) string { return i.Id }},
	{"NAME", func(i client.Instance) string { return i.Name }},
	{"OFFER", func(i client.Instance) string { return i.Offer }},
	{"STATUS", func(i client.Instance) string { return string(i.Status) }},
	{"ISOLATION", func(i client.Instance) string { return string(i.Isolation.Gpu) + "/" + string(i.Isolation.Host) }},
	{"PRICE/H", func(i client.Instance) string { return price(i.PricePerHour) }},
	{"COST", func(i client.Instance) string { return price(i.CostSoFar) }},
	{"CREATED", func(i client.Instance) string { return i.CreatedAt.Format(time.DateTime) }},
}

func (a *app) printInstance(i client.Instance) error {
	fields := append([]column[client.Instance]{}, instanceColumns...)
	fields = append(fields,
		column[client.Instance]{"GPUS", gpus},
		column[client.Instance]{"REASON", func(i client.Instance) string {
			if r, err := i.StatusReason.Get(); err == nil {
				return r.Code + ": " + r.Detail
			}
			return "-"
		}},
		column[client.Instance]{"PROGRESS", func(i client.Instance) string { return or(i.Progress, same) }},
		column[client.Instance]{"ENDPOINTS", endpoints},
		column[client.Instance]{"SSH KEYS", func(i client.Instance) string { return fmt.Sprint(len(i.SshKeys)) }},
		column[client.Instance]{"INTERRUPTIONS", interruptions},
		column[client.Instance]{"SIMULATED", func(i client.Instance) string { return fmt.Sprint(i.Simulated) }},
	)
	return one(a, i, fields)
}

func gpus(i client.Instance) string {
	parts := make([]string, 0, len(i.Gpus))
	for _, g := range i.Gpus {
		text := fmt.Sprintf("%s %s", g.Model, g.Mode)
		if p, err := g.Profile.Get(); err == nil {
			text += " " + p
		}
		parts = append(parts, fmt.Sprintf("%s %d MiB", text, g.MemoryMib))
	}
	if len(parts) == 0 {
		return "-"
	}
	return strings.Join(parts, ", ")
}

func (a *app) instanceCreate(o *instanceOptions) *cobra.Command {
	var in client.InstanceCreate
	var name, token string
	var labels, env map[string]string
	var secrets []string
	var reach accessFlags
	c := &cobra.Command{
		Use:   "create --offer OFFER --image IMAGE [flags] [-- COMMAND…]",
		Short: "Create an instance and wait until it runs",
		Example: `  tranche instance create --offer h200-mig-1g-16gib --image ghcr.io/acme/trainer:1 --name trainer
  tranche instance create --offer h200-mig-1g-16gib --image ghcr.io/acme/notebook:1 --ssh-key ~/.ssh/id_ed25519.pub --port 8888`,
		RunE: func(c *cobra.Command, args []string) error {
			if in.Offer == "" || in.Image == "" {
				return usagef("create needs --offer and --image; `tranche offers ls` shows the offers")
			}
			in.Name, in.ClientToken = optional(name), optional(token)
			if len(labels) > 0 {
				in.Labels = &labels
			}
			vars, err := a.variables(env, secrets)
			if err != nil {
				return err
			}
			in.Env = vars
			if err := reach.into(&in); err != nil {
				return err
			}
			if len(args) > 0 {
				in.Command = &args
			}
			sdk, err := a.connect()
			if err != nil {
				return err
			}
			i, err := sdk.CreateInstance(c.Context(), o.project, in)
			if err != nil {
				return err
			}
			return a.settle(c.Context(), sdk, o, i)
		},
	}
	f := c.Flags()
	f.StringVar(&in.Offer, "offer", "", "what to buy")
	f.StringVar(&in.Image, "image", "", "container image")
	f.StringVar(&name, "name", "", "name, unique in the project (default: from the id)")
	f.StringVar(&token, "client-token", "", "your own id of this instance, unique for life")
	f.StringToStringVar(&labels, "label", nil, "label KEY=VALUE, repeatable")
	f.StringToStringVar(&env, "env", nil, "environment KEY=VALUE, repeatable")
	f.StringSliceVar(&secrets, "secret-env", nil, "environment KEY whose value is taken from this shell; never read back")
	reach.add(c)
	o.waitFlags(c)
	return c
}

func (a *app) instanceLs(o *instanceOptions) *cobra.Command {
	var status string
	c := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List instances, newest first", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			sdk, err := a.connect()
			if err != nil {
				return err
			}
			all, err := client.Collect(sdk.Instances(c.Context(), o.project,
				client.InstanceFilter{Status: client.InstanceStatus(status)}))
			if err != nil {
				return err
			}
			return list(a, all, instanceColumns)
		},
	}
	c.Flags().StringVar(&status, "status", "", "only this status; deleted ones are shown only when asked for")
	return c
}

func (a *app) instanceGet(o *instanceOptions) *cobra.Command {
	return &cobra.Command{
		Use: "get INSTANCE", Short: "Show one instance", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			sdk, err := a.connect()
			if err != nil {
				return err
			}
			i, err := sdk.GetInstance(c.Context(), o.project, args[0])
			if err != nil {
				return err
			}
			return a.printInstance(i)
		},
	}
}

type change func(*client.Client, context.Context, string, string, ...client.CallOption) (client.Instance, error)

func (a *app) instanceChange(o *instanceOptions, verb, short string, do change) *cobra.Command {
	c := &cobra.Command{
		Use: verb + " INSTANCE", Short: short, Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			sdk, err := a.connect()
			if err != nil {
				return err
			}
			i, err := do(sdk, c.Context(), o.project, args[0])
			if err != nil {
				return err
			}
			return a.settle(c.Context(), sdk, o, i)
		},
	}
	o.waitFlags(c)
	return c
}

func (a *app) instanceRm(o *instanceOptions) *cobra.Command {
	c := &cobra.Command{
		Use: "rm INSTANCE…", Aliases: []string{"delete"}, Short: "Delete instances; billing ends at acceptance",
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			sdk, err := a.connect()
			if err != nil {
				return err
			}
			for _, id := range args {
				i, err := sdk.DeleteInstance(c.Context(), o.project, id)
				if err != nil {
					return fmt.Errorf("%s: %w", id, err)
				}
				if err := a.settle(c.Context(), sdk, o, i); err != nil {
					return err
				}
			}
			return nil
		},
	}
	o.waitFlags(c)
	return c
}

// variables orders the environment by name. A secret's value comes from this
// process's own environment, so that it is in no argument list or shell history.
func (a *app) variables(env map[string]string, secrets []string) (*[]client.EnvVar, error) {
	var vars []client.EnvVar
	for _, name := range slices.Sorted(maps.Keys(env)) {
		vars = append(vars, client.EnvVar{Name: name, Value: env[name]})
	}
	for _, name := range secrets {
		value := a.getenv(name)
		if value == "" {
			return nil, usagef("--secret-env %s: this shell has no such variable; export it first", name)
		}
		secret := true
		vars = append(vars, client.EnvVar{Name: name, Value: value, Secret: &secret})
	}
	if len(vars) == 0 {
		return nil, nil
	}
	return &vars, nil
}

func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
