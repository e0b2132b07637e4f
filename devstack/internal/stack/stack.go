package stack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tranche-cloud/tranche/client"
	"github.com/tranche-cloud/tranche/devstack/internal/postgres"
	"github.com/tranche-cloud/tranche/devstack/internal/process"
)

// Names of the database, its owner and the login of the control plane.
const (
	database      = "tranche"
	databaseOwner = "tranche_owner"
	databaseLogin = "tranche"
	temporalOwner = "temporal"
	namespace     = "tranche"
)

// stopTime bounds the orderly end of each child.
const stopTime = 15 * time.Second

// Config says what to start and where.
type Config struct {
	// Dir holds everything the stack writes.
	Dir string
	// BinDir holds tranched, tranche-agent and tranche-dev.
	BinDir string
	Ports  Ports
	// Durable: data survive a power cut, at the speed of the disk.
	Durable bool
	// OneProcess runs `tranched all` instead of a process for each role.
	OneProcess bool
	// Containers gives agents a real container runtime; see CanContain.
	Containers bool
	// AgentArgs are said to every agent of a simulated host beside the usual ones.
	AgentArgs []string
	// Stage is told what was done and how long it took; nil: nobody.
	Stage func(what string, took time.Duration)
}

// Stack is a running installation.
type Stack struct {
	Config
	Postgres *postgres.Cluster

	admin      string
	hold       *os.File
	containers *containers // nil: the fake runtime

	mu       sync.Mutex
	children []*process.Process // in order of their start
	agents   map[string]process.Spec
}

// Start brings a stack up, on what an earlier one left in the folder if there
// was one, and returns when the API answers. End it with Stop.
func Start(ctx context.Context, c Config) (*Stack, error) {
	// Children run in other folders.
	for _, dir := range []*string{&c.Dir, &c.BinDir} {
		abs, err := filepath.Abs(*dir)
		if err != nil {
			return nil, fmt.Errorf("find %s: %w", *dir, err)
		}
		*dir = abs
	}
	if err := makeFolders(c.Dir); err != nil {
		return nil, err
	}
	hold, err := claim(c.Dir)
	if err != nil {
		return nil, err
	}
	s := &Stack{Config: c, hold: hold, agents: map[string]process.Spec{}}
	if err := s.start(ctx); err != nil {
		return nil, errors.Join(err, s.Stop(context.WithoutCancel(ctx)))
	}
	return s, nil
}

func (s *Stack) start(ctx context.Context) error {
	if err := s.stage("Postgres", func() error { return s.startPostgres(ctx) }); err != nil {
		return err
	}
	both, groupCtx := errgroup.WithContext(ctx)
	both.Go(func() error {
		return s.stage("Temporal", func() error { return s.startTemporal(groupCtx) })
	})
	both.Go(func() error {
		return s.stage("schema", func() error { return s.migrate(groupCtx) })
	})
	if err := both.Wait(); err != nil {
		return err
	}
	if err := s.stage("control plane", func() error { return s.startControlPlane(ctx) }); err != nil {
		return err
	}
	if !s.Containers {
		return nil
	}
	return s.stage("containerd", func() error { return s.startContainers(ctx) })
}

func (s *Stack) stage(what string, work func() error) error {
	began := time.Now()
	if err := work(); err != nil {
		return fmt.Errorf("start %s: %w", what, err)
	}
	if s.Stage != nil {
		s.Stage(what, time.Since(began))
	}
	return nil
}

// Stop ends the children in reverse order of their start.
func (s *Stack) Stop(ctx context.Context) error {
	s.mu.Lock()
	children := slices.Clone(s.children)
	s.children = nil
	s.mu.Unlock()
	slices.Reverse(children)
	var errs []error
	// Agents are many and independent; the rest ends one after the other.
	var agents sync.WaitGroup
	var mu sync.Mutex
	stop := func(p *process.Process) {
		ctx, cancel := context.WithTimeout(ctx, stopTime)
		defer cancel()
		if err := p.Stop(ctx); err != nil {
			mu.Lock()
			errs = append(errs, err)
			mu.Unlock()
		}
	}
	for _, p := range children {
		if _, ok := s.agents[p.Name()]; ok {
			agents.Go(func() { stop(p) })
			continue
		}
		agents.Wait()
		if p.Name() == "containerd" {
			errs = append(errs, s.purge(ctx))
		}
		stop(p)
	}
	agents.Wait()
	if s.containers != nil {
		errs = append(errs, os.RemoveAll(s.containers.run))
	}
	if s.hold != nil {
		errs = append(errs, s.hold.Close())
	}
	return errors.Join(errs...)
}

// Failed returns why a child was given up, or nil while all run.
func (s *Stack) Failed() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.children {
		if err := p.Err(); err != nil {
			return err
		}
	}
	return nil
}

// URL is the address of the API.
func (s *Stack) URL() string { return "http://" + address(s.Ports.API) }

// AdminToken is the operator's credential.
func (s *Stack) AdminToken() string { return s.admin }

// Client speaks to the API with a credential.
func (s *Stack) Client(credential string) *client.Client {
	c, err := client.New(s.URL(), credential)
	if err != nil {
		panic("stack: own address refused: " + err.Error())
	}
	return c
}

// Admin speaks to the API as the operator.
func (s *Stack) Admin() client.Admin { return s.Client(s.admin).Admin() }

// Process returns a child by name: postgres, temporal, api, worker, gateway,
// all, or agent-<host>.
func (s *Stack) Process(name string) (*process.Process, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.children {
		if p.Name() == name {
			return p, nil
		}
	}
	return nil, fmt.Errorf("no process %q", name)
}

// Kill kills a child with SIGKILL; it is started again.
func (s *Stack) Kill(name string) error {
	p, err := s.Process(name)
	if err != nil {
		return err
	}
	return p.Signal(syscall.SIGKILL)
}

// run starts a child and remembers it.
func (s *Stack) run(ctx context.Context, spec process.Spec) error {
	p, err := process.Start(ctx, spec)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.children = append(s.children, p)
	s.mu.Unlock()
	return nil
}

// end stops a child and forgets it.
func (s *Stack) end(ctx context.Context, name string) error {
	p, err := s.Process(name)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.children = slices.DeleteFunc(s.children, func(other *process.Process) bool { return other == p })
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, stopTime)
	defer cancel()
	return p.Stop(ctx)
}

func (s *Stack) log(name string) string { return filepath.Join(s.Dir, "log", name+".log") }

func (s *Stack) binary(name string) string { return filepath.Join(s.BinDir, name) }
