package boltq_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/boltq/boltq/clients/go"
)

// What happens to a client whose servers are killed, restarted, paused and replaced under it.

// consumeAll takes and acknowledges everything in a queue, and counts how often each payload came.
func consumeAll(t *testing.T, client *boltq.Client, queue string, until int) map[string]int {
	t.Helper()
	counts := make(map[string]int)
	eventually(t, fmt.Sprintf("%d messages in %s", until, queue), func() bool {
		list := must[[]*boltq.Delivery](t)(client.Consume(t.Context(), queue, boltq.WithMaxMessages(1000), boltq.WithWait(time.Second)))
		var tokens []boltq.Token
		for _, delivery := range list {
			counts[string(delivery.Payload)]++
			tokens = append(tokens, delivery.Token())
		}
		if err := client.Ack(t.Context(), tokens...); err != nil {
			t.Fatal(err)
		}
		return len(counts) >= until
	})
	return counts
}

// load publishes numbered messages with a publisher until it is stopped.
type load struct {
	publisher *boltq.Publisher
	stop      chan struct{}
	done      chan struct{}
	mu        sync.Mutex
	confirmed map[string]bool
	failures  []error
}

func startLoad(t *testing.T, client *boltq.Client, queue string, pause time.Duration) *load {
	l := &load{
		publisher: client.NewPublisher(queue), stop: make(chan struct{}), done: make(chan struct{}), confirmed: make(map[string]bool),
	}
	go func() {
		defer close(l.done)
		var waiting sync.WaitGroup
		defer waiting.Wait()
		for number := 0; ; number++ {
			payload := strconv.Itoa(number)
			confirm, err := l.publisher.Publish(context.Background(), boltq.Message{Payload: []byte(payload)})
			if err != nil {
				l.note("", err)
				return
			}
			waiting.Go(func() {
				_, err := confirm.Wait(context.Background())
				l.note(payload, err)
			})
			select {
			case <-l.stop:
				return
			case <-time.After(pause):
			}
		}
	}()
	return l
}

func (l *load) note(payload string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.failures = append(l.failures, err)
	} else {
		l.confirmed[payload] = true
	}
}

func (l *load) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.confirmed)
}

// finish stops publishing and returns what was confirmed. No publish may have failed.
func (l *load) finish(t *testing.T) map[string]bool {
	t.Helper()
	close(l.stop)
	<-l.done
	if err := l.publisher.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(l.failures) > 0 {
		t.Fatalf("%d publishes failed; the first: %v", len(l.failures), l.failures[0])
	}
	return l.confirmed
}

func TestAPublisherLosesAndDoublesNothingWhenTheServerIsKilled(t *testing.T) {
	bed := startTestbed(t)
	client := bed.connect(t)
	queue := unique("jobs")
	load := startLoad(t, client, queue, time.Millisecond)
	for kills := 1; kills <= 4; kills++ {
		eventually(t, "publishes are confirmed", func() bool { return load.count() >= kills*300 })
		bed.do(t, "restart 0")
	}
	confirmed := load.finish(t)
	counts := consumeAll(t, client, queue, len(confirmed))
	for payload := range confirmed {
		if counts[payload] != 1 {
			t.Errorf("message %s is there %d times", payload, counts[payload])
		}
	}
	if len(counts) != len(confirmed) {
		t.Errorf("%d messages are there and %d were confirmed", len(counts), len(confirmed))
	}
}

func TestSinglePublishesLoseAndDoubleNothingWhenTheServerIsKilled(t *testing.T) {
	bed := startTestbed(t)
	client := bed.connect(t)
	queue := unique("jobs")
	var publishing sync.WaitGroup
	done := make(chan struct{})
	var mu sync.Mutex
	confirmed := make(map[string]bool)
	for publisher := range 4 {
		publishing.Go(func() {
			for number := 0; ; number++ {
				select {
				case <-done:
					return
				default:
				}
				payload := fmt.Sprintf("%d-%d", publisher, number)
				if _, err := client.Publish(context.Background(), queue, boltq.Message{Payload: []byte(payload)}); err != nil {
					t.Errorf("publish: %v", err)
					return
				}
				mu.Lock()
				confirmed[payload] = true
				mu.Unlock()
			}
		})
	}
	for kills := 1; kills <= 3; kills++ {
		eventually(t, "publishes are confirmed", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(confirmed) >= kills*200
		})
		bed.do(t, "restart 0")
	}
	close(done)
	publishing.Wait()
	counts := consumeAll(t, client, queue, len(confirmed))
	for payload := range confirmed {
		if counts[payload] != 1 {
			t.Errorf("message %s is there %d times", payload, counts[payload])
		}
	}
}

func TestARollingRestartIsNotSeen(t *testing.T) {
	bed := three(t)
	client := bed.connect(t)
	queue := unique("jobs")
	var mu sync.Mutex
	handled := make(map[string]int)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	worker := client.NewWorker(queue, func(_ context.Context, delivery *boltq.Delivery) error {
		mu.Lock()
		defer mu.Unlock()
		handled[string(delivery.Payload)]++
		return nil
	}, boltq.WithConcurrency(8))
	go func() { ended <- worker.Run(ctx) }()

	// Every kind of call goes on meanwhile.
	calls := startCalls(t, client)
	load := startLoad(t, client, queue, 2*time.Millisecond)
	eventually(t, "publishes are confirmed", func() bool { return load.count() >= 200 })
	bed.do(t, "rolling-restart")
	confirmed := load.finish(t)
	calls.finish(t)
	eventually(t, "all messages are handled", func() bool {
		mu.Lock()
		defer mu.Unlock()
		for payload := range confirmed {
			if handled[payload] == 0 {
				return false
			}
		}
		return true
	})
	stop()
	if err := <-ended; err != nil {
		t.Errorf("the worker ended with %v", err)
	}
	eventually(t, "nothing is left in the queue", func() bool {
		queue, err := client.GetQueue(t.Context(), queue, boltq.Linearizable())
		return err == nil && queue.Ready+queue.Leased+queue.Delayed+queue.DeadLetters == 0
	})
}

// calls makes unary calls of several kinds, one after the other, until it is stopped.
type calls struct {
	stop     chan struct{}
	done     chan struct{}
	failures []error
	made     int
}

func startCalls(t *testing.T, client *boltq.Client) *calls {
	c := &calls{stop: make(chan struct{}), done: make(chan struct{})}
	queue, key := unique("calls"), unique("key")
	go func() {
		defer close(c.done)
		for {
			ctx := context.Background()
			_, published := client.Publish(ctx, queue, boltq.Message{Payload: []byte("x")})
			list, consumed := client.Consume(ctx, queue, boltq.WithMaxMessages(10))
			var settled error
			for _, delivery := range list {
				settled = errors.Join(settled, delivery.Ack(ctx))
			}
			_, set := client.KV().Set(ctx, key, []byte("x"))
			_, _, got := client.KV().Get(ctx, key)
			_, looked := client.GetQueue(ctx, queue, boltq.Linearizable())
			if err := errors.Join(published, consumed, settled, set, got, looked); err != nil {
				c.failures = append(c.failures, err)
			}
			c.made++
			select {
			case <-c.stop:
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
	}()
	return c
}

func (c *calls) finish(t *testing.T) {
	t.Helper()
	close(c.stop)
	<-c.done
	if len(c.failures) > 0 {
		t.Errorf("of %d rounds of calls %d failed; the first: %v", c.made, len(c.failures), c.failures[0])
	}
}

func TestANodeThatHangsIsLeft(t *testing.T) {
	bed := startTestbed(t, "--nodes", "3")
	client := bed.connect(t)
	queue := unique("jobs")
	must[boltq.MessageID](t)(client.Publish(t.Context(), queue, boltq.Message{Payload: []byte("first")}))
	leader := bed.do(t, "leader")["node"]
	bed.do(t, fmt.Sprintf("pause %v", leader))
	defer bed.do(t, fmt.Sprintf("resume %v", leader))
	eventually(t, "publishing goes on", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		_, err := client.Publish(ctx, queue, boltq.Message{Payload: []byte("second")})
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("the failure is no end of a deadline: %v", err)
		}
		return err == nil
	})
}

func TestWhatIsNotConfirmedWhenAPublisherIsClosedSaysThatItsOutcomeIsNotKnown(t *testing.T) {
	bed := startTestbed(t, "--nodes", "3")
	client := bed.connect(t)
	publisher := client.NewPublisher(unique("jobs"))
	first := must[*boltq.Confirm](t)(publisher.Publish(t.Context(), boltq.Message{}))
	must[boltq.MessageID](t)(first.Wait(t.Context()))
	for node := range bed.Nodes {
		bed.do(t, fmt.Sprintf("pause %d", node))
		defer bed.do(t, fmt.Sprintf("resume %d", node))
	}
	second := must[*boltq.Confirm](t)(publisher.Publish(t.Context(), boltq.Message{}))
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := publisher.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("it was closed with %v", err)
	}
	_, err := second.Wait(t.Context())
	if !errors.Is(err, boltq.ErrClosed) || !errors.Is(err, boltq.ErrOutcomeUnknown) || !strings.Contains(err.Error(), "outcome is unknown") {
		t.Errorf("the failure is %v", err)
	}
}

func TestADeadlineIsKeptWhenNobodyAnswers(t *testing.T) {
	bed := startTestbed(t)
	bed.do(t, "kill 0")
	client := must[*boltq.Client](t)(boltq.New(bed.addresses(), logging(t)))
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := client.Publish(ctx, unique("jobs"), boltq.Message{})
	if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, boltq.ErrUnavailable) {
		t.Errorf("the failure is %v", err)
	}
	// Nobody was there, so nothing can have been done.
	if errors.Is(err, boltq.ErrOutcomeUnknown) {
		t.Errorf("the outcome is said to be unknown: %v", err)
	}
	short, stop := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer stop()
	_, err = client.PublishBatch(short, unique("jobs"), make([]boltq.Message, 10))
	var batch *boltq.BatchError
	if !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &batch) || len(batch.Failures) != 10 || errors.Is(err, boltq.ErrOutcomeUnknown) {
		t.Errorf("the failure of the batch is %v", err)
	}
	bed.do(t, "start 0")
	must[boltq.MessageID](t)(client.Publish(t.Context(), unique("jobs"), boltq.Message{}))
}

func TestKeyedMessagesKeepTheirOrderWhenTheServerIsKilled(t *testing.T) {
	bed := startTestbed(t)
	client := bed.connect(t)
	queue := unique("orders")
	publisher := client.NewPublisher(queue)
	const count = 1500
	var confirms []*boltq.Confirm
	for number := range count {
		if number%500 == 250 {
			bed.do(t, "restart 0")
		}
		message := boltq.Message{Payload: []byte(strconv.Itoa(number)), OrderingKey: "one"}
		confirms = append(confirms, must[*boltq.Confirm](t)(publisher.Publish(t.Context(), message)))
	}
	if err := publisher.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, confirm := range confirms {
		must[boltq.MessageID](t)(confirm.Wait(t.Context()))
	}
	peeked := must[[]*boltq.Delivery](t)(client.Peek(t.Context(), queue, 1000))
	if len(peeked) != 1 || string(peeked[0].Payload) != "0" {
		t.Fatalf("the first of its key is not the first: %v", peeked)
	}
	// One at a time, so a few are enough.
	for number := range 40 {
		list := must[[]*boltq.Delivery](t)(client.Consume(t.Context(), queue, boltq.WithWait(20*time.Second)))
		if len(list) != 1 || string(list[0].Payload) != strconv.Itoa(number) {
			t.Fatalf("message %d is %v", number, list)
		}
		if err := list[0].Ack(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestSubscriptionsGoOnAfterARestart(t *testing.T) {
	bed := startTestbed(t)
	client := bed.connect(t)
	queue, topic, key := unique("jobs"), unique("news"), unique("key")
	deliveries := must[*boltq.Stream[*boltq.Delivery]](t)(client.Subscribe(t.Context(), queue))
	news := must[*boltq.Stream[boltq.TopicMessage]](t)(client.SubscribeTopic(t.Context(), topic, boltq.WithDurable("reader")))
	changes := must[*boltq.Stream[boltq.Event]](t)(client.KV().Watch(t.Context(), key, boltq.WithInitial()))
	publish := func(text string) {
		must[boltq.MessageID](t)(client.Publish(t.Context(), queue, boltq.Message{Payload: []byte(text)}))
		must[boltq.TopicPublished](t)(client.PublishTopic(t.Context(), topic, boltq.Message{Payload: []byte(text)}, boltq.AtLeastOnce()))
		must[uint64](t)(client.KV().Set(t.Context(), key, []byte(text)))
	}
	kinds := func(want ...boltq.EventKind) {
		t.Helper()
		for _, kind := range want {
			if event := must[boltq.Event](t)(changes.Next()); event.Kind != kind {
				t.Fatalf("the change is %+v, and %d was expected", event, kind)
			}
		}
	}
	receive := func(text string) {
		t.Helper()
		delivery := must[*boltq.Delivery](t)(deliveries.Next())
		if string(delivery.Payload) != text {
			t.Fatalf("the queue delivers %q", delivery.Payload)
		}
		if err := delivery.Ack(t.Context()); err != nil {
			t.Fatal(err)
		}
		message := must[boltq.TopicMessage](t)(news.Next())
		for text == "after" && string(message.Payload) == "before" {
			// The last ones before a broken connection may come again.
			message = must[boltq.TopicMessage](t)(news.Next())
		}
		if string(message.Payload) != text {
			t.Fatalf("the topic delivers %q", message.Payload)
		}
	}
	kinds(boltq.EventReady)
	publish("before")
	receive("before")
	kinds(boltq.EventPut)
	bed.do(t, "restart 0")
	publish("after")
	receive("after")
	// The watch says that it has begun anew, and then what there is.
	kinds(boltq.EventReset)
	seen := ""
	for seen != "after" {
		if event := must[boltq.Event](t)(changes.Next()); event.Kind == boltq.EventPut {
			seen = string(event.Value)
		}
	}
	deliveries.Close()
	if _, err := deliveries.Next(); !errors.Is(err, boltq.ErrClosed) {
		t.Errorf("a stream that was closed fails with %v", err)
	}
}
