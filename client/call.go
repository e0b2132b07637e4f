package client

import (
	"context"
	"fmt"
	"iter"
	"net/http"

	"github.com/tranche-cloud/tranche/client/internal/raw"
	"github.com/tranche-cloud/tranche/openapi/wire"
)

// CallOption changes one request.
type CallOption func(*http.Request)

// IdempotencyKey names a mutation: the same key and body give the same answer for
// 72 hours, also from another process. Without it each call has a key of its own.
func IdempotencyKey(key string) CallOption {
	return func(r *http.Request) { r.Header.Set(idempotencyHeader, key) }
}

// IfGeneration lets a mutation happen only to the generation last seen; otherwise
// it fails with a *Problem of code precondition.failed.
func IfGeneration(generation int64) CallOption {
	return func(r *http.Request) { r.Header.Set("If-Match", fmt.Sprintf("%q", fmt.Sprintf("g%d", generation))) }
}

func editors(opts []CallOption) []raw.RequestEditorFn {
	fs := make([]raw.RequestEditorFn, 0, len(opts))
	for _, o := range opts {
		fs = append(fs, func(_ context.Context, r *http.Request) error { o(r); return nil })
	}
	return fs
}

// page is the common shape of a list.
type page[T any] struct {
	Items         []T     `json:"items"`
	NextPageToken *string `json:"next_page_token"`
}

// pageSize is what iterators ask for; the service allows 200.
const pageSize = wire.PageSize(200)

// each walks a list page by page. It yields an error once, at the end.
func each[T any](fetch func(token *string) (*http.Response, error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var token *string
		for {
			p, err := answer[page[T]](fetch(token))
			if err != nil {
				var zero T
				yield(zero, err)
				return
			}
			for _, item := range p.Items {
				if !yield(item, nil) {
					return
				}
			}
			if p.NextPageToken == nil || *p.NextPageToken == "" {
				return
			}
			token = p.NextPageToken
		}
	}
}

// Collect gathers an iterator into a slice, which is never nil.
func Collect[T any](seq iter.Seq2[T, error]) ([]T, error) {
	all := []T{}
	for item, err := range seq {
		if err != nil {
			return nil, err
		}
		all = append(all, item)
	}
	return all, nil
}

func sized() *wire.PageSize { n := pageSize; return &n }
