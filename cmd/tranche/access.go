package main

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tranche-cloud/tranche/client"
)

// accessFlags are the flags of a create that say how to get in.
type accessFlags struct {
	keys, ports     []string
	shm             int32
	login, recovery string
}

func (f *accessFlags) add(c *cobra.Command) {
	c.Flags().StringArrayVar(&f.keys, "ssh-key", nil, "file with public keys that may log in, repeatable")
	c.Flags().StringSliceVar(&f.ports, "port", nil, "container port to publish: 8888 or 5353/udp, repeatable")
	c.Flags().Int32Var(&f.shm, "shm", 0, "size of /dev/shm in MiB (default: half of the RAM)")
	c.Flags().StringVar(&f.login, "registry-login", "", "registry login to pull with (default: the one of the image's registry)")
	c.Flags().StringVar(&f.recovery, "recovery", "", "what follows when the platform ends a run: stop, restart or restart_unfenced")
}

func (f *accessFlags) into(in *client.InstanceCreate) error {
	keys, err := readKeys(f.keys)
	if err != nil {
		return err
	}
	if len(keys) > 0 {
		in.SshKeys = &keys
	}
	var ports []client.Port
	for _, text := range f.ports {
		p, err := parsePort(text)
		if err != nil {
			return err
		}
		ports = append(ports, p)
	}
	if len(ports) > 0 {
		in.Ports = &ports
	}
	if f.shm != 0 {
		in.ShmMib = &f.shm
	}
	if f.recovery != "" {
		recovery := client.Recovery(f.recovery)
		in.Recovery = &recovery
	}
	in.RegistryLogin = optional(f.login)
	return nil
}

// readKeys takes the keys of files such as ~/.ssh/id_ed25519.pub, one a line.
func readKeys(files []string) ([]string, error) {
	keys := []string{}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, usagef("--ssh-key: %v", err)
		}
		if strings.Contains(string(text), "PRIVATE KEY") {
			return nil, usagef("--ssh-key %s is a private key, which stays with you; give the .pub file beside it", name)
		}
		before := len(keys)
		for line := range strings.Lines(string(text)) {
			if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
				keys = append(keys, line)
			}
		}
		if len(keys) == before {
			return nil, usagef("--ssh-key %s holds no key", name)
		}
	}
	return keys, nil
}

func parsePort(text string) (client.Port, error) {
	number, protocol, named := strings.Cut(text, "/")
	n, err := strconv.ParseUint(number, 10, 16)
	if err != nil || n == 0 || named && protocol != "tcp" && protocol != "udp" {
		return client.Port{}, usagef("--port takes a port of the container such as 8888 or 5353/udp, not %q", text)
	}
	p := client.Port{ContainerPort: int32(n)}
	if named {
		kind := client.PortProtocol(protocol)
		p.Protocol = &kind
	}
	return p, nil
}

func endpoints(i client.Instance) string {
	var parts []string
	for _, e := range i.Endpoints {
		at := net.JoinHostPort(e.Host, strconv.Itoa(int(e.Port)))
		if e.Kind == client.EndpointSSH {
			parts = append(parts, "ssh "+at)
			continue
		}
		parts = append(parts, fmt.Sprintf("%s/%s → %s", or(e.ContainerPort, number), e.Protocol, at))
	}
	return joined(parts)
}

func number(n int32) string { return strconv.Itoa(int(n)) }

func interruptions(i client.Instance) string {
	var parts []string
	for _, x := range i.Interruptions {
		text := fmt.Sprintf("%s from %s to %s", x.Cause, x.From.Format(time.DateTime), or(x.To, client.Timestamp.String))
		if x.Credited {
			text += " (credited)"
		}
		parts = append(parts, text)
	}
	return joined(parts)
}

func (a *app) instanceUpdate(o *instanceOptions) *cobra.Command {
	var files []string
	var none bool
	c := &cobra.Command{
		Use:     "update INSTANCE --ssh-key FILE…",
		Short:   "Replace the keys that may log in; nothing is stopped or started again",
		Example: "  tranche instance update inst_… --ssh-key ~/.ssh/id_ed25519.pub --ssh-key colleague.pub",
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if none == (len(files) > 0) {
				return usagef("update takes either --ssh-key FILE, repeatable, or --no-ssh-keys")
			}
			keys, err := readKeys(files)
			if err != nil {
				return err
			}
			sdk, err := a.connect()
			if err != nil {
				return err
			}
			i, err := sdk.UpdateInstance(c.Context(), o.project, args[0], client.InstancePatch{SshKeys: &keys})
			if err != nil {
				return err
			}
			return a.printInstance(i)
		},
	}
	c.Flags().StringArrayVar(&files, "ssh-key", nil, "file with public keys that may log in, repeatable")
	c.Flags().BoolVar(&none, "no-ssh-keys", false, "let no key in; certificates of `tranche instance ssh` still do")
	return c
}

func (a *app) instanceSamples(o *instanceOptions) *cobra.Command {
	var from, to string
	c := &cobra.Command{
		Use: "samples INSTANCE", Short: "Show what was measured of an instance, gaps included", Args: cobra.ExactArgs(1),
		Example: "  tranche instance samples inst_… --from 2026-11-30T12:00:00Z",
		RunE: func(c *cobra.Command, args []string) error {
			since, err := instant("from", from)
			if err != nil {
				return err
			}
			until, err := instant("to", to)
			if err != nil {
				return err
			}
			sdk, err := a.connect()
			if err != nil {
				return err
			}
			all, err := client.Collect(sdk.Samples(c.Context(), o.project, args[0], since, until))
			if err != nil {
				return err
			}
			return list(a, all, []column[client.Sample]{
				{"AT", func(s client.Sample) string { return s.At.String() }},
				{"INTERVAL", func(s client.Sample) string { return (time.Duration(s.IntervalMs) * time.Millisecond).String() }},
				{"SOURCE", func(s client.Sample) string { return s.Source }},
				{"GAP", func(s client.Sample) string { return or(s.Gap, same) }},
				{"READINGS", func(s client.Sample) string { return readings(s.Readings) }},
			})
		},
	}
	c.Flags().StringVar(&from, "from", "", "from this instant, RFC 3339 (default: an hour before --to)")
	c.Flags().StringVar(&to, "to", "", "before this instant, RFC 3339 (default: now)")
	return c
}
