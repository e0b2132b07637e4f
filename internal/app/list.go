package app

import (
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/store"
)

// Page asks for part of a list. Cursor is the text of an earlier List.Next, "" for
// the start; the API seals it. Size is 1 to page.Max.
type Page struct {
	Cursor string
	Size   int
}

// List is one page. Next is "" at the end.
type List[T any] struct {
	Items []T
	Next  string
}

// keyset reads the cursor of a list of I, which is the id of the last item shown.
// One row more than asked for tells whether there is a next page.
func keyset[I interface{ ~[16]byte }, P interface {
	*I
	UnmarshalText([]byte) error
}](p Page) (store.Keyset, error) {
	k := store.Keyset{Size: p.Size + 1}
	if p.Cursor == "" {
		return k, nil
	}
	last, err := id.Parse[I, P](p.Cursor)
	if err != nil {
		return k, fault.New(fault.Invalid, "page_token.invalid", "The page token is not one of this list.").
			Suggest("Start the list again without page_token.").Because(err)
	}
	before := [16]byte(last)
	k.Before = &before
	return k, nil
}

// paged cuts the extra row off; key is the id text of an item.
func paged[T any](items []T, size int, key func(T) string) List[T] {
	if len(items) <= size {
		return List[T]{Items: items}
	}
	items = items[:size]
	return List[T]{Items: items, Next: key(items[size-1])}
}
