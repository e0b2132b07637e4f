// Package story owns the demo: one tenant's whole path from a bare machine to an
// invoice, told step by step with times.
//
// It uses the public API of a running stack; what it prints is for people, and
// what it returns says whether everything held.
package story

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/tranche-cloud/tranche/client"
	"github.com/tranche-cloud/tranche/devstack/internal/market"
	"github.com/tranche-cloud/tranche/devstack/internal/stack"
	"github.com/tranche-cloud/tranche/openapi/wire"
)

// businessScale makes a second of the demo an hour of business time, so that the
// invoice has something on it.
const businessScale = 3600

// patience bounds each wait of the story.
const patience = time.Minute

// teller tells the story on a stack.
type teller struct {
	stack  *stack.Stack
	out    io.Writer
	fleet  market.Fleet
	buyer  market.Buyer
	client *client.Client
	rented []client.Instance

	invoiceID string
	billed    client.Invoice
}

// step is one step: a title in the imperative, and what is done. It returns what
// is worth saying.
type step struct {
	title string
	do    func(*teller, context.Context) (string, error)
}

var steps = []step{
	{"enrol four hosts: join token, certificate request, operator's approval", (*teller).enrol},
	{"put offers on sale and price them", (*teller).stock},
	{"create an organization, its project and an API key", (*teller).enlist},
	{"say who sells to whom, and what is taxed", (*teller).seller},
	{"let business time run 3600× from the next 2nd of a month", (*teller).openMonth},
	{"create an instance in each mode and wait until they run", (*teller).create},
	{"enter one by SSH and run a command", (*teller).enter},
	{"stop one: its slice is free, its bill stands still", (*teller).stop},
	{"start it again: a new run, perhaps elsewhere", (*teller).start},
	{"preview the invoice", (*teller).preview},
	{"delete all instances", (*teller).remove},
	{"show the usage by offer", (*teller).usage},
	{"close the month and finalize the invoice", (*teller).invoice},
	{"take the invoice apart, down to the seconds of the instances", (*teller).apart},
	{"write it as PDF, the stored original, and as HTML", (*teller).papers},
	{"audit the installation", (*teller).audit},
	{"tranche invoice get", (*teller).table},
}

// List prints the steps.
func List(w io.Writer) error {
	for i, s := range steps {
		if _, err := fmt.Fprintf(w, "%2d  %s\n", i+1, s.title); err != nil {
			return err
		}
	}
	return nil
}

// Tell plays the story on a fresh stack.
func Tell(ctx context.Context, s *stack.Stack, w io.Writer) error {
	t := &teller{stack: s, out: w, fleet: market.Small(1)}
	for i, step := range steps {
		began := time.Now()
		fmt.Fprintf(w, "\n%2d  %s\n", i+1, step.title)
		said, err := step.do(t, ctx)
		if err != nil {
			return fmt.Errorf("step %d, %s: %w", i+1, step.title, err)
		}
		fmt.Fprintf(w, "%s    %.2f s\n", said, time.Since(began).Seconds())
	}
	return nil
}

func (t *teller) enrol(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := t.stack.StartAgents(ctx, t.fleet, false); err != nil {
		return "", err
	}
	if err := t.stack.WaitHosts(ctx, t.fleet, wire.HostStatePending); err != nil {
		return "", err
	}
	admin := t.stack.Admin()
	hosts, err := client.Collect(admin.Hosts(ctx))
	if err != nil {
		return "", err
	}
	for _, h := range hosts {
		if _, err := admin.ApproveHost(ctx, h.Id, client.IfGeneration(h.Generation)); err != nil {
			return "", err
		}
	}
	if err := t.stack.WaitHosts(ctx, t.fleet, wire.HostStateReady); err != nil {
		return "", err
	}
	said := ""
	for _, h := range t.fleet {
		said += fmt.Sprintf("    %-12s %d × %s, mode %s (simulated)\n", h.Name, h.GPUs[0].Count, h.GPUs[0].Model, h.GPUs[0].Mode)
	}
	return said, nil
}

func (t *teller) stock(ctx context.Context) (string, error) {
	if err := market.Stock(ctx, t.stack.Admin()); err != nil {
		return "", err
	}
	said := ""
	for _, p := range market.Products {
		said += fmt.Sprintf("    %-22s %s %s/h\n", p.Offer, p.Price, market.Currency)
	}
	return said, nil
}

func (t *teller) enlist(ctx context.Context) (string, error) {
	var err error
	t.buyer, err = market.Enlist(ctx, t.stack.Admin(), "Acme", market.Terms{Quota: client.Quota{Instances: 10, Gpus: 10}})
	if err != nil {
		return "", err
	}
	t.client = t.stack.Client(t.buyer.Key)
	return fmt.Sprintf("    %s, %s\n", t.buyer.ID, t.buyer.Project), nil
}

func (t *teller) openMonth(ctx context.Context) (string, error) {
	clock, err := t.stack.OpenMonth(ctx, businessScale)
	return fmt.Sprintf("    business time is %s\n", clock.Now.Format(time.DateTime)), err
}

func (t *teller) create(ctx context.Context) (string, error) {
	said := ""
	program := []string{"sh", "-c", "echo training on $(hostname); exec sleep 100000"}
	for _, p := range []market.Product{market.Whole, market.MIG, market.MPS, market.TimeSlice} {
		began := time.Now()
		name := string(p.Shape.Mode)
		instance, err := t.client.CreateInstance(ctx, t.buyer.Project, client.InstanceCreate{
			Name: &name, Offer: p.Offer, Image: t.stack.Image(), Command: &program,
		})
		if err != nil {
			return "", fmt.Errorf("create on %s: %w", p.Offer, err)
		}
		running, err := t.wait(ctx, instance.Id, wire.WaitStatusRunning)
		if err != nil {
			return "", err
		}
		t.rented = append(t.rented, running)
		said += fmt.Sprintf("    %-10s %s  running after %d ms\n", name, slice(running), time.Since(began).Milliseconds())
	}
	return said, nil
}

// enter runs a command in an instance through the CLI, which asks the API for a
// short-lived certificate and speaks to the host's SSH gateway.
func (t *teller) enter(ctx context.Context) (string, error) {
	if !t.stack.Containers {
		return "    skipped: no container runs\n", nil
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	id := t.rented[1].Id
	out, err := t.cli(ctx, "instance", "exec", id, "--", "sh", "-c", "echo hello from $(hostname) as uid $(id -u), GPU nodes: $(ls /dev/tranche-mock)")
	if err != nil {
		return "", err
	}
	logs, err := t.cli(ctx, "instance", "logs", id)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("    exec: %s\n    logs: %s\n", out, logs), nil
}

// cli runs the command line as the tenant.
func (t *teller) cli(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(t.stack.BinDir, "tranche"), args...) //nolint:gosec // our own binary
	cmd.Env = append(os.Environ(), "TRANCHE_API_URL="+t.stack.URL(), "TRANCHE_API_KEY="+t.buyer.Key)
	out, err := cmd.CombinedOutput()
	text := strings.TrimSpace(string(out))
	if err != nil {
		return "", fmt.Errorf("tranche %s: %w: %s", strings.Join(args, " "), err, text)
	}
	return text, nil
}

// slice says in a line what an instance holds.
func slice(i client.Instance) string {
	if len(i.Gpus) == 0 {
		return "nothing"
	}
	g := i.Gpus[0]
	where := "the whole GPU"
	if p, err := g.Placement.Get(); err == nil {
		where = fmt.Sprintf("%d units from %d", p.Size, p.Start)
	}
	return fmt.Sprintf("%s, %d MiB, %s, isolation %s", g.Model, g.MemoryMib, where, i.Isolation.Gpu)
}

func (t *teller) wait(ctx context.Context, id string, want client.WaitStatus) (client.Instance, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return t.client.WaitInstance(ctx, t.buyer.Project, id, want)
}

func (t *teller) stop(ctx context.Context) (string, error) {
	id := t.rented[0].Id
	if _, err := t.client.StopInstance(ctx, t.buyer.Project, id); err != nil {
		return "", err
	}
	stopped, err := t.wait(ctx, id, wire.WaitStatusStopped)
	if err != nil {
		return "", err
	}
	if len(stopped.Gpus) > 0 {
		return "", fmt.Errorf("the stopped instance still holds %s", slice(stopped))
	}
	return fmt.Sprintf("    %s costs %s %s so far\n", stopped.Name, stopped.CostSoFar.Amount, stopped.CostSoFar.Currency), nil
}

func (t *teller) start(ctx context.Context) (string, error) {
	id := t.rented[0].Id
	if _, err := t.client.StartInstance(ctx, t.buyer.Project, id); err != nil {
		return "", err
	}
	running, err := t.wait(ctx, id, wire.WaitStatusRunning)
	return fmt.Sprintf("    %s: %s, billed in %d intervals\n", running.Name, slice(running), len(running.Billed)), err
}

func (t *teller) remove(ctx context.Context) (string, error) {
	for _, i := range t.rented {
		if _, err := t.client.DeleteInstance(ctx, t.buyer.Project, i.Id); err != nil {
			return "", err
		}
	}
	said := ""
	for n, i := range t.rented {
		gone, err := t.wait(ctx, i.Id, wire.WaitStatusDeleted)
		if err != nil {
			return "", err
		}
		t.rented[n] = gone
		said += fmt.Sprintf("    %-10s deleted, cost %s %s\n", gone.Name, gone.CostSoFar.Amount, gone.CostSoFar.Currency)
	}
	return said, nil
}

func (t *teller) audit(ctx context.Context) (string, error) {
	report, err := t.stack.Doctor(ctx)
	if err != nil {
		return "", errors.Join(err, errors.New(string(report)))
	}
	return indent(string(report)), nil
}
