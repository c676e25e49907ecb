package boltq_test

import (
	"context"
	"crypto/tls"
	"errors"
	"os"
	"runtime"
	"runtime/pprof"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/boltq/boltq/clients/go"
	exchangev1 "github.com/boltq/boltq/clients/go/gen/boltq/exchange/v1"
	queuev1 "github.com/boltq/boltq/clients/go/gen/boltq/queue/v1"
)

// openFiles is how many files and sockets this process has open.
func openFiles(t *testing.T) int {
	t.Helper()
	return len(must[[]os.DirEntry](t)(os.ReadDir("/proc/self/fd")))
}

// leavesNothing checks that a function leaves no goroutine and no open file behind.
func leavesNothing(t *testing.T, what func()) {
	t.Helper()
	goroutines, files := runtime.NumGoroutine(), openFiles(t)
	what()
	deadline := time.Now().Add(patience)
	for runtime.NumGoroutine() > goroutines || openFiles(t) > files {
		if time.Now().After(deadline) {
			_ = pprof.Lookup("goroutine").WriteTo(t.Output(), 1)
			t.Fatalf("%d goroutines and %d files before, %d and %d after", goroutines, files, runtime.NumGoroutine(), openFiles(t))
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func TestAThousandConnectionsLeaveNothingBehind(t *testing.T) {
	bed := single(t)
	leavesNothing(t, func() {
		for range 1000 {
			client, err := boltq.Connect(t.Context(), bed.addresses())
			if err != nil {
				t.Fatal(err)
			}
			if err := client.Close(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestWhatIsOpenEndsWithTheClient(t *testing.T) {
	bed := single(t)
	leavesNothing(t, func() {
		client := must[*boltq.Client](t)(boltq.Connect(t.Context(), bed.addresses()))
		queue := unique("jobs")
		deliveries := must[*boltq.Stream[*boltq.Delivery]](t)(client.Subscribe(t.Context(), queue))
		watch := must[*boltq.Stream[boltq.Event]](t)(client.KV().Watch(t.Context(), "*"))
		publisher := client.NewPublisher(queue)
		confirm := must[*boltq.Confirm](t)(publisher.Publish(t.Context(), boltq.Message{Payload: []byte("x")}))
		must[boltq.MessageID](t)(confirm.Wait(t.Context()))
		worker := make(chan error, 1)
		go func() {
			worker <- client.NewWorker(queue, func(context.Context, *boltq.Delivery) error { return nil }).Run(context.Background())
		}()
		if err := client.Close(); err != nil {
			t.Fatal(err)
		}
		if err := must[error](t)(next(worker)); !errors.Is(err, boltq.ErrClosed) {
			t.Errorf("the worker ended with %v", err)
		}
		for err := error(nil); err == nil; {
			if _, err = deliveries.Next(); err != nil && !errors.Is(err, boltq.ErrClosed) {
				t.Errorf("the subscription ended with %v", err)
			}
		}
		for err := error(nil); err == nil; {
			if _, err = watch.Next(); err != nil && !errors.Is(err, boltq.ErrClosed) {
				t.Errorf("the watch ended with %v", err)
			}
		}
		if _, err := publisher.Publish(t.Context(), boltq.Message{}); !errors.Is(err, boltq.ErrClosed) {
			t.Errorf("the publisher says %v", err)
		}
		if _, err := client.Publish(t.Context(), queue, boltq.Message{}); !errors.Is(err, boltq.ErrClosed) {
			t.Errorf("the client says %v", err)
		}
	})
}

func TestASlowConsumerTakesNoMoreMemoryThanItsWindow(t *testing.T) {
	bed := single(t)
	queue := unique("large")
	publisher := bed.connect(t)
	const count, bytes = 96, 1 << 20
	for range 6 {
		messages := make([]boltq.Message, count/6)
		for index := range messages {
			messages[index].Payload = make([]byte, bytes)
		}
		must[[]boltq.MessageID](t)(publisher.PublishBatch(t.Context(), queue, messages))
	}
	client := bed.connect(t, boltq.WithWindow(1<<20))
	before := heap()
	deliveries := must[*boltq.Stream[*boltq.Delivery]](t)(client.Subscribe(t.Context(), queue, boltq.WithMaxInFlight(count)))
	defer deliveries.Close()
	must[*boltq.Delivery](t)(deliveries.Next())
	// Long enough for all of it to come, if nothing held it back: the server leases as much as it can send.
	eventually(t, "the server has sent what it can", func() bool {
		first := leased(t, publisher, queue)
		time.Sleep(200 * time.Millisecond)
		return first > 0 && leased(t, publisher, queue) == first
	})
	// One response of up to 4 MiB is read and not used up, another one may be half received, and both exist as bytes and
	// decoded.
	if held := heap() - before; held > 24<<20 {
		t.Errorf("%d MiB are held of %d MiB that wait", held>>20, count*bytes>>20)
	}
	// And it can still settle, whatever waits in front of the stream.
	delivery := must[*boltq.Delivery](t)(deliveries.Next())
	if err := delivery.Ack(t.Context()); err != nil {
		t.Error(err)
	}
}

func leased(t *testing.T, client *boltq.Client, queue string) uint64 {
	t.Helper()
	info, err := client.GetQueue(t.Context(), queue)
	if err != nil {
		t.Fatal(err)
	}
	return info.GetLeased()
}

func heap() int64 {
	runtime.GC()
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	return int64(memory.HeapAlloc)
}

func TestAPublisherHoldsNoMoreThanItMay(t *testing.T) {
	bed := startTestbed(t)
	client := bed.connect(t)
	publisher := client.NewPublisher(unique("jobs"), boltq.WithMaxPending(10, 1<<20))
	bed.do(t, "kill 0")
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	taken := 0
	var err error
	for err == nil {
		if _, err = publisher.Publish(ctx, boltq.Message{Payload: []byte("x")}); err == nil {
			taken++
		}
	}
	if taken != 10 || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%d messages were taken, then %v", taken, err)
	}
	bed.do(t, "start 0")
	if err := publisher.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestKeysTokensAndCertificatesAreShown(t *testing.T) {
	bed := startTestbed(t, "--mtls", "--set", `security.api_key="secret"`)
	certificate := []boltq.Option{boltq.WithCAFile(bed.TLS.CAFile), boltq.WithClientCertificate(bed.TLS.CertFile, bed.TLS.KeyFile)}
	for name, key := range map[string]boltq.Option{
		"key": boltq.WithAPIKey("secret"), "token": boltq.WithToken("secret"),
		"source": boltq.WithTokenSource(func(context.Context) (string, error) { return "secret", nil }),
	} {
		t.Run(name, func(t *testing.T) {
			client := bed.connect(t, append(certificate, key)...)
			must[boltq.MessageID](t)(client.Publish(t.Context(), unique("jobs"), boltq.Message{}))
		})
	}
	for name, wrong := range map[string]struct {
		opts []boltq.Option
		want error
		text string
	}{
		"wrong key":      {append(certificate, boltq.WithAPIKey("guess")), boltq.ErrUnauthenticated, "the API key that was shown is none of this server's"},
		"wrong token":    {append(certificate, boltq.WithToken("guess")), boltq.ErrUnauthenticated, "the token that was shown is none of this server's"},
		"no key":         {certificate, boltq.ErrUnauthenticated, "x-api-key"},
		"no certificate": {[]boltq.Option{boltq.WithCAFile(bed.TLS.CAFile), boltq.WithAPIKey("secret")}, boltq.ErrUnavailable, ""},
		"other authority": {
			[]boltq.Option{boltq.WithTLS(&tls.Config{MinVersion: tls.VersionTLS12}), boltq.WithAPIKey("secret")}, boltq.ErrUnavailable, "",
		},
		"no TLS": {[]boltq.Option{boltq.WithAPIKey("secret")}, boltq.ErrUnavailable, ""},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			client, err := boltq.Connect(ctx, bed.addresses(), wrong.opts...)
			if !errors.Is(err, wrong.want) || !strings.Contains(err.Error(), wrong.text) {
				t.Errorf("%v, and the client %v", err, client)
			}
		})
	}
}

func TestWhatIsConfiguredWronglyIsSaidAtOnce(t *testing.T) {
	missing := t.TempDir() + "/none.pem"
	for name, try := range map[string]func() (*boltq.Client, error){
		"address":     func() (*boltq.Client, error) { return boltq.New(" , ") },
		"authorities": func() (*boltq.Client, error) { return boltq.New("localhost:1", boltq.WithCAFile(missing)) },
		"certificate": func() (*boltq.Client, error) {
			return boltq.New("localhost:1", boltq.WithClientCertificate(missing, missing))
		},
		"backoff": func() (*boltq.Client, error) { return boltq.New("localhost:1", boltq.WithBackoff(2, 1)) },
	} {
		t.Run(name, func(t *testing.T) {
			if client, err := try(); err == nil || client != nil {
				t.Errorf("%v, %v", client, err)
			}
		})
	}
}

func TestKeysThatWereMadeUpAreLeftOutWhenTheServerHasNoRoomForThem(t *testing.T) {
	bed := startTestbed(t, "--set", "queue.dedup_max_keys=5")
	client, queue := bed.connect(t), unique("jobs")
	publish(t, client, queue, 20)
	other := bed.connect(t)
	for range 3 {
		must[boltq.MessageID](t)(other.Publish(t.Context(), queue, boltq.Message{}))
	}
	if counts := consumeAll(t, client, queue, 21); counts[""] != 3 || len(counts) != 21 {
		t.Errorf("there are %v", counts)
	}
	// One that somebody chose is not left out.
	_, err := client.Publish(t.Context(), queue, boltq.Message{IdempotencyKey: "order-17"})
	var failure *boltq.Error
	if !errors.As(err, &failure) || failure.Reason != "IDEMPOTENCY_KEYS_FULL" || !failure.Retriable() || failure.RetryAfter() == 0 {
		t.Errorf("the failure is %v", err)
	}
}

func TestAKeyThatIsOneTooMuchIsRefusedAloneAmongMessagesWithoutKeys(t *testing.T) {
	bed := startTestbed(t, "--set", "queue.dedup_max_keys=5")
	client, queue := bed.connect(t, boltq.WithGeneratedKeys(false)), unique("jobs")
	keyed := func(number int) boltq.Message {
		return boltq.Message{IdempotencyKey: "order-" + strconv.Itoa(number), Headers: map[string]string{"keyed": "yes"}}
	}
	for number := range 5 {
		must[boltq.MessageID](t)(client.Publish(t.Context(), queue, keyed(number)))
	}
	publisher := client.NewPublisher(queue)
	for round := range 20 {
		var confirms []*boltq.Confirm
		messages := []boltq.Message{{}, {OrderingKey: "a"}, keyed(100 + round), {}, {OrderingKey: "a"}}
		for _, message := range messages {
			confirms = append(confirms, must[*boltq.Confirm](t)(publisher.Publish(t.Context(), message)))
		}
		for index, confirm := range confirms {
			id, err := confirm.Wait(t.Context())
			if messages[index].IdempotencyKey == "" && (err != nil || id.IsZero()) {
				t.Fatalf("round %d, message %d without a key: %v", round, index, err)
			}
			var failure *boltq.Error
			if messages[index].IdempotencyKey != "" && (!errors.As(err, &failure) || failure.Reason != "IDEMPOTENCY_KEYS_FULL") {
				t.Fatalf("round %d, the message with a key: %v", round, err)
			}
		}
	}
	if err := publisher.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if info := must[*queuev1.Queue](t)(client.GetQueue(t.Context(), queue)); info.Ready+info.Leased != 5+20*4 {
		t.Errorf("there are %v", info)
	}
}

func TestAKeyMakesPublishesToTopicsAndExchangesComeOnce(t *testing.T) {
	client, queue, topic := single(t).connect(t), unique("jobs"), unique("news")
	message := boltq.Message{IdempotencyKey: "order-17"}
	first := must[boltq.ExchangePublished](t)(client.PublishExchange(t.Context(), "", queue, message))
	if again := must[boltq.ExchangePublished](t)(client.PublishExchange(t.Context(), "", queue, message)); again != first {
		t.Errorf("the exchange says %v, and then %v", first, again)
	}
	if info := must[*queuev1.Queue](t)(client.GetQueue(t.Context(), queue)); info.Ready != 1 {
		t.Errorf("there are %v", info)
	}
	told := must[boltq.TopicPublished](t)(client.PublishTopic(t.Context(), topic, message))
	if again := must[boltq.TopicPublished](t)(client.PublishTopic(t.Context(), topic, message)); again != told {
		t.Errorf("the topic says %v, and then %v", told, again)
	}
}

func TestAnExchangeWithoutATypeIsDirectAndOneThatIsNoneIsRefused(t *testing.T) {
	client, name := single(t).connect(t), unique("x")
	declared := must[*exchangev1.Exchange](t)(client.DeclareExchange(t.Context(), boltq.Exchange{Name: name}))
	if boltq.ExchangeType(declared.Type) != boltq.DirectExchange {
		t.Errorf("it is %v", declared)
	}
	for _, wrong := range []boltq.ExchangeType{-1, 17} {
		if declared, err := client.DeclareExchange(t.Context(), boltq.Exchange{Name: unique("x"), Type: wrong}); !errors.Is(err, boltq.ErrInvalidArgument) {
			t.Errorf("type %d: %v, %v", wrong, declared, err)
		}
	}
}

func TestAFullQueueIsForTheApplicationToDecideAbout(t *testing.T) {
	client, queue := single(t).connect(t), unique("small")
	if _, created, err := client.CreateQueue(t.Context(), queue, boltq.MaxLength(2)); err != nil || !created {
		t.Fatal(created, err)
	}
	ids, err := client.PublishBatch(t.Context(), queue, make([]boltq.Message, 3))
	var batch *boltq.BatchError
	if !errors.Is(err, boltq.ErrQueueFull) || !errors.As(err, &batch) || len(batch.Failures) != 1 || ids[1].IsZero() || !ids[2].IsZero() {
		t.Errorf("ids %v, failure %v", ids, err)
	}
	if _, err := client.Publish(t.Context(), queue, boltq.Message{}); !errors.Is(err, boltq.ErrQueueFull) || errors.Is(err, boltq.ErrOutcomeUnknown) {
		t.Errorf("the failure is %v", err)
	}
	updated, err := client.UpdateQueue(t.Context(), queue, boltq.ServerDefault("max_length"), boltq.Paused(true))
	if err != nil || updated.Settings.MaxLength != nil || !updated.Settings.Paused {
		t.Errorf("the settings are %v, %v", updated, err)
	}
}

func TestTextThatIsNotUTF8FailsAloneAndIsNamed(t *testing.T) {
	client, queue, bad := single(t).connect(t), unique("jobs"), "\xff"
	refused := func(what, name string, err error) {
		t.Helper()
		if !errors.Is(err, boltq.ErrInvalidArgument) || errors.Is(err, boltq.ErrOutcomeUnknown) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for name, message := range map[string]boltq.Message{
		`headers["from"]`: {Headers: map[string]string{"from": bad}},
		"headers":         {Headers: map[string]string{bad: "x"}},
		"content_type":    {ContentType: bad},
		"idempotency_key": {IdempotencyKey: bad},
		"ordering_key":    {OrderingKey: bad},
	} {
		ids, err := client.PublishBatch(t.Context(), queue, []boltq.Message{{}, message, {}})
		var batch *boltq.BatchError
		if !errors.As(err, &batch) || len(batch.Failures) != 1 || ids[0].IsZero() || ids[2].IsZero() {
			t.Fatalf("%s: ids %v, %v", name, ids, err)
		}
		refused("batch", name, batch.Failures[1])
		_, err = client.Publish(t.Context(), queue, message)
		refused("publish", name, err)
		_, err = client.PublishTopic(t.Context(), "news", message)
		refused("topic", name, err)
		_, err = client.PublishExchange(t.Context(), "", queue, message)
		refused("exchange", name, err)
	}
	_, err := client.PublishBatch(t.Context(), bad, []boltq.Message{{}})
	refused("queue of a batch", "queue", err)
	_, err = client.Publish(t.Context(), bad, boltq.Message{})
	refused("queue", "queue", err)
	_, err = client.Subscribe(t.Context(), bad)
	refused("subscription", "queue", err)
	_, err = client.SubscribeTopic(t.Context(), bad)
	refused("subscription of a topic", "topic", err)
	_, err = client.KV().Watch(t.Context(), bad)
	refused("watch", "pattern", err)
	_, err = client.KV().Set(t.Context(), bad, nil)
	refused("cache", "key", err)
	_, err = client.BindQueue(t.Context(), "x", boltq.Binding{Queue: queue, Headers: map[string]string{"a": bad}})
	refused("binding", "headers", err)
	work := client.NewWorker(bad, func(context.Context, *boltq.Delivery) error { return nil })
	refused("worker", "queue", work.Run(t.Context()))
}

func TestAMessageThatIsTooLargeFailsAlone(t *testing.T) {
	client, queue := single(t).connect(t), unique("jobs")
	large := boltq.Message{Payload: make([]byte, 5<<20)}
	ids, err := client.PublishBatch(t.Context(), queue, []boltq.Message{{}, large, {}})
	var batch *boltq.BatchError
	if !errors.As(err, &batch) || len(batch.Failures) != 1 || !errors.Is(batch.Failures[1], boltq.ErrInvalidArgument) {
		t.Errorf("the failure is %v", err)
	}
	if ids[0].IsZero() || !ids[1].IsZero() || ids[2].IsZero() {
		t.Errorf("the ids are %v", ids)
	}
	if !strings.Contains(err.Error(), "MESSAGE_TOO_LARGE") {
		t.Errorf("the text is %q", err)
	}
	refused := func(what, reason string, err error) {
		t.Helper()
		var failure *boltq.Error
		if !errors.As(err, &failure) || failure.Reason != reason || !errors.Is(err, boltq.ErrInvalidArgument) || failure.OutcomeUnknown {
			t.Errorf("%s: %v", what, err)
		}
	}
	// The last fit into a request, and are for the server to refuse.
	for _, bytes := range []int{5 << 20, 4<<20 + 1, 4<<20 - 100, 4_128_769} {
		large := boltq.Message{Payload: make([]byte, bytes)}
		_, err = client.Publish(t.Context(), queue, large)
		refused("queue", "MESSAGE_TOO_LARGE", err)
		_, err = client.PublishTopic(t.Context(), "news", large)
		refused("topic", "MESSAGE_TOO_LARGE", err)
		_, err = client.PublishExchange(t.Context(), "", queue, large)
		refused("exchange", "MESSAGE_TOO_LARGE", err)
		_, err = client.PublishBatch(t.Context(), queue, []boltq.Message{large})
		if !errors.As(err, &batch) {
			t.Fatal(err)
		}
		refused("batch", "MESSAGE_TOO_LARGE", batch.Failures[0])
	}
	for _, bytes := range []int{5 << 20, 4<<20 + 1, 4<<20 - 100} {
		_, err = client.KV().Set(t.Context(), "large", make([]byte, bytes))
		refused("cache", "VALUE_TOO_LARGE", err)
	}
	_, err = client.GetQueue(t.Context(), strings.Repeat("q", 5<<20))
	refused("another request", "INVALID_ARGUMENT", err)
	_, err = client.Subscribe(t.Context(), strings.Repeat("q", 5<<20))
	refused("a stream", "INVALID_ARGUMENT", err)
}
