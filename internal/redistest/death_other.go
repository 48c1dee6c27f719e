//go:build !linux

package redistest

import "syscall"

const diesWithUs = false

func attributes() *syscall.SysProcAttr { return nil }
