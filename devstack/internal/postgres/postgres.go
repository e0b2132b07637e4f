// Package postgres owns a private Postgres cluster in a folder: making it,
// its settings, its roles and databases.
//
// It installs no software and supervises nothing: Server describes the process
// for package process. It listens on 127.0.0.1 only and asks for a password.
package postgres

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5"

	"github.com/tranche-cloud/tranche/devstack/internal/process"
)

// Superuser is the role that Open's cluster is made with.
const Superuser = "postgres"

// minVersion is the oldest major version the schema works with.
const minVersion = 15

// Config says where the cluster lives and how safe its data are.
type Config struct {
	// Dir is ours; the cluster goes to Dir/pg.
	Dir  string
	Port int
	// Durable survives a power cut. Without it everything is faster, and only
	// crashes of processes are survived.
	Durable bool
	// Log is the file for the server's log.
	Log string
}

// Cluster is a private cluster, running or not.
type Cluster struct {
	Config
	bin      string
	home     string // data and socket, the server's own folder
	user     *process.User
	password string
}

// Open makes the cluster in the folder, or opens the one that is there.
func Open(ctx context.Context, c Config) (*Cluster, error) {
	cl := &Cluster{Config: c}
	var err error
	if cl.bin, err = binaries(); err != nil {
		return nil, err
	}
	if os.Geteuid() == 0 {
		if cl.user, err = serverUser(); err != nil {
			return nil, err
		}
	}
	if cl.password, err = readOrMakePassword(passwordFile(c.Dir)); err != nil {
		return nil, err
	}
	if err := cl.makeHome(ctx); err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(cl.data(), "PG_VERSION")); err == nil {
		return cl, cl.configure()
	}
	if err := cl.initialise(ctx); err != nil {
		return nil, err
	}
	return cl, cl.configure()
}

// Attach opens a cluster that another process made and runs.
func Attach(c Config) (*Cluster, error) {
	cl := &Cluster{Config: c}
	var err error
	if cl.bin, err = binaries(); err != nil {
		return nil, err
	}
	password, err := os.ReadFile(passwordFile(c.Dir))
	if err != nil {
		return nil, fmt.Errorf("read Postgres' password: %w", err)
	}
	cl.password = string(password)
	return cl, nil
}

// Server describes the server process. SIGINT, its stop signal, ends it at once
// and in order, whoever is connected.
func (c *Cluster) Server() process.Spec {
	return process.Spec{
		Name: "postgres", Path: filepath.Join(c.bin, "postgres"), Args: []string{"-D", c.data()},
		Log: c.Log, Stop: syscall.SIGINT, User: c.user, Ready: c.ready,
	}
}

// DSN is the address of a database for a role; all roles share one password.
func (c *Cluster) DSN(role, database string) string {
	u := url.URL{
		Scheme: "postgres", User: url.UserPassword(role, c.password),
		Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(c.Port)), Path: "/" + database,
		RawQuery: "sslmode=disable",
	}
	return u.String()
}

// Password is the one of every role.
func (c *Cluster) Password() string { return c.password }

// Binary is the path of one of the server's programs, for example pgbench.
func (c *Cluster) Binary(name string) string { return filepath.Join(c.bin, name) }

// EnsureRole makes a login role with the cluster's password, or gives it to one
// that is there.
func (c *Cluster) EnsureRole(ctx context.Context, role string) error {
	return c.admin(ctx, Superuser, func(conn *pgx.Conn) error {
		var exists bool
		if err := conn.QueryRow(ctx, `select exists (select from pg_roles where rolname = $1)`, role).Scan(&exists); err != nil {
			return err
		}
		verb := "create"
		if exists {
			verb = "alter"
		}
		// The password is hexadecimal digits of our own; DDL takes no parameters.
		_, err := conn.Exec(ctx, verb+" role "+pgx.Identifier{role}.Sanitize()+" login password '"+c.password+"'")
		return err
	})
}

// EnsureDatabase makes the database, or leaves the one that is there.
func (c *Cluster) EnsureDatabase(ctx context.Context, name, owner string) error {
	return c.admin(ctx, Superuser, func(conn *pgx.Conn) error {
		var exists bool
		if err := conn.QueryRow(ctx, `select exists (select from pg_database where datname = $1)`, name).Scan(&exists); err != nil || exists {
			return err
		}
		_, err := conn.Exec(ctx, "create database "+pgx.Identifier{name}.Sanitize()+" owner "+pgx.Identifier{owner}.Sanitize())
		return err
	})
}

// DropDatabase drops it with everything in it and everyone connected to it.
func (c *Cluster) DropDatabase(ctx context.Context, name string) error {
	return c.Exec(ctx, Superuser, "drop database if exists "+pgx.Identifier{name}.Sanitize()+" with (force)")
}

// Exec runs a script of many statements in a database as the superuser.
func (c *Cluster) Exec(ctx context.Context, database, script string) error {
	return c.admin(ctx, database, func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, script)
		return err
	})
}

func (c *Cluster) admin(ctx context.Context, database string, work func(*pgx.Conn) error) error {
	conn, err := pgx.Connect(ctx, c.DSN(Superuser, database))
	if err != nil {
		return fmt.Errorf("connect to Postgres: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if err := work(conn); err != nil {
		return fmt.Errorf("administer Postgres: %w", err)
	}
	return nil
}

func (c *Cluster) ready(ctx context.Context) error {
	return c.admin(ctx, Superuser, func(conn *pgx.Conn) error { return conn.Ping(ctx) })
}

func (c *Cluster) data() string { return filepath.Join(c.home, "data") }

func (c *Cluster) initialise(ctx context.Context) error {
	secret := filepath.Join(c.home, "initial-password")
	if err := os.WriteFile(secret, []byte(c.password), 0o600); err != nil {
		return fmt.Errorf("write the first password: %w", err)
	}
	defer os.Remove(secret)
	if err := c.own(secret); err != nil {
		return err
	}
	args := []string{"--no-instructions", "-A", "scram-sha-256", "--pwfile", secret, "-E", "UTF8",
		"--locale=C.UTF-8", "-U", Superuser, "-D", c.data()}
	if !c.Durable {
		args = append(args, "--no-sync")
	}
	_, err := process.Run(ctx, process.Spec{Name: "initdb", Path: c.Binary("initdb"), Args: args, User: c.user})
	return err
}

// configure writes our settings to a file of their own, on each start.
func (c *Cluster) configure() error {
	const include = "include_if_exists = 'tranche.conf'"
	main := filepath.Join(c.data(), "postgresql.conf")
	text, err := os.ReadFile(main)
	if err != nil {
		return fmt.Errorf("read Postgres' settings: %w", err)
	}
	if !strings.Contains(string(text), include) {
		if err := os.WriteFile(main, append(text, "\n"+include+"\n"...), 0o600); err != nil {
			return fmt.Errorf("write Postgres' settings: %w", err)
		}
	}
	ours := filepath.Join(c.data(), "tranche.conf")
	if err := os.WriteFile(ours, []byte(c.settings()), 0o600); err != nil {
		return fmt.Errorf("write Postgres' settings: %w", err)
	}
	return c.own(ours)
}

func (c *Cluster) settings() string {
	text := fmt.Sprintf(`listen_addresses = '127.0.0.1'
port = %d
unix_socket_directories = ''
max_connections = 200
shared_buffers = 256MB
max_wal_size = 1GB
random_page_cost = 1.1
jit = off
timezone = 'UTC'
log_timezone = 'UTC'
`, c.Port)
	if !c.Durable {
		// A commit still waits for the write to the kernel: what was answered
		// outlives a killed server.
		text += "fsync = off\nfull_page_writes = off\n"
	}
	return text
}

func (c *Cluster) own(path string) error {
	if c.user == nil {
		return nil
	}
	if err := os.Chown(path, c.user.UID, c.user.GID); err != nil {
		return fmt.Errorf("give %s to the user of Postgres: %w", path, err)
	}
	return nil
}

func passwordFile(dir string) string { return filepath.Join(dir, "pg-password") }

func readOrMakePassword(path string) (string, error) {
	text, err := os.ReadFile(path)
	if err == nil {
		return string(text), nil
	}
	if !errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("read Postgres' password: %w", err)
	}
	random := make([]byte, 16)
	rand.Read(random)
	password := hex.EncodeToString(random)
	if err := os.WriteFile(path, []byte(password), 0o600); err != nil {
		return "", fmt.Errorf("write Postgres' password: %w", err)
	}
	return password, nil
}

// binaries returns the folder of the newest server installed.
func binaries() (string, error) {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb") // a bad pattern is the only error
	version := func(path string) int {
		n, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path))))
		return n
	}
	sort.Slice(found, func(i, j int) bool { return version(found[i]) > version(found[j]) })
	if len(found) > 0 && version(found[0]) >= minVersion {
		return filepath.Dir(found[0]), nil
	}
	if out, err := exec.Command("pg_config", "--bindir").Output(); err == nil {
		dir := strings.TrimSpace(string(out))
		if _, err := os.Stat(filepath.Join(dir, "initdb")); err == nil {
			return dir, nil
		}
	}
	return "", fmt.Errorf("no Postgres %d or later: install it with scripts/setup (Debian: apt-get install postgresql)", minVersion)
}

func serverUser() (*process.User, error) {
	u, err := user.Lookup("postgres")
	if err != nil {
		return nil, fmt.Errorf("find the user that runs Postgres, which refuses root: %w", err)
	}
	uid, uidErr := strconv.Atoi(u.Uid)
	gid, gidErr := strconv.Atoi(u.Gid)
	if err := errors.Join(uidErr, gidErr); err != nil {
		return nil, fmt.Errorf("read the ids of user postgres: %w", err)
	}
	return &process.User{UID: uid, GID: gid}, nil
}
