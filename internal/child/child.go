// Package child exists so that the examples which are several processes start them in one way, and none is left behind: each is
// the example's own command, started once more, and ends when its standard input does, which is with its parent, however that ends.
package child

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"time"
)

// Process is a child, as its parent sees it. Its methods may be called by one goroutine at a time, but for Close.
type Process struct {
	Said  string // its first line
	stdin io.WriteCloser
	lines *bufio.Scanner
	cmd   *exec.Cmd
}

// Start starts this command once more, with env added to the environment, and returns when the child has said its first line.
func Start(ctx context.Context, env []string, args ...string) (*Process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stderr = os.Stderr
	stdin, noStdin := cmd.StdinPipe()
	stdout, noStdout := cmd.StdoutPipe()
	if err := errors.Join(noStdin, noStdout); err != nil {
		return nil, err
	}
	cmd.Cancel, cmd.WaitDelay = stdin.Close, 5*time.Second // asked to end first, and killed if it does not
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &Process{stdin: stdin, lines: bufio.NewScanner(stdout), cmd: cmd}
	if !p.lines.Scan() {
		return nil, errors.Join(errors.New("a process did not start"), p.End())
	}
	p.Said = p.lines.Text()
	return p, nil
}

// Tell says a line to the child.
func (p *Process) Tell(line string) { _, _ = io.WriteString(p.stdin, line+"\n") }

// Next returns the next line that the child says; false: it says no more.
func (p *Process) Next() (string, bool) {
	ok := p.lines.Scan()
	return p.lines.Text(), ok
}

// Close asks the child to end.
func (p *Process) Close() { _ = p.stdin.Close() }

// Wait waits for its end, after its last line.
func (p *Process) Wait() error { return p.cmd.Wait() }

// End asks the child to end and waits for it.
func (p *Process) End() error {
	p.Close()
	return p.Wait()
}

// Say tells the parent a line.
func Say(line any) { fmt.Fprintln(os.Stdout, line) }

// Await waits in a child until the parent tells a line. It reads nothing beyond.
func Await() error {
	b := make([]byte, 1)
	for b[0] != '\n' {
		if _, err := io.ReadFull(os.Stdin, b); err != nil {
			return err
		}
	}
	return nil
}

// Lives returns a context that ends with the parent. From then on a child reads nothing from its standard input itself.
func Lives(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	return ctx, cancel
}

// IgnoreInterrupt is for a child: Ctrl-C goes to all, and the parent ends its children when it has heard it.
func IgnoreInterrupt() { signal.Ignore(os.Interrupt) }

// Redis is the life of a child that is a redis-server without a disk, killed when ctx ends. It says its URL when it answers. An
// empty address is any on this machine.
func Redis(ctx context.Context, address string) error {
	if address == "" {
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		address = l.Addr().String()
		_ = l.Close()
	}
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cmd := exec.CommandContext(ctx, "redis-server", "--bind", "127.0.0.1", "--port", port, "--save", "", "--appendonly", "no")
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("%w; on Debian: apt-get install redis-server", err)
	}
	ended := make(chan error, 1)
	go func() {
		ended <- cmd.Wait()
		cancel()
	}()
	if answers(ctx, address) {
		Say("redis://" + address)
		<-ctx.Done()
	}
	if err := <-ended; errors.As(err, new(*exec.ExitError)) && cmd.ProcessState.Exited() {
		return err
	}
	return nil
}

// answers waits until a Redis answers.
func answers(ctx context.Context, address string) bool {
	for ctx.Err() == nil {
		if c, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", address); err == nil {
			_ = c.SetDeadline(time.Now().Add(time.Second))
			_, _ = io.WriteString(c, "PING\r\n")
			line, _ := bufio.NewReader(c).ReadString('\n')
			_ = c.Close()
			if line == "+PONG\r\n" {
				return true
			}
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
		}
	}
	return false
}
