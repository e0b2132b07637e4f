package mpsd

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tranche-cloud/tranche/internal/units"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
	"github.com/tranche-cloud/tranche/nodeagent/process"
)

const (
	// ownDevice is how a daemon that sees one device names it. Limits that are set
	// by UUID may silently not apply.
	ownDevice = "0"
	// collectFor is how long output is awaited after the control program ended.
	collectFor = time.Second
	maxAnswer  = 1 << 20
)

// speak waits for the turn to talk to the daemon of a device: a daemon listens to one at
// a time and turns others away. Call what it returns afterwards.
func (h *host) speak(ctx context.Context, op, uuid string) (func(), error) {
	h.mu.Lock()
	turn := h.turn[uuid]
	if turn == nil {
		turn = make(chan struct{}, 1)
		h.turn[uuid] = turn
	}
	h.mu.Unlock()
	select {
	case turn <- struct{}{}:
		return func() { <-turn }, nil
	case <-ctx.Done():
		return nil, gpudrv.Refuse(gpudrv.Hung, op, uuid, "others talk to the daemon").Because(ctx.Err())
	}
}

// ask gives a command to a daemon, or several with "\n" between them, and returns
// the answer without spaces around.
func (h *host) ask(ctx context.Context, op, uuid string, words ...string) (string, error) {
	done, err := h.speak(ctx, op, uuid)
	if err != nil {
		return "", err
	}
	defer done()
	ctx, cancel := context.WithTimeout(ctx, h.timeout)
	defer cancel()
	command := strings.ReplaceAll(strings.Join(words, " "), " \n ", "\n")
	for {
		said, err := h.tell(ctx, op, uuid, command)
		if err == nil || !strings.Contains(said, turnedAway) {
			return said, err
		}
		timer := h.clock.NewTimer(againAfter)
		select {
		case <-timer.C():
		case <-ctx.Done():
			timer.Stop()
			return said, err
		}
	}
}

const (
	// turnedAway is what the control program says while somebody else talks to the
	// daemon: a tenant can, too, for questions.
	turnedAway = "Cannot send command"
	againAfter = 20 * time.Millisecond
)

// tell gives a command to a daemon once.
func (h *host) tell(ctx context.Context, op, uuid, command string) (string, error) {
	cmd := exec.CommandContext(ctx, h.binary)
	cmd.Env = h.environment(uuid)
	cmd.Dir = "/"
	cmd.Stdin = strings.NewReader(command + "\n")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = collectFor
	err := cmd.Run()
	said := strings.TrimSpace(out.String())
	switch {
	case ctx.Err() != nil:
		return said, gpudrv.Refuse(gpudrv.Hung, op, uuid, "no answer to %q in time", command).Because(ctx.Err())
	case strings.Contains(said, "Cannot find MPS control daemon"):
		return said, gpudrv.Refuse(gpudrv.NotFound, op, uuid, "no MPS daemon runs for the device")
	case err != nil:
		return said, gpudrv.Refuse(gpudrv.Broken, op, uuid, "%q: daemon says %q", command, shorten(said)).Because(err)
	case len(said) > maxAnswer:
		return "", gpudrv.Refuse(gpudrv.Broken, op, uuid, "%q: answer of %d bytes", command, len(said))
	}
	return said, nil
}

// shorten keeps foreign text fit for one line of a log.
func shorten(text string) string {
	const limit = 300
	text = strings.ToValidUTF8(strings.Join(strings.Fields(text), " "), "?")
	if len(text) > limit {
		text = text[:limit] + "…"
	}
	return text
}

// parsePIDs reads a list of process numbers, one a line.
func parsePIDs(text string) ([]int, error) {
	var out []int
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		pid, err := strconv.Atoi(line)
		if err != nil || pid <= 0 {
			return nil, fmt.Errorf("%q is no process number", shorten(line))
		}
		out = append(out, pid)
	}
	return out, nil
}

// lastWord is where the control program puts a value, with or without a label.
func lastWord(text string) string {
	words := strings.Fields(text)
	if len(words) == 0 {
		return ""
	}
	return words[len(words)-1]
}

// parsePercent reads "25", "25.0" or "25.0%".
func parsePercent(text string) (int, error) {
	v, err := strconv.ParseFloat(strings.TrimSuffix(lastWord(text), "%"), 64)
	if err != nil || math.IsNaN(v) || v <= 0 || v > 100 {
		return 0, fmt.Errorf("%q is no percentage", shorten(text))
	}
	return int(math.Round(v)), nil
}

var memoryUnits = map[byte]uint64{'K': 1 << 10, 'M': 1 << 20, 'G': 1 << 30}

// parseMemory reads "8G", "8192M", "8192MB" or bytes, and in which unit the
// daemon rounded it; nothing or 0 is no limit.
func parseMemory(text string) (memory, unit units.MiB, err error) {
	word := strings.TrimSuffix(strings.ToUpper(lastWord(text)), "B")
	if word == "" || strings.Contains(strings.ToLower(text), "not set") {
		return 0, 1, nil
	}
	size := uint64(1)
	if u, ok := memoryUnits[word[len(word)-1]]; ok {
		size, word = u, word[:len(word)-1]
	}
	n, err := strconv.ParseUint(word, 10, 64)
	if err != nil || n > math.MaxInt64/size {
		return 0, 0, fmt.Errorf("%q is no amount of memory", shorten(text))
	}
	return units.FromBytes(n * size), max(units.FromBytes(size), 1), nil
}

// servers lists the process numbers of the running servers.
func (h *host) servers(ctx context.Context, uuid string) ([]int, error) {
	said, err := h.ask(ctx, "mps_servers", uuid, "get_server_list")
	if err != nil {
		return nil, err
	}
	list, err := parsePIDs(said)
	if err != nil {
		return nil, gpudrv.Refuse(gpudrv.Broken, "mps_servers", uuid, "list servers").Because(err)
	}
	return list, nil
}

// server returns the one running server, 0 without one. Two would halve the GPU.
func (h *host) server(ctx context.Context, op, uuid string) (int, error) {
	list, err := h.servers(ctx, uuid)
	if err != nil || len(list) == 0 {
		return 0, err
	}
	if len(list) > 1 {
		return 0, gpudrv.Refuse(gpudrv.Broken, op, uuid, "%d servers run where one should", len(list))
	}
	return list[0], nil
}

// ensureServer starts the server if none runs, so that limits are read back from
// it and the first client starts faster.
func (h *host) ensureServer(ctx context.Context, uuid string) (int, error) {
	const op = "mps_start_server"
	server, err := h.server(ctx, op, uuid)
	if err != nil || server != 0 {
		return server, err
	}
	said, err := h.ask(ctx, op, uuid, "start_server", "-uid", strconv.Itoa(os.Getuid()))
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, h.timeout)
	defer cancel()
	for {
		server, err = h.server(ctx, op, uuid)
		if err != nil || server != 0 {
			return server, err
		}
		timer := h.clock.NewTimer(readyEvery)
		select {
		case <-timer.C():
		case <-ctx.Done():
			timer.Stop()
			return 0, gpudrv.Refuse(gpudrv.Hung, op, uuid, "no server; daemon said %q", shorten(said)).Because(ctx.Err())
		}
	}
}

// SetLimits implements Control.
func (h *host) SetLimits(ctx context.Context, uuid string, want Limits) (Limits, error) {
	const op = "mps_set_limits"
	if err := check(op, uuid); err != nil {
		return Limits{}, err
	}
	if want.Percent < 1 || want.Percent > 100 || want.Memory < 1 {
		return Limits{}, gpudrv.Refuse(gpudrv.Invalid, op, uuid,
			"limits must be 1 to 100 percent and at least 1 MiB, not %d percent and %d MiB", want.Percent, want.Memory)
	}
	ctx, cancel := context.WithTimeout(ctx, slow*h.timeout)
	defer cancel()
	percent, memory := strconv.Itoa(want.Percent), strconv.FormatInt(int64(want.Memory), 10)+"M"
	_, err := h.ask(ctx, op, uuid, "set_default_active_thread_percentage", percent, "\n",
		"set_default_device_pinned_mem_limit", ownDevice, memory)
	if err != nil {
		return Limits{}, err
	}
	if err := h.note(uuid, want.Memory); err != nil {
		return Limits{}, err
	}
	server, err := h.ensureServer(ctx, uuid)
	if err != nil {
		return Limits{}, err
	}
	id := strconv.Itoa(server)
	_, err = h.ask(ctx, op, uuid, "set_active_thread_percentage", id, percent, "\n",
		"set_device_pinned_mem_limit", id, ownDevice, memory)
	if err != nil {
		return Limits{}, err
	}
	for _, of := range []int{0, server} {
		got, err := h.read(ctx, uuid, of)
		if err != nil {
			return Limits{}, err
		}
		if got != want {
			return got, gpudrv.Refuse(gpudrv.Broken, op, uuid, "asked for %d percent and %d MiB, daemon shows %d percent and %d MiB",
				want.Percent, want.Memory, got.Percent, got.Memory)
		}
	}
	return want, nil
}

// read asks for the limits of a server, or for the defaults of the next one (0).
func (h *host) read(ctx context.Context, uuid string, server int) (Limits, error) {
	const op = "mps_limits"
	percentQuestion := []string{"get_default_active_thread_percentage"}
	memoryQuestion := []string{"get_default_device_pinned_mem_limit", ownDevice}
	if server != 0 {
		id := strconv.Itoa(server)
		percentQuestion = []string{"get_active_thread_percentage", id}
		memoryQuestion = []string{"get_device_pinned_mem_limit", id, ownDevice}
	}
	saidPercent, saidMemory, err := h.both(ctx, op, uuid, percentQuestion, memoryQuestion)
	if err != nil {
		return Limits{}, err
	}
	percent, err := parsePercent(saidPercent)
	if err != nil {
		return Limits{}, gpudrv.Refuse(gpudrv.Broken, op, uuid, "read percentage").Because(err)
	}
	memory, unit, err := parseMemory(saidMemory)
	if err != nil {
		return Limits{}, gpudrv.Refuse(gpudrv.Broken, op, uuid, "read memory limit").Because(err)
	}
	return Limits{Percent: percent, Memory: h.exact(uuid, memory, unit)}, nil
}

// both asks two questions at once, which halves the time. An answer may be empty
// and is then no line; where the lines do not tell which is which, the questions
// are asked one after the other.
func (h *host) both(ctx context.Context, op, uuid string, first, second []string) (a, b string, err error) {
	together := append(append(slices.Clone(first), "\n"), second...)
	said, err := h.ask(ctx, op, uuid, together...)
	if err != nil {
		return "", "", err
	}
	if a, b, ok := strings.Cut(said, "\n"); ok && !strings.Contains(b, "\n") {
		return a, b, nil
	}
	if a, err = h.ask(ctx, op, uuid, first...); err != nil {
		return "", "", err
	}
	b, err = h.ask(ctx, op, uuid, second...)
	return a, b, err
}

// note keeps the memory limit that is being set: the daemon prints whole GiB from
// 1 GiB on, so the rest cannot be read back from it.
func (h *host) note(uuid string, memory units.MiB) error {
	text := strconv.FormatInt(int64(memory), 10)
	if err := os.WriteFile(filepath.Join(h.folder(uuid), memoryFile), []byte(text), privateFile); err != nil {
		return gpudrv.Refuse(gpudrv.Broken, "mps_set_limits", uuid, "note the limit").Because(err)
	}
	return nil
}

// exact is what was set, if the daemon shows that as far as it shows anything;
// else what it shows.
func (h *host) exact(uuid string, shown, unit units.MiB) units.MiB {
	raw, err := os.ReadFile(filepath.Join(h.folder(uuid), memoryFile))
	if err != nil {
		return shown
	}
	set, err := strconv.ParseInt(string(raw), 10, 64)
	if off := units.MiB(set) - shown; err != nil || shown == 0 || off >= unit || off <= -unit {
		return shown
	}
	return units.MiB(set)
}

// Limits implements Control.
func (h *host) Limits(ctx context.Context, uuid string) (Limits, error) {
	if err := check("mps_limits", uuid); err != nil {
		return Limits{}, err
	}
	server, err := h.server(ctx, "mps_limits", uuid)
	if err != nil {
		return Limits{}, err
	}
	return h.read(ctx, uuid, server)
}

// Clients implements Control.
func (h *host) Clients(ctx context.Context, uuid string) ([]Client, error) {
	const op = "mps_clients"
	if err := check(op, uuid); err != nil {
		return nil, err
	}
	servers, err := h.servers(ctx, uuid)
	if err != nil {
		return nil, err
	}
	var out []Client
	for _, server := range servers {
		said, err := h.ask(ctx, op, uuid, "get_client_list", strconv.Itoa(server))
		if err != nil {
			return nil, err
		}
		if strings.Contains(said, "not found") {
			continue // it ended between the two questions
		}
		pids, err := parsePIDs(said)
		if err != nil {
			return nil, gpudrv.Refuse(gpudrv.Broken, op, uuid, "list clients").Because(err)
		}
		for _, pid := range pids {
			id, ok, err := identify(op, uuid, pid)
			if err != nil {
				return nil, err
			}
			if ok {
				out = append(out, Client{Server: server, Process: id})
			}
		}
	}
	slices.SortFunc(out, func(a, b Client) int { return cmp.Compare(a.Process.PID, b.Process.PID) })
	return out, nil
}

// Terminate implements Control.
func (h *host) Terminate(ctx context.Context, uuid string, c Client) error {
	const op = "mps_terminate"
	if err := check(op, uuid); err != nil {
		return err
	}
	if c.Server <= 0 || c.Process.PID <= 0 {
		return gpudrv.Refuse(gpudrv.Invalid, op, uuid, "client %s of server %d names nobody", c.Process, c.Server)
	}
	if now, err := process.Of(c.Process.PID); errors.Is(err, process.ErrGone) || (err == nil && now != c.Process) {
		return nil
	}
	if !h.first(c.Process) {
		return nil
	}
	said, err := h.ask(ctx, op, uuid, "terminate_client", strconv.Itoa(c.Server), strconv.Itoa(c.Process.PID))
	if err != nil {
		h.mu.Lock()
		delete(h.cut, c.Process)
		h.mu.Unlock()
		return err
	}
	low := strings.ToLower(said)
	if strings.Contains(low, "not found") || strings.Contains(low, "not exist") {
		return nil
	}
	if strings.Contains(low, "fail") || strings.Contains(low, "error") || strings.Contains(low, "denied") {
		return gpudrv.Refuse(gpudrv.Broken, op, uuid, "cut client %s off: daemon says %q", c.Process, shorten(said))
	}
	return nil
}

// first says whether a client was not cut off yet, and remembers that it is now: who
// ends a program and who removes its share both ask for it.
func (h *host) first(client process.Identity) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for id := range h.cut {
		if !id.Alive() {
			delete(h.cut, id)
		}
	}
	if h.cut[client] {
		return false
	}
	h.cut[client] = true
	return true
}
