package smi

import "strings"

// ParseTimeslice reads the length of a turn from `nvidia-smi compute-policy --list`
// of one GPU, in lower case; "" if the table has none.
func ParseTimeslice(table string) string {
	for row := range strings.Lines(table) {
		fields := strings.Fields(strings.Trim(strings.TrimSpace(row), "|"))
		const columns = 3 // GPU, name, value
		if len(fields) == columns && fields[1] == "Timeslice" {
			return strings.ToLower(fields[2])
		}
	}
	return ""
}
