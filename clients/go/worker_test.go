package boltq_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/boltq/boltq/clients/go"
	queuev1 "github.com/boltq/boltq/clients/go/gen/boltq/queue/v1"
)

// startWorker runs a worker until stop is called, which returns what Run has returned.
func startWorker(t *testing.T, worker *boltq.Worker) (stop func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- worker.Run(ctx) }()
	stop = sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
	t.Cleanup(func() { _ = stop() })
	return stop
}

func publish(t *testing.T, client *boltq.Client, queue string, count int) {
	t.Helper()
	messages := make([]boltq.Message, count)
	for index := range messages {
		messages[index].Payload = []byte(strconv.Itoa(index))
	}
	must[[]boltq.MessageID](t)(client.PublishBatch(t.Context(), queue, messages))
}

// isEmpty waits until there is nothing in a queue.
func isEmpty(t *testing.T, client *boltq.Client, queue string) {
	t.Helper()
	eventually(t, "the queue is empty", func() bool {
		queue, err := client.GetQueue(t.Context(), queue, boltq.Linearizable())
		return err == nil && queue.Ready+queue.Leased+queue.Delayed == 0
	})
}

func TestAWorkerHandlesAsManyAtATimeAsItMayAndNoMore(t *testing.T) {
	client, queue := single(t).connect(t), unique("jobs")
	publish(t, client, queue, 12)
	var running, most atomic.Int64
	release := make(chan struct{})
	stop := startWorker(t, client.NewWorker(queue, func(context.Context, *boltq.Delivery) error {
		now := running.Add(1)
		defer running.Add(-1)
		for before := most.Load(); now > before && !most.CompareAndSwap(before, now); before = most.Load() {
		}
		<-release
		return nil
	}, boltq.WithConcurrency(4)))
	eventually(t, "four handlers run", func() bool { return running.Load() == 4 })
	close(release)
	isEmpty(t, client, queue)
	if err := stop(); err != nil || most.Load() != 4 {
		t.Errorf("%d handlers ran at a time; the worker ended with %v", most.Load(), err)
	}
}

func TestLeasesAreExtendedWhileTheHandlerRuns(t *testing.T) {
	var extended, calls atomic.Int64
	extensions := grpc.WithUnaryInterceptor(func(
		ctx context.Context, method string, request, answer any, conn *grpc.ClientConn, call grpc.UnaryInvoker, opts ...grpc.CallOption,
	) error {
		err := call(ctx, method, request, answer, conn, opts...)
		if extension, ok := answer.(*queuev1.ExtendLeaseResponse); ok && err == nil {
			extended.Add(int64(extension.Extended))
		}
		return err
	})
	client, queue := single(t).connect(t, boltq.WithDialOptions(extensions)), unique("jobs")
	publish(t, client, queue, 1)
	startWorker(t, client.NewWorker(queue, func(ctx context.Context, _ *boltq.Delivery) error {
		calls.Add(1)
		for extended.Load() < 3 && ctx.Err() == nil {
			time.Sleep(10 * time.Millisecond)
		}
		return ctx.Err()
	}, boltq.WithWorkerLease(time.Second)))
	isEmpty(t, client, queue)
	if calls.Load() != 1 || extended.Load() < 3 {
		t.Errorf("the handler was called %d times, and its lease extended %d times", calls.Load(), extended.Load())
	}
}

func TestAHandlerThatTakesTooLongIsInterrupted(t *testing.T) {
	client, queue := single(t).connect(t), unique("jobs")
	publish(t, client, queue, 1)
	causes := make(chan error, 10)
	startWorker(t, client.NewWorker(queue, func(ctx context.Context, _ *boltq.Delivery) error {
		<-ctx.Done()
		causes <- context.Cause(ctx)
		return nil
	}, boltq.WithWorkerLease(time.Second), boltq.WithMaxLease(1500*time.Millisecond)))
	select {
	case cause := <-causes:
		if !errors.Is(cause, boltq.ErrLeaseCeiling) {
			t.Errorf("the cause is %v", cause)
		}
	case <-time.After(patience):
		t.Fatal("the handler was not interrupted")
	}
}

func TestWhatBecomesOfMessagesWhoseHandlerFails(t *testing.T) {
	client := single(t).connect(t)
	for name, fail := range map[string]func() error{
		"error": func() error { return errors.New("not now") },
		"panic": func() error { panic("not now") },
		"exit":  func() error { runtime.Goexit(); return nil },
		"pause": func() error {
			return fmt.Errorf("with more words: %w", boltq.RetryAfter(time.Millisecond, errors.New("not now")))
		},
		"rejects": func() error { return boltq.Reject(errors.New("never")) },
	} {
		t.Run(name, func(t *testing.T) {
			queue := unique("jobs")
			publish(t, client, queue, 1)
			attempts := make(chan int, 100)
			startWorker(t, client.NewWorker(queue, func(_ context.Context, delivery *boltq.Delivery) error {
				attempts <- delivery.Attempts
				if delivery.Attempts == 0 {
					return fail()
				}
				return nil
				// With one handler: what ends it must not end the worker.
			}, boltq.WithConcurrency(1)))
			isEmpty(t, client, queue)
			got := must[int](t)(next(attempts))
			if name == "rejects" {
				dead := must[[]*boltq.Delivery](t)(client.Peek(t.Context(), queue+"_dead_letter", 10))
				if len(dead) != 1 || dead[0].Headers["x-death-reason"] != "rejected" {
					t.Errorf("the dead letters are %v", dead)
				}
				return
			}
			if again := must[int](t)(next(attempts)); got != 0 || again != 1 {
				t.Errorf("the attempts were %d and %d", got, again)
			}
		})
	}
}

func next[T any](items <-chan T) (T, error) {
	select {
	case item := <-items:
		return item, nil
	case <-time.After(patience):
		var none T
		return none, errors.New("nothing came")
	}
}

func TestAWorkerThatStopsFinishesWhatItHasBegunAndReleasesTheRest(t *testing.T) {
	client, queue := single(t).connect(t), unique("jobs")
	publish(t, client, queue, 10)
	begun := make(chan string, 10)
	release := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	worker := client.NewWorker(queue, func(ctx context.Context, delivery *boltq.Delivery) error {
		begun <- string(delivery.Payload)
		<-release
		return ctx.Err()
	}, boltq.WithConcurrency(2), boltq.WithPrefetch(4))
	go func() { stopped <- worker.Run(ctx) }()
	must[string](t)(next(begun))
	must[string](t)(next(begun))
	eventually(t, "others wait for a handler", func() bool {
		queue := must[*queuev1.Queue](t)(client.GetQueue(t.Context(), queue))
		return queue.GetLeased() == 6
	})
	cancel()
	close(release)
	if err := must[error](t)(next(stopped)); err != nil {
		t.Fatal(err)
	}
	if len(begun) != 0 {
		t.Errorf("%d handlers began when the worker was stopping", len(begun))
	}
	// At once, and not when a lease ends; and no attempt is counted.
	left := 0
	eventually(t, "the others get what is left", func() bool {
		list := must[[]*boltq.Delivery](t)(client.Consume(t.Context(), queue, boltq.WithMaxMessages(100), boltq.WithWait(20*time.Second)))
		for _, delivery := range list {
			if delivery.Attempts != 0 {
				t.Errorf("message %s has %d failed attempts", delivery.Payload, delivery.Attempts)
			}
		}
		left += len(list)
		return left >= 8
	})
	if left != 8 {
		t.Errorf("%d messages are left", left)
	}
}

func TestTimesThatTheServerDoesNotTakeAreTheNearestThatItDoes(t *testing.T) {
	client, queue := single(t).connect(t), unique("jobs")
	publish(t, client, queue, 2)
	var told atomic.Int64
	pauses := make(chan time.Duration, 2)
	pauses <- 25 * time.Hour
	pauses <- -time.Second
	stop := startWorker(t, client.NewWorker(queue, func(_ context.Context, delivery *boltq.Delivery) error {
		if delivery.Attempts > 0 {
			return nil
		}
		return boltq.RetryAfter(<-pauses, errors.New("not now"))
	}, boltq.WithWorkerLease(13*time.Hour), boltq.WithOnError(func(_ *boltq.Delivery, err *boltq.WorkerError) {
		if err.What != boltq.HandlerFailed {
			told.Add(1)
		}
	})))
	eventually(t, "one waits, and the other is done", func() bool {
		info, err := client.GetQueue(t.Context(), queue)
		return err == nil && info.Ready == 1 && info.Leased == 0
	})
	if err := stop(); err != nil || told.Load() != 0 {
		t.Errorf("the worker ended with %v and told of %d failures", err, told.Load())
	}
}

func TestAWorkerWithoutWorkStopsInTimeHoweverShortThatIs(t *testing.T) {
	client := single(t).connect(t)
	stop := startWorker(t, client.NewWorker(unique("jobs"), func(context.Context, *boltq.Delivery) error {
		return nil
	}, boltq.WithStopTimeout(0)))
	if err := stop(); err != nil {
		t.Errorf("the worker ended with %v", err)
	}
}

func TestAWorkerDoesNotWaitForeverForHandlers(t *testing.T) {
	client, queue := single(t).connect(t), unique("jobs")
	publish(t, client, queue, 1)
	begun := make(chan struct{}, 10)
	stop := startWorker(t, client.NewWorker(queue, func(ctx context.Context, _ *boltq.Delivery) error {
		begun <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	}, boltq.WithStopTimeout(50*time.Millisecond)))
	must[struct{}](t)(next(begun))
	if err := stop(); !errors.Is(err, boltq.ErrStopTimeout) {
		t.Errorf("the worker ended with %v", err)
	}
}

func TestAWorkerSaysThatItsClientWasClosed(t *testing.T) {
	for name, handling := range map[string]bool{"waiting": false, "handling": true} {
		t.Run(name, func(t *testing.T) {
			client, queue := single(t).connect(t), unique("jobs")
			begun, ended := make(chan struct{}, 1), make(chan error, 1)
			worker := client.NewWorker(queue, func(ctx context.Context, _ *boltq.Delivery) error {
				begun <- struct{}{}
				if handling {
					<-ctx.Done()
				}
				return nil
			})
			go func() { ended <- worker.Run(t.Context()) }()
			publish(t, client, queue, 1)
			<-begun
			if !handling {
				time.Sleep(100 * time.Millisecond)
			}
			if err := client.Close(); err != nil {
				t.Fatal(err)
			}
			if err := must[error](t)(next(ended)); !errors.Is(err, boltq.ErrClosed) {
				t.Errorf("it ended with %v", err)
			}
		})
	}
}

func TestAWorkerEndsWithAFailureThatDoesNotPass(t *testing.T) {
	client := single(t).connect(t)
	worker := client.NewWorker("", func(context.Context, *boltq.Delivery) error { return nil })
	if err := worker.Run(t.Context()); !errors.Is(err, boltq.ErrInvalidArgument) {
		t.Errorf("the worker ended with %v", err)
	}
	queue := unique("jobs")
	publish(t, client, queue, 1)
	handled, ended := make(chan struct{}, 1), make(chan error, 1)
	worker = client.NewWorker(queue, func(context.Context, *boltq.Delivery) error {
		handled <- struct{}{}
		return nil
	})
	go func() { ended <- worker.Run(t.Context()) }()
	must[struct{}](t)(next(handled))
	must[uint64](t)(client.DeleteQueue(t.Context(), queue))
	if err := must[error](t)(next(ended)); !errors.Is(err, boltq.ErrQueueDeleted) {
		t.Errorf("the worker ended with %v", err)
	}
}

func TestAMessageThatComesAgainWhileItIsHandledIsNotHandledTwice(t *testing.T) {
	bed := startTestbed(t)
	client, queue := bed.connect(t), unique("jobs")
	publish(t, client, queue, 20)
	var calls, running atomic.Int64
	release := make(chan struct{})
	stop := startWorker(t, client.NewWorker(queue, func(context.Context, *boltq.Delivery) error {
		calls.Add(1)
		running.Add(1)
		<-release
		return nil
	}, boltq.WithConcurrency(20), boltq.WithPrefetch(20)))
	eventually(t, "all handlers run", func() bool { return running.Load() == 20 })
	// Its leases end with it, and the messages are delivered again.
	bed.do(t, "restart 0")
	eventually(t, "the worker has the messages again", func() bool {
		queue, err := client.GetQueue(t.Context(), queue)
		return err == nil && queue.GetLeased() == 20
	})
	close(release)
	isEmpty(t, client, queue)
	if err := stop(); err != nil || calls.Load() != 20 {
		t.Errorf("20 messages were handled %d times; the worker ended with %v", calls.Load(), err)
	}
}

func TestAWorkerThatMayHoldOneMessageHandlesAll(t *testing.T) {
	client, queue := single(t).connect(t), unique("jobs")
	const count, bytes = 64, 64 << 10
	messages := make([]boltq.Message, count)
	for index := range messages {
		messages[index].Payload = make([]byte, bytes)
	}
	must[[]boltq.MessageID](t)(client.PublishBatch(t.Context(), queue, messages))
	var handled atomic.Int64
	startWorker(t, client.NewWorker(queue, func(context.Context, *boltq.Delivery) error {
		handled.Add(1)
		return nil
	}, boltq.WithPrefetch(count), boltq.WithMaxBufferedBytes(bytes)))
	eventually(t, "all are handled although few may be held", func() bool { return handled.Load() == count })
	isEmpty(t, client, queue)
}
