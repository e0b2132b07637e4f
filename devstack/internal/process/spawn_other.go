//go:build !linux

package process

import (
	"os/exec"
	"syscall"
)

func spawn(cmd *exec.Cmd) error { return cmd.Start() }

func attributes(cmd *exec.Cmd, user *User) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if user == nil {
		return
	}
	cmd.Dir = "/"
	cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(user.UID), Gid: uint32(user.GID)}
}
