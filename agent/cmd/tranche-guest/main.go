// Command tranche-guest is process 1 of an instance. It is one static program that is
// mounted read-only into every image:
//
//	tranche-guest run -- COMMAND…   be process 1 and run the tenant's command; --folder
//	                                names another place of the host's sockets
//	tranche-guest sftp              serve files on standard input and output
//	tranche-guest version
//
// It owns no behaviour: package agent/guest/inside does. People never call it.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/tranche-cloud/tranche/agent/guest/inside"
	"github.com/tranche-cloud/tranche/agent/guest/wire"
)

// version is set by the linker.
var version = "dev"

const usage = "usage: tranche-guest run [--folder DIR] -- COMMAND… | sftp | version"

func main() {
	os.Exit(run(os.Args[1:]))
}

func run(args []string) int {
	if len(args) == 0 {
		fmt.Fprintln(os.Stderr, usage)
		return 2
	}
	switch args[0] {
	case "run":
		dir, rest := wire.Folder, args[1:]
		if len(rest) > 1 && rest[0] == "--folder" {
			dir, rest = rest[1], rest[2:]
		}
		if len(rest) == 0 || rest[0] != "--" {
			break
		}
		self, err := os.Executable()
		if err != nil {
			fmt.Fprintln(os.Stderr, "tranche-guest: find this program:", err)
			return 126
		}
		return inside.Run(context.Background(), inside.Config{
			Dir: dir, Self: self, Command: rest[1:], Build: version, Log: os.Stderr,
		})
	case "sftp":
		if err := inside.ServeFiles(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "tranche-guest:", err)
			return 1
		}
		return 0
	case "version":
		fmt.Println(version)
		return 0
	}
	fmt.Fprintln(os.Stderr, usage)
	return 2
}
