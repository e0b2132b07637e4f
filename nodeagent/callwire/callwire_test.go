package callwire_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/nodeagent/callwire"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
	"github.com/tranche-cloud/tranche/nodeagent/runtime"
)

// pair is a client and the end of its server.
func pair(t *testing.T, h callwire.Handler) (c *callwire.Client, served <-chan error) {
	t.Helper()
	near, far := net.Pipe()
	end := make(chan error, 1)
	go func() { end <- callwire.Serve(t.Context(), far, h) }()
	c, err := callwire.NewClient(t.Context(), near)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c, end
}

func TestAnswersComeInAnyOrder(t *testing.T) {
	t.Parallel()
	gate := make(chan struct{})
	c, _ := pair(t, func(_ context.Context, k callwire.Call) (any, error) {
		if k.Verb == "slow" {
			<-gate
		}
		return k.Verb, nil
	})
	var all sync.WaitGroup
	all.Go(func() {
		got, err := c.Call(t.Context(), "slow", nil, nil)
		require.NoError(t, err)
		require.JSONEq(t, `"slow"`, string(got))
	})
	got, err := c.Call(t.Context(), "quick", nil, nil)
	require.NoError(t, err)
	require.JSONEq(t, `"quick"`, string(got))
	close(gate)
	all.Wait()
}

func TestErrorsKeepTheirType(t *testing.T) {
	t.Parallel()
	driver := gpudrv.Refuse(gpudrv.InUse, "set_mode", "GPU-1", "held").HeldBy(gpudrv.Holder{PID: 7, Name: "dcgm"}).Because(errors.New("busy"))
	container := runtime.Refuse(runtime.ImageNotFound, "pull", "asg", "no such image").Because(errors.New("404"))
	for name, want := range map[string]error{
		"driver": driver, "driver with words": fmt.Errorf("read mode: %w", driver),
		"runtime": container, "runtime with words": fmt.Errorf("start: %w", container), "any": errors.New("odd"),
	} {
		c, _ := pair(t, func(context.Context, callwire.Call) (any, error) { return nil, want })
		_, err := c.Call(t.Context(), "x", nil, nil)
		require.EqualError(t, err, want.Error(), name)
		require.Equal(t, gpudrv.KindOf(want), gpudrv.KindOf(err), name)
		require.Equal(t, runtime.KindOf(want), runtime.KindOf(err), name)
		require.Equal(t, gpudrv.HoldersOf(want), gpudrv.HoldersOf(err), name)
	}
}

func TestACallEndsWithItsDeadlineOnBothSides(t *testing.T) {
	t.Parallel()
	ended := make(chan error, 1)
	c, _ := pair(t, func(ctx context.Context, _ callwire.Call) (any, error) {
		<-ctx.Done()
		ended <- ctx.Err()
		return nil, ctx.Err()
	})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := c.Call(ctx, "hang", nil, nil)
	require.Error(t, err)
	require.Error(t, <-ended)

	ctx, cancel = context.WithCancel(t.Context())
	go cancel()
	_, err = c.Call(ctx, "hang", nil, nil)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, <-ended, context.Canceled)
}

func TestNotesComeBeforeTheAnswer(t *testing.T) {
	t.Parallel()
	c, _ := pair(t, func(_ context.Context, k callwire.Call) (any, error) {
		for i := range 3 {
			if err := k.Note(i); err != nil {
				return nil, err
			}
		}
		return nil, nil
	})
	var heard []string
	_, err := c.Call(t.Context(), "x", nil, func(b json.RawMessage) { heard = append(heard, string(b)) })
	require.NoError(t, err)
	require.Equal(t, []string{"0", "1", "2"}, heard)
}

func TestALostPeerIsSaid(t *testing.T) {
	t.Parallel()
	near, far := net.Pipe()
	go func() {
		_ = callwire.Serve(t.Context(), far, func(context.Context, callwire.Call) (any, error) {
			_ = far.Close()
			return nil, nil
		})
	}()
	c, err := callwire.NewClient(t.Context(), near)
	require.NoError(t, err)
	_, err = c.Call(t.Context(), "x", nil, nil)
	require.ErrorIs(t, err, callwire.ErrLost)
	<-c.Done()
	_, err = c.Call(t.Context(), "x", nil, nil)
	require.ErrorIs(t, err, callwire.ErrLost)
}

func TestTooManyCallsAreRefused(t *testing.T) {
	t.Parallel()
	c, _ := pair(t, func(ctx context.Context, k callwire.Call) (any, error) {
		if k.Verb == "wait" {
			_ = k.Note("in")
			<-ctx.Done()
		}
		return nil, nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	entered := make(chan struct{}, 256)
	for range 256 {
		all.Go(func() {
			_, _ = c.Call(ctx, "wait", nil, func(json.RawMessage) { entered <- struct{}{} })
		})
	}
	for range 256 {
		<-entered
	}
	_, err := c.Call(t.Context(), "one more", nil, nil)
	require.ErrorContains(t, err, "no more are taken")
	cancel()
	all.Wait()
	require.Eventually(t, func() bool {
		_, err := c.Call(t.Context(), "later", nil, nil)
		return err == nil
	}, 5*time.Second, time.Millisecond)
}

func TestALongAnswerIsAnError(t *testing.T) {
	t.Parallel()
	c, _ := pair(t, func(context.Context, callwire.Call) (any, error) { return strings.Repeat("x", callwire.MaxFrame), nil })
	_, err := c.Call(t.Context(), "x", nil, nil)
	require.ErrorContains(t, err, "more than")
}

// raw is a connection that gives what it is made of and swallows the rest.
type raw struct {
	io.Reader
	wrote bytes.Buffer
	mu    sync.Mutex
}

func (r *raw) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.wrote.Write(p)
}
func (r *raw) Close() error { return nil }

func framed(texts ...string) []byte {
	var out []byte
	for _, text := range texts {
		out = binary.BigEndian.AppendUint32(out, uint32(len(text)))
		out = append(out, text...)
	}
	return out
}

func TestOddPeersAreRefused(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		sent []byte
		want error
	}{
		"another version":  {framed(`{"kind":"hello","version":2}`), callwire.ErrVersion},
		"no hello":         {framed(`{"kind":"call","id":1,"verb":"x"}`), callwire.ErrMalformed},
		"not JSON":         {framed(`hello`), callwire.ErrMalformed},
		"unknown field":    {framed(`{"kind":"hello","version":1,"x":1}`), callwire.ErrMalformed},
		"two values":       {framed(`{"kind":"hello","version":1}{}`), callwire.ErrMalformed},
		"too long":         {[]byte{0xff, 0, 0, 0}, callwire.ErrMalformed},
		"empty":            {[]byte{0, 0, 0, 0}, callwire.ErrMalformed},
		"a server's frame": {framed(`{"kind":"hello","version":1}`, `{"kind":"note","id":1}`), callwire.ErrMalformed},
		"no number":        {framed(`{"kind":"hello","version":1}`, `{"kind":"call","verb":"x"}`), callwire.ErrMalformed},
		"no verb":          {framed(`{"kind":"hello","version":1}`, `{"kind":"call","id":1}`), callwire.ErrMalformed},
		"silence":          {nil, nil},
		"half a frame":     {[]byte{0, 0, 0, 9, '{'}, nil},
	} {
		err := callwire.Serve(t.Context(), &raw{Reader: bytes.NewReader(tc.sent)}, func(context.Context, callwire.Call) (any, error) { return nil, nil })
		if tc.want == nil {
			require.NoError(t, err, name)
		} else {
			require.ErrorIs(t, err, tc.want, name)
		}
	}
}

// FuzzServe feeds a server anything at all; it never fails but by a typed error.
func FuzzServe(f *testing.F) {
	f.Add(framed(`{"kind":"hello","version":1}`, `{"kind":"call","id":1,"verb":"x","body":{},"within_ms":5}`, `{"kind":"cancel","id":1}`))
	f.Add([]byte{0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, sent []byte) {
		err := callwire.Serve(t.Context(), &raw{Reader: bytes.NewReader(sent)}, func(_ context.Context, c callwire.Call) (any, error) {
			return c.Body, nil
		})
		if err != nil && !errors.Is(err, callwire.ErrMalformed) && !errors.Is(err, callwire.ErrVersion) {
			t.Fatal(err)
		}
	})
}

// FuzzClient feeds a client anything at all, as its server would.
func FuzzClient(f *testing.F) {
	f.Add(framed(`{"kind":"hello","version":1}`, `{"kind":"note","id":1,"body":3}`, `{"kind":"answer","id":1,"failure":{"of":"gpu","kind":"HUNG","text":"x"}}`))
	f.Fuzz(func(t *testing.T, sent []byte) {
		c, err := callwire.NewClient(t.Context(), &raw{Reader: bytes.NewReader(sent)})
		if err != nil {
			return
		}
		_, _ = c.Call(t.Context(), "x", nil, func(json.RawMessage) {})
	})
}
