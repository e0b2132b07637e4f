package nodeagent

import "strings"

// hostname folds an instance's name, which is any text, into a host name, which is
// letters, digits, dots and hyphens and begins and ends with a letter or digit. A run of
// other characters becomes one hyphen. Nothing left is "": the instance's id.
func hostname(name string) string {
	var out strings.Builder
	gap := false
	for _, r := range name {
		plain := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
		if !plain && (r != '.' && r != '-' || out.Len() == 0) {
			gap = true
			continue
		}
		if gap && out.Len() > 0 {
			out.WriteByte('-')
		}
		gap = false
		out.WriteRune(r)
	}
	return strings.TrimRight(out.String(), "-.")
}
