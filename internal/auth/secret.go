package auth

import (
	"fmt"
	"io"
	"log/slog"
)

// redacted is what a secret shows to every printer.
const redacted = "[redacted]"

// Secret is text that no printer shows: fmt, slog, JSON and YAML all write
// [redacted]. The text is held behind a pointer, because fmt ignores the methods
// of unexported fields and would print a plain string inside another struct.
type Secret struct{ text *string }

// NewSecret wraps the text.
func NewSecret(text string) Secret { return Secret{&text} }

// Reveal returns the text, "" for the zero secret. Each call of it is a place
// where a secret leaves the program: a hash, a header, a cipher.
func (s Secret) Reveal() string {
	if s.text == nil {
		return ""
	}
	return *s.text
}

// IsZero reports whether there is no text.
func (s Secret) IsZero() bool { return s.Reveal() == "" }

// Format writes [redacted] for every verb.
func (s Secret) Format(w fmt.State, _ rune) { _, _ = io.WriteString(w, redacted) }

// String returns [redacted].
func (s Secret) String() string { return redacted }

// LogValue returns [redacted].
func (s Secret) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalText returns [redacted], so encoders of JSON and YAML write that.
func (s Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }
