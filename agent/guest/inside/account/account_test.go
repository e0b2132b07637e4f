package account_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/agent/guest/inside/account"
)

func TestUsersAreFoundAsImagesNameThem(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	passwd, group := filepath.Join(dir, "passwd"), filepath.Join(dir, "group")
	require.NoError(t, os.WriteFile(passwd, []byte("root:x:0:0:root:/root:/bin/ash\napp:x:1000:1001:App:/srv/app:/bin/bash\nbroken:x\nbad:x:y:z:::\n"), 0o600))
	require.NoError(t, os.WriteFile(group, []byte("root:x:0:\nvideo:x:44:sys,app\nrender:x:105:app\nappendix:x:106:apps\n"), 0o600))
	for wanted, want := range map[string]account.Account{
		"":         {Name: "root", Home: "/root", Shell: "/bin/ash"},
		"0":        {Name: "root", Home: "/root", Shell: "/bin/ash"},
		"app":      {Name: "app", Home: "/srv/app", Shell: "/bin/bash", UID: 1000, GID: 1001, Groups: []uint32{44, 105}},
		"1000":     {Name: "app", Home: "/srv/app", Shell: "/bin/bash", UID: 1000, GID: 1001, Groups: []uint32{44, 105}},
		"app:44":   {Name: "app", Home: "/srv/app", Shell: "/bin/bash", UID: 1000, GID: 44},
		"7:render": {Home: "/", UID: 7, GID: 105},
		"7":        {Home: "/", UID: 7},
	} {
		got, err := account.Resolve(wanted, passwd, group)
		require.NoError(t, err, wanted)
		require.Equal(t, want, got, wanted)
	}
	for _, wanted := range []string{"nobody", "bad", "-1", "4294967295", "4294967296", "app:nogroup"} {
		_, err := account.Resolve(wanted, passwd, group)
		require.ErrorIs(t, err, account.ErrUnknown, wanted)
	}
}

func TestAStrangeUserFileHoldsNobodyAndBlocksNobody(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pipe, loop := filepath.Join(dir, "pipe"), filepath.Join(dir, "loop")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	require.NoError(t, os.Symlink(loop, loop))
	for _, file := range []string{pipe, loop, dir, "/dev/zero", filepath.Join(dir, "none")} {
		got, err := account.Resolve("", file, file)
		require.NoError(t, err, file)
		require.Equal(t, account.Account{Name: "root", Home: "/root"}, got, file)
		_, err = account.Resolve("app", file, file)
		require.ErrorIs(t, err, account.ErrUnknown, file)
	}
}
