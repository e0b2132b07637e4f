package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tranche-cloud/tranche/client"
)

var registryColumns = []column[client.RegistryLogin]{
	{"ID", func(l client.RegistryLogin) string { return l.Id }},
	{"REGISTRY", func(l client.RegistryLogin) string { return l.Registry }},
	{"USERNAME", func(l client.RegistryLogin) string { return l.Username }},
	{"UPDATED", func(l client.RegistryLogin) string { return l.UpdatedAt.Format(time.DateTime) }},
}

func (a *app) registryLogin() *cobra.Command {
	c := &cobra.Command{Use: "registry-login", Aliases: []string{"registry-logins"}, Short: "Logins to image registries"}
	c.AddCommand(a.registryCreate(), a.registryLs(), a.registryUpdate(), a.registryRm())
	return c
}

// password reads one from standard input, so that it is in no argument list.
func (a *app) password(fromStdin bool) (string, error) {
	if !fromStdin {
		return "", usagef("the password is read from standard input: add --password-stdin")
	}
	text, err := io.ReadAll(io.LimitReader(a.in, 16<<10))
	if err != nil {
		return "", fmt.Errorf("read the password: %w", err)
	}
	password := strings.TrimRight(string(text), "\r\n")
	if password == "" {
		return "", usagef("standard input holds no password")
	}
	return password, nil
}

func (a *app) registryCreate() *cobra.Command {
	var in client.RegistryLoginCreate
	var fromStdin bool
	c := &cobra.Command{
		Use:     "create --registry HOST --username USER --password-stdin",
		Short:   "Store a login; pulls from the registry use it from then on",
		Example: "  tranche registry-login create --registry ghcr.io --username acme-bot --password-stdin <token.txt",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if in.Registry == "" || in.Username == "" {
				return usagef("create needs --registry and --username")
			}
			var err error
			if in.Password, err = a.password(fromStdin); err != nil {
				return err
			}
			sdk, err := a.connect()
			if err != nil {
				return err
			}
			made, err := sdk.CreateRegistryLogin(c.Context(), in)
			if err != nil {
				return err
			}
			return one(a, made, registryColumns)
		},
	}
	c.Flags().StringVar(&in.Registry, "registry", "", "host and port as in image names; docker.io for names without one")
	c.Flags().StringVar(&in.Username, "username", "", "user of the registry")
	c.Flags().BoolVar(&fromStdin, "password-stdin", false, "read the password or token from standard input")
	return c
}

func (a *app) registryUpdate() *cobra.Command {
	var fromStdin bool
	var username string
	c := &cobra.Command{
		Use: "update LOGIN --password-stdin", Short: "Replace the password of a login", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			password, err := a.password(fromStdin)
			if err != nil {
				return err
			}
			sdk, err := a.connect()
			if err != nil {
				return err
			}
			changed, err := sdk.UpdateRegistryLogin(c.Context(), args[0],
				client.RegistryLoginPatch{Password: password, Username: optional(username)})
			if err != nil {
				return err
			}
			return one(a, changed, registryColumns)
		},
	}
	c.Flags().BoolVar(&fromStdin, "password-stdin", false, "read the password or token from standard input")
	c.Flags().StringVar(&username, "username", "", "another user, too")
	return c
}

func (a *app) registryLs() *cobra.Command {
	return &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List logins, without passwords", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			sdk, err := a.connect()
			if err != nil {
				return err
			}
			all, err := client.Collect(sdk.RegistryLogins(c.Context()))
			if err != nil {
				return err
			}
			return list(a, all, registryColumns)
		},
	}
}

func (a *app) registryRm() *cobra.Command {
	return &cobra.Command{
		Use: "rm LOGIN…", Aliases: []string{"delete"}, Short: "Forget logins", Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			sdk, err := a.connect()
			if err != nil {
				return err
			}
			for _, id := range args {
				if err := sdk.DeleteRegistryLogin(c.Context(), id); err != nil {
					return fmt.Errorf("%s: %w", id, err)
				}
			}
			return nil
		},
	}
}
