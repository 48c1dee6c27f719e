package promtest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// Below the range from which kernels take the ports of outgoing connections (32768 on Linux), and apart from the
	// ports of other servers that tests start.
	firstPort, ports = 31000, 1768

	patience = 30 * time.Second // for anything to become true: far more than it takes, for machines that are busy
)

var errPortTaken = errors.New("the port is taken")

// process is a running prometheus.
type process struct {
	addr  string
	cmd   *exec.Cmd
	ended chan struct{} // closed when cmd has ended and was waited for
	log   *os.File      // has no name on disk any more
}

// launch starts a command on some free port and returns when answers, which is given the address, returns nil.
func launch(command []string, answers func(addr string) error) (*process, error) {
	for {
		addr, err := freeAddr()
		if err != nil {
			return nil, err
		}
		p, err := start(append(slices.Clone(command), "--web.listen-address="+addr), addr, answers)
		if !errors.Is(err, errPortTaken) { // by somebody who was faster
			return p, err
		}
	}
}

// freeAddr returns an address at which nothing listens now.
func freeAddr() (string, error) {
	for range 1000 {
		addr := "127.0.0.1:" + strconv.Itoa(firstPort+rand.IntN(ports))
		if l, err := net.Listen("tcp", addr); err == nil {
			_ = l.Close()
			return addr, nil
		}
	}
	return "", errors.New("no free port found")
}

func start(command []string, addr string, answers func(addr string) error) (*process, error) {
	log, err := os.CreateTemp("", "promtest-*.log")
	if err != nil {
		return nil, err
	}
	_ = os.Remove(log.Name())
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = log, log, attributes()

	// The kernel ends a child when the thread that made it ends, not the process. So this thread stays, and does nothing else.
	started, ended := make(chan error), make(chan struct{})
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // it is killed: the error says nothing
		}
		close(ended)
	}()
	if err := <-started; err != nil {
		_ = log.Close()
		return nil, err
	}
	p := &process{addr: addr, cmd: cmd, ended: ended, log: log}
	err = poll(func() error {
		select {
		case <-ended:
			return stop{errors.New("the process has ended")}
		default:
			return answers(addr)
		}
	})
	if err == nil {
		return p, nil
	}
	text := p.text()
	p.kill()
	if strings.Contains(text, "address already in use") {
		return nil, errPortTaken
	}
	return nil, fmt.Errorf("%s does not answer: %w\n%s", cmd, err, text)
}

// text returns what the process has written.
func (p *process) text() string {
	var text bytes.Buffer
	_, _ = io.Copy(&text, io.NewSectionReader(p.log, 0, 1<<20))
	return text.String()
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill() // fails if it has ended already
	<-p.ended
	_ = p.log.Close()
}

// stop is an error that will not go away.
type stop struct{ error }

// poll calls f until it returns nil or stop, or patience ends. It returns f's last error.
func poll(f func() error) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	end := time.Now().Add(patience)
	for {
		err := f()
		if err == nil || errors.As(err, &stop{}) || time.Now().After(end) {
			return err
		}
		<-tick.C
	}
}
