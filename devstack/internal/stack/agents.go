package stack

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tranche-cloud/tranche/client"
	"github.com/tranche-cloud/tranche/devstack/internal/market"
	"github.com/tranche-cloud/tranche/devstack/internal/process"
	"github.com/tranche-cloud/tranche/openapi/wire"
)

// hostPoll is how often a wait for hosts looks at them.
const hostPoll = 50 * time.Millisecond

// AgentName is the name of the child that runs a host.
func AgentName(host string) string { return "agent-" + host }

// Enrol starts an agent for each host of the fleet with one join token for all,
// and returns when all hosts take work. Hosts that joined earlier come back.
func (s *Stack) Enrol(ctx context.Context, fleet market.Fleet) error {
	if err := s.StartAgents(ctx, fleet, true); err != nil {
		return err
	}
	return s.WaitHosts(ctx, fleet, wire.HostStateReady)
}

// StartAgents starts the agents. With approve their hosts are let in at once,
// otherwise each waits for an operator.
func (s *Stack) StartAgents(ctx context.Context, fleet market.Fleet, approve bool) error {
	fleetFile := filepath.Join(s.Dir, "fleet.yaml")
	if err := writeFile(fleetFile, fleet.YAML()); err != nil {
		return err
	}
	hosts := int32(len(fleet))
	token, err := s.Admin().CreateJoinToken(ctx, client.JoinTokenCreate{MaxHosts: &hosts, AutoApprove: &approve})
	if err != nil {
		return fmt.Errorf("create a join token: %w", err)
	}
	secret, err := token.Secret.Get()
	if err != nil {
		return fmt.Errorf("the join token came without its secret: %w", err)
	}
	tokenFile := filepath.Join(s.Dir, "agents", "join-token")
	if err := writeFile(tokenFile, []byte(secret)); err != nil {
		return err
	}
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(8)
	for _, h := range fleet {
		spec := s.agent(h.Name, fleetFile, tokenFile)
		s.agents[spec.Name] = spec
		group.Go(func() error { return s.run(groupCtx, spec) })
	}
	return group.Wait()
}

func (s *Stack) agent(host, fleetFile, tokenFile string) process.Spec {
	args := []string{"run", "--driver=sim", "--fleet", fleetFile, "--host", host,
		"--gateway", "https://" + address(s.Ports.Gateway), "--join-token-file", tokenFile, "--data-dir", s.HostDir(host)}
	return process.Spec{
		Name: AgentName(host), Path: s.binary("tranche-agent"),
		Args: slices.Concat(args, s.arguments(host), s.AgentArgs), Log: s.log(AgentName(host)),
	}
}

// WaitHosts waits until all hosts of the fleet are in a state; ready ones must
// also be heard of.
func (s *Stack) WaitHosts(ctx context.Context, fleet market.Fleet, state wire.HostState) error {
	admin := s.Admin()
	tick := time.NewTicker(hostPoll)
	defer tick.Stop()
	for {
		hosts, err := client.Collect(admin.Hosts(ctx))
		if err != nil {
			return fmt.Errorf("wait for hosts: %w", err)
		}
		missing := missing(fleet, hosts, state)
		if missing == "" {
			return nil
		}
		if err := s.Failed(); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("host %s: %w", missing, ctx.Err())
		}
	}
}

// missing describes the first host that is not there yet.
func missing(fleet market.Fleet, hosts []client.Host, state wire.HostState) string {
	known := make(map[string]client.Host, len(hosts))
	for _, h := range hosts {
		known[h.Name] = h
	}
	for _, want := range fleet {
		h, ok := known[want.Name]
		switch {
		case !ok:
			return want.Name + " has not asked to join"
		case h.State != state:
			return fmt.Sprintf("%s is %s", want.Name, h.State)
		case state == wire.HostStateReady && h.Liveness != wire.HostLivenessLive:
			return fmt.Sprintf("%s is %s", want.Name, h.Liveness)
		}
	}
	return ""
}
