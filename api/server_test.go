package api_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Over a real connection: headers of 16 to 64 KiB are answered by us, beyond by
// net/http; a body that is announced too large is refused before it is read.
func TestSizesOverARealConnection(t *testing.T) {
	server := newBench(t).Server("127.0.0.1:0")
	listener, err := net.Listen("tcp", server.Addr)
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		require.NoError(t, server.Close())
		require.ErrorIs(t, <-served, http.ErrServerClosed)
	})
	send := func(request string) (int, string) {
		conn, err := net.Dial("tcp", listener.Addr().String())
		require.NoError(t, err)
		defer conn.Close()
		_, err = io.WriteString(conn, request)
		require.NoError(t, err)
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		require.NoError(t, err)
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		return res.StatusCode, string(body)
	}
	for _, kib := range []int{17, 40, 60} {
		status, body := send("GET /v1/offers HTTP/1.1\r\nHost: x\r\nX-Filler: " + strings.Repeat("x", kib<<10) + "\r\n\r\n")
		require.Equal(t, 431, status, kib)
		require.Contains(t, body, "request.header_too_large")
	}
	status, _ := send("GET /v1/offers HTTP/1.1\r\nHost: x\r\nX-Filler: " + strings.Repeat("x", 80<<10) + "\r\n\r\n")
	require.Equal(t, 431, status)
	status, body := send(fmt.Sprintf("POST /v1/projects/-/instances HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", 2<<20))
	require.Equal(t, 413, status)
	require.Contains(t, body, "request.too_large")
	status, body = send("GET /v1/projects/../offers HTTP/1.1\r\nHost: x\r\n\r\n")
	require.Equal(t, 404, status)
	require.Contains(t, body, "resource.not_found")
}
