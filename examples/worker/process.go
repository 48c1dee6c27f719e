package main

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

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
)

// What the processes are told in their environment.
const (
	roleVar    = "WORKER_ROLE"
	redisVar   = "WORKER_REDIS_URL"
	serviceVar = "WORKER_SERVICE_URL"
	nameVar    = "WORKER_NAME"

	roleRedis  = "redis"
	roleWorker = "worker"
)

// process is this command, started once more to play a role. It ends when its standard input does: with the parent,
// however that ends.
type process struct {
	said  string // its first line
	stdin io.WriteCloser
	lines *bufio.Scanner
	cmd   *exec.Cmd
}

// begin starts a process and returns when it is ready.
func begin(ctx context.Context, role string, env ...string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(append(os.Environ(), env...), roleVar+"="+role)
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
	p := &process{stdin: stdin, lines: bufio.NewScanner(stdout), cmd: cmd}
	if !p.lines.Scan() {
		p.end()
		return nil, fmt.Errorf("%s did not start", role)
	}
	p.said = p.lines.Text()
	return p, nil
}

// work lets a worker begin, and returns when the queue is empty.
func (p *process) work() {
	_, _ = io.WriteString(p.stdin, "go\n")
	p.lines.Scan()
}

func (p *process) end() {
	_ = p.stdin.Close()
	_ = p.cmd.Wait() // it has said on stderr what it had to say
}

// input is what the parent says.
var input = bufio.NewReader(os.Stdin)

func awaitStart() error {
	_, err := input.ReadString('\n')
	return err
}

// play is the life of a process that the parent has started.
func play(role string) error {
	signal.Ignore(os.Interrupt) // Ctrl-C goes to all; the parent ends us when it has heard it
	logging.Disable()
	switch role {
	case roleRedis:
		return playRedis()
	case roleWorker:
		return drain(context.Background())
	}
	return fmt.Errorf("no role %q", role)
}

// playRedis is a redis-server without a disk, killed when the parent ends.
func playRedis() error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	address := l.Addr().String()
	_ = l.Close()
	_, port, _ := net.SplitHostPort(address)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	cmd := exec.CommandContext(ctx, "redis-server", "--bind", "127.0.0.1", "--port", port, "--save", "", "--appendonly", "no")
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("%w; on Debian: apt-get install redis-server", err)
	}
	go func() {
		_, _ = io.Copy(io.Discard, input)
		cancel()
	}()
	client := redis.NewClient(&redis.Options{Addr: address, MaxRetries: 10}) // it takes a moment to listen
	defer func() { _ = client.Close() }()
	if err := client.Ping(ctx).Err(); err != nil {
		return err
	}
	fmt.Println("redis://" + address)
	if err := cmd.Wait(); ctx.Err() == nil {
		return err
	}
	return nil
}
