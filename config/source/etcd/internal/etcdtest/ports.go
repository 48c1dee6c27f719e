package etcdtest

import (
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"testing"
)

// Below the range from which kernels take the ports of outgoing connections (32768 on Linux), so that a server which was
// killed finds its port free when it starts again, and above what other tests of this repository use.
const firstPort, ports = 31100, 1600

func freePorts(t testing.TB, n int) (free []int) {
	t.Helper()
	for range 1000 {
		port := firstPort + rand.IntN(ports)
		l, err := net.Listen("tcp", address(port))
		if err != nil || slices.Contains(free, port) {
			if err == nil {
				_ = l.Close()
			}
			continue
		}
		_ = l.Close()
		if free = append(free, port); len(free) == n {
			return free
		}
	}
	t.Fatalf("etcdtest: no free port found")
	return nil
}

func address(port int) string { return "127.0.0.1:" + strconv.Itoa(port) }
