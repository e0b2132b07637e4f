package preflight

import (
	"cmp"
	"strconv"
	"strings"
)

// numbers reads the leading numbers of a version: 580.159.04, v2.1.0~rc.1,
// 1.1.5+ds1-1, 6.18.44-vendor. What follows them is ignored.
func numbers(version string) []int {
	version = strings.TrimPrefix(version, "v")
	var out []int
	for part := range strings.SplitSeq(version, ".") {
		end := 0
		for end < len(part) && part[end] >= '0' && part[end] <= '9' {
			end++
		}
		n, err := strconv.Atoi(part[:end])
		if err != nil {
			break
		}
		out = append(out, n)
		if end < len(part) {
			break
		}
	}
	return out
}

// known says whether a version begins with a number and a point.
func known(version string) bool { return len(numbers(version)) > 1 }

func older(a, b string) bool { return compare(a, b) < 0 }

// compare compares versions number by number; a missing number is 0.
func compare(a, b string) int {
	x, y := numbers(a), numbers(b)
	for i := range max(len(x), len(y)) {
		var p, q int
		if i < len(x) {
			p = x[i]
		}
		if i < len(y) {
			q = y[i]
		}
		if c := cmp.Compare(p, q); c != 0 {
			return c
		}
	}
	return 0
}
