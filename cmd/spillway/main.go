// Command spillway serves, checks and looks after rate limits. "spillway demo" starts three guarded servers to try with
// curl, "spillway serve" is a reverse proxy whose limits are a document, "spillway check" tells what is wrong with one.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-go/spillway/config"
	"github.com/spillway-go/spillway/internal/serve"
)

// Exit codes of every command.
const (
	exitOK    = 0
	exitError = 1
	exitUsage = 2
)

const usage = `usage: spillway COMMAND [flags]

commands:
  demo     serve a net/http, a Gin and an Echo server, each behind its own guard, and print what to try
  serve    a reverse proxy behind the policies of a document, which is followed while serving
  check    tell what is wrong with a document, and what it means
  inspect  show how a caller stands with the policies of a document
  reset    forget what the policies of a document have counted for a caller
  schema   print the JSON Schema of documents

"spillway COMMAND -h" lists the flags of a command.
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends what does not end by itself
	redis.SetLogger(silent{})    // what go-redis logs comes back as errors too, and those are told
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run is main without the process: it returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		fmt.Fprint(stderr, usage)
		return exitUsage
	}
	var err error
	switch args[0] {
	case "demo":
		err = demo(ctx, args[1:], stdout, stderr)
	case "serve":
		err = serve.Run(ctx, args[1:], stdout, stderr, serve.Builtin())
	case "check":
		err = check(ctx, args[1:], stdout, stderr)
	case "inspect":
		err = inspect(ctx, args[1:], stdout, stderr)
	case "reset":
		err = reset(ctx, args[1:], stdout, stderr)
	case "schema":
		err = schema(args[1:], stdout, stderr)
	case "help", "-h", "-help", "--help":
		fmt.Fprint(stdout, usage)
		return exitOK
	default:
		fmt.Fprintf(stderr, "spillway: there is no command %q\n\n%s", args[0], usage)
		return exitUsage
	}
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return exitOK
	case errors.Is(err, errUsage), errors.Is(err, serve.ErrUsage):
		return exitUsage
	case errors.Is(err, errFindings):
		return exitError
	}
	fmt.Fprintln(stderr, "spillway:", err)
	return exitError
}

// schema prints the JSON Schema of documents.
func schema(args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("schema", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() { fmt.Fprintln(stderr, "usage: spillway schema") }
	if err := flags.Parse(args); err != nil {
		return usageError(err)
	}
	if flags.NArg() > 0 {
		flags.Usage()
		return errUsage
	}
	_, err := stdout.Write(config.Schema())
	return err
}

// silent is a logger of go-redis.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// errUsage is wrong use that the flag package has already explained.
var errUsage = errors.New("usage")
