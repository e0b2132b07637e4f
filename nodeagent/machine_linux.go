package nodeagent

import (
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Uptime is the machine's time since boot, suspended time included: it goes on
// while the agent is away, and nobody can set it.
func Uptime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		panic("nodeagent: no boot-time clock: " + err.Error())
	}
	return time.Duration(t.Nano())
}

// BootID is the kernel's name of this boot.
func BootID() (string, error) {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("read boot id: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}

// MachineID is the operating system's name of this installation; "" if it has none.
func MachineID() string {
	text, err := os.ReadFile("/etc/machine-id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}
