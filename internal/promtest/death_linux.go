package promtest

import "syscall"

// attributes says that the server ends when the test process does, however that ended.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
