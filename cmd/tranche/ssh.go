package main

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/crypto/ssh"
	"golang.org/x/term"

	"github.com/tranche-cloud/tranche/client"
)

const (
	// dialWithin bounds the way to the gateway and the login.
	dialWithin = 20 * time.Second
	// aliveEvery is how often an idle session shows that it lives, for what is between.
	aliveEvery = 30 * time.Second
	// exitLost is the exit code of a session that ended without one, as OpenSSH has it.
	exitLost = 255
)

// remoteExit is how a command in an instance ended; the code is passed through.
type remoteExit int

func (r remoteExit) Error() string { return fmt.Sprintf("the command ended with %d", int(r)) }

// dial gets a certificate for a key that is in memory only, and logs in with it. The
// host key that the API named is the only one that is accepted.
func (a *app) dial(ctx context.Context, o *instanceOptions, instance string, purpose client.SSHPurpose) (*ssh.Client, error) {
	sdk, err := a.connect()
	if err != nil {
		return nil, err
	}
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	signer, err := ssh.NewSignerFromKey(private)
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	ticket, err := sdk.CreateSSHCertificate(ctx, o.project, instance, client.SSHCertificateCreate{
		PublicKey: strings.TrimSpace(string(ssh.MarshalAuthorizedKey(signer.PublicKey()))), Purpose: purpose,
	})
	if err != nil {
		return nil, err
	}
	config, err := sshConfig(ticket, signer)
	if err != nil {
		return nil, err
	}
	address := net.JoinHostPort(ticket.Host, strconv.Itoa(int(ticket.Port)))
	conn, err := (&net.Dialer{Timeout: dialWithin}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("the SSH gateway at %s cannot be reached from here: %w. Check that a firewall lets this machine there", address, err)
	}
	c, channels, requests, err := handshake(ctx, conn, address, config)
	if err != nil {
		_ = conn.Close()
		return nil, explainLogin(address, err)
	}
	return ssh.NewClient(c, channels, requests), nil
}

func sshConfig(ticket client.SSHCertificate, signer ssh.Signer) (*ssh.ClientConfig, error) {
	certificate, _, _, _, err := ssh.ParseAuthorizedKey([]byte(ticket.Certificate))
	if err != nil {
		return nil, fmt.Errorf("read the certificate that the service gave: %w", err)
	}
	signed, ok := certificate.(*ssh.Certificate)
	if !ok {
		return nil, errors.New("the service gave a key where a certificate was asked for")
	}
	certified, err := ssh.NewCertSigner(signed, signer)
	if err != nil {
		return nil, fmt.Errorf("use the certificate that the service gave: %w", err)
	}
	hostKey, _, _, _, err := ssh.ParseAuthorizedKey([]byte(ticket.HostKey))
	if err != nil {
		return nil, fmt.Errorf("read the host key that the service gave: %w", err)
	}
	return &ssh.ClientConfig{
		User: ticket.User, Auth: []ssh.AuthMethod{ssh.PublicKeys(certified)}, HostKeyCallback: ssh.FixedHostKey(hostKey),
		HostKeyAlgorithms: []string{hostKey.Type()}, Timeout: dialWithin, ClientVersion: "SSH-2.0-tranche",
	}, nil
}

// handshake ends with ctx and after dialWithin, whatever the other side does.
func handshake(ctx context.Context, conn net.Conn, address string, config *ssh.ClientConfig) (ssh.Conn, <-chan ssh.NewChannel, <-chan *ssh.Request, error) {
	if err := conn.SetDeadline(time.Now().Add(dialWithin)); err != nil {
		return nil, nil, nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	c, channels, requests, err := ssh.NewClientConn(conn, address, config)
	stop()
	if err == nil {
		err = conn.SetDeadline(time.Time{})
	}
	return c, channels, requests, err
}

func explainLogin(address string, err error) error {
	switch text := err.Error(); {
	case strings.Contains(text, "host key mismatch"):
		return fmt.Errorf("the machine at %s is not the host that the service named (its host key differs); nothing was sent to it. Tell the operator", address)
	case strings.Contains(text, "unable to authenticate"):
		return fmt.Errorf("the SSH gateway at %s refused the certificate: the run may just have ended, or the host's clock is wrong. Try again, then tell the operator", address)
	}
	return fmt.Errorf("the SSH gateway at %s did not complete the login: %w. Try again", address, err)
}

// session opens a session that ends with ctx.
func (a *app) session(ctx context.Context, c *ssh.Client) (*ssh.Session, func(), error) {
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	end := func() { stop(); _ = c.Close() }
	s, err := c.NewSession()
	if err != nil {
		end()
		return nil, nil, fmt.Errorf("open a session in the instance: %w. It may still be starting; try again", err)
	}
	s.Stdout, s.Stderr = a.out, a.err
	go keepAlive(ctx, c)
	return s, end, nil
}

// keepAlive returns when the connection is gone.
func keepAlive(ctx context.Context, c *ssh.Client) {
	tick := time.NewTicker(aliveEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if _, _, err := c.SendRequest("keepalive@openssh.com", true, nil); err != nil {
				return
			}
		}
	}
}

// outcome turns the end of a session into what the process ends with.
func outcome(ctx context.Context, err error) error {
	if err == nil || ctx.Err() != nil {
		return ctx.Err()
	}
	if exit, ok := errors.AsType[*ssh.ExitError](err); ok {
		if exit.Signal() != "" {
			return remoteExit(128 + signals[exit.Signal()])
		}
		return remoteExit(exit.ExitStatus())
	}
	return lostSession{err}
}

// signals are the numbers of those that end programs.
var signals = map[string]int{
	"HUP": 1, "INT": 2, "QUIT": 3, "ILL": 4, "ABRT": 6, "FPE": 8, "KILL": 9, "SEGV": 11, "PIPE": 13, "ALRM": 14, "TERM": 15,
}

// lostSession is a session that ended without a word of how.
type lostSession struct{ error }

func (l lostSession) Error() string {
	return fmt.Sprintf("the session broke off (%v): the instance was stopped, or the way to its host is gone; `tranche instance get` tells", l.error)
}

func (a *app) instanceSSH(o *instanceOptions) *cobra.Command {
	var forwards []string
	c := &cobra.Command{
		Use:   "ssh INSTANCE [-L PORT:HOST:PORT] [-- COMMAND…]",
		Short: "Log in to a running instance, or run a command on a terminal there",
		Example: `  tranche instance ssh inst_…
  tranche instance ssh inst_… -L 8888:localhost:8888
  tranche instance ssh inst_… -- nvidia-smi`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			ways, err := parseForwards(forwards)
			if err != nil {
				return err
			}
			conn, err := a.dial(c.Context(), o, args[0], client.SSHShell)
			if err != nil {
				return err
			}
			s, end, err := a.session(c.Context(), conn)
			if err != nil {
				return err
			}
			defer end()
			for _, w := range ways {
				if err := w.listen(c.Context(), conn, a.err); err != nil {
					return err
				}
			}
			return a.terminal(c.Context(), s, quoted(args[1:]))
		},
	}
	c.Flags().StringArrayVarP(&forwards, "forward", "L", nil, "let local PORT lead to HOST:PORT as seen from the instance; repeatable")
	return c
}

// terminal runs a command, or the login shell, on a terminal if this process has one.
func (a *app) terminal(ctx context.Context, s *ssh.Session, command string) error {
	in, interactive := a.in.(*os.File)
	interactive = interactive && term.IsTerminal(int(in.Fd()))
	if interactive {
		width, height, err := term.GetSize(int(in.Fd()))
		if err != nil {
			width, height = 80, 24
		}
		kind := a.getenv("TERM")
		if kind == "" {
			kind = "xterm-256color"
		}
		if err := s.RequestPty(kind, height, width, ssh.TerminalModes{ssh.ECHO: 1}); err != nil {
			return fmt.Errorf("ask for a terminal: %w", err)
		}
		before, err := term.MakeRaw(int(in.Fd()))
		if err != nil {
			return fmt.Errorf("make the terminal raw: %w", err)
		}
		defer func() { _ = term.Restore(int(in.Fd()), before) }()
		defer followSize(s, in)()
	}
	s.Stdin = a.in
	start := s.Shell
	if command != "" {
		start = func() error { return s.Start(command) }
	}
	if err := start(); err != nil {
		return fmt.Errorf("start in the instance: %w. An image without a shell takes commands only: `tranche instance exec INSTANCE -- COMMAND`", err)
	}
	return outcome(ctx, s.Wait())
}

func (a *app) instanceExec(o *instanceOptions) *cobra.Command {
	return &cobra.Command{
		Use:   "exec INSTANCE -- COMMAND…",
		Short: "Run a command in a running instance; its exit code is passed through",
		Example: `  tranche instance exec inst_… -- nvidia-smi -L
  tranche instance exec inst_… -- tar -xf - <data.tar`,
		Args: cobra.MinimumNArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			conn, err := a.dial(c.Context(), o, args[0], client.SSHShell)
			if err != nil {
				return err
			}
			s, end, err := a.session(c.Context(), conn)
			if err != nil {
				return err
			}
			defer end()
			s.Stdin = a.in
			if err := s.Start(quoted(args[1:])); err != nil {
				return fmt.Errorf("run the command in the instance: %w", err)
			}
			return outcome(c.Context(), s.Wait())
		},
	}
}

func (a *app) instanceLogs(o *instanceOptions) *cobra.Command {
	var follow bool
	var tail string
	c := &cobra.Command{
		Use:     "logs INSTANCE [-f] [--tail N|all]",
		Short:   "Show what the main process of an instance wrote",
		Example: "  tranche instance logs inst_… -f --tail 100",
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if n, err := strconv.Atoi(tail); tail != "all" && (err != nil || n < 0) {
				return usagef("--tail takes a number of lines or all, not %q", tail)
			}
			command := "logs --tail " + tail
			if follow {
				command += " --follow"
			}
			conn, err := a.dial(c.Context(), o, args[0], client.SSHLogs)
			if err != nil {
				return err
			}
			s, end, err := a.session(c.Context(), conn)
			if err != nil {
				return err
			}
			defer end()
			if err := s.Start(command); err != nil {
				return fmt.Errorf("ask for the logs: %w", err)
			}
			return outcome(c.Context(), s.Wait())
		},
	}
	c.Flags().BoolVarP(&follow, "follow", "f", false, "go on as more is written; Ctrl-C ends it")
	c.Flags().StringVar(&tail, "tail", "100", "the last N lines, or all that the host keeps")
	return c
}

// quoted makes one command line of arguments, for a POSIX shell. Plain words stay as
// they are, so that an image without a shell can run them too.
func quoted(args []string) string {
	words := make([]string, len(args))
	for i, arg := range args {
		words[i] = arg
		if arg == "" || strings.Trim(arg, plainLetters) != "" {
			words[i] = "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
		}
	}
	return strings.Join(words, " ")
}

const plainLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@%"

// way is a local port that leads into an instance.
type way struct{ local, remote string }

func parseForwards(texts []string) ([]way, error) {
	var out []way
	for _, text := range texts {
		port, remote, ok := strings.Cut(text, ":")
		_, _, err := net.SplitHostPort(remote)
		n, err2 := strconv.ParseUint(port, 10, 16)
		if !ok || err != nil || err2 != nil || n == 0 {
			return nil, usagef("-L takes PORT:HOST:PORT such as 8888:localhost:8888, not %q", text)
		}
		out = append(out, way{local: net.JoinHostPort("127.0.0.1", port), remote: remote})
	}
	return out, nil
}

// listen serves a way until ctx or the connection ends.
func (w way) listen(ctx context.Context, c *ssh.Client, log io.Writer) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", w.local)
	if err != nil {
		return fmt.Errorf("the local port of -L is taken: %w. Choose another one", err)
	}
	go func() {
		_ = c.Wait()
		_ = l.Close()
	}()
	go func() {
		for {
			here, err := l.Accept()
			if err != nil {
				return
			}
			there, err := c.DialContext(ctx, "tcp", w.remote)
			if err != nil {
				fmt.Fprintf(log, "%s in the instance: %v\r\n", w.remote, err)
				_ = here.Close()
				continue
			}
			go join(here, there)
		}
	}()
	return nil
}

// join copies both ways until both sides have ended.
func join(a, b net.Conn) {
	done := make(chan struct{})
	one := func(to, from net.Conn) {
		_, _ = io.Copy(to, from)
		if half, ok := to.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite()
		}
		done <- struct{}{}
	}
	go one(a, b)
	go one(b, a)
	<-done
	<-done
	_ = a.Close()
	_ = b.Close()
}
