package redistest

import "syscall"

// diesWithUs says that a server ends when the test process does, however that ended.
const diesWithUs = true

func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
