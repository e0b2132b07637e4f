package guest_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/agent/guest"
	"github.com/tranche-cloud/tranche/agent/guest/wire"
)

// soon is how long a test waits for what takes milliseconds.
const soon = 10 * time.Second

func anyone(int) error { return nil }

func setup(t *testing.T) (*guest.Hub, string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "hub") //nolint:usetesting // a socket's address holds 107 bytes
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	return openHub(t, dir), dir
}

func openHub(t *testing.T, dir string) *guest.Hub {
	t.Helper()
	hub, err := guest.NewHub(guest.Config{
		Dir: dir, Uptime: func() time.Duration { return 100 * time.Second }, Log: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	t.Cleanup(hub.Shutdown)
	return hub
}

// dial connects as a guest does, from the folder as it is mounted.
func dial(t *testing.T, f guest.Folder) net.Conn {
	t.Helper()
	conn, err := net.Dial("unix", filepath.Join(f.Path, wire.Control))
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(soon)))
	return conn
}

func say(t *testing.T, conn net.Conn, said wire.FromGuest) {
	t.Helper()
	require.NoError(t, wire.Write(conn, wire.MaxFromGuest, said))
}

func hello(phase wire.Phase, uptime time.Duration) wire.FromGuest {
	return wire.FromGuest{Kind: wire.Hello, Version: wire.Version, Phase: phase, Uptime: int64(uptime), Build: "test"}
}

func hear(t *testing.T, conn net.Conn) wire.FromHost {
	t.Helper()
	var heard wire.FromHost
	require.NoError(t, wire.Read(conn, wire.MaxFromHost, &heard, nil))
	return heard
}

// hungUp waits until the host closes the connection.
func hungUp(t *testing.T, conn net.Conn) {
	t.Helper()
	_, err := io.Copy(io.Discard, conn)
	var slow net.Error
	require.False(t, errors.As(err, &slow) && slow.Timeout(), "the host keeps the connection")
}

func TestAGuestIsToldAndReports(t *testing.T) {
	t.Parallel()
	hub, _ := setup(t)
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	folder, err := hub.Open(ctx, "asg_1", guest.Boot{
		Peer: anyone, Since: 50 * time.Second, User: "app", Workdir: "/srv", Grace: time.Second,
		Secrets: func(context.Context) (map[string]string, error) { return map[string]string{"TOKEN": "s3cret"}, nil },
	})
	require.NoError(t, err)
	conn := dial(t, folder)
	say(t, conn, hello(wire.Waiting, 0))
	require.Equal(t, wire.FromHost{
		Kind: wire.Boot, Version: 1, User: "app", Workdir: "/srv", Grace: int64(time.Second), Secrets: map[string]string{"TOKEN": "s3cret"},
	}, hear(t, conn))

	say(t, conn, wire.FromGuest{Kind: wire.Ready, Uptime: int64(60 * time.Second)})
	status, err := hub.Wait(ctx, "asg_1")
	require.NoError(t, err)
	require.Equal(t, wire.Running, status.Phase)
	require.Equal(t, 60*time.Second, status.Ready)
	require.True(t, status.Connected)

	say(t, conn, wire.FromGuest{Kind: wire.Ended, Code: 143, Uptime: int64(70 * time.Second)})
	exit, err := hub.Exited(ctx, "asg_1")
	require.NoError(t, err)
	require.Equal(t, guest.Exit{Code: 143, At: 70 * time.Second}, exit)
}

func TestAnInstantIsBoundedByWhatTheHostKnows(t *testing.T) {
	t.Parallel()
	hub, _ := setup(t)
	for name, tc := range map[string]struct{ claimed, want time.Duration }{
		"early": {time.Second, 50 * time.Second},
		"late":  {time.Hour, 100 * time.Second},
		"none":  {0, 50 * time.Second},
	} {
		folder, err := hub.Open(t.Context(), name, guest.Boot{Peer: anyone, Since: 50 * time.Second})
		require.NoError(t, err)
		say(t, dial(t, folder), hello(wire.Running, tc.claimed))
		status, err := hub.Wait(t.Context(), name)
		require.NoError(t, err)
		require.Equal(t, tc.want, status.Ready, name)
	}
}

func TestTheNextAgentFindsTheGuestAgain(t *testing.T) {
	t.Parallel()
	hub, dir := setup(t)
	folder, err := hub.Open(t.Context(), "asg_1", guest.Boot{Peer: anyone})
	require.NoError(t, err)
	before, err := os.Stat(folder.Path)
	require.NoError(t, err)
	first := dial(t, folder)
	say(t, first, hello(wire.Waiting, 0))
	hear(t, first)
	hub.Shutdown()
	hungUp(t, first)

	next := openHub(t, dir)
	names, err := next.List()
	require.NoError(t, err)
	require.Equal(t, []string{"asg_1"}, names)
	var asked atomic.Bool
	_, err = next.Open(t.Context(), "asg_1", guest.Boot{Peer: anyone, Secrets: func(context.Context) (map[string]string, error) {
		asked.Store(true)
		return nil, nil
	}})
	require.NoError(t, err)
	after, err := os.Stat(folder.Path)
	require.NoError(t, err)
	require.True(t, os.SameFile(before, after), "a mounted folder is never made anew")
	second := dial(t, folder)
	say(t, second, hello(wire.Running, 60*time.Second))
	require.Equal(t, wire.Welcome, hear(t, second).Kind)
	status, err := next.Wait(t.Context(), "asg_1")
	require.NoError(t, err)
	require.Equal(t, 60*time.Second, status.Ready)
	require.False(t, asked.Load(), "a guest that runs already has its secrets")

	gone, err := next.Sweep(nil)
	require.NoError(t, err)
	require.Equal(t, []string{"asg_1"}, gone)
	require.NoDirExists(t, folder.Path)
	_, err = next.Status("asg_1")
	require.ErrorIs(t, err, guest.ErrUnknown)
	require.NoError(t, next.Close("asg_1"), "closing twice is closing")
}

func TestAGuestAsksAgainWhenTheSecretsWereOutOfReach(t *testing.T) {
	t.Parallel()
	hub, _ := setup(t)
	var calls atomic.Int32
	folder, err := hub.Open(t.Context(), "asg_1", guest.Boot{Peer: anyone, Secrets: func(context.Context) (map[string]string, error) {
		if calls.Add(1) == 1 {
			return nil, errors.New("control plane away")
		}
		return map[string]string{"A": "b"}, nil
	}})
	require.NoError(t, err)
	first := dial(t, folder)
	say(t, first, hello(wire.Waiting, 0))
	hungUp(t, first)
	second := dial(t, folder)
	say(t, second, hello(wire.Waiting, 0))
	require.Equal(t, map[string]string{"A": "b"}, hear(t, second).Secrets)
}

func TestAStrangerIsNotHeard(t *testing.T) {
	t.Parallel()
	hub, _ := setup(t)
	folder, err := hub.Open(t.Context(), "asg_1", guest.Boot{
		Peer:    guest.First("/tranche/asg_1"), // this process is in another group
		Secrets: func(context.Context) (map[string]string, error) { return nil, errors.New("must not be asked") },
	})
	require.NoError(t, err)
	hungUp(t, dial(t, folder))
	status, err := hub.Status("asg_1")
	require.NoError(t, err)
	require.Zero(t, status)
	require.ErrorIs(t, guest.First("/")(os.Getpid()), guest.ErrStranger)
	require.ErrorIs(t, guest.First("/tranche/asg_1")(1<<30), guest.ErrStranger)
}

func TestAHostileGuestIsHungUpOnAndHarmsNobodyElse(t *testing.T) {
	t.Parallel()
	hub, _ := setup(t)
	hostile, err := hub.Open(t.Context(), "hostile", guest.Boot{Peer: anyone})
	require.NoError(t, err)
	for name, bytes := range map[string][]byte{
		"garbage":         []byte("GET / HTTP/1.1\r\n\r\n"),
		"a huge frame":    {0x7f, 0xff, 0xff, 0xff},
		"an empty frame":  {0, 0, 0, 0},
		"no hello":        frame(`{"kind":"beat"}`),
		"two hellos":      append(frame(`{"kind":"hello","version":1,"phase":"idle"}`), frame(`{"kind":"hello","version":1,"phase":"idle"}`)...),
		"a strange phase": frame(`{"kind":"hello","version":1,"phase":"root"}`),
	} {
		conn := dial(t, hostile)
		_, err := conn.Write(bytes)
		require.NoError(t, err, name)
		hungUp(t, conn)
	}

	flood := dial(t, hostile)
	say(t, flood, hello(wire.Idle, 0))
	hear(t, flood)
	var failed error
	for range 10_000 {
		if failed = wire.Write(flood, wire.MaxFromGuest, wire.FromGuest{Kind: wire.Pulse}); failed != nil {
			break
		}
	}
	require.Error(t, failed, "nobody may talk without end")

	// A frame that comes one byte at a time holds one connection of this instance, and
	// the next one ends it.
	slow := dial(t, hostile)
	_, err = slow.Write([]byte{0})
	require.NoError(t, err)
	say(t, dial(t, hostile), hello(wire.Idle, 0))
	hungUp(t, slow)
}

func TestThousandsOfConnectionsHoldOne(t *testing.T) {
	t.Parallel()
	hub, _ := setup(t)
	hostile, err := hub.Open(t.Context(), "hostile", guest.Boot{Peer: anyone})
	require.NoError(t, err)
	honest, err := hub.Open(t.Context(), "honest", guest.Boot{Peer: anyone})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var storm sync.WaitGroup
	for range 20 {
		storm.Go(func() {
			for ctx.Err() == nil {
				conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "unix", filepath.Join(hostile.Path, wire.Control))
				if err == nil {
					defer conn.Close()
				}
			}
		})
	}
	conn := dial(t, honest)
	say(t, conn, hello(wire.Waiting, 0))
	require.Equal(t, wire.Boot, hear(t, conn).Kind, "a neighbour is served during the storm")
	cancel()
	storm.Wait()
	require.NoError(t, hub.Close("hostile"))
}

func TestNamesAndPathsThatCannotBe(t *testing.T) {
	t.Parallel()
	hub, dir := setup(t)
	for _, name := range []string{"", ".", "..", "a/b", "../x", "a\x00b", "-x"} {
		_, err := hub.Open(t.Context(), name, guest.Boot{Peer: anyone})
		require.ErrorIs(t, err, guest.ErrName, name)
		require.ErrorIs(t, hub.Close(name), guest.ErrName, name)
	}
	deep := openHub(t, filepath.Join(dir, "0123456789012345678901234567890123456789012345678901234567890123456789"))
	_, err := deep.Open(t.Context(), "asg_01h455vb4pex5vsknk084sn02q", guest.Boot{Peer: anyone})
	require.ErrorIs(t, err, guest.ErrPath)
}

func frame(text string) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(text))), text...)
}
