package main

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/spillway-go/spillway/config"
)

// neverChanges finds a file that is a mount by itself, as Kubernetes makes of a subPath: it stays what it was when the
// container started.
func neverChanges(path string) (config.Finding, bool) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return config.Finding{}, false
	}
	if real, err := filepath.EvalSymlinks(abs); err == nil {
		abs = real
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	return mountFinding(abs), err == nil && isMount(abs, string(mounts))
}

// isMount reports whether path is a mount point in the text of mountinfo (proc(5)).
func isMount(path, mounts string) bool {
	escaped := strings.NewReplacer(" ", `\040`, "\t", `\011`, "\n", `\012`, `\`, `\134`).Replace(path)
	for line := range strings.SplitSeq(mounts, "\n") {
		if f := strings.Fields(line); len(f) > 4 && f[4] == escaped {
			return true
		}
	}
	return false
}

func mountFinding(path string) config.Finding {
	return config.Finding{
		ID: config.NoEffect, Warning: true, Message: path + " is mounted by itself, as with subPath: changes of a ConfigMap never arrive",
		Suggestion: "Mount the directory of the file instead.",
	}
}
