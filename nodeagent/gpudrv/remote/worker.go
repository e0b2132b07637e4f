package remote

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"

	"github.com/tranche-cloud/tranche/nodeagent/callwire"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
)

// Worker is a driver for one connection.
type Worker struct {
	// Open opens the driver, once the other side asks for it.
	Open func(ctx context.Context) (gpudrv.Driver, error)
	// Excluded are the UUIDs of GPUs that must not be touched.
	Excluded []string
}

// Serve answers calls on the connection until it ends, and closes the driver. It does
// not wait for calls that hang: end the process after it.
func (w Worker) Serve(ctx context.Context, conn io.ReadWriteCloser) error {
	b := &bench{Worker: w}
	err := callwire.Serve(ctx, conn, b.handle)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.driver != nil {
		err = errors.Join(err, b.driver.Close())
	}
	return err
}

// bench is a worker at work.
type bench struct {
	Worker

	mu     sync.Mutex
	driver gpudrv.Driver
}

func (b *bench) handle(ctx context.Context, c callwire.Call) (any, error) {
	a, err := ParseArgs(c.Body)
	if err != nil {
		return nil, err
	}
	if a.GPU != "" && slices.Contains(b.Excluded, a.GPU) {
		return nil, gpudrv.Refuse(gpudrv.Hung, c.Verb, a.GPU, "it hung before and is not asked")
	}
	d, err := b.opened(ctx, c.Verb)
	if err != nil || c.Verb == opOpen {
		return nil, err
	}
	if c.Verb == opWatch {
		return nil, Forward(ctx, d, c.Note)
	}
	if out, known, err := change(ctx, d, c.Verb, a); known {
		return out, err
	}
	return Read(ctx, d, c.Verb, a)
}

// opened opens the driver with the first call, which is open.
func (b *bench) opened(ctx context.Context, op string) (gpudrv.Driver, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.driver == nil && op != opOpen {
		return nil, gpudrv.Refuse(gpudrv.Invalid, op, "", "the driver is not open")
	}
	if b.driver == nil {
		d, err := b.Open(ctx)
		if err != nil {
			return nil, err
		}
		b.driver = d
	}
	return b.driver, nil
}

// Forward tells the driver's events until the context ends; it tells an Event with no
// kind first, once it is registered.
func Forward(ctx context.Context, d gpudrv.Observer, tell func(any) error) (err error) {
	registering, cancel := context.WithTimeout(ctx, registerWithin)
	defer cancel()
	w, err := d.Watch(registering)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	if err := tell(gpudrv.Event{}); err != nil {
		return err
	}
	for {
		e, err := w.Next(ctx)
		if err != nil {
			return err
		}
		if err := tell(e); err != nil {
			return err
		}
	}
}
