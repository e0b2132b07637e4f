package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/tranche-cloud/tranche/internal/clock"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv/nvml"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv/remote"
)

// workerCommandName is how the agent starts itself as the only user of the GPU driver;
// nobody else does.
const workerCommandName = "gpu-worker"

// workerFlags are the flags of gpu-worker.
type workerFlags struct {
	driver     driverFlags
	mpsControl string
	excluded   []string
}

func workerCommand() *cobra.Command {
	var f workerFlags
	cmd := &cobra.Command{
		Use:    workerCommandName,
		Short:  "Answer one agent's calls of the GPU driver on standard input and output",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			conn, err := standardPipe()
			if err != nil {
				return err
			}
			return remote.Worker{Open: f.open, Excluded: f.excluded}.Serve(cmd.Context(), conn)
		},
	}
	f.driver.register(cmd.Flags())
	cmd.Flags().StringVar(&f.mpsControl, "mps-control", "", "nvml: absolute path of nvidia-cuda-mps-control (default: the usual places)")
	cmd.Flags().StringSliceVar(&f.excluded, "exclude-gpu", nil, "UUIDs of GPUs that must not be touched")
	return cmd
}

// open opens the driver. The folder of simulated GPUs may still be held by a worker that
// was killed and has not ended yet.
func (f *workerFlags) open(ctx context.Context) (gpudrv.Driver, error) {
	if f.driver.driver == "nvml" {
		return nvml.Open(nvml.Config{
			Library: f.driver.library, SMI: f.driver.smi, MPSControl: f.mpsControl, LeaveSettings: f.driver.leave, Excluded: f.excluded,
		})
	}
	within, cancel := context.WithTimeout(ctx, freeWithin)
	defer cancel()
	for {
		d, done, err := f.driver.open()
		if err == nil {
			return closer{d, done}, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, err
		}
		timer := clock.Real().NewTimer(freeEvery)
		select {
		case <-within.Done():
			timer.Stop()
			return nil, err
		case <-timer.C():
		}
	}
}

// closer is a driver with another way to be closed.
type closer struct {
	gpudrv.Driver
	done func() error
}

func (c closer) Close() error { return c.done() }

// pipe is standard input and output as one connection.
type pipe struct{ in, out *os.File }

func (p pipe) Read(b []byte) (int, error)  { return p.in.Read(b) }
func (p pipe) Write(b []byte) (int, error) { return p.out.Write(b) }
func (p pipe) Close() error                { return errors.Join(p.in.Close(), p.out.Close()) }

// standardPipe takes standard input and output for the connection. Whatever a library
// prints goes to standard error from now on: it would be taken for frames.
func standardPipe() (pipe, error) {
	open := func(fd int, name string) (*os.File, error) {
		own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		if err == nil {
			err = unix.SetNonblock(own, true) // so that Close ends a read
		}
		if err != nil {
			return nil, fmt.Errorf("take %s: %w", name, err)
		}
		return os.NewFile(uintptr(own), name), nil
	}
	in, err := open(0, "standard input")
	if err != nil {
		return pipe{}, err
	}
	out, err := open(1, "standard output")
	if err != nil {
		return pipe{}, errors.Join(err, in.Close())
	}
	if err := unix.Dup3(2, 1, 0); err != nil {
		return pipe{}, errors.Join(fmt.Errorf("keep standard output clean: %w", err), in.Close(), out.Close())
	}
	return pipe{in, out}, nil
}
