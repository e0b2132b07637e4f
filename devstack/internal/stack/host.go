package stack

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/tranche-cloud/tranche/client"
	"github.com/tranche-cloud/tranche/devstack/internal/process"
)

// HostDir is the data folder of the agent of a host.
func (s *Stack) HostDir(host string) string { return filepath.Join(s.Dir, "agents", host) }

// StartHost starts the agent of this machine under a name, with arguments beside
// those that every agent has, and lets its host in. It returns at once.
func (s *Stack) StartHost(ctx context.Context, host string, args ...string) error {
	hosts, approve := int32(1), true
	token, err := s.Admin().CreateJoinToken(ctx, client.JoinTokenCreate{MaxHosts: &hosts, AutoApprove: &approve})
	if err != nil {
		return fmt.Errorf("create a join token: %w", err)
	}
	secret, err := token.Secret.Get()
	if err != nil {
		return fmt.Errorf("the join token came without its secret: %w", err)
	}
	tokenFile := filepath.Join(s.Dir, "agents", "join-token-"+host)
	if err := writeFile(tokenFile, []byte(secret)); err != nil {
		return err
	}
	spec := process.Spec{
		Name: AgentName(host), Path: s.binary("tranche-agent"),
		Args: append([]string{"run", "--gateway", "https://" + address(s.Ports.Gateway),
			"--join-token-file", tokenFile, "--data-dir", s.HostDir(host)}, args...),
		Log: s.log(AgentName(host)),
	}
	s.agents[spec.Name] = spec
	return s.run(ctx, spec)
}

// StopHost ends the agent of a host and forgets it; its containers stay.
func (s *Stack) StopHost(ctx context.Context, host string) error {
	return s.end(ctx, AgentName(host))
}
