package process

import (
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

type spawnRequest struct {
	cmd  *exec.Cmd
	done chan error
}

// spawner starts every child from one thread that never ends: the kernel sends
// the parent-death signal when the starting thread ends, not the process.
var spawner = sync.OnceValue(func() chan<- spawnRequest {
	requests := make(chan spawnRequest)
	go func() {
		runtime.LockOSThread()
		for r := range requests {
			r.done <- r.cmd.Start()
		}
	}()
	return requests
})

func spawn(cmd *exec.Cmd) error {
	done := make(chan error)
	spawner() <- spawnRequest{cmd, done}
	return <-done
}

// attributes puts the child into a process group of its own, so that an
// interrupt from the terminal reaches only us, who then stop it in order.
func attributes(cmd *exec.Cmd, user *User) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	if user == nil {
		return
	}
	cmd.Dir = "/"
	cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(user.UID), Gid: uint32(user.GID)}
	// For Postgres: roll back and end now, whoever is connected.
	cmd.SysProcAttr.Pdeathsig = syscall.SIGINT
}
