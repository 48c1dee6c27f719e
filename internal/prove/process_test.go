package prove_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	whole   = flag.Bool("prove", false, "run every cell of the matrix, and write the table into docs/guarantees.md")
	minutes = flag.Float64("soak", 0, "run the soak for so many minutes, and write docs/soak.md if there are 10 or more")
)

// roleVar makes this binary a guard process.
const roleVar = "PROVE_GUARD"

func TestMain(m *testing.M) {
	role := os.Getenv(roleVar)
	if role == "" {
		m.Run()
		return
	}
	var s setup
	err := json.Unmarshal([]byte(role), &s)
	if err == nil {
		err = playGuard(s)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// process is a guard process as its parent sees it.
type process struct {
	url    string
	cmd    *exec.Cmd
	stdin  io.Closer
	output *bytes.Buffer
	ended  chan struct{}
}

// begin starts a guard process and returns when it serves. It ends with the test process, however that ends.
func begin(t *testing.T, s setup) *process {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	role, err := json.Marshal(s)
	require.NoError(t, err)
	p := &process{cmd: exec.Command(self), output: new(bytes.Buffer), ended: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), roleVar+"="+string(role))
	p.cmd.Stderr = p.output
	p.stdin, err = p.cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
	lines := bufio.NewReader(stdout)
	url, err := lines.ReadString('\n')
	p.url = strings.TrimSpace(url)
	go func() {
		defer close(p.ended)
		_, _ = io.Copy(io.Discard, lines)
		_ = p.cmd.Wait() // the state says how it ended
	}()
	t.Cleanup(p.kill)
	if err != nil {
		p.kill()
		require.NoError(t, err, "%s", p.output)
	}
	return p
}

// kill ends the process as a crash would.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // fails if it has ended
	_ = p.stdin.Close()
	<-p.ended
}

// signal sends what the shell knows by that name.
func (p *process) signal(t *testing.T, name string) {
	t.Helper()
	out, err := exec.Command("sh", "-c", fmt.Sprintf("kill -%s %d", name, p.cmd.Process.Pid)).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// end asks the process to end, and returns what it has left behind: "" if nothing.
func (p *process) end() string {
	_ = p.stdin.Close()
	<-p.ended
	if p.cmd.ProcessState.Success() {
		return ""
	}
	return p.output.String()
}

// state asks the process.
func (p *process) state(t *testing.T, client *http.Client) (s state) {
	t.Helper()
	response, err := client.Get(p.url + "/state")
	require.NoError(t, err)
	defer func() { _ = response.Body.Close() }()
	require.NoError(t, json.NewDecoder(response.Body).Decode(&s))
	return s
}
