package focus

import (
	"errors"
	"fmt"
	"io"
	"iter"
	"math/big"
	"time"

	"github.com/parquet-go/parquet-go"
)

// precision is the digits of a decimal in Parquet, which takes 16 bytes.
const (
	precision    = 38
	decimalBytes = 16
	batch        = 256 // rows at a time
)

// schema has a column a column; its tables order them by name, ours last.
var schema = parquet.NewSchema("FOCUS", nodes())

func nodes() parquet.Group {
	group := parquet.Group{}
	for _, s := range specs {
		node := parquet.String()
		switch s.kind {
		case decimal:
			node = parquet.Decimal(s.scale, precision, parquet.FixedLenByteArrayType(decimalBytes))
		case instant:
			node = parquet.Timestamp(parquet.Millisecond)
		}
		node = parquet.Compressed(node, &parquet.Snappy)
		if s.required {
			group[s.name] = parquet.Required(node)
			continue
		}
		group[s.name] = parquet.Optional(node)
	}
	return group
}

// placed is our columns in the order of the file.
var placed = placedColumns()

func placedColumns() []Column {
	byName := map[string]Column{}
	for c := range columns {
		byName[c.String()] = c
	}
	var out []Column
	for _, path := range schema.Columns() {
		out = append(out, byName[path[0]])
	}
	return out
}

// WriteParquet writes the rows as one Parquet file: decimals as DECIMAL(38), instants
// as TIMESTAMP, null as null. It fails for a row whose cells are not of their columns.
func WriteParquet(w io.Writer, rows iter.Seq[Row]) error {
	out := parquet.NewWriter(w, schema, parquet.CreatedBy("tranche", "1", ""))
	buffer := make([]parquet.Row, 0, batch)
	flush := func() error {
		if _, err := out.WriteRows(buffer); err != nil {
			return fmt.Errorf("writing FOCUS rows as Parquet: %w", err)
		}
		buffer = buffer[:0]
		return nil
	}
	for r := range rows {
		values, err := encode(r)
		if err != nil {
			return err
		}
		if buffer = append(buffer, values); len(buffer) == batch {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	if err := flush(); err != nil {
		return err
	}
	if err := out.Close(); err != nil {
		return fmt.Errorf("writing FOCUS rows as Parquet: %w", err)
	}
	return nil
}

func encode(r Row) (parquet.Row, error) {
	out := make(parquet.Row, len(placed))
	for i, c := range placed {
		cell, s := r[c], specs[c]
		if cell == "" {
			if s.required {
				return nil, fmt.Errorf("a FOCUS row has no %s", c)
			}
			out[i] = parquet.NullValue().Level(0, 0, i)
			continue
		}
		value, err := encodeCell(cell, s)
		if err != nil {
			return nil, fmt.Errorf("writing the %s of a FOCUS row: %w", c, err)
		}
		level := 1
		if s.required {
			level = 0
		}
		out[i] = value.Level(0, level, i)
	}
	return out, nil
}

func encodeCell(cell string, s spec) (parquet.Value, error) {
	switch s.kind {
	case decimal:
		n, ok := parse(cell)
		if !ok || n.scale > s.scale {
			return parquet.Value{}, fmt.Errorf("%.40q is no decimal with %d places", cell, s.scale)
		}
		bytes, err := twosComplement(n.at(s.scale))
		return parquet.FixedLenByteArrayValue(bytes), err
	case instant:
		at, err := time.Parse("2006-01-02T15:04:05Z", cell)
		return parquet.Int64Value(at.UnixMilli()), err
	}
	return parquet.ByteArrayValue([]byte(cell)), nil
}

var limit = pow10(precision)

func twosComplement(n *big.Int) ([]byte, error) {
	if n.CmpAbs(limit) >= 0 {
		return nil, fmt.Errorf("a number of more than %d digits", precision)
	}
	if n.Sign() < 0 {
		n = new(big.Int).Add(n, new(big.Int).Lsh(big.NewInt(1), 8*decimalBytes))
	}
	return n.FillBytes(make([]byte, decimalBytes)), nil
}

// ReadParquet reads back what WriteParquet wrote.
func ReadParquet(r io.ReaderAt, size int64) ([]Row, error) {
	file, err := parquet.OpenFile(r, size)
	if err != nil {
		return nil, fmt.Errorf("reading FOCUS rows: %w", err)
	}
	in := parquet.NewReader(file, schema)
	defer in.Close()
	var rows []Row
	buffer := make([]parquet.Row, batch)
	for {
		n, err := in.ReadRows(buffer)
		for _, values := range buffer[:n] {
			rows = append(rows, decode(values))
		}
		if errors.Is(err, io.EOF) {
			return rows, nil
		}
		if err != nil {
			return nil, fmt.Errorf("reading FOCUS rows: %w", err)
		}
	}
}

func decode(values parquet.Row) Row {
	var r Row
	for _, v := range values {
		c := placed[v.Column()]
		if v.IsNull() {
			continue
		}
		switch s := specs[c]; s.kind {
		case decimal:
			n := new(big.Int).SetBytes(v.ByteArray())
			if v.ByteArray()[0]&0x80 != 0 {
				n.Sub(n, new(big.Int).Lsh(big.NewInt(1), 8*decimalBytes))
			}
			r[c] = number{n, s.scale}.String()
		case instant:
			r[c] = second(time.UnixMilli(v.Int64()))
		default:
			r[c] = string(v.ByteArray())
		}
	}
	return r
}
