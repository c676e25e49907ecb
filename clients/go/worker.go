package boltq

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"
)

// Handler works on one message. nil acknowledges it; an error gives it back as failed, after the pause of the server
// unless the error says otherwise (RetryAfter, Reject). A panic is an error. The context ends when the worker gives up
// waiting for the handler; its cause says why.
type Handler func(ctx context.Context, delivery *Delivery) error

// RetryAfter is the error of a handler that wants the message to come again after this pause, 0 to 24 h.
func RetryAfter(delay time.Duration, err error) error {
	return &nackError{opts: []NackOption{WithDelay(delay)}, err: err}
}

// Reject is the error of a handler that wants the message to be moved to the dead letters at once.
func Reject(err error) error {
	return &nackError{opts: []NackOption{WithDeadLetter()}, err: err}
}

// nackError says what becomes of a message whose handler failed.
type nackError struct {
	opts []NackOption
	err  error
}

func (e *nackError) Error() string { return fmt.Sprint(e.err) }

func (e *nackError) Unwrap() error { return e.err }

// WorkerOption configures a Worker.
type WorkerOption func(*Worker)

// WithConcurrency is how many handlers run at a time. Default 1.
func WithConcurrency(handlers int) WorkerOption {
	return func(w *Worker) { w.concurrency = max(1, handlers) }
}

// WithPrefetch is how many messages may wait for a handler, so that none waits for the network; other workers do not get
// them. Default: as many as handlers.
func WithPrefetch(messages int) WorkerOption {
	return func(w *Worker) { w.prefetch = max(0, messages) }
}

// WithMaxBytes bounds the payloads and headers of messages that are in handlers or wait for them: while there are more,
// nothing is read from the server. Default 64 MiB.
func WithMaxBytes(bytes int) WorkerOption {
	return func(w *Worker) { w.maxBytes = max(1, bytes) }
}

// WithWorkerLease is the length of leases, 1 s to 12 h, which the worker extends as long as handlers run. It is how long
// a message rests when the whole process is gone without a word and the server does not notice. Default 30 s.
func WithWorkerLease(lease time.Duration) WorkerOption {
	return func(w *Worker) { w.lease = max(time.Second, lease) }
}

// WithMaxLease is how long a handler may take. After that its lease is not extended any more, and its context ends with
// [ErrLeaseCeiling]. Default 10 minutes.
func WithMaxLease(ceiling time.Duration) WorkerOption {
	return func(w *Worker) { w.ceiling = ceiling }
}

// WithDrainTimeout is how long Run waits for handlers when its context has ended. Default 30 s.
func WithDrainTimeout(timeout time.Duration) WorkerOption {
	return func(w *Worker) { w.drainTimeout = max(0, timeout) }
}

// Worker takes messages of a queue and gives them to a handler, many at a time, and settles them by its outcome. It extends
// the leases of what it holds, connects again when a connection breaks, and does not start a second handler for a
// message that comes again while the first one is at work.
type Worker struct {
	client       *Client
	queue        string
	handler      Handler
	concurrency  int
	prefetch     int
	maxBytes     int
	lease        time.Duration
	ceiling      time.Duration
	drainTimeout time.Duration
}

// NewWorker makes a worker, which begins with Run.
func (c *Client) NewWorker(queue string, handler Handler, opts ...WorkerOption) *Worker {
	w := &Worker{
		client:       c,
		queue:        queue,
		handler:      handler,
		concurrency:  1,
		prefetch:     -1,
		maxBytes:     64 << 20,
		lease:        30 * time.Second,
		ceiling:      10 * time.Minute,
		drainTimeout: 30 * time.Second,
	}
	for _, option := range opts {
		option(w)
	}
	if w.prefetch < 0 {
		w.prefetch = w.concurrency
	}
	return w
}

// Run works until the context ends, and then stops in good order: no handler begins any more, those that run may finish and
// their messages are settled, and what waits for a handler is given to others at once, without counting as a failed
// attempt. It returns nil then; [ErrDrainTimeout] if handlers took longer than WithDrainTimeout, whose messages come
// again; [ErrClosed] if the client was closed before that, which leaves what is not settled to come again; or the failure
// that does not pass and ended the work.
func (w *Worker) Run(ctx context.Context) error {
	if w.handler == nil {
		return refused("", "the handler of the worker for queue %q is nil", w.queue)
	}
	run := &workerRun{Worker: w, stopping: ctx, jobs: newJobs(w.maxBytes)}
	// What is on its way outlives the context, until it is finished.
	life, end := w.client.bound(context.WithoutCancel(ctx))
	defer end()
	run.handling, run.interrupt = context.WithCancelCause(life)
	defer run.interrupt(context.Canceled)

	receiving, stopReceiving := context.WithCancel(life)
	defer stopReceiving()
	ended := make(chan error, 1)
	go func() { ended <- run.receive(receiving) }()
	keeping := make(chan struct{})
	go func() {
		defer close(keeping)
		run.keepLeases(receiving)
	}()
	for range w.concurrency {
		run.handlers.Add(1)
		go run.handle()
	}

	var failure error
	received := false
	select {
	case <-ctx.Done():
	case failure = <-ended:
		received = true
	}
	run.jobs.stop()
	if !run.drain() {
		failure = errors.Join(failure, ErrDrainTimeout)
	}
	if failure == nil && errors.Is(context.Cause(life), ErrClosed) {
		failure = ErrClosed
	}
	// Ends the stream of gRPC, and with it the leases of everything that was not settled.
	stopReceiving()
	if !received {
		<-ended
	}
	<-keeping
	return failure
}

// workerRun is one Run of a worker.
type workerRun struct {
	*Worker
	jobs *jobs
	// stopping ends when no handler is to begin any more.
	stopping context.Context
	// handling is the context of handlers.
	handling  context.Context
	interrupt context.CancelCauseFunc
	handlers  sync.WaitGroup
}

// drain waits for handlers, and for the settlement of what they did; false: some did not end.
func (r *workerRun) drain() bool {
	finished := make(chan struct{})
	go func() {
		r.handlers.Wait()
		r.jobs.awaitSettled(r.handling)
		close(finished)
	}()
	timer := time.NewTimer(r.drainTimeout)
	defer timer.Stop()
	select {
	case <-finished:
		return true
	case <-timer.C:
	}
	r.interrupt(ErrDrainTimeout)
	// Those that look at their context end now; nothing else ends a handler.
	timer.Reset(interruptedGrace)
	select {
	case <-finished:
	case <-timer.C:
		r.client.options.logger.Error("boltq: handlers go on although their context has ended", "queue", r.queue)
	}
	return false
}

// interruptedGrace is for handlers whose context has ended to return.
const interruptedGrace = 5 * time.Second

// receive takes deliveries until the context ends or a failure does not pass.
func (r *workerRun) receive(ctx context.Context) error {
	pace := r.client.newPace(forever)
	// A worker waits for its server also if that is not there yet.
	pace.unreached.limit = forever
	how := consuming{lease: r.lease, maxInFlight: r.concurrency + r.prefetch}
	for {
		endpoint, err := r.client.endpoints.pick()
		if err != nil {
			return err
		}
		attempt, stop := context.WithCancel(ctx)
		receive, _, err := openDeliveries(attempt, endpoint.conn, r.queue, how)
		for err == nil {
			var deliveries []*Delivery
			response, failed := receive()
			deliveries, err = r.client.deliveries(r.queue, response.GetDeliveries()), failed
			if err == nil {
				pace.reset()
				r.client.endpoints.answered.Store(true)
				err = r.take(ctx, deliveries)
			}
		}
		stop()
		// The leases have ended with the stream.
		r.jobs.streamEnded()
		if ctx.Err() != nil {
			return nil
		}
		failure := pace.judge(r.client.streamFailure(ctx, endpoint, err))
		if !failure.repeats {
			return failure
		}
		r.client.options.logger.Info("boltq: the worker connects again", "queue", r.queue, "after", failure)
		if pace.wait(ctx, failure) != nil {
			return nil
		}
	}
}

// take adds deliveries to the jobs, and settles at once what was worked on before.
func (r *workerRun) take(ctx context.Context, deliveries []*Delivery) error {
	end := time.Now().Add(r.lease)
	for _, delivery := range deliveries {
		if done := r.jobs.add(delivery, end); done != nil {
			r.settle(done)
		}
	}
	return r.jobs.awaitRoom(ctx)
}

// handle works on one job after the other until there are no more.
func (r *workerRun) handle() {
	defer r.handlers.Done()
	for {
		job := r.jobs.next(r.handling, r.stopping)
		if job == nil {
			return
		}
		outcome := r.call(job)
		r.jobs.finished(job, outcome)
		r.settle(job)
	}
}

// call runs the handler for a job.
func (r *workerRun) call(job *job) (outcome error) {
	defer job.interrupt(nil)
	defer func() {
		if panicked := recover(); panicked != nil {
			outcome = fmt.Errorf("boltq: the handler panicked: %v", panicked)
			r.client.options.logger.Error("boltq: a handler panicked",
				"queue", r.queue, "message", job.delivery.ID, "panic", panicked, "stack", string(debug.Stack()))
		}
	}()
	return r.handler(job.ctx, job.delivery)
}

// settle tells the server how a job ended. Handlers do not wait for that.
func (r *workerRun) settle(job *job) {
	token, outcome := r.jobs.outcome(job)
	how := settlement{kind: ack}
	if outcome != nil {
		var asked *nackError
		if errors.As(outcome, &asked) {
			how = nackOf(asked.opts)
		} else {
			how = nackOf(nil)
		}
	}
	r.client.settler.begin(how, token, func(err error) {
		switch r.jobs.settled(job, token, err) {
		case settleAgain:
			r.settle(job)
		case comesAgain:
			r.client.options.logger.Info("boltq: a message was not settled; it can come again",
				"queue", r.queue, "message", job.delivery.ID, "error", err)
		}
	})
}

// keepLeases extends leases until the context ends.
func (r *workerRun) keepLeases(ctx context.Context) {
	every := time.NewTicker(r.lease / 4)
	defer every.Stop()
	for {
		select {
		case <-every.C:
		case <-ctx.Done():
			return
		}
		now := time.Now()
		for _, held := range r.jobs.toExtend(now, now.Add(r.lease/2), r.ceiling) {
			r.client.settler.begin(settlement{kind: extend, duration: r.lease}, held.token, func(err error) {
				r.jobs.extended(held, time.Now().Add(r.lease), err)
			})
		}
	}
}
