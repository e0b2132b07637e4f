package inside

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/pkg/sftp"
)

// stdio is the connection of a subsystem: its input and its output.
type stdio struct {
	io.Reader
	io.WriteCloser
}

// ServeFiles speaks SFTP on input and output until the client ends it. It runs as a
// process of its own that is the tenant's user already, so the kernel judges each file.
func ServeFiles(in io.Reader, out io.WriteCloser) error {
	dir, err := os.Getwd()
	if err != nil {
		return fmt.Errorf("serve files: %w", err)
	}
	server, err := sftp.NewServer(stdio{in, out}, sftp.WithServerWorkingDirectory(dir))
	if err != nil {
		return fmt.Errorf("serve files: %w", err)
	}
	defer shut(server)
	if err := server.Serve(); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("serve files: %w", err)
	}
	return nil
}
