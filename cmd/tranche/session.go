package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tranche-cloud/tranche/client"
)

// storedLogin is what `tranche login` remembers: one address, one credential.
type storedLogin struct {
	APIURL     string `json:"api_url"`
	Credential string `json:"credential"`
}

// connect makes the client: the environment wins over the stored login.
func (a *app) connect() (*client.Client, error) {
	l, err := a.stored()
	if err != nil {
		return nil, err
	}
	if v := a.getenv("TRANCHE_API_URL"); v != "" {
		l.APIURL = v
	}
	if a.apiURL != "" {
		l.APIURL = a.apiURL
	}
	if v := a.getenv("TRANCHE_API_KEY"); v != "" {
		l.Credential = v
	}
	if l.APIURL == "" || l.Credential == "" {
		return nil, usagef("no API or credential is known: set TRANCHE_API_URL and TRANCHE_API_KEY, or run `tranche login`")
	}
	return client.New(l.APIURL, l.Credential, client.WithUserAgent("tranche-cli"))
}

// loginPath follows the XDG base directories.
func (a *app) loginPath() string {
	base := a.getenv("XDG_CONFIG_HOME")
	if base == "" {
		base = filepath.Join(a.getenv("HOME"), ".config")
	}
	return filepath.Join(base, "tranche", "login.json")
}

func (a *app) stored() (storedLogin, error) {
	var l storedLogin
	text, err := os.ReadFile(a.loginPath())
	if errors.Is(err, fs.ErrNotExist) {
		return l, nil
	}
	if err != nil {
		return l, fmt.Errorf("read the login: %w", err)
	}
	if err := json.Unmarshal(text, &l); err != nil {
		return l, fmt.Errorf("the login %s is not JSON; run `tranche login` again: %w", a.loginPath(), err)
	}
	return l, nil
}

func (a *app) login() *cobra.Command {
	var withToken bool
	c := &cobra.Command{
		Use:     "login --api-url URL --with-token",
		Short:   "Remember an API address and a key read from standard input",
		Example: "  tranche login --api-url https://api.example.com --with-token <key.txt",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if !withToken || a.apiURL == "" {
				return usagef("login needs --api-url and --with-token; the key is read from standard input, never from an argument")
			}
			text, err := io.ReadAll(io.LimitReader(a.in, 16<<10))
			if err != nil {
				return fmt.Errorf("read the key: %w", err)
			}
			l := storedLogin{APIURL: a.apiURL, Credential: strings.TrimSpace(string(text))}
			sdk, err := client.New(l.APIURL, l.Credential, client.WithUserAgent("tranche-cli"))
			if err != nil {
				return usageError{err}
			}
			who, err := sdk.Whoami(c.Context())
			if err != nil {
				return err
			}
			if err := a.remember(l); err != nil {
				return err
			}
			fmt.Fprintf(a.err, "Logged in as %s (%s).\n", who.KeyName, who.Kind)
			return nil
		},
	}
	c.Flags().BoolVar(&withToken, "with-token", false, "read the key from standard input")
	return c
}

// remember writes the login so that only its owner can read it.
func (a *app) remember(l storedLogin) error {
	path := a.loginPath()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("make the folder of the login: %w", err)
	}
	text, err := json.Marshal(l)
	if err != nil {
		return err
	}
	fresh := path + ".new"
	if err := os.WriteFile(fresh, text, 0o600); err != nil {
		return fmt.Errorf("write the login: %w", err)
	}
	return os.Rename(fresh, path)
}

func (a *app) whoami() *cobra.Command {
	return &cobra.Command{
		Use: "whoami", Short: "Show whose credential this is and what it may do", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			sdk, err := a.connect()
			if err != nil {
				return err
			}
			who, err := sdk.Whoami(c.Context())
			if err != nil {
				return err
			}
			return one(a, who, []column[client.Identity]{
				{"KIND", func(w client.Identity) string { return string(w.Kind) }},
				{"ORGANIZATION", func(w client.Identity) string { return or(w.OrganizationName, same) }},
				{"KEY", func(w client.Identity) string { return w.KeyName }},
				{"SCOPES", func(w client.Identity) string { return strings.Join(w.Scopes, " ") }},
				{"EXPIRES", func(w client.Identity) string { return or(w.ExpiresAt, client.Timestamp.String) }},
			})
		},
	}
}
