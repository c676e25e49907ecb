package boltq_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/boltq/boltq/clients/go"
)

// The steps with many messages, which are numbered from 0 and have their number as payload.

// progress is how far a step in the background has come, and whether it is to stop.
type progress struct {
	reached atomic.Int64
	stop    atomic.Bool
}

// publisherOf is one for the topic or queue that a step names.
func publisherOf(c *boltq.Client, a arguments) *boltq.Publisher {
	if a.has("topic") {
		return c.NewTopicPublisher(a.text("topic"))
	}
	return c.NewPublisher(a.text("queue"))
}

func publishMany(ctx context.Context, c *boltq.Client, a arguments) (any, error) {
	publisher := publisherOf(c, a)
	var confirms []*boltq.Confirm
	for _, one := range a["messages"].([]any) {
		confirm, err := publisher.Publish(ctx, message(one))
		if err != nil {
			return nil, err
		}
		confirms = append(confirms, confirm)
	}
	if err := publisher.Close(ctx); err != nil {
		return nil, err
	}
	results := make([]object, len(confirms))
	for index, confirm := range confirms {
		id, err := confirm.Wait(ctx)
		var failure *boltq.Error
		if errors.As(err, &failure) {
			results[index] = object{"error": object{"reason": failure.Reason}}
		} else {
			results[index] = object{"message_id": id.String()}
		}
	}
	return object{"results": results}, nil
}

func manyPublish(ctx context.Context, r *run, a arguments, progress *progress) (any, error) {
	publisher := publisherOf(r.client, a)
	var waiting sync.WaitGroup
	var failed atomic.Int64
	count := a.number("count")
	for number := 0; !progress.stop.Load() && (!a.has("count") || number < count); number++ {
		confirm, err := publisher.Publish(ctx, boltq.Message{Payload: []byte(strconv.Itoa(number))})
		if err != nil {
			return nil, err
		}
		waiting.Go(func() {
			if _, err := confirm.Wait(ctx); err != nil {
				r.t.Logf("not confirmed: %v", err)
				failed.Add(1)
			} else {
				progress.reached.Add(1)
			}
		})
		if !a.has("count") {
			// Without an end: not faster than what others are to work on meanwhile.
			time.Sleep(time.Millisecond)
		}
	}
	err := publisher.Close(ctx)
	waiting.Wait()
	return object{"confirmed": progress.reached.Load(), "failed": failed.Load()}, err
}

func manyWork(ctx context.Context, r *run, a arguments, progress *progress) (any, error) {
	working, stop := context.WithCancel(ctx)
	defer stop()
	work := &numbers{seen: make(map[int]bool), refused: make(map[int]bool), failEvery: a.number("fail_every"), until: -1, progress: progress, stop: stop}
	if a.has("until") {
		work.until = a.number("until")
	}
	if work.until == 0 {
		stop()
	}
	opts := []boltq.WorkerOption{boltq.WithConcurrency(max(1, a.number("concurrency")))}
	if a.has("lease") {
		opts = append(opts, boltq.WithWorkerLease(a.duration("lease")))
	}
	go work.stopWhenAsked(working)
	opts = append(opts, boltq.WithOnError(work.tell))
	// What was not settled since the stop was told.
	var left *boltq.StopError
	err := r.client.NewWorker(a.text("queue"), work.handle, opts...).Run(working)
	if err != nil && (!errors.As(err, &left) || errors.Is(err, boltq.ErrStopTimeout)) {
		r.t.Logf("the worker reports %v", err)
		work.report()
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("%d numbers were handled in time: %w", progress.reached.Load(), ctx.Err())
	}
	work.mu.Lock()
	defer work.mu.Unlock()
	return object{
		"handled": progress.reached.Load(), "unexpected": work.unexpected, "failed": work.failed, "errors": work.reported,
	}, nil
}

// numbers is what handlers of many.work have seen.
type numbers struct {
	failEvery, until int
	progress         *progress
	stop             context.CancelFunc

	mu                 sync.Mutex
	seen, refused      map[int]bool
	unexpected, failed int
	reported           int
}

// tell counts what the worker tells, but for failures of the handler and what came too late.
func (w *numbers) tell(_ *boltq.Delivery, err *boltq.WorkerError) {
	if err.What != boltq.HandlerFailed && !errors.Is(err, boltq.ErrLeaseLost) && !errors.Is(err, boltq.ErrNotFound) {
		w.report()
	}
}

func (w *numbers) report() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reported++
}

func (w *numbers) handle(_ context.Context, delivery *boltq.Delivery) error {
	number, err := strconv.Atoi(string(delivery.Payload))
	if err != nil {
		return boltq.Reject(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.until >= 0 && number >= w.until {
		w.unexpected++
		return nil
	}
	if w.failEvery > 0 && number%w.failEvery == 0 && !w.refused[number] {
		w.refused[number] = true
		w.failed++
		return boltq.RetryAfter(10*time.Millisecond, errors.New("as the scenario asks for"))
	}
	if w.seen[number] {
		return nil
	}
	w.seen[number] = true
	if reached := w.progress.reached.Add(1); reached == int64(w.until) {
		w.stop()
	}
	return nil
}

func (w *numbers) stopWhenAsked(ctx context.Context) {
	for !w.progress.stop.Load() {
		select {
		case <-ctx.Done():
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
	w.stop()
}

func manyConsume(ctx context.Context, r *run, a arguments, progress *progress) (any, error) {
	numbers := []int{}
	for len(numbers) < a.number("count") {
		list, err := r.client.Consume(ctx, a.text("queue"), boltq.WithMaxMessages(1), boltq.WithWait(time.Second))
		if err != nil {
			return nil, err
		}
		for _, delivery := range list {
			number, err := strconv.Atoi(string(delivery.Payload))
			if err != nil {
				return nil, err
			}
			if err := delivery.Ack(ctx); err != nil {
				return nil, err
			}
			numbers = append(numbers, number)
			progress.reached.Add(1)
		}
	}
	return object{"numbers": numbers}, nil
}

func (r *run) backgroundOf(a arguments) (*background, error) {
	one, ok := r.background[a.text("of")]
	if !ok {
		return nil, fmt.Errorf("there is no step %q in the background", a.text("of"))
	}
	return one, nil
}

func manyProgress(ctx context.Context, r *run, a arguments, _ *progress) (any, error) {
	one, err := r.backgroundOf(a)
	if err != nil {
		return nil, err
	}
	for {
		reached := one.progress.reached.Load()
		if reached >= int64(a.number("at_least")) {
			return object{"reached": reached}, nil
		}
		select {
		case <-one.done:
			return nil, fmt.Errorf("it ended when it had reached %d: %w", one.progress.reached.Load(), one.err)
		case <-ctx.Done():
			return nil, fmt.Errorf("it has reached %d: %w", reached, ctx.Err())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func manyStop(_ context.Context, r *run, a arguments, _ *progress) (any, error) {
	one, err := r.backgroundOf(a)
	if err == nil {
		one.progress.stop.Store(true)
	}
	return object{}, err
}

func join(_ context.Context, r *run, a arguments, _ *progress) (any, error) {
	one, err := r.backgroundOf(a)
	if err != nil {
		return nil, err
	}
	// The step has a timeout of its own.
	<-one.done
	return one.answer, one.err
}
