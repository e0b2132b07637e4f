package client

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"io"
	mathrand "math/rand/v2"
	"net/http"
	"time"

	"github.com/tranche-cloud/tranche/client/internal/raw"
)

// authorizing adds the credential and the caller's name.
type authorizing struct {
	next                  raw.HttpRequestDoer
	credential, userAgent string
}

func (a authorizing) Do(r *http.Request) (*http.Response, error) {
	r.Header.Set("Authorization", "Bearer "+a.credential)
	r.Header.Set("User-Agent", a.userAgent)
	return a.next.Do(r)
}

const idempotencyHeader = "Idempotency-Key"

// keying gives every mutation an idempotency key, so that repeating it is safe.
type keying struct{ next raw.HttpRequestDoer }

func (k keying) Do(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodGet && r.Method != http.MethodPut && r.Header.Get(idempotencyHeader) == "" {
		r.Header.Set(idempotencyHeader, NewIdempotencyKey())
	}
	return k.next.Do(r)
}

// NewIdempotencyKey returns a fresh random key of 32 characters.
func NewIdempotencyKey() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // crypto/rand never fails; it ends the program instead
	return hex.EncodeToString(b[:])
}

// Bounds of the pause between two attempts; Retry-After may ask for longer.
const (
	firstPause = 100 * time.Millisecond
	longPause  = 5 * time.Second
)

// retrying repeats what may succeed later. Every request that reaches it is safe to
// repeat: reads and PUTs by nature, mutations by their idempotency key.
type retrying struct {
	next  raw.HttpRequestDoer
	times int
	pause func(ctx context.Context, d time.Duration) error
}

func (t retrying) Do(r *http.Request) (*http.Response, error) {
	for attempt := 0; ; attempt++ {
		resp, err := t.next.Do(r)
		if attempt >= t.times || !isTransient(r.Context(), resp, err) {
			return resp, err
		}
		wait := jitter(attempt)
		if resp != nil {
			wait += retryAfter(resp.Header)
			_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10)) // lets the connection be reused
			_ = resp.Body.Close()
		}
		if err := t.pause(r.Context(), wait); err != nil {
			return nil, err
		}
		if r, err = rewound(r); err != nil {
			return nil, err
		}
	}
}

func isTransient(ctx context.Context, resp *http.Response, err error) bool {
	if err != nil {
		return ctx.Err() == nil
	}
	switch resp.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	case http.StatusConflict:
		// Only a duplicate still in flight says when to come back.
		return resp.Header.Get("Retry-After") != "" && resp.Request != nil && resp.Request.Header.Get(idempotencyHeader) != ""
	}
	return false
}

// jitter is full jitter over an exponential bound.
func jitter(attempt int) time.Duration {
	bound := min(firstPause<<attempt, longPause)
	return time.Duration(mathrand.Int64N(int64(bound)))
}

// rewound returns the request with its body from the start.
func rewound(r *http.Request) (*http.Request, error) {
	c := r.Clone(r.Context())
	if r.GetBody == nil {
		return c, nil
	}
	body, err := r.GetBody()
	c.Body = body
	return c, err
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
