package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/tranche-cloud/tranche/client/internal/raw"
)

// OnlyProject names the one project that a key is confined to.
const OnlyProject = "-"

// maxAnswer bounds what is read of one answer, in bytes.
const maxAnswer = 32 << 20

// Client talks to one installation with one credential. It is safe for concurrent use.
type Client struct {
	raw *raw.Client
}

// Option changes how a Client works.
type Option func(*settings)

type settings struct {
	http      *http.Client
	userAgent string
	retries   int
	pause     func(ctx context.Context, d time.Duration) error
}

// WithHTTPClient sets the transport; the default has a 90 s time-out, longer than
// the longest wait of the service.
func WithHTTPClient(h *http.Client) Option { return func(s *settings) { s.http = h } }

// WithUserAgent names the calling program.
func WithUserAgent(name string) Option { return func(s *settings) { s.userAgent = name } }

// WithRetries sets how often a request is repeated after 429, 502, 503, 504 or a
// broken connection; 0 turns repeating off. The default is 5.
func WithRetries(n int) Option { return func(s *settings) { s.retries = n } }

// New makes a client for the service at baseURL. The credential is an API key or an
// access token; it is sent to that service only. New fails for an address that is
// not http or https.
func New(baseURL, credential string, opts ...Option) (*Client, error) {
	u, err := url.Parse(baseURL)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return nil, fmt.Errorf("the address %q is not http(s)://host[:port]", baseURL)
	}
	s := settings{
		http:      &http.Client{Timeout: 90 * time.Second, CheckRedirect: noRedirect},
		userAgent: "tranche-go",
		retries:   5,
		pause:     pause,
	}
	for _, o := range opts {
		o(&s)
	}
	var chain raw.HttpRequestDoer = s.http
	chain = retrying{next: chain, times: s.retries, pause: s.pause}
	chain = keying{next: chain}
	chain = authorizing{next: chain, credential: credential, userAgent: s.userAgent}
	r, err := raw.NewClient(strings.TrimRight(baseURL, "/"), raw.WithHTTPClient(chain))
	if err != nil {
		return nil, fmt.Errorf("make the client: %w", err)
	}
	return &Client{raw: r}, nil
}

// noRedirect refuses redirects: the service makes none, and a credential must not
// follow one.
func noRedirect(*http.Request, []*http.Request) error {
	return errors.New("the service answered with a redirect, which it never does")
}

// answer reads one response: the value on 2xx, a *Problem otherwise.
func answer[T any](resp *http.Response, err error) (T, error) {
	var v T
	body, err := read(resp, err)
	if err != nil || len(body) == 0 {
		return v, err
	}
	if err := json.Unmarshal(body, &v); err != nil {
		return v, fmt.Errorf("the service answered something that is not %T: %w", v, err)
	}
	return v, nil
}

func read(resp *http.Response, err error) ([]byte, error) {
	if err != nil {
		return nil, fmt.Errorf("call the service: %w", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	if resp.StatusCode/100 != 2 {
		return nil, problemOf(resp, body)
	}
	return body, nil
}

// optional returns nil for the zero value: absent, not empty.
func optional[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}
