//go:build !linux

package promtest

import "syscall"

func attributes() *syscall.SysProcAttr { return nil }
