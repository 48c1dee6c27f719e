package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// A file that is a mount by itself does not follow its ConfigMap.
func TestMounts(t *testing.T) {
	const mounts = `22 27 0:21 / /proc rw,nosuid - proc proc rw
1031 1020 8:1 /var/lib/kubelet/pods/x/volumes/config /etc/spillway ro,relatime - ext4 /dev/sda1 rw
1032 1020 8:1 /var/lib/kubelet/pods/x/volume-subpaths/config/app/0 /etc/one/policies.yaml ro,relatime - ext4 /dev/sda1 rw
1033 1020 8:1 /x /etc/my\040folder/a\134b.yaml ro,relatime - ext4 /dev/sda1 rw

short line
`
	for path, want := range map[string]bool{
		"/etc/one/policies.yaml":      true,
		"/etc/spillway/policies.yaml": false, // its folder is mounted
		"/etc/one":                    false,
		`/etc/my folder/a\b.yaml`:     true,
		"/":                           false,
	} {
		require.Equal(t, want, isMount(path, mounts), path)
	}
	f := mountFinding("/etc/one/policies.yaml")
	require.True(t, f.Warning)
	require.Contains(t, f.String(), "subPath")

	file := filepath.Join(t.TempDir(), "policies.yaml")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, mounted := neverChanges(file)
	require.False(t, mounted)
	// Followed to the file: the folder of a ConfigMap holds links.
	require.NoError(t, os.Symlink("/proc", file+".link"))
	f, mounted = neverChanges(file + ".link")
	require.True(t, mounted, "%v", f)
}
