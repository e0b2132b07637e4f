package guest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// ErrPath is what OpenDoor fails with, wrapped, when the socket's path does not fit
// into a socket address (107 bytes): choose a shorter run folder.
var ErrPath = errors.New("path of the socket is too long")

// A Peer judges who connected, by the process id that the kernel names. An error
// closes the connection unread.
type Peer func(pid int) error

// Door is a listening socket in a host-only folder that admits one instance's guest
// and nobody else. It admits at a bounded rate: whoever floods it waits in a queue
// that is charged to the flooder.
type Door struct {
	listener *net.UnixListener
	peer     Peer
}

// OpenDoor listens on the path, which must lie in a folder that no tenant can write; a
// socket of an earlier process there is replaced. Owner is the host uid and gid that
// may connect; a negative owner lets everyone connect and leaves all to peer.
func OpenDoor(path string, owner int, peer Peer) (*Door, error) {
	if len(path) > 107 {
		return nil, fmt.Errorf("listen on %s: %w", path, ErrPath)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("replace socket: %w", err)
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listen for the guest: %w", err)
	}
	// The successor of this process may have put its own socket there by the time
	// that this one closes.
	listener.SetUnlinkOnClose(false)
	mode := os.FileMode(0o666)
	if owner >= 0 {
		mode = 0o600
		err = os.Chown(path, owner, owner)
	}
	if err := errors.Join(err, os.Chmod(path, mode)); err != nil {
		return nil, errors.Join(fmt.Errorf("open socket to the guest: %w", err), listener.Close())
	}
	return &Door{listener: listener, peer: peer}, nil
}

// Serve hands every admitted connection to admit, which must not block for long, and
// returns when the door or the context is closed. Refused hears why somebody was not
// admitted; it may be nil.
func (d *Door) Serve(ctx context.Context, admit func(*net.UnixConn), refused func(error)) {
	stop := context.AfterFunc(ctx, func() { shut(d) })
	defer stop()
	pace := newBucket(64, 20*time.Millisecond)
	for {
		conn, err := d.listener.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			err = d.check(conn)
		}
		switch {
		case err == nil:
			admit(conn)
		case conn != nil:
			shut(conn)
		}
		if err != nil && refused != nil {
			refused(err)
		}
		if !pause(ctx, pace.take(time.Now())) {
			shut(d)
			return
		}
	}
}

// Close stops listening. The socket's name stays, so that guests find a refusal rather
// than nothing, until the folder goes.
func (d *Door) Close() error { return d.listener.Close() }

func (d *Door) check(conn *net.UnixConn) error {
	pid, err := peerPID(conn)
	if err != nil {
		return err
	}
	if err := d.peer(pid); err != nil {
		return fmt.Errorf("refuse process %d at the guest's socket: %w", pid, err)
	}
	return nil
}

// peerPID returns the process that connected, as the kernel noted it then.
func peerPID(conn *net.UnixConn) (int, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, fmt.Errorf("ask who connected: %w", err)
	}
	var who *unix.Ucred
	var asked error
	err = raw.Control(func(fd uintptr) { who, asked = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err := errors.Join(err, asked); err != nil {
		return 0, fmt.Errorf("ask who connected: %w", err)
	}
	if who.Pid <= 0 {
		return 0, errors.New("ask who connected: a process outside this host's view")
	}
	return int(who.Pid), nil
}

// pause waits for d, and reports false when the context ended first.
func pause(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// bucket allows a burst of events, then one each interval. It is not safe for
// concurrent use.
type bucket struct {
	interval, depth time.Duration
	next            time.Time // when the bucket is empty again
}

func newBucket(burst int, interval time.Duration) *bucket {
	return &bucket{interval: interval, depth: time.Duration(burst) * interval}
}

// take counts one event and returns how long the next one has to wait.
func (b *bucket) take(at time.Time) time.Duration {
	if b.next.Before(at) {
		b.next = at
	}
	b.next = b.next.Add(b.interval)
	return b.next.Sub(at) - b.depth
}

// shut closes what nobody needs any more; how that goes changes nothing.
func shut(c io.Closer) { c.Close() }
