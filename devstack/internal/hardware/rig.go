package hardware

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tranche-cloud/tranche/client"
	"github.com/tranche-cloud/tranche/devstack/internal/market"
	"github.com/tranche-cloud/tranche/openapi/wire"
)

const (
	hostName = "gpu-host"
	poll     = 50 * time.Millisecond
)

// madeInstance is an instance with who bought it and when it was asked for.
type madeInstance struct {
	client.Instance
	buyer market.Buyer
	asked time.Time
}

func (r *run) agentDir() string { return r.stack.HostDir(hostName) }

// offers are what is sold of an H200, one a mode; sizes are the driver's.
var offers = []struct {
	name    string
	mode    wire.GpuMode
	profile string
	memory  int32
	percent int32
	price   string
}{
	{"h200-whole", wire.GpuModeWhole, "", 143771, 0, "3.99"},
	{"h200-client", wire.GpuModeMps, "1x100", 143771, 100, "3.95"},
	{"h200-half", wire.GpuModeMps, "2x50", 71885, 50, "2.05"},
	{"h200-quarter", wire.GpuModeMps, "4x25", 35942, 25, "1.05"},
	{"h200-turn", wire.GpuModeTimeslice, "2", 71885, 0, "1.95"},
}

const (
	model        = "H200-141"
	vcpu   int32 = 2
	ramMiB int32 = 4096
)

// stock puts the offers on sale and makes two organizations.
func (r *run) stock(ctx context.Context) error {
	book := client.PriceBookCreate{Name: "hardware", Currency: market.Currency}
	for _, o := range offers {
		put := client.OfferPut{GpuModel: model, Mode: o.mode, MemoryMib: o.memory, Vcpu: vcpu, RamMib: ramMiB}
		if o.profile != "" {
			put.Profile = &o.profile
		}
		if o.percent > 0 {
			put.SmPercent = &o.percent
		}
		if _, err := r.admin.PutOffer(ctx, o.name, put); err != nil {
			return fmt.Errorf("put offer %s: %w", o.name, err)
		}
		book.Prices = append(book.Prices, client.OfferPrice{Offer: o.name, PricePerHour: o.price})
	}
	if _, err := r.admin.CreatePriceBook(ctx, book); err != nil {
		return fmt.Errorf("price the offers: %w", err)
	}
	for i, name := range []string{"Red", "Blue"} {
		buyer, err := market.Enlist(ctx, r.admin, name, market.Terms{Quota: client.Quota{Instances: 20, Gpus: 20}})
		if err != nil {
			return err
		}
		r.buyers[i] = buyer
	}
	return nil
}

// awaitGPU waits until the machine's GPU is there.
func (r *run) awaitGPU(ctx context.Context) error {
	for {
		list, err := client.Collect(r.admin.GPUs(ctx))
		if err != nil {
			return err
		}
		if len(list) > 0 {
			r.gpu = list[0]
			return nil
		}
		if err := pause(ctx, "the GPU is not reported"); err != nil {
			return err
		}
	}
}

func pause(ctx context.Context, what string) error {
	timer := time.NewTimer(poll)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", what, ctx.Err())
	}
}

// awaitHost waits until the host takes work.
func (r *run) awaitHost(ctx context.Context) error {
	for {
		list, err := client.Collect(r.admin.Hosts(ctx))
		if err != nil {
			return err
		}
		for _, h := range list {
			if h.State == wire.HostStateReady && h.Liveness == wire.HostLivenessLive {
				return nil
			}
		}
		if err := r.stack.Failed(); err != nil {
			return err
		}
		if err := pause(ctx, "the host is not ready"); err != nil {
			return err
		}
	}
}

// setMode changes the GPU's mode and waits for the end of it.
func (r *run) setMode(ctx context.Context, mode string) error {
	gpu, err := r.admin.GetGPU(ctx, r.gpu.Id)
	if err != nil {
		return err
	}
	began, whenEmpty := time.Now(), true
	op, err := r.admin.SetGPUMode(ctx, gpu.Id, client.GPUModeChange{Mode: mode, WhenEmpty: &whenEmpty}, client.IfGeneration(gpu.Generation))
	if err != nil {
		return fmt.Errorf("set mode %s: %w", mode, err)
	}
	if _, err := r.admin.WaitOperation(ctx, op.Id); err != nil {
		return fmt.Errorf("set mode %s: %w", mode, err)
	}
	r.told("change of mode to "+mode, millis(time.Since(began)), "ms", "")
	return nil
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// create asks for an instance that runs a program under its name as the tag.
func (r *run) create(ctx context.Context, buyer market.Buyer, offer, name string, command ...string) error {
	command[0] = "/" + programFolder + "/" + command[0]
	asked := time.Now()
	i, err := r.stack.Client(buyer.Key).CreateInstance(ctx, buyer.Project, client.InstanceCreate{
		Name: &name, Offer: offer, Image: r.registry.image(), Command: &command, Env: &[]client.EnvVar{{Name: "TAG", Value: name}},
	})
	if err != nil {
		return fmt.Errorf("create %s on %s: %w", name, offer, err)
	}
	r.made[name] = madeInstance{i, buyer, asked}
	return nil
}

// running waits until an instance runs, and tells how long that took since it was
// asked for.
func (r *run) running(ctx context.Context, name string) (time.Duration, error) {
	m := r.made[name]
	_, err := r.stack.Client(m.buyer.Key).WaitInstance(ctx, m.buyer.Project, m.Id, wire.WaitStatusRunning)
	return time.Since(m.asked), err
}

// look reads an instance.
func (r *run) look(ctx context.Context, name string) (client.Instance, error) {
	m := r.made[name]
	return r.stack.Client(m.buyer.Key).GetInstance(ctx, m.buyer.Project, m.Id)
}

// gone waits until an instance does not run any more and returns it. While the end of
// a run is not told in full it is interrupted.
func (r *run) gone(ctx context.Context, name string) (client.Instance, error) {
	const settle = 5 * time.Second
	var since time.Time
	for {
		i, err := r.look(ctx, name)
		if err != nil {
			return i, err
		}
		switch i.Status {
		case wire.InstanceStatusStopped, wire.InstanceStatusFailed:
			return i, nil
		case wire.InstanceStatusInterrupted:
			if since.IsZero() {
				since = time.Now()
			}
			if time.Since(since) > settle {
				return i, nil
			}
		}
		if err := pause(ctx, name+" still runs"); err != nil {
			return i, err
		}
	}
}

// remove deletes instances and waits until they are gone.
func (r *run) remove(ctx context.Context, names ...string) error {
	var errs []error
	for _, name := range names {
		m, ok := r.made[name]
		if !ok {
			continue
		}
		_, err := r.stack.Client(m.buyer.Key).DeleteInstance(ctx, m.buyer.Project, m.Id)
		errs = append(errs, err)
	}
	for _, name := range names {
		m, ok := r.made[name]
		if !ok {
			continue
		}
		_, err := r.stack.Client(m.buyer.Key).WaitInstance(ctx, m.buyer.Project, m.Id, wire.WaitStatusDeleted)
		if err == nil {
			delete(r.made, name)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// clear deletes all that a step has left, whatever became of the step.
func (r *run) clear(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	var names []string
	for name := range r.made {
		names = append(names, name)
	}
	return r.remove(ctx, names...)
}

// events lists what the operator was told of an instance, newest first.
func (r *run) events(ctx context.Context, name string) ([]client.Event, error) {
	return client.Collect(r.admin.Events(ctx, client.EventFilter{Subject: r.made[name].Id}))
}
