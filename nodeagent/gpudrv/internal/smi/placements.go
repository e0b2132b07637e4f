// Package smi reads the text of nvidia-smi where NVML itself gives no answer. It
// runs nothing; it only parses, and what it cannot read is an error, never an
// empty answer.
package smi

import (
	"bufio"
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Placement is an interval of memory units.
type Placement struct{ Start, Size int }

// Both forms occur: `Placements: {0,2,4}:2` and, for one start, `Placement : {0}:4`.
var placementLine = regexp.MustCompile(
	`^GPU +(\d{1,3}) +Profile ID +(\d{1,4}) +Placements? *: *\{([0-9, ]{1,256})\} *: *(\d{1,2})$`)

// maxUnits bounds starts and sizes: no GPU has more memory units.
const maxUnits = 64

// ParsePlacements reads the output of `nvidia-smi mig -lgipp`: GPU index →
// profile id → placements ascending by start. Lines that start with "GPU" but do
// not parse, doubled profiles and output without any placement are errors.
func ParsePlacements(text string) (map[int]map[int][]Placement, error) {
	out := map[int]map[int][]Placement{}
	sc := bufio.NewScanner(strings.NewReader(text))
	for sc.Scan() {
		line := strings.Trim(strings.TrimSpace(sc.Text()), "| ")
		if !strings.HasPrefix(line, "GPU") {
			continue
		}
		gpu, profile, list, err := parseLine(line)
		if err != nil {
			return nil, err
		}
		if out[gpu] == nil {
			out[gpu] = map[int][]Placement{}
		}
		if _, twice := out[gpu][profile]; twice {
			return nil, fmt.Errorf("placements of profile %d on gpu %d are listed twice", profile, gpu)
		}
		out[gpu][profile] = list
	}
	if err := sc.Err(); err != nil {
		return nil, fmt.Errorf("read placements: %w", err)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("no placements in %d bytes of text", len(text))
	}
	return out, nil
}

func parseLine(line string) (gpu, profile int, list []Placement, err error) {
	m := placementLine.FindStringSubmatch(line)
	if m == nil {
		return 0, 0, nil, fmt.Errorf("cannot read placements from %q", line)
	}
	gpu, err1 := strconv.Atoi(m[1])
	profile, err2 := strconv.Atoi(m[2])
	size, err3 := strconv.Atoi(m[4])
	if err := cmp.Or(err1, err2, err3); err != nil {
		return 0, 0, nil, err
	}
	for text := range strings.SplitSeq(m[3], ",") {
		start, err := strconv.Atoi(strings.TrimSpace(text))
		if err != nil || size < 1 || start < 0 || start+size > maxUnits {
			return 0, 0, nil, fmt.Errorf("placement %q:%d is out of range in %q", text, size, line)
		}
		list = append(list, Placement{Start: start, Size: size})
	}
	slices.SortFunc(list, func(a, b Placement) int { return a.Start - b.Start })
	for i := 1; i < len(list); i++ {
		if list[i] == list[i-1] {
			return 0, 0, nil, fmt.Errorf("start %d is listed twice in %q", list[i].Start, line)
		}
	}
	return gpu, profile, list, nil
}
