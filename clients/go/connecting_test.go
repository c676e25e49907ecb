package boltq_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/boltq/boltq/clients/go"
)

// Addresses at which there is no server, or none of BoltQ, or TLS on one side only: clients/README.md has the rule.

// insecureTLS believes everybody.
func insecureTLS() boltq.Option { return boltq.WithTLS(&tls.Config{InsecureSkipVerify: true}) }

// failuresAt has how calls of all kinds fail, which may take an hour if they wait for a server.
func failuresAt(t *testing.T, addresses string, opts ...boltq.Option) []error {
	t.Helper()
	client := must[*boltq.Client](t)(boltq.New(addresses, append(opts, boltq.WithRetryTimeout(time.Hour))...))
	t.Cleanup(func() { _ = client.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	publisher := client.NewPublisher("q")
	defer publisher.Close(ctx)
	calls := []func() error{
		func() error { _, err := client.GetQueue(ctx, "q"); return err },
		func() error { _, err := client.PublishTopic(ctx, "t", boltq.Message{}); return err },
		func() error { _, _, err := client.KV().Increment(ctx, "n", 1); return err },
		func() error { _, err := client.Publish(ctx, "q", boltq.Message{}); return err },
		func() error { _, err := client.Subscribe(ctx, "q"); return err },
		func() error { _, err := client.KV().Watch(ctx, "*"); return err },
		func() error {
			confirm, err := publisher.Publish(ctx, boltq.Message{})
			if err == nil {
				_, err = confirm.Wait(ctx)
			}
			return err
		},
	}
	failures := make([]error, len(calls))
	var group sync.WaitGroup
	for index, call := range calls {
		group.Go(func() { failures[index] = call() })
	}
	group.Wait()
	return failures
}

func isWrong(t *testing.T, address, text string, opts ...boltq.Option) {
	t.Helper()
	for index, err := range failuresAt(t, address, opts...) {
		if !errors.Is(err, boltq.ErrWrongServer) || !errors.Is(err, boltq.ErrUnavailable) || errors.Is(err, boltq.ErrOutcomeUnknown) {
			t.Errorf("call %d: %v", index, err)
		} else if !strings.Contains(err.Error(), address+" "+text) {
			t.Errorf("call %d says %q and not %q", index, err, text)
		}
	}
	client := must[*boltq.Client](t)(boltq.New(address, opts...))
	defer client.Close()
	if err := client.NewWorker("q", func(context.Context, *boltq.Delivery) error { return nil }).Run(t.Context()); !errors.Is(err, boltq.ErrWrongServer) {
		t.Errorf("the worker: %v", err)
	}
}

const (
	httpText  = "speaks HTTP/1.1 and not gRPC: it is probably the port of the HTTP API"
	otherText = "speaks neither gRPC nor HTTP"
)

func TestThePortOfTheHTTPAPIIsNoPortForClients(t *testing.T) {
	isWrong(t, single(t).Nodes[0].Admin, httpText)
}

func TestAServerOfHTTPIsNoServerOfBoltQ(t *testing.T) {
	hello := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") })
	plain := httptest.NewServer(hello)
	defer plain.Close()
	isWrong(t, plain.Listener.Addr().String(), httpText)
	isWrong(t, plain.Listener.Addr().String(), httpText, insecureTLS())
	secure := httptest.NewTLSServer(hello)
	defer secure.Close()
	isWrong(t, secure.Listener.Addr().String(), httpText, insecureTLS())
}

func TestTLSOnOneSideOnlyIsSaid(t *testing.T) {
	secure := sharedTestbed(t, "--storage", "memory", "--tls")
	isWrong(t, secure.Nodes[0].Admin, httpText, insecureTLS())
	isWrong(t, secure.addresses(), "speaks TLS, and this client does not")
	isWrong(t, single(t).addresses(), "does not speak TLS, and this client does", insecureTLS())
}

func TestAnotherProtocolIsSaid(t *testing.T) {
	listener := must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	defer listener.Close()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = conn.Read(make([]byte, 64))
				_, _ = io.WriteString(conn, "-ERR unknown command 'PRI'\r\n")
				_ = conn.Close()
			}()
		}
	}()
	isWrong(t, listener.Addr().String(), otherText)
	isWrong(t, listener.Addr().String(), otherText, insecureTLS())
}

func TestAServerThatDoesNotKnowTheCallIsNamed(t *testing.T) {
	listener := must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	server := grpc.NewServer()
	go func() { _ = server.Serve(listener) }()
	defer server.Stop()
	for _, err := range failuresAt(t, listener.Addr().String()) {
		if !strings.Contains(err.Error(), listener.Addr().String()+" does not know this call: it is no server of BoltQ") {
			t.Errorf("%v", err)
		}
	}
}

func TestAWrongAddressIsPassedOverIfThereIsAnother(t *testing.T) {
	bed := single(t)
	for range 8 {
		client := must[*boltq.Client](t)(boltq.New(bed.Nodes[0].Admin+","+bed.addresses(), logging(t)))
		must[boltq.TopicPublished](t)(client.PublishTopic(t.Context(), unique("t"), boltq.Message{}))
		must[boltq.MessageID](t)(client.Publish(t.Context(), unique("q"), boltq.Message{}))
		_ = client.Close()
	}
}

// nobody is an address at which nobody listens.
func nobody(t *testing.T) string {
	t.Helper()
	listener := must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	defer listener.Close()
	return listener.Addr().String()
}

func TestAServerThatIsNotThereIsSaidWhenTheTimeToConnectIsOver(t *testing.T) {
	first, second := nobody(t), nobody(t)
	for _, err := range failuresAt(t, first+","+second, boltq.WithConnectTimeout(300*time.Millisecond)) {
		if !errors.Is(err, boltq.ErrUnavailable) || errors.Is(err, boltq.ErrWrongServer) || errors.Is(err, boltq.ErrOutcomeUnknown) {
			t.Errorf("%v", err)
		}
		for _, text := range []string{"no server has answered within 300ms", first, second, "connection refused"} {
			if !strings.Contains(err.Error(), text) {
				t.Errorf("it says %q and not %q", err, text)
			}
		}
	}
	if client, err := boltq.Connect(t.Context(), first, boltq.WithConnectTimeout(time.Millisecond)); err == nil {
		t.Errorf("it is connected: %v", client)
	}
}

func TestAServerThatStartsIsWaitedForByWhatHasTheTime(t *testing.T) {
	bed := startTestbed(t, "--storage", "memory")
	bed.do(t, "kill 0")
	patient := must[*boltq.Client](t)(boltq.New(bed.addresses(), boltq.WithConnectTimeout(time.Hour), boltq.WithRetryTimeout(time.Hour)))
	defer patient.Close()
	impatient := must[*boltq.Client](t)(boltq.New(bed.addresses(), boltq.WithConnectTimeout(time.Millisecond)))
	defer impatient.Close()
	ctx, stop := context.WithCancel(t.Context())
	worked, ended := make(chan struct{}, 1), make(chan error, 1)
	go func() {
		ended <- impatient.NewWorker("jobs", func(context.Context, *boltq.Delivery) error {
			worked <- struct{}{}
			return nil
		}).Run(ctx)
	}()
	if _, err := impatient.GetQueue(t.Context(), "jobs"); !errors.Is(err, boltq.ErrUnavailable) {
		t.Errorf("%v", err)
	}
	published := make(chan error, 1)
	go func() {
		_, err := patient.Publish(t.Context(), "jobs", boltq.Message{})
		published <- err
	}()
	bed.do(t, "start 0")
	if err := <-published; err != nil {
		t.Fatal(err)
	}
	<-worked
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestAServerThatHasAnsweredIsWaitedForAsLongAsACallMayTake(t *testing.T) {
	bed := startTestbed(t, "--storage", "memory")
	limit := 2 * time.Second
	client := must[*boltq.Client](t)(boltq.New(bed.addresses(), boltq.WithConnectTimeout(limit), boltq.WithRetryTimeout(time.Hour)))
	defer client.Close()
	eventually(t, "an answer", func() bool {
		_, err := client.ClusterStatus(t.Context())
		return err == nil
	})
	bed.do(t, "kill 0")
	answered := make(chan error, 1)
	go func() {
		_, err := client.Publish(t.Context(), "jobs", boltq.Message{})
		answered <- err
	}()
	select {
	case err := <-answered:
		t.Fatalf("it did not wait: %v", err)
	case <-time.After(2 * limit):
	}
	bed.do(t, "start 0")
	if err := <-answered; err != nil {
		t.Error(err)
	}
}

func TestWhatIsNilIsRefusedByNameOrLeftOut(t *testing.T) {
	client := must[*boltq.Client](t)(boltq.New("localhost:1", boltq.WithLogger(nil)))
	defer client.Close()
	if err := client.NewWorker("q", nil).Run(t.Context()); !errors.Is(err, boltq.ErrInvalidArgument) || !strings.Contains(err.Error(), "handler") {
		t.Errorf("a worker without a handler: %v", err)
	}
	if _, err := boltq.New("localhost:1", boltq.WithTokenSource(nil)); err == nil || !strings.Contains(err.Error(), "source of tokens") {
		t.Errorf("a source of tokens that is nil: %v", err)
	}
}
