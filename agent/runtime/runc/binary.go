package runc

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/tranche-cloud/tranche/nodeagent/runtime"
)

// command is runc with its fixed options; its own errors go to the file at log.
func command(ctx context.Context, binary, root, log string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, binary, append([]string{"--root", root, "--log", log, "--log-format", "json"}, args...)...) //nolint:gosec // fixed verbs, names checked
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	return cmd
}

// runc runs one verb to its end.
func (d *Driver) runc(ctx context.Context, op, name string, args ...string) error {
	log := filepath.Join(d.dir(name), "runc-"+args[0]+".log")
	var said bytes.Buffer
	cmd := command(ctx, d.cfg.Runc, d.runcRoot(), log, args...)
	cmd.Stdout, cmd.Stderr = &said, &said
	err := cmd.Run()
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return refuse(runtime.Broken, op, name, "runc %s was given up", args[0]).Because(context.Cause(ctx))
	}
	text := complaint(log)
	if text == "" {
		text = strings.TrimSpace(said.String())
	}
	return refuse(kindOf(text), op, name, "%s", text).Because(err)
}

// complaint is the last error that runc wrote to its log; "" if there is none.
func complaint(log string) string {
	text, err := os.ReadFile(log)
	if err != nil {
		return ""
	}
	last := ""
	for line := range strings.Lines(string(text)) {
		var entry struct{ Level, Msg string }
		if json.Unmarshal([]byte(line), &entry) == nil && (entry.Level == "error" || entry.Level == "fatal") {
			last = entry.Msg
		}
	}
	return last
}

// kindOf reads runc's words: a program that cannot be run is the tenant's error, all
// else the host's.
func kindOf(text string) runtime.Kind {
	for _, words := range []string{`exec: "`, "exec /", "chdir to cwd"} {
		if strings.Contains(text, words) {
			return runtime.CommandFailed
		}
	}
	return runtime.Broken
}
