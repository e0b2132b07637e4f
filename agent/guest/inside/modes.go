package inside

import (
	"encoding/binary"
	"os"

	"golang.org/x/sys/unix"
)

// Terminal modes by their numbers in a pty-req (RFC 4254 §8, RFC 8160), as far as they
// differ between the terminals that people use.
var (
	inputModes = map[byte]uint32{
		30: unix.IGNPAR, 31: unix.PARMRK, 32: unix.INPCK, 33: unix.ISTRIP, 34: unix.INLCR, 35: unix.IGNCR, 36: unix.ICRNL,
		38: unix.IXON, 39: unix.IXANY, 40: unix.IXOFF, 41: unix.IMAXBEL, 42: unix.IUTF8,
	}
	localModes = map[byte]uint32{
		50: unix.ISIG, 51: unix.ICANON, 53: unix.ECHO, 54: unix.ECHOE, 55: unix.ECHOK, 56: unix.ECHONL, 57: unix.NOFLSH,
		58: unix.TOSTOP, 59: unix.IEXTEN, 60: unix.ECHOCTL, 61: unix.ECHOKE,
	}
	outputModes = map[byte]uint32{70: unix.OPOST, 72: unix.ONLCR, 73: unix.OCRNL, 74: unix.ONOCR, 75: unix.ONLRET}
	characters  = map[byte]int{
		1: unix.VINTR, 2: unix.VQUIT, 3: unix.VERASE, 4: unix.VKILL, 5: unix.VEOF, 6: unix.VEOL, 7: unix.VEOL2, 8: unix.VSTART,
		9: unix.VSTOP, 10: unix.VSUSP, 12: unix.VREPRINT, 13: unix.VWERASE, 14: unix.VLNEXT,
	}
)

// setModes gives a terminal the client's modes: pairs of a number and a value, up to
// the number 0 or one that this protocol does not define.
func setModes(terminal *os.File, encoded string) error {
	raw, err := terminal.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		var now *unix.Termios
		if now, failed = unix.IoctlGetTermios(int(fd), unix.TCGETS); failed != nil {
			return
		}
		for len(encoded) >= 5 && encoded[0] != 0 && encoded[0] < 160 {
			setMode(now, encoded[0], binary.BigEndian.Uint32([]byte(encoded[1:5])))
			encoded = encoded[5:]
		}
		failed = unix.IoctlSetTermios(int(fd), unix.TCSETS, now)
	})
	if err != nil {
		return err
	}
	return failed
}

func setMode(now *unix.Termios, number byte, value uint32) {
	if at, ok := characters[number]; ok {
		// 255 is "none", which the kernel writes as 0.
		now.Cc[at] = byte(value)
		if value >= 255 {
			now.Cc[at] = 0
		}
		return
	}
	for flags, field := range map[*uint32]map[byte]uint32{&now.Iflag: inputModes, &now.Lflag: localModes, &now.Oflag: outputModes} {
		mask, ok := field[number]
		switch {
		case ok && value != 0:
			*flags |= mask
		case ok:
			*flags &^= mask
		}
	}
}
