package redistest

import (
	"bufio"
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
	"sync"
	"time"
)

const (
	// Below the range from which kernels take the ports of outgoing connections (32768 on Linux), so that a server which
	// was killed finds its port free when it starts again. Redis Cluster uses the port 10000 above as well.
	firstPort, ports, busOffset = 11000, 10000, 10000

	patience = 20 * time.Second // for anything to become true: far more than it takes, for machines that are busy
)

var errPortTaken = errors.New("the port is taken")

// process is a redis-server that can be started again on the same port.
type process struct {
	command []string // without the port
	port    int

	mu     sync.Mutex
	cmd    *exec.Cmd
	ended  chan struct{} // closed when cmd has ended and was waited for
	log    *os.File      // has no name on disk any more
	paused bool
}

// launch starts a redis-server on some free port and returns when it answers.
func launch(command []string) (*process, error) {
	for {
		port, err := freePort()
		if err != nil {
			return nil, err
		}
		p := &process{command: command, port: port}
		if err = p.start(); err == nil {
			return p, nil
		}
		if !errors.Is(err, errPortTaken) { // by somebody who was faster
			return nil, err
		}
	}
}

// freePort returns a port at which nothing listens now, nor at its bus port.
func freePort() (int, error) {
	for range 1000 {
		port := firstPort + rand.IntN(ports)
		if isFree(port) && isFree(port+busOffset) {
			return port, nil
		}
	}
	return 0, errors.New("no free port found")
}

func isFree(port int) bool {
	l, err := net.Listen("tcp", address(port))
	if err != nil {
		return false
	}
	_ = l.Close()
	return true
}

func address(port int) string { return "127.0.0.1:" + strconv.Itoa(port) }

// start runs the process and returns when it answers.
func (p *process) start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	log, err := os.CreateTemp("", "redistest-*.log")
	if err != nil {
		return err
	}
	_ = os.Remove(log.Name())
	cmd := exec.Command(p.command[0], append(slices.Clone(p.command[1:]), "--port", strconv.Itoa(p.port))...)
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
		return err
	}
	p.cmd, p.ended, p.log, p.paused = cmd, ended, log, false
	err = poll(func() error {
		select {
		case <-ended:
			return stop{errors.New("the process has ended")}
		default:
			return p.answers()
		}
	})
	if err == nil {
		return nil
	}
	text := p.text()
	p.killLocked()
	if strings.Contains(text, "Address already in use") {
		return errPortTaken
	}
	return fmt.Errorf("%s does not answer: %w\n%s", cmd, err, text)
}

// answers returns nil if this very process answers at its port. Another test process may have been faster to take it.
func (p *process) answers() error {
	c, err := net.DialTimeout("tcp", address(p.port), time.Second)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(time.Second))
	if _, err = io.WriteString(c, "INFO server\r\n"); err != nil {
		return err
	}
	answer, err := readMessage(bufio.NewReader(c))
	if err != nil {
		return err
	}
	if !bytes.Contains(answer.raw, fmt.Appendf(nil, "process_id:%d\r\n", p.cmd.Process.Pid)) {
		return fmt.Errorf("unexpected answer %q", answer.raw)
	}
	return nil
}

// text returns what the process has written.
func (p *process) text() string {
	var text bytes.Buffer
	_, _ = io.Copy(&text, io.NewSectionReader(p.log, 0, 1<<20))
	return text.String()
}

func (p *process) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.killLocked()
}

func (p *process) killLocked() {
	if p.cmd == nil {
		return
	}
	_ = p.cmd.Process.Kill() // fails if it has ended already
	<-p.ended
	_ = p.log.Close()
	p.cmd = nil
}

// pause stops the process, or lets it go on.
func (p *process) pause(stopped bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return errors.New("it is not running")
	}
	// Every shell knows the signals by name; package syscall does not have them on every system.
	name := "CONT"
	if stopped {
		name = "STOP"
	}
	line := fmt.Sprintf("kill -%s %d", name, p.cmd.Process.Pid)
	if out, err := exec.Command("sh", "-c", line).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", line, err, out)
	}
	p.paused = stopped
	return nil
}

// pid returns 0 if the process does not run.
func (p *process) pid() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return 0
	}
	return p.cmd.Process.Pid
}

// isUp says that the process was neither killed nor paused.
func (p *process) isUp() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cmd != nil && !p.paused
}

// stop is an error that will not go away.
type stop struct{ error }

// poll calls f until it returns nil or stop, or patience ends. It returns f's last error.
func poll(f func() error) error {
	tick := time.NewTicker(5 * time.Millisecond)
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
