package boltq_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/boltq/boltq/clients/go"
)

// workerActions are the steps about workers whose handlers end when the scenario says so.
var workerActions = map[string]action{
	"worker.start":  workerStart,
	"worker.look":   workerLook,
	"worker.finish": workerFinish,
	"worker.stop":   workerStop,
}

// toldWorker is a worker of a scenario.
type toldWorker struct {
	stop  context.CancelFunc
	ended chan struct{}
	err   error
	// finish is closed when handlers may end.
	finish func()

	mu             sync.Mutex
	begun, running []*boltq.Delivery
	errors         []object
}

func workerStart(_ context.Context, r *run, a arguments, _ *progress) (any, error) {
	var opts []boltq.WorkerOption
	if a.has("concurrency") {
		opts = append(opts, boltq.WithConcurrency(a.number("concurrency")))
	}
	if a.has("prefetch") {
		opts = append(opts, boltq.WithPrefetch(a.number("prefetch")))
	}
	if a.has("lease") {
		opts = append(opts, boltq.WithWorkerLease(a.duration("lease")))
	}
	if a.has("stop_timeout") {
		opts = append(opts, boltq.WithStopTimeout(a.duration("stop_timeout")))
	}
	finished := make(chan struct{})
	w := &toldWorker{ended: make(chan struct{}), finish: sync.OnceFunc(func() { close(finished) })}
	opts = append(opts, boltq.WithOnError(w.tell))
	worker := r.client.NewWorker(a.text("queue"), func(ctx context.Context, delivery *boltq.Delivery) error {
		return w.handle(ctx, delivery, finished)
	}, opts...)
	// It works until it is stopped, and not for as long as the step.
	ctx, stop := context.WithCancel(context.Background())
	w.stop = stop
	go func() {
		defer close(w.ended)
		w.err = worker.Run(ctx)
	}()
	r.workers[a.text("as")] = w
	return object{}, nil
}

func (w *toldWorker) handle(ctx context.Context, delivery *boltq.Delivery, finished <-chan struct{}) error {
	w.mu.Lock()
	w.begun, w.running = append(w.begun, delivery), append(w.running, delivery)
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.running = slices.DeleteFunc(w.running, func(other *boltq.Delivery) bool { return other == delivery })
	}()
	select {
	case <-finished:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

var failureNames = map[boltq.WorkerFailure]string{
	boltq.HandlerFailed: "HANDLER_FAILED", boltq.LeaseCeiling: "LEASE_CEILING", boltq.LeaseLost: "LEASE_LOST", boltq.NotSettled: "NOT_SETTLED",
}

func (w *toldWorker) tell(delivery *boltq.Delivery, err *boltq.WorkerError) {
	reason := ""
	var failure *boltq.Error
	if errors.As(err, &failure) {
		reason = failure.Reason
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.errors = append(w.errors, object{"message_id": delivery.ID.String(), "what": failureNames[err.What], "reason": reason})
}

func (r *run) workerOf(a arguments) (*toldWorker, error) {
	worker, ok := r.workers[a.text("of")]
	if !ok {
		return nil, fmt.Errorf("there is no worker %q", a.text("of"))
	}
	return worker, nil
}

func workerLook(_ context.Context, r *run, a arguments, _ *progress) (any, error) {
	w, err := r.workerOf(a)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return object{"running": shownDeliveries(w.running), "begun": shownDeliveries(w.begun), "errors": append([]object{}, w.errors...)}, nil
}

func shownDeliveries(list []*boltq.Delivery) []object {
	all := make([]object, len(list))
	for index, one := range list {
		all[index] = delivery(one)
	}
	return all
}

func workerFinish(_ context.Context, r *run, a arguments, _ *progress) (any, error) {
	w, err := r.workerOf(a)
	if err == nil {
		w.finish()
	}
	return object{}, err
}

func workerStop(ctx context.Context, r *run, a arguments, _ *progress) (any, error) {
	w, err := r.workerOf(a)
	if err != nil {
		return nil, err
	}
	w.stop()
	select {
	case <-w.ended:
	case <-ctx.Done():
		return nil, fmt.Errorf("the worker does not stop: %w", ctx.Err())
	}
	left := []string{}
	var stopped *boltq.StopError
	switch {
	case errors.As(w.err, &stopped):
		for _, id := range stopped.NotSettled {
			left = append(left, id.String())
		}
	case w.err != nil:
		return nil, w.err
	}
	return object{"not_settled": left}, nil
}
