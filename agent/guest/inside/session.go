package inside

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/crypto/ssh"

	"github.com/tranche-cloud/tranche/agent/guest/wire"
)

// session is one session channel: a shell, a command or a subsystem.
type session struct {
	*sessions
	channel ssh.Channel
	env     []string
	term    *terminal // nil without a terminal
	dir     string
	main    *process // nil before it started
	failed  error    // why nothing could start
	input   io.WriteCloser
	output  sync.WaitGroup // copies towards the client
	done    chan struct{}  // closed when the program ended and all was said
}

// session serves a session channel to its end.
func (s *sessions) session(_ context.Context, asked ssh.NewChannel, opened wire.Preamble) {
	channel, requests, err := asked.Accept()
	if err != nil {
		return
	}
	defer shut(channel)
	here := &session{sessions: s, channel: channel, done: make(chan struct{})}
	here.dir, here.env = s.life.place(opened)
	for {
		select {
		case req, more := <-requests:
			if !more {
				here.hangUp()
				return
			}
			ok := here.answer(req)
			if req.WantReply {
				_ = req.Reply(ok, nil)
			}
			if !isStart(req.Type) {
				continue
			}
			if here.main == nil {
				here.excuse()
				go ssh.DiscardRequests(requests)
				return
			}
			if ok {
				go here.finish()
			}
		case <-here.done:
			go ssh.DiscardRequests(requests)
			return
		}
	}
}

func isStart(request string) bool {
	return request == "shell" || request == "exec" || request == "subsystem"
}

// place returns where a session begins and its environment.
func (g *life) place(opened wire.Preamble) (string, []string) {
	env := with(g.env, "HOME", g.as.Home)
	if g.as.Name != "" {
		env = with(with(env, "USER", g.as.Name), "LOGNAME", g.as.Name)
	}
	if host, port, err := net.SplitHostPort(opened.Remote); err == nil {
		// The server's own address is the gateway's, which means nothing in here.
		env = with(env, "SSH_CONNECTION", host+" "+port+" 0.0.0.0 22")
	}
	for _, dir := range []string{g.dir, g.as.Home} {
		if info, err := os.Stat(dir); dir != "/" && err == nil && info.IsDir() {
			return dir, env
		}
	}
	return "/", env
}

var variable = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`)

// answer obeys one request and reports whether it could.
func (s *session) answer(req *ssh.Request) bool {
	switch req.Type {
	case "env":
		var set struct{ Name, Value string }
		if ssh.Unmarshal(req.Payload, &set) != nil || !variable.MatchString(set.Name) || s.main != nil || len(s.env) > 1024 {
			return false
		}
		s.env = with(s.env, set.Name, strings.ReplaceAll(set.Value, "\x00", ""))
		return true
	case "pty-req":
		return s.main == nil && s.term == nil && s.openTerminal(req.Payload)
	case "window-change":
		return s.term != nil && s.term.resize(req.Payload)
	case "signal":
		var named struct{ Name string }
		number, known := syscall.Signal(0), false
		if ssh.Unmarshal(req.Payload, &named) == nil {
			number, known = signals[named.Name]
		}
		if known && s.main != nil {
			s.life.table.signal(s.main, number)
		}
		return known && s.main != nil
	case "shell", "exec", "subsystem":
		if s.main != nil {
			return false
		}
		return s.begin(req.Type, req.Payload)
	}
	return false
}

// begin starts what was asked for. What cannot start has an excuse and a code, as the
// program itself would.
func (s *session) begin(kind string, payload []byte) bool {
	var named struct{ Text string }
	if kind != "shell" && ssh.Unmarshal(payload, &named) != nil {
		return false
	}
	if kind == "subsystem" && named.Text != "sftp" {
		return false
	}
	p := program{env: s.env, dir: s.dir, as: s.life.as, group: true}
	if kind == "subsystem" {
		p.path, p.argv = s.life.cfg.Self, []string{"sftp-server", "sftp"}
	} else if err := s.shell(&p, kind, named.Text); err != nil {
		s.failed = err
		return true
	}
	if err := s.start(p); err != nil {
		s.failed = &failure{126, fmt.Sprintf("%s cannot be run: %v", p.path, cause(err))}
	}
	return true
}

// shell fills in the program for a shell or a command.
func (s *session) shell(p *program, kind, command string) error {
	path, ok := s.life.shell()
	switch {
	case ok && kind == "shell":
		p.path, p.argv = path, []string{"-" + filepath.Base(path)}
	case ok:
		p.path, p.argv = path, []string{filepath.Base(path), "-c", command}
	case kind == "exec" && !strings.ContainsAny(command, "\\\"'`$&|;<>()*?[]{}~#\n") && command != "":
		// A bare program needs no shell.
		p.argv = strings.Fields(command)
		found, err := find(p.argv[0], s.dir, s.env)
		p.path = found
		return err
	default:
		return &failure{127, "this image has no shell: /bin/sh is missing. Use sftp or port forwarding, run a program by its path, or choose an image with a shell"}
	}
	s.env = with(s.env, "SHELL", path)
	p.env = s.env
	return nil
}

// shell returns the user's shell, or the system's where the user has none: who may log
// in was decided before.
func (g *life) shell() (string, bool) {
	for _, path := range []string{g.as.Shell, "/bin/sh"} {
		base := filepath.Base(path)
		if filepath.IsAbs(path) && base != "nologin" && base != "false" && runnable(path) == nil {
			return path, true
		}
	}
	return "", false
}

// excuse tells the client why nothing runs.
func (s *session) excuse() {
	if s.term != nil {
		s.term.close()
	}
	if s.failed == nil {
		return
	}
	fmt.Fprintf(s.channel.Stderr(), "tranche: %s\r\n", s.failed)
	_, _ = s.channel.SendRequest("exit-status", false, ssh.Marshal(struct{ Code uint32 }{uint32(codeOf(s.failed))}))
}

// start runs the program on the terminal or on three pipes.
func (s *session) start(p program) error {
	if s.term != nil {
		return s.startOnTerminal(p)
	}
	var ours, theirs []*os.File
	for i := range 3 {
		r, w, err := os.Pipe()
		if err != nil {
			closeAll(append(ours, theirs...))
			return err
		}
		if i == 0 {
			r, w = w, r
		}
		ours, theirs = append(ours, r), append(theirs, w)
	}
	p.files = [3]*os.File(theirs)
	main, err := s.life.table.start(p)
	closeAll(theirs)
	if err != nil {
		closeAll(ours)
		return err
	}
	s.main, s.input = main, ours[0]
	go func() {
		_, _ = io.Copy(ours[0], s.channel)
		ours[0].Close()
	}()
	for i, to := range map[int]io.Writer{1: s.channel, 2: s.channel.Stderr()} {
		s.output.Go(func() {
			defer ours[i].Close()
			_, _ = io.Copy(to, ours[i])
		})
	}
	return nil
}

// finish reports the end of the program and lets the channel end when all that it
// wrote was passed on.
func (s *session) finish() {
	<-s.main.done
	if s.term != nil {
		s.term.drain()
	}
	status := s.main.status
	if name, ok := signalName(status); ok {
		_, _ = s.channel.SendRequest("exit-signal", false, ssh.Marshal(struct {
			Signal       string
			Core         bool
			Text, Locale string
		}{name, status.CoreDump(), status.Signal().String(), ""}))
	} else {
		_, _ = s.channel.SendRequest("exit-status", false, ssh.Marshal(struct{ Code uint32 }{uint32(exitCode(status))}))
	}
	s.output.Wait()
	_ = s.channel.CloseWrite()
	close(s.done)
	s.input.Close()
}

// hangUp is the client's going: what still runs is told as a terminal would.
func (s *session) hangUp() {
	if s.main == nil {
		if s.term != nil {
			s.term.close()
		}
		return
	}
	s.life.table.signal(s.main, syscall.SIGHUP)
	s.input.Close()
}

var signals = map[string]syscall.Signal{
	"ABRT": syscall.SIGABRT, "ALRM": syscall.SIGALRM, "FPE": syscall.SIGFPE, "HUP": syscall.SIGHUP,
	"ILL": syscall.SIGILL, "INT": syscall.SIGINT, "KILL": syscall.SIGKILL, "PIPE": syscall.SIGPIPE,
	"QUIT": syscall.SIGQUIT, "SEGV": syscall.SIGSEGV, "TERM": syscall.SIGTERM, "USR1": syscall.SIGUSR1, "USR2": syscall.SIGUSR2,
}

// signalName returns how SSH calls the signal that ended a program. A signal without a
// name there is reported by its code.
func signalName(status syscall.WaitStatus) (string, bool) {
	if !status.Signaled() {
		return "", false
	}
	for name, number := range signals {
		if number == status.Signal() {
			return name, true
		}
	}
	return "", false
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}
