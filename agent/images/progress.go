package images

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
)

// progress tells every whole five percent of the stored bytes.
type progress struct {
	tell              func(string)
	total, done, read int64
	told              int64
}

func (p *progress) report() {
	if p.total == 0 {
		return
	}
	const step = 5
	percent := min(100, (p.done+p.read)*100/p.total)
	if percent >= p.told+step {
		p.told = percent - percent%step
		p.tell(fmt.Sprintf("pulling %d %% of %d MiB", p.told, (p.total+1<<20-1)>>20))
	}
}

// finish counts a whole layer, pulled or not.
func (p *progress) finish(size int64) {
	p.done, p.read = p.done+size, 0
	p.report()
}

func (p *progress) reader(from io.Reader) io.Reader {
	return readerFunc(func(b []byte) (int, error) {
		n, err := from.Read(b)
		p.read += int64(n)
		p.report()
		return n, err
	})
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// maxWindow bounds the memory that a zstd stream may ask for.
const maxWindow = 128 << 20

// decompress recognises gzip and zstd by their first bytes; anything else is taken
// for a plain archive.
func decompress(from io.Reader) (io.ReadCloser, error) {
	in := bufio.NewReaderSize(from, 1<<16)
	magic, err := in.Peek(4)
	if err != nil && len(magic) == 0 {
		return nil, err
	}
	switch {
	case bytes.HasPrefix(magic, []byte{0x1f, 0x8b}):
		z, err := gzip.NewReader(in)
		if err != nil {
			return nil, err
		}
		return z, nil
	case bytes.Equal(magic, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		z, err := zstd.NewReader(in, zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil, err
		}
		return z.IOReadCloser(), nil
	}
	return io.NopCloser(in), nil
}
