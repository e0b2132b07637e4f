package inside

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/sys/unix"
)

// drained is how long a terminal must be silent after its program ended before it
// counts as empty: processes in the background may hold it open for ever.
const drained = 150 * time.Millisecond

// terminal is a pseudo-terminal: screen is the guest's side, keyboard the program's.
type terminal struct {
	screen, keyboard *os.File
	over             atomic.Bool // the program ended
}

// openTerminal obeys a pty-req (RFC 4254 §6.2).
func (s *session) openTerminal(payload []byte) bool {
	var asked struct {
		Term                         string
		Columns, Rows, Width, Height uint32
		Modes                        string
	}
	if ssh.Unmarshal(payload, &asked) != nil {
		return false
	}
	term, err := newTerminal()
	if err != nil {
		fmt.Fprintf(s.channel.Stderr(), "tranche: no terminal: %v\r\n", err)
		return false
	}
	if as := s.life.as; credential(as) != nil {
		err = errors.Join(term.keyboard.Chown(int(as.UID), int(as.GID)), term.keyboard.Chmod(0o620))
	}
	if err = errors.Join(err, term.size(asked.Columns, asked.Rows, asked.Width, asked.Height), setModes(term.keyboard, asked.Modes)); err != nil {
		term.close()
		return false
	}
	s.term, s.env = term, with(s.env, "TERM", strings.ReplaceAll(asked.Term, "\x00", ""))
	if name, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", term.keyboard.Fd())); err == nil {
		s.env = with(s.env, "SSH_TTY", name)
	}
	return true
}

// newTerminal asks the kernel for a pair. The program's side is opened through the
// guest's side and not by name, and the guest's side never blocks a thread.
func newTerminal() (*terminal, error) {
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open /dev/ptmx: %w", err)
	}
	screen := os.NewFile(uintptr(fd), "terminal")
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		return nil, errors.Join(fmt.Errorf("unlock the terminal: %w", err), screen.Close())
	}
	peer, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
	if errno != 0 {
		return nil, errors.Join(fmt.Errorf("open the terminal: %w", errno), screen.Close())
	}
	return &terminal{screen: screen, keyboard: os.NewFile(peer, "keyboard")}, nil
}

// resize obeys a window-change.
func (t *terminal) resize(payload []byte) bool {
	var to struct{ Columns, Rows, Width, Height uint32 }
	return ssh.Unmarshal(payload, &to) == nil && t.size(to.Columns, to.Rows, to.Width, to.Height) == nil
}

func (t *terminal) size(columns, rows, width, height uint32) error {
	raw, err := t.screen.SyscallConn()
	if err != nil {
		return err
	}
	var set error
	err = raw.Control(func(fd uintptr) {
		set = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{
			Col: uint16(min(columns, 65535)), Row: uint16(min(rows, 65535)), Xpixel: uint16(min(width, 65535)), Ypixel: uint16(min(height, 65535)),
		})
	})
	return errors.Join(err, set)
}

// startOnTerminal runs the program as the leader of the terminal's session.
func (s *session) startOnTerminal(p program) error {
	p.env, p.tty = s.env, s.term.keyboard
	p.files = [3]*os.File{s.term.keyboard, s.term.keyboard, s.term.keyboard}
	main, err := s.life.table.start(p)
	s.term.keyboard.Close()
	if err != nil {
		s.term.screen.Close()
		return err
	}
	s.main, s.input = main, s.term.screen
	go func() {
		_, err := io.Copy(s.term.screen, s.channel)
		if err == nil {
			// The client has no more to type; a terminal says that with a character.
			_, _ = s.term.screen.Write([]byte{4})
		}
	}()
	s.output.Go(func() { s.term.show(s.channel) })
	return nil
}

// show copies the screen to the client until the terminal is gone, or its program is
// and nothing more comes.
func (t *terminal) show(client io.Writer) {
	buffer := make([]byte, 32<<10)
	for {
		if t.over.Load() {
			_ = t.screen.SetReadDeadline(time.Now().Add(drained))
		}
		n, err := t.screen.Read(buffer)
		if n > 0 {
			if _, err := client.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil && !errors.Is(err, syscall.EAGAIN) {
			return
		}
	}
}

// drain lets show end once the screen is silent.
func (t *terminal) drain() {
	t.over.Store(true)
	_ = t.screen.SetReadDeadline(time.Now().Add(drained))
}

func (t *terminal) close() {
	t.screen.Close()
	t.keyboard.Close()
}
