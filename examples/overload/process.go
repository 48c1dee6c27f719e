package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"sync"
	"time"

	"github.com/spillway-go/spillway/limiter/adaptive"
)

// childVar is set for a process that this command has started: it ends when its standard input does, which is with the parent.
const childVar = "OVERLOAD_CHILD"

// process is this command, started once more to be the service.
type process struct {
	url   string
	cmd   *exec.Cmd
	stdin io.Closer
}

// begin starts a service of its own process, so that what load costs is not the service's. It returns when it listens.
func begin(ctx context.Context, args ...string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Env = append(os.Environ(), childVar+"=1")
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
	lines := bufio.NewScanner(stdout)
	ready := lines.Scan()
	p := &process{url: lines.Text(), cmd: cmd, stdin: stdin}
	if !ready {
		return nil, errors.Join(errors.New("the service did not start"), p.end())
	}
	return p, nil
}

func (p *process) end() error {
	_ = p.stdin.Close()
	return p.cmd.Wait()
}

// serve is the service, on one processor, until ctx ends. It says first where it is.
func serve(ctx context.Context, address, guardName, law string, stdout io.Writer) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	if os.Getenv(childVar) != "" {
		signal.Ignore(os.Interrupt) // Ctrl-C goes to all; the parent ends us when it has heard it
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			stop()
		}()
	}
	runtime.GOMAXPROCS(1)
	sampler := adaptive.NewSampler(0)
	s := newService(calibrate(), func() (float64, bool) {
		now := time.Now()
		sampler.Sample(now)
		r := sampler.Read(now)
		return r.Value, r.OK
	})
	guard, err := guardFor(s, guardName, law, nil)
	if err != nil {
		return err
	}
	if s.held != nil {
		defer func() { _ = s.held.Close() }()
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	var sampling sync.WaitGroup
	sampling.Go(func() { s.sample(ctx.Done()) })
	defer sampling.Wait()
	defer stop()
	server := &http.Server{Handler: s.handler(guard), ReadHeaderTimeout: time.Minute}
	fmt.Fprintln(stdout, "http://"+l.Addr().String())
	go func() {
		<-ctx.Done()
		_ = server.Close()
	}()
	if err := server.Serve(l); ctx.Err() == nil {
		return err
	}
	return nil
}

// calibrate returns what keeps a processor busy for as long as it is told: by work that takes that long when nobody disturbs it,
// for a clock goes on while others have the processor.
func calibrate() func(time.Duration) {
	const some = 1000
	block := make([]byte, 512)
	hash := func(n int) {
		for range n {
			sum := sha256.Sum256(block)
			runtime.KeepAlive(sum)
		}
	}
	best := time.Duration(1<<63 - 1)
	for range 100 {
		begin := time.Now()
		hash(some)
		best = min(best, time.Since(begin))
	}
	each := float64(best) / some
	return func(d time.Duration) { hash(int(float64(d) / each)) }
}
