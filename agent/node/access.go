package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/tranche-cloud/tranche/agent/guest"
	"github.com/tranche-cloud/tranche/agent/sshgw"
	"github.com/tranche-cloud/tranche/internal/agentlink"
	"github.com/tranche-cloud/tranche/internal/clock"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/nodeagent"
	"github.com/tranche-cloud/tranche/nodeagent/runtime"
	"github.com/tranche-cloud/tranche/nodeagent/spool"
)

// door writes the SSH gateway's desired state. It implements nodeagent.Door.
type door struct {
	state   *sshgw.State
	guests  string // folder of the guests' folders
	runtime runtime.Driver
	refresh func()
}

// Open implements nodeagent.Door. An instance whose container is not there yet gets
// its entry when it is told again.
func (d *door) Open(ctx context.Context, authorities []string, list []nodeagent.Access) error {
	containers, err := d.runtime.List(ctx)
	if err != nil {
		return fmt.Errorf("find the instances' groups: %w", err)
	}
	if err := d.state.SetAuthorities(authorities); err != nil {
		return err
	}
	entries := map[id.Instance]sshgw.Entry{}
	for _, a := range list {
		i := slices.IndexFunc(containers, func(c runtime.Container) bool { return c.Name == a.Assignment.String() })
		if i < 0 {
			continue
		}
		e := sshgw.Entry{
			Instance: a.Instance, Assignment: a.Assignment.String(), Cgroup: containers[i].Cgroup, Keys: a.Keys,
			Socket: guest.Folder{Path: filepath.Join(d.guests, a.Assignment.String())}.Shell(),
			Log:    a.Assignment.String() + ".log",
		}
		// Of two runs of an instance the one that runs is the instance.
		if _, twice := entries[a.Instance]; !twice || containers[i].State == runtime.Running {
			entries[a.Instance] = e
		}
	}
	errs := []error{d.clear(entries)}
	for _, e := range entries {
		err := d.state.Put(e)
		if err != nil {
			errs = append(errs, fmt.Errorf("instance %s: %w", e.Instance, err))
		}
	}
	d.refresh()
	return errors.Join(errs...)
}

// clear removes the entries of instances that are not here any more.
func (d *door) clear(keep map[id.Instance]sshgw.Entry) error {
	have, err := d.state.List()
	if err != nil {
		return err
	}
	var errs []error
	for _, instance := range have {
		if _, ok := keep[instance]; !ok {
			errs = append(errs, d.state.Remove(instance))
		}
	}
	return errors.Join(errs...)
}

// collectEvery is how often audit records move from the gateway to the spool.
const collectEvery = time.Second

// collect carries the gateway's audit records into the agent's spool until ctx ends.
func collect(ctx context.Context, from *sshgw.Spool, to *spool.Spool, c clock.Clock, log *slog.Logger) {
	for {
		if err := carry(from, to, c.Now()); err != nil {
			log.Error("ssh audit not collected", "error", err)
		}
		timer := c.NewTimer(collectEvery)
		select {
		case <-timer.C():
		case <-ctx.Done():
			timer.Stop()
			// What the gateway wrote while it closed its sessions.
			if err := carry(from, to, c.Now()); err != nil {
				log.Error("ssh audit not collected", "error", err)
			}
			return
		}
	}
}

// atOnce is how many records are carried in one go.
const atOnce = 256

func carry(from *sshgw.Spool, to *spool.Spool, now time.Time) error {
	for {
		list, err := from.Collect(atOnce)
		if err != nil || len(list) == 0 {
			return err
		}
		for _, r := range list {
			if err := to.Event(sessionEvent(r.Record, now)); err != nil {
				return err
			}
			if err := from.Forget(r); err != nil {
				return err
			}
		}
	}
}

func sessionEvent(r sshgw.Record, now time.Time) agentlink.Event {
	e := agentlink.Event{
		Kind: "session." + r.Event, Subject: r.Assignment, Detail: r.Reason, Age: max(0, now.Sub(r.At)),
		Attributes: map[string]string{
			"session": r.Session, "instance": r.Instance, "fingerprint": r.Fingerprint, "remote": r.Remote,
			"principal": r.Principal,
		},
	}
	if r.Serial != 0 {
		e.Attributes["serial"] = strconv.FormatUint(r.Serial, 10)
	}
	if r.Event == sshgw.Closed {
		e.Attributes["kinds"] = fmt.Sprint(r.Kinds)
		e.Attributes["bytes_in"] = strconv.FormatInt(r.In, 10)
		e.Attributes["bytes_out"] = strconv.FormatInt(r.Out, 10)
		e.Attributes["duration_ms"] = strconv.FormatInt(r.Duration.Milliseconds(), 10)
	}
	maps.DeleteFunc(e.Attributes, func(_, v string) bool { return v == "" })
	return e
}

// gateway is the SSH gateway in this process.
type gateway struct {
	server   *sshgw.Server
	listener net.Listener
	audit    *sshgw.Spool
	state    *sshgw.State
}

// openGateway listens for tenants. Sessions that an earlier gateway left open are
// recorded as closed.
func (o Options) openGateway(ctx context.Context, c clock.Clock, log *slog.Logger) (*gateway, error) {
	dir := filepath.Join(o.Dir, "ssh")
	audit, err := sshgw.OpenSpool(filepath.Join(dir, "audit"))
	if err != nil {
		return nil, err
	}
	if err := audit.Recover(c.Now()); err != nil {
		return nil, err
	}
	state, err := sshgw.OpenState(filepath.Join(dir, "state"))
	if err != nil {
		return nil, err
	}
	server, err := sshgw.New(sshgw.Config{
		State: filepath.Join(dir, "state"), HostKey: filepath.Join(dir, "host_key"), Logs: filepath.Join(o.Dir, "logs"),
		Audit: audit.Add, Clock: c, Log: log,
	})
	if err != nil {
		return nil, err
	}
	var listen net.ListenConfig
	listener, err := listen.Listen(ctx, "tcp", o.SSHListen)
	if err != nil {
		return nil, fmt.Errorf("listen for SSH on %s: %w", o.SSHListen, err)
	}
	return &gateway{server: server, listener: listener, audit: audit, state: state}, nil
}

// reach is what tenants are told about this host.
func (o Options) reach(g *gateway) agentlink.Reach {
	r := agentlink.Reach{Address: o.Address, FirstPort: o.Ports.First, LastPort: o.Ports.Last}
	if o.Network == NoNetwork {
		r.FirstPort, r.LastPort = 0, 0
	}
	if g == nil {
		return r
	}
	r.SSHHostKey = g.server.HostKey()
	if at, ok := g.listener.Addr().(*net.TCPAddr); ok {
		r.SSHPort = at.Port
		r.Address = cmp.Or(r.Address, at.IP.String())
	}
	return r
}
