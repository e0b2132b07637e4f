package mps

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
	"github.com/tranche-cloud/tranche/nodeagent/mpsd"
)

// program runs a CUDA program as a fresh client.
type program struct {
	path    string
	args    []string
	daemons mpsd.Control
}

// probeTimeout is how long a probe may take: starting CUDA takes under a second.
const probeTimeout = 30 * time.Second

// NewProgram makes a Prober of a small CUDA program at an absolute path that ends
// with status 0 when its work was done. It runs without a shell, and sees nothing of
// the agent's environment. Invalid if there is no such program.
func NewProgram(daemons mpsd.Control, path string, args ...string) (Prober, error) {
	const op = "probe"
	if !filepath.IsAbs(path) {
		return nil, gpudrv.Refuse(gpudrv.Invalid, op, "", "path of the probe must be absolute, not %q", path)
	}
	st, err := os.Stat(path)
	if err != nil {
		return nil, gpudrv.Refuse(gpudrv.Invalid, op, "", "no probe").Because(err)
	}
	const executable = 0o111
	if !st.Mode().IsRegular() || st.Mode()&executable == 0 {
		return nil, gpudrv.Refuse(gpudrv.Invalid, op, "", "%s is not a program", path)
	}
	return program{path: path, args: args, daemons: daemons}, nil
}

// Probe implements Prober.
func (p program) Probe(ctx context.Context, device string) error {
	const op = "probe"
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	d, err := p.daemons.Ensure(ctx, device)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, p.path, p.args...)
	cmd.Env = []string{"CUDA_MPS_PIPE_DIRECTORY=" + d.PipeDir, "CUDA_VISIBLE_DEVICES=" + device}
	cmd.Dir = "/"
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return gpudrv.Refuse(gpudrv.Hung, op, device, "the probe did not end in time").Because(ctx.Err())
	}
	if _, ended := errors.AsType[*exec.ExitError](err); !ended {
		return gpudrv.Refuse(gpudrv.Broken, op, device, "start the probe").Because(err)
	}
	return gpudrv.Refuse(gpudrv.Broken, op, device, "a fresh client failed, saying %q", tail(string(out))).Because(err)
}

// tail is the last line of an output, cut to a length for errors.
func tail(out string) string {
	const longest = 200
	lines := strings.Split(strings.TrimSpace(out), "\n")
	last := lines[len(lines)-1]
	return last[:min(len(last), longest)]
}
