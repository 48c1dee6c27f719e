package promtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// Config is what [Start] takes.
type Config struct {
	// File is the scrape config to start from, such as "../files/prometheus.yml". Required. It must have rule_files and
	// targets as lists on one line.
	File string
	// Targets are the addresses to be scraped, host and port, instead of those in File. Required.
	Targets []string
	// Interval is the time between two scrapes, and between two evaluations of rules, instead of those in File; zero: 250 ms.
	Interval time.Duration
}

// Server is one prometheus process on a private port.
type Server struct {
	t      testing.TB
	p      *process
	data   string
	client *http.Client
}

// Sample is one series of an answer.
type Sample struct {
	Labels map[string]string // with __name__ where the query keeps it
	Value  float64
	At     time.Time
}

// Rule is one rule that the server evaluates.
type Rule struct {
	Name      string  `json:"name"`
	Query     string  `json:"query"`
	Type      string  `json:"type"`     // alerting or recording
	Duration  float64 `json:"duration"` // of an alert's "for", in seconds
	State     string  `json:"state"`    // of an alert: inactive, pending or firing
	Health    string  `json:"health"`   // unknown, ok or err
	LastError string  `json:"lastError"`
}

// Start starts a prometheus without data and returns when it is ready. It is killed when the test ends.
func Start(t testing.TB, c Config) *Server {
	t.Helper()
	if c.Interval == 0 {
		c.Interval = 250 * time.Millisecond
	}
	path, folder := binary(t, "prometheus"), t.TempDir()
	text, err := adapt(c.File, c.Targets, c.Interval)
	if err != nil {
		t.Fatalf("promtest: %v", err)
	}
	file := filepath.Join(folder, "prometheus.yml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatalf("promtest: %v", err)
	}
	s := &Server{
		t: t, data: filepath.Join(folder, "data"),
		client: &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}},
	}
	s.p, err = launch([]string{
		path, "--config.file=" + file, "--storage.tsdb.path=" + s.data, "--log.level=warn",
	}, s.ready)
	if err != nil {
		t.Fatalf("promtest: %v", err)
	}
	t.Cleanup(s.p.kill)
	return s
}

// binary returns the path of a program, or ends the test.
func binary(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("promtest: %v", err)
		}
		t.Skipf("promtest: %v", err)
	}
	return path
}

// ready returns nil if this very process is ready at addr. Another one may have been faster to take the port.
func (s *Server) ready(addr string) error {
	answer, err := s.client.Get("http://" + addr + "/-/ready")
	if err != nil {
		return err
	}
	_ = answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return errors.New(answer.Status)
	}
	var flags map[string]string
	if err := s.get(addr, "status/flags", nil, &flags); err != nil {
		return err
	}
	if flags["storage.tsdb.path"] != s.data {
		return errors.New("another server answers")
	}
	return nil
}

// Addr returns the address, host and port.
func (s *Server) Addr() string { return s.p.addr }

// PID returns the id of the process.
func (s *Server) PID() int { return s.p.cmd.Process.Pid }

// Query asks for the value of a PromQL expression now. A warning is an error.
func (s *Server) Query(expr string) ([]Sample, error) {
	var answer struct {
		ResultType string          `json:"resultType"`
		Result     json.RawMessage `json:"result"`
	}
	if err := s.get(s.p.addr, "query", url.Values{"query": {expr}}, &answer); err != nil {
		return nil, fmt.Errorf("%s: %w", expr, err)
	}
	type point struct {
		Metric map[string]string `json:"metric"`
		Value  [2]any            `json:"value"`
	}
	var points []point
	switch answer.ResultType {
	case "vector":
		if err := json.Unmarshal(answer.Result, &points); err != nil {
			return nil, err
		}
	case "scalar":
		points = make([]point, 1)
		if err := json.Unmarshal(answer.Result, &points[0].Value); err != nil {
			return nil, err
		}
	default:
		return nil, fmt.Errorf("%s: the answer is a %s", expr, answer.ResultType)
	}
	samples := make([]Sample, len(points))
	for i, p := range points {
		at, _ := p.Value[0].(float64)
		text, _ := p.Value[1].(string)
		value, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", expr, err)
		}
		samples[i] = Sample{Labels: p.Metric, Value: value, At: time.UnixMilli(int64(at * 1000))}
	}
	return samples, nil
}

// Rules returns all rules, in the order of their files.
func (s *Server) Rules() ([]Rule, error) {
	var answer struct {
		Groups []struct {
			Rules []Rule `json:"rules"`
		} `json:"groups"`
	}
	err := s.get(s.p.addr, "rules", nil, &answer)
	var rules []Rule
	for _, g := range answer.Groups {
		rules = append(rules, g.Rules...)
	}
	return rules, err
}

// AwaitScrapes returns when the samples of n successful scrapes of every target, all begun after this call, can be asked
// for. What a target says before the call is thus seen n times.
func (s *Server) AwaitScrapes(n int) {
	s.t.Helper()
	begun := time.Now()
	seen := map[string]map[time.Time]bool{}
	err := poll(func() error {
		var answer struct {
			ActiveTargets []struct {
				ScrapeURL  string    `json:"scrapeUrl"`
				Health     string    `json:"health"`
				LastError  string    `json:"lastError"`
				LastScrape time.Time `json:"lastScrape"`
			} `json:"activeTargets"`
		}
		if err := s.get(s.p.addr, "targets", nil, &answer); err != nil {
			return err
		}
		if len(answer.ActiveTargets) == 0 {
			return errors.New("no target")
		}
		var late error
		for _, target := range answer.ActiveTargets {
			of := seen[target.ScrapeURL]
			if of == nil {
				of = map[time.Time]bool{}
				seen[target.ScrapeURL] = of
			}
			if target.Health == "up" && target.LastScrape.After(begun) {
				of[target.LastScrape] = true
			}
			// A scrape is reported a moment before its samples are there; those of the one before are.
			if len(of) <= n {
				late = fmt.Errorf("%s: %d scrapes, %s %s", target.ScrapeURL, len(of), target.Health, target.LastError)
			}
		}
		return late
	})
	if err != nil {
		s.t.Fatalf("promtest: waited %v for %d scrapes: %v\n%s", patience, n, err, s.p.text())
	}
}

// get asks the HTTP API and decodes the data of the answer.
func (s *Server) get(addr, path string, values url.Values, data any) error {
	answer, err := s.client.Get("http://" + addr + "/api/v1/" + path + "?" + values.Encode())
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	raw, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}
	var body struct {
		Data     json.RawMessage `json:"data"`
		Error    string          `json:"error"`
		Warnings []string        `json:"warnings"`
	}
	if err := json.Unmarshal(raw, &body); err != nil {
		return fmt.Errorf("%s: %w: %q", answer.Status, err, raw)
	}
	if body.Error != "" || len(body.Warnings) > 0 {
		return fmt.Errorf("%s: %s %q", answer.Status, body.Error, body.Warnings)
	}
	return json.Unmarshal(body.Data, data)
}

// Promtool runs promtool with stdin as its input, and returns what it has written. The error is not nil where it finds
// something wrong.
func Promtool(t testing.TB, stdin io.Reader, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), binary(t, "promtool"), args...)
	cmd.Stdin = stdin
	out, err := cmd.CombinedOutput()
	return string(out), err
}
