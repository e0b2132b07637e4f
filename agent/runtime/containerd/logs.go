package containerd

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/containerd/containerd/v2/pkg/cio"

	"github.com/tranche-cloud/tranche/agent/runtime/logfile"
	"github.com/tranche-cloud/tranche/nodeagent/runtime"
)

// LogCommand is the word by which Config.Logger is asked to run Log.
const LogCommand = "containerd-log"

// The descriptors that the daemon's shim gives to a logger: two streams to read, and
// one to close when it is ready.
const (
	stdoutFD = 3
	stderrFD = 4
	readyFD  = 5
)

// logOrder is the one argument of a logger.
type logOrder struct {
	File  string `json:"file"`
	Limit int64  `json:"limit"`
	UID   int    `json:"uid"`
	GID   int    `json:"gid"`
}

// Log is the process beside a container that keeps its log: started by the shim, it
// outlives daemon and agent and ends with the container. The binary that Config.Logger
// names runs it for the arguments LogCommand and one more.
func Log(args []string) error {
	if len(args) != 1 {
		return errors.New("keep log: it is started by containerd's shim alone")
	}
	var order logOrder
	if err := json.Unmarshal([]byte(args[0]), &order); err != nil {
		return fmt.Errorf("read the order of a log: %w", err)
	}
	signal.Ignore(syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT) // the end of the streams is the end
	out, err := logfile.Open(order.File, order.Limit)
	if err != nil {
		return fmt.Errorf("open log: %w", err)
	}
	var copies sync.WaitGroup
	for _, fd := range []uintptr{stdoutFD, stderrFD} {
		stream := os.NewFile(fd, "stream")
		// Programs open their own /dev/stdout by name, so its pipe must be theirs.
		if err := stream.Chown(order.UID, order.GID); err != nil {
			return errors.Join(fmt.Errorf("give stream away: %w", err), out.Close())
		}
		copies.Go(func() { _, _ = io.Copy(out, stream) }) // the log never fails, it drops
	}
	if err := os.NewFile(readyFD, "ready").Close(); err != nil {
		return errors.Join(fmt.Errorf("report: %w", err), out.Close())
	}
	copies.Wait()
	return out.Close()
}

// logTo makes the shim start a logger; without a file there is none.
func (d *Driver) logTo(s runtime.Spec, uid, gid uint32) (cio.Creator, error) {
	if s.Extra.Log == "" {
		return cio.NullIO, nil
	}
	text, err := json.Marshal(logOrder{File: s.Extra.Log, Limit: d.cfg.LogLimit, UID: int(uid), GID: int(gid)})
	if err != nil {
		return nil, runtime.Refuse(runtime.Broken, "start", s.Name, "order a log").Because(err)
	}
	return cio.BinaryIO(d.cfg.Logger, map[string]string{LogCommand: string(text)}), nil
}
