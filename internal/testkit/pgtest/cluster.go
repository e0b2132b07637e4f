package pgtest

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// settings make a cluster that forgets everything in a power cut and is fast in
// return. It listens on a socket in a private folder only, so no port is taken
// and no other user of the machine can reach it.
const settings = `
listen_addresses = ''
max_connections = 400
shared_buffers = 128MB
fsync = off
synchronous_commit = off
full_page_writes = off
wal_level = minimal
max_wal_senders = 0
max_wal_size = 512MB
checkpoint_timeout = 1h
autovacuum_naptime = 1h
timezone = 'UTC'
log_min_messages = error
log_checkpoints = off
log_min_error_statement = panic
`

// reaper stops the cluster once no test process has used it for half a minute to
// a minute. Users hold a shared lock on the file for as long as they live, so a
// killed test leaves nothing behind.
const reaper = `
idle=0
while kill -0 "$(head -n1 "$1/data/postmaster.pid")" 2>/dev/null; do
	sleep 15
	if flock -n -x 9; then idle=$((idle + 1)); else idle=0; fi
	if [ $idle -lt 3 ]; then flock -u 9; continue; fi
	"$2/pg_ctl" -D "$1/data" -m fast -w stop
	rm -rf "$1/data"
done
`

// cluster is a private Postgres shared by every test process of this user.
type cluster struct {
	bin  string   // folder of the Postgres binaries
	root string   // ours: the lock files
	home string   // the server's: data, log and socket
	user *account // who runs the server; nil: ourselves
	hold *os.File // shared lock that says "in use"
}

// account is the system user that runs the server when we are root.
type account struct{ uid, gid int }

// running returns the cluster, starting it on first use in this process.
var running = sync.OnceValues(start)

func start() (*cluster, error) {
	c, err := locate()
	if err != nil {
		return nil, err
	}
	if err := c.makeFolders(); err != nil {
		return nil, err
	}
	// The reaper takes this lock exclusively while it stops a server, so from
	// here on the server either stands still or is completely gone.
	if c.hold, err = lock(filepath.Join(c.root, "users.lock"), syscall.LOCK_SH); err != nil {
		return nil, err
	}
	starting, err := lock(filepath.Join(c.root, "start.lock"), syscall.LOCK_EX)
	if err != nil {
		return nil, err
	}
	defer starting.Close()

	if c.run("pg_ctl", "-D", c.data(), "status") == nil {
		return c, nil
	}
	return c, c.boot()
}

// locate decides where the cluster lives and which binaries and user run it.
func locate() (*cluster, error) {
	bin, err := binaries()
	if err != nil {
		return nil, err
	}
	c := &cluster{bin: bin}
	if os.Geteuid() == 0 {
		if c.user, err = serverUser(); err != nil {
			return nil, err
		}
	}
	sum := sha256.Sum256([]byte(settings + reaper + bin))
	name := fmt.Sprintf("tranche-pg-%d-%s", os.Geteuid(), hex.EncodeToString(sum[:4]))
	c.root = filepath.Join(memoryFolder(), name)
	c.home = filepath.Join(c.root, "server")
	return c, nil
}

// binaries returns the folder of the newest Postgres server, 15 or later.
func binaries() (string, error) {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	version := func(path string) int {
		n, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path))))
		return n
	}
	sort.Slice(found, func(i, j int) bool { return version(found[i]) > version(found[j]) })
	if len(found) > 0 && version(found[0]) >= 15 {
		return filepath.Dir(found[0]), nil
	}
	if out, err := exec.Command("pg_config", "--bindir").Output(); err == nil {
		dir := strings.TrimSpace(string(out))
		if _, err := os.Stat(filepath.Join(dir, "initdb")); err == nil {
			return dir, nil
		}
	}
	return "", errors.New("no Postgres 15 or later: install it with scripts/setup (or apt-get install postgresql)")
}

func serverUser() (*account, error) {
	u, err := user.Lookup("postgres")
	if err != nil {
		return nil, fmt.Errorf("find the user that runs Postgres, which refuses root: %w", err)
	}
	uid, err := strconv.Atoi(u.Uid)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.Atoi(u.Gid)
	return &account{uid, gid}, err
}

// memoryFolder returns /dev/shm where it has a gibibyte free: a database made
// from a template there costs a fraction of one on disk.
func memoryFolder() string {
	const shm, need = "/dev/shm", 1 << 30
	var st syscall.Statfs_t
	if err := syscall.Statfs(shm, &st); err == nil && st.Bavail*uint64(st.Bsize) >= need {
		return shm
	}
	return os.TempDir()
}

func (c *cluster) makeFolders() error {
	if err := os.MkdirAll(c.home, 0o711); err != nil {
		return err
	}
	info, err := os.Lstat(c.root)
	if err != nil {
		return err
	}
	// The parent is writable by all: do not trust a folder that someone else made.
	if st, ok := info.Sys().(*syscall.Stat_t); !ok || int(st.Uid) != os.Geteuid() || !info.IsDir() {
		return fmt.Errorf("%s belongs to someone else", c.root)
	}
	if c.user != nil {
		if err := os.Chown(c.home, c.user.uid, c.user.gid); err != nil {
			return err
		}
	}
	return os.Chmod(c.home, 0o700)
}

// boot makes a fresh cluster and starts it with its reaper.
func (c *cluster) boot() error {
	if err := os.RemoveAll(c.data()); err != nil {
		return err
	}
	if err := c.run("initdb", "--no-sync", "--no-instructions", "-A", "trust",
		"-E", "UTF8", "--locale=C.UTF-8", "-U", "postgres", "-D", c.data()); err != nil {
		return err
	}
	conf, err := os.OpenFile(filepath.Join(c.data(), "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = conf.WriteString(settings + "unix_socket_directories = '" + c.home + "'\n")
	if err := errors.Join(err, conf.Close()); err != nil {
		return err
	}
	if err := c.run("pg_ctl", "-D", c.data(), "-l", filepath.Join(c.home, "log"), "-w", "-t", "60", "start"); err != nil {
		return err
	}
	return c.startReaper()
}

// startReaper leaves a process behind that outlives this one.
func (c *cluster) startReaper() error {
	users, err := os.Open(filepath.Join(c.root, "users.lock"))
	if err != nil {
		return err
	}
	defer users.Close()
	cmd := exec.Command("/bin/sh", "-c", "exec 9<&3 3<&-\n"+reaper, "tranche-pg-reaper", c.home, c.bin)
	cmd.ExtraFiles = []*os.File{users}
	c.as(cmd)
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the reaper of the test cluster: %w", err)
	}
	return cmd.Process.Release()
}

func (c *cluster) data() string { return filepath.Join(c.home, "data") }

// run executes one Postgres binary and returns what it complained about.
func (c *cluster) run(name string, args ...string) error {
	var output bytes.Buffer
	cmd := exec.Command(filepath.Join(c.bin, name), args...)
	cmd.Stdout, cmd.Stderr = &output, &output
	c.as(cmd)
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("run %s: %w\n%s", name, err, output.String())
	}
	return nil
}

// as makes the command run as the server's user, in a session of its own, so
// that an interrupt of the tests does not reach it.
func (c *cluster) as(cmd *exec.Cmd) {
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if c.user != nil {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(c.user.uid), Gid: uint32(c.user.gid)}
	}
}

// dsn returns the address of a database for a role.
func (c *cluster) dsn(role, database string) string {
	u := url.URL{
		Scheme: "postgres", User: url.User(role), Path: "/" + database,
		RawQuery: url.Values{"host": {c.home}, "sslmode": {"disable"}}.Encode(),
	}
	return u.String()
}

// lock opens the file and waits for the advisory lock; it ends with the file, or
// with the process.
func lock(path string, how int) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), how); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return f, nil
}
