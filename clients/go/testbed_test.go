package boltq_test

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/boltq/boltq/clients/go"
)

// patience is how long a test waits for what has to come: much longer than it takes, as machines stall.
const patience = 60 * time.Second

// testbed is a boltq-testbed: real servers, which it starts, kills and restarts. tests/conformance/README.md has its commands.
type testbed struct {
	Nodes []struct{ Name, Messaging, Admin string }
	TLS   *struct {
		CAFile   string `json:"ca_file"`
		CertFile string `json:"cert_file"`
		KeyFile  string `json:"key_file"`
	}

	process *exec.Cmd
	mu      sync.Mutex
	input   io.WriteCloser
	lines   *bufio.Scanner
}

// startTestbed starts servers for one test.
func startTestbed(t testing.TB, arguments ...string) *testbed {
	t.Helper()
	needServers(t)
	bed, err := newTestbed(arguments...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(bed.close)
	return bed
}

func newTestbed(arguments ...string) (*testbed, error) {
	bed := &testbed{process: exec.Command(os.Getenv("BOLTQ_TESTBED_BIN"), arguments...)}
	bed.process.Stderr = os.Stderr
	var err error
	if bed.input, err = bed.process.StdinPipe(); err != nil {
		return nil, err
	}
	output, err := bed.process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := bed.process.Start(); err != nil {
		return nil, fmt.Errorf("the test bed does not start: %w", err)
	}
	bed.lines = bufio.NewScanner(output)
	bed.lines.Buffer(nil, 16<<20)
	if !bed.lines.Scan() {
		return nil, fmt.Errorf("the test bed ended before it was ready: %v", bed.lines.Err())
	}
	return bed, json.Unmarshal(bed.lines.Bytes(), bed)
}

// close kills the servers and removes what they stored.
func (b *testbed) close() {
	_ = b.input.Close()
	_ = b.process.Wait()
}

// ask sends a command and returns its answer.
func (b *testbed) ask(command string) (map[string]any, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, err := fmt.Fprintln(b.input, command); err != nil {
		return nil, err
	}
	if !b.lines.Scan() {
		return nil, fmt.Errorf("the test bed ended at %q: %v", command, b.lines.Err())
	}
	var answer map[string]any
	if err := json.Unmarshal(b.lines.Bytes(), &answer); err != nil {
		return nil, err
	}
	if answer["ok"] != true {
		return nil, fmt.Errorf("test bed, %q: %v", command, answer["error"])
	}
	return answer, nil
}

func (b *testbed) do(t testing.TB, command string) map[string]any {
	t.Helper()
	answer, err := b.ask(command)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// addresses are those of all nodes.
func (b *testbed) addresses() string {
	addresses := make([]string, len(b.Nodes))
	for index, node := range b.Nodes {
		addresses[index] = node.Messaging
	}
	return strings.Join(addresses, ",")
}

// connect makes a client that is closed with the test.
func (b *testbed) connect(t testing.TB, opts ...boltq.Option) *boltq.Client {
	t.Helper()
	client, err := boltq.Connect(t.Context(), b.addresses(), append([]boltq.Option{logging(t)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// logging shows what the client logs if the test fails.
func logging(t testing.TB) boltq.Option {
	return boltq.WithLogger(slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelInfo})))
}

// shared starts test beds that many tests use, when the first of them does.
var shared = struct {
	mu   sync.Mutex
	beds map[string]*testbed
}{beds: make(map[string]*testbed)}

func sharedTestbed(t testing.TB, arguments ...string) *testbed {
	t.Helper()
	needServers(t)
	shared.mu.Lock()
	defer shared.mu.Unlock()
	key := strings.Join(arguments, " ")
	if bed, ok := shared.beds[key]; ok {
		return bed
	}
	bed, err := newTestbed(arguments...)
	if err != nil {
		t.Fatal(err)
	}
	shared.beds[key] = bed
	return bed
}

// single is one server, and three is a cluster, both with quick retries.
func single(t testing.TB) *testbed { return sharedTestbed(t, "--set", "queue.retry_backoff=10ms") }

func three(t testing.TB) *testbed {
	return sharedTestbed(t, "--nodes", "3", "--set", "queue.retry_backoff=10ms")
}

func needServers(t testing.TB) {
	if os.Getenv("BOLTQ_TESTBED_BIN") == "" {
		t.Skip("BOLTQ_TESTBED_BIN is not set; scripts/clients.sh go builds the test bed and runs these tests")
	}
}

func TestMain(m *testing.M) {
	flag.Parse()
	if os.Getenv("BOLTQ_TESTBED_BIN") == "" {
		// Examples cannot skip themselves.
		_ = flag.Set("test.skip", "^Example")
	} else {
		startExamples()
	}
	code := m.Run()
	for _, bed := range shared.beds {
		bed.close()
	}
	os.Exit(code)
}

// eventually waits for a condition.
func eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !condition(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it did not come about: %s", what)
		}
	}
}

var names struct {
	sync.Mutex
	next int
}

// unique is a name that no other test has.
func unique(prefix string) string {
	names.Lock()
	defer names.Unlock()
	names.next++
	return fmt.Sprintf("%s-%d-%d", prefix, os.Getpid(), names.next)
}

// must is for what cannot fail in a test that goes on.
func must[T any](t testing.TB) func(T, error) T {
	return func(value T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}
