package sshgw

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/crypto/ssh"
)

const (
	maxTail    = 1 << 20 // lines
	tailWindow = 64 << 20
	logPoll    = 200 * time.Millisecond
	logUsage   = "usage: logs [-f] [-n LINES]: -f follows, -n takes the last LINES (100 unless told; all is everything)"
)

var errNoLog = errors.New("this instance has no log yet")

// logQuery is what a client asks of a log.
type logQuery struct {
	follow bool
	lines  int // last ones; -1 all
}

// serveLogs answers the logs request and nothing else.
func (o *session) serveLogs(ctx context.Context, channels <-chan ssh.NewChannel, requests <-chan *ssh.Request) {
	var tasks sync.WaitGroup
	tasks.Go(func() { ssh.DiscardRequests(requests) })
	slots := make(chan struct{}, 4)
	for asked := range channels {
		if asked.ChannelType() != "session" {
			_ = asked.Reject(ssh.Prohibited, "this certificate permits the log alone")
			continue
		}
		select {
		case slots <- struct{}{}:
		default:
			_ = asked.Reject(ssh.ResourceShortage, "too many channels on this connection")
			continue
		}
		tasks.Go(func() {
			defer func() { <-slots }()
			channel, asks, err := asked.Accept()
			if err != nil {
				return
			}
			defer shut(channel)
			o.answerLogs(ctx, channel, asks)
		})
	}
	o.note("client hung up")
	tasks.Wait()
}

// answerLogs waits for the one request and streams until the client has enough.
func (o *session) answerLogs(ctx context.Context, channel ssh.Channel, asks <-chan *ssh.Request) {
	for ask := range asks {
		var named struct{ Text string }
		ok := ask.Type == "exec" && ssh.Unmarshal(ask.Payload, &named) == nil
		if ask.WantReply {
			_ = ask.Reply(ok, nil)
		}
		if !ok {
			continue
		}
		query, err := parseLogs(named.Text)
		if err != nil {
			fail(channel, err.Error(), 2)
			return
		}
		o.used("logs")
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		go func() {
			// Requests end when the client closes the channel.
			ssh.DiscardRequests(asks)
			cancel()
		}()
		if err := o.stream(ctx, counter{channel, o, &o.out}, query); err != nil {
			fail(channel, err.Error(), 1)
			return
		}
		_, _ = channel.SendRequest("exit-status", false, ssh.Marshal(struct{ Code uint32 }{0}))
		return
	}
}

// parseLogs reads the request, which looks like a command.
func parseLogs(text string) (logQuery, error) {
	q := logQuery{lines: 100}
	words := strings.Fields(text)
	if len(words) == 0 || words[0] != "logs" {
		return q, errors.New("this certificate permits the log alone; " + logUsage)
	}
	for words = words[1:]; len(words) > 0; words = words[1:] {
		switch {
		case words[0] == "-f" || words[0] == "--follow":
			q.follow = true
		case (words[0] == "-n" || words[0] == "--tail") && len(words) > 1:
			words = words[1:]
			n, err := strconv.Atoi(words[0])
			if words[0] == "all" {
				n, err = -1, nil
			}
			if err != nil || n < -1 || n > maxTail || (n == -1 && words[0] != "all") {
				return q, fmt.Errorf("%q is no number of lines from 0 to %d; %s", words[0], maxTail, logUsage)
			}
			q.lines = n
		default:
			return q, fmt.Errorf("%q is not understood; %s", words[0], logUsage)
		}
	}
	return q, nil
}

// stream copies the log, and what is added to it while the client follows.
func (o *session) stream(ctx context.Context, to io.Writer, q logQuery) error {
	folder, err := o.server.logs()
	if err != nil {
		return err
	}
	defer shut(folder)
	file, err := openLog(folder, o.who.entry.Log)
	if err != nil {
		return err
	}
	defer func() { file.Close() }()
	if err := tail(file, q.lines); err != nil {
		return err
	}
	for {
		if _, err := io.Copy(to, file); err != nil || !q.follow || ctx.Err() != nil {
			return err
		}
		timer := o.server.cfg.Clock.NewTimer(logPoll)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C():
		}
		file = o.turn(folder, file, to)
	}
}

// turn returns the file to read on from: the same one, from its beginning if it was
// emptied, or the one that took its place, after the rest of the old one.
func (o *session) turn(folder *os.Root, file *os.File, to io.Writer) *os.File {
	at, err := file.Seek(0, io.SeekCurrent)
	was, err2 := file.Stat()
	if err != nil || err2 != nil {
		return file
	}
	if was.Size() < at {
		_, _ = file.Seek(0, io.SeekStart)
		return file
	}
	now, err := folder.Lstat(o.who.entry.Log)
	if err != nil || os.SameFile(was, now) {
		return file
	}
	next, err := openLog(folder, o.who.entry.Log)
	if err != nil {
		return file
	}
	_, _ = io.Copy(to, file)
	file.Close()
	return next
}

func (s *Server) logs() (*os.Root, error) {
	if s.cfg.Logs == "" {
		return nil, errors.New("this host keeps no logs for reading")
	}
	folder, err := os.OpenRoot(s.cfg.Logs)
	if err != nil {
		return nil, errNoLog
	}
	return folder, nil
}

// openLog opens a plain file of the log folder. Neither a link nor anything else that
// lies there under the name is followed or waited for.
func openLog(folder *os.Root, name string) (*os.File, error) {
	if name == "" {
		return nil, errNoLog
	}
	before, err := folder.Lstat(name)
	if err != nil || !before.Mode().IsRegular() {
		return nil, errNoLog
	}
	file, err := folder.OpenFile(name, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		if errors.Is(err, fs.ErrPermission) {
			return nil, errors.New("the gateway may not read this instance's log: the host's operator has to let it")
		}
		return nil, errNoLog
	}
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		file.Close()
		return nil, errNoLog
	}
	return file, nil
}

// tail moves to the last lines of a file, as far as a window of 64 MiB shows them.
func tail(file *os.File, lines int) error {
	if lines < 0 {
		return nil
	}
	end, err := file.Seek(0, io.SeekEnd)
	if err != nil || lines == 0 {
		return err
	}
	block := make([]byte, 64<<10)
	at, left := end, lines
	for at > 0 && end-at < tailWindow {
		from := max(0, at-int64(len(block)))
		part := block[:at-from]
		if _, err := file.ReadAt(part, from); err != nil {
			return err
		}
		if at == end && len(part) > 0 && part[len(part)-1] == '\n' {
			left++ // the last line's own end
		}
		for n := len(part); left > 0; left-- {
			if n = bytes.LastIndexByte(part[:n], '\n'); n < 0 {
				break
			}
			if left == 1 {
				_, err := file.Seek(from+int64(n)+1, io.SeekStart)
				return err
			}
		}
		at = from
	}
	_, err = file.Seek(at, io.SeekStart)
	return err
}
