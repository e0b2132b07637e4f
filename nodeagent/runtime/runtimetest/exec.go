package runtimetest

import (
	"bytes"
	"context"
	"io"
	"os"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/nodeagent/runtime"
)

var execTests = []test{
	{"an exec has an exit code and two streams", func(b *bench) {
		s := b.spec()
		b.start(s)
		var stdout, stderr bytes.Buffer
		code, err := b.driver.Exec(b.Context(), s.Name, runtime.Exec{
			Args: []string{"sh", "-c", "echo out; echo err >&2; echo $EXTRA; exit 5"},
			Env:  map[string]string{"EXTRA": "more"}, Stdout: &stdout, Stderr: &stderr,
		})
		require.NoError(b, err)
		require.Equal(b, 5, code)
		require.Equal(b, "out\nmore\n", stdout.String())
		require.Equal(b, "err\n", stderr.String())
	}},
	{"an exec hears the end of its input", func(b *bench) {
		s := b.spec()
		b.start(s)
		var stdout bytes.Buffer
		text := strings.Repeat("0123456789abcdef", 1<<14)
		code, err := b.driver.Exec(b.Context(), s.Name, runtime.Exec{
			Args: []string{"cat"}, Stdin: strings.NewReader(text), Stdout: &stdout,
		})
		require.NoError(b, err)
		require.Zero(b, code)
		require.True(b, text == stdout.String(), "%d of %d bytes", stdout.Len(), len(text))
	}},
	{"an exec ends though its input stays open", func(b *bench) {
		s := b.spec()
		b.start(s)
		r, w := io.Pipe()
		defer w.Close()
		code, err := b.driver.Exec(b.Context(), s.Name, runtime.Exec{Args: []string{"sh", "-c", "exit 4"}, Stdin: r})
		require.NoError(b, err)
		require.Equal(b, 4, code)
	}},
	{"a program that is not there cannot be run", func(b *bench) {
		s := b.spec()
		b.start(s)
		_, err := b.driver.Exec(b.Context(), s.Name, runtime.Exec{Args: []string{"/no/such/program"}})
		require.Equal(b, runtime.CommandFailed, runtime.KindOf(err), "%v", err)
		_, err = b.driver.Exec(b.Context(), s.Name, runtime.Exec{})
		require.Equal(b, runtime.CommandMissing, runtime.KindOf(err), "%v", err)
	}},
	{"a cancelled exec is ended", func(b *bench) {
		s := b.spec()
		b.start(s)
		ctx, cancel := context.WithCancel(b.Context())
		ended := make(chan error, 1)
		go func() {
			_, err := b.driver.Exec(ctx, s.Name, runtime.Exec{Args: []string{"sleep", "4321"}})
			ended <- err
		}()
		running := func() string { return b.sh(s.Name, "ps | grep 'slee[p] 4321' || true") }
		require.Eventually(b, func() bool { return running() != "" }, patience, poll)
		cancel()
		require.Error(b, <-ended)
		require.Eventually(b, func() bool { return running() == "" }, patience, poll)
	}},
	{"nothing runs in what has ended", func(b *bench) {
		s := b.spec("true")
		b.start(s)
		b.exited(s.Name)
		_, err := b.driver.Exec(b.Context(), s.Name, runtime.Exec{Args: []string{"true"}})
		require.Equal(b, runtime.NotFound, runtime.KindOf(err), "%v", err)
	}},
}

var logTests = []test{
	{"the log goes on across agents", func(b *bench) {
		s := b.spec("sh", "-c", "echo one; while ! test -e /go; do sleep 0.05; done; echo two; echo three >&2; sleep 1000")
		b.start(s)
		b.logged(s, "one")
		b.restart()
		b.sh(s.Name, "touch /go")
		b.logged(s, "two\n")
		b.logged(s, "three\n")
		require.Equal(b, 1, strings.Count(b.log(s), "one"))
	}},
	{"the log keeps the last words", func(b *bench) {
		s := b.spec("sh", "-c", "i=0; while test $i -lt 2000; do echo line $i; i=$((i+1)); done; echo last")
		b.start(s)
		b.exited(s.Name)
		b.logged(s, "last\n")
	}},
	{"the log is bounded", func(b *bench) {
		if b.h.LogLimit == 0 {
			return
		}
		s := b.spec("sh", "-c", "yes 0123456789012345678901234567890123456789 | head -c 3000000; echo; echo last")
		b.start(s)
		b.exited(s.Name)
		b.logged(s, "last\n")
		info, err := os.Stat(s.Extra.Log)
		require.NoError(b, err)
		require.LessOrEqual(b, info.Size(), b.h.LogLimit)
	}},
}
