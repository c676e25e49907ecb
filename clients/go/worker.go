package boltq

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	queuev1 "github.com/boltq/boltq/clients/go/gen/boltq/queue/v1"
)

// Handler works on one message. nil acknowledges it; an error gives it back as failed, after the pause of the server
// unless the error says otherwise (RetryAfter, Reject). A panic is an error. The context ends when the worker gives up
// waiting for the handler; its cause says why.
type Handler func(ctx context.Context, delivery *Delivery) error

// RetryAfter is the error of a handler that wants the message to come again after this pause, 0 to 24 h.
func RetryAfter(delay time.Duration, err error) error {
	return &nackError{opts: []NackOption{WithDelay(min(max(0, delay), retryDelayMax))}, err: err}
}

// Reject is the error of a handler that wants the message to be moved to the dead letters at once.
func Reject(err error) error {
	return &nackError{opts: []NackOption{WithDeadLetter()}, err: err}
}

// nackError says what becomes of a message whose handler failed.
type nackError struct {
	opts []NackOption
	// release: no failed attempt is counted.
	release bool
	err     error
}

func (e *nackError) Error() string { return fmt.Sprint(e.err) }

func (e *nackError) Unwrap() error { return e.err }

// Run works until the context ends, and then stops in good order: no handler begins any more, what waits for one is given to
// others at once, without counting as a failed attempt, and handlers that run may finish and their messages are settled. It
// returns nil then; a [*StopError] if that took longer than WithStopTimeout, or messages were not settled, which come
// again; [ErrClosed] if the client was closed before that, which leaves what is not settled to come again; or the failure
// that does not pass and ended the work.
func (w *Worker) Run(ctx context.Context) error {
	if w.handler == nil {
		return refused("", "the handler of the worker for queue %q is nil", w.queue)
	}
	// What is on its way outlives the context, until it is finished.
	life, end := w.client.bound(context.WithoutCancel(ctx))
	defer end()
	run := &workerRun{Worker: w, stopping: ctx, life: life, jobs: newJobs(w.maxBufferedBytes)}
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
	run.stop()
	inTime := run.drain()
	if failure == nil && errors.Is(context.Cause(life), ErrClosed) {
		failure = ErrClosed
	}
	// Ends the stream of gRPC, and with it the leases of everything that was not settled.
	stopReceiving()
	if !received {
		<-ended
	}
	<-keeping
	for _, job := range run.jobs.takeRemembered() {
		run.notSettled(job, job.late)
	}
	if left := run.jobs.unsettled(); len(left) > 0 || !inTime {
		failure = errors.Join(failure, &StopError{NotSettled: left, timedOut: !inTime})
	}
	return failure
}

// workerRun is one Run of a worker.
type workerRun struct {
	*Worker
	jobs *jobs
	// stopping ends when no handler is to begin any more.
	stopping context.Context
	// life ends with the client.
	life context.Context
	// handling is the context of handlers.
	handling   context.Context
	interrupt  context.CancelCauseFunc
	handlers   sync.WaitGroup
	deliveries deliveries
}

// deliveries is the stream that is open, if one is, and whether it is to bring any more.
type deliveries struct {
	mu      sync.Mutex
	stream  queuev1.QueueService_SubscribeClient
	stopped bool
}

func (d *deliveries) opened(stream queuev1.QueueService_SubscribeClient) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stream = stream
	d.tell()
}

func (d *deliveries) stop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stopped = true
	d.tell()
}

func (d *deliveries) tell() {
	if d.stopped && d.stream != nil {
		// If the stream has failed, it says why when it is read.
		_ = d.stream.Send(&queuev1.SubscribeRequest{Request: &queuev1.SubscribeRequest_Stop{Stop: &queuev1.SubscribeStop{}}})
	}
}

// stop takes no more, and gives back what has no handler.
func (r *workerRun) stop() {
	r.deliveries.stop()
	for _, token := range r.jobs.stop() {
		r.release(token)
	}
}

// release gives back a message that no handler has seen.
func (r *workerRun) release(token Token) {
	r.jobs.releases(1)
	// If it fails, the message is ready for others when the stream ends.
	r.client.settler.begin(released, token, func(error) { r.jobs.releases(-1) })
}

// drain waits for handlers, and for the settlement of what they did; false: some did not end.
func (r *workerRun) drain() bool {
	finished := make(chan struct{})
	go func() {
		r.handlers.Wait()
		r.jobs.awaitSettled(r.life)
		close(finished)
	}()
	timer := time.NewTimer(r.stopTimeout)
	defer timer.Stop()
	select {
	case <-finished:
		return true
	case <-timer.C:
	}
	late := len(r.jobs.unsettled()) > 0
	r.interrupt(ErrStopTimeout)
	// Those that look at their context end now; nothing else ends a handler.
	timer.Reset(interruptedGrace)
	select {
	case <-finished:
		// Handlers that had nothing to do have ended in time, however short that was.
		return !late
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
		stream, err := openDeliveries(attempt, endpoint.conn, r.queue, how)
		if err == nil {
			r.deliveries.opened(stream)
		}
		for err == nil {
			var response *queuev1.SubscribeResponse
			if response, err = stream.Recv(); err == nil {
				pace.reset()
				r.client.endpoints.answered.Store(true)
				err = r.take(ctx, r.client.deliveries(r.queue, response.GetDeliveries()))
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
		switch done, refused := r.jobs.add(delivery, end); {
		case refused:
			// It was on its way when the stream was told to stop.
			r.release(delivery.token)
		case done != nil:
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
		r.work(job)
	}
}

// work runs the handler for a job, and has its end settled. A handler that ends its goroutine, as the functions of testing do that fail at
// once, has failed; another goroutine takes its place.
func (r *workerRun) work(job *job) {
	returned := false
	defer func() {
		if !returned {
			r.handlers.Add(1)
			go r.handle()
			r.finish(job, errHandlerExited)
		}
	}()
	outcome := r.call(job)
	returned = true
	r.finish(job, outcome)
}

func (r *workerRun) finish(job *job, outcome error) {
	if outcome != nil {
		if errors.Is(context.Cause(r.handling), ErrStopTimeout) {
			// It was not given the time to succeed.
			outcome = &nackError{release: true, err: outcome}
		}
		r.tell(job.delivery, HandlerFailed, outcome)
	}
	r.jobs.finished(job, outcome)
	r.settle(job)
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
		how = nackOf(nil)
		var asked *nackError
		if errors.As(outcome, &asked) {
			how = nackOf(asked.opts)
			how.release = asked.release
		}
	}
	r.client.settler.begin(how, token, func(err error) {
		switch r.jobs.settled(job, token, err) {
		case settleAgain:
			r.settle(job)
		case notSettled:
			r.notSettled(job, err)
		}
	})
}

func (r *workerRun) notSettled(job *job, err error) {
	r.client.options.logger.Info("boltq: a message was not settled; it can come again",
		"queue", r.queue, "message", job.delivery.ID, "error", err)
	r.tell(job.delivery, NotSettled, err)
}

func (r *workerRun) tell(delivery *Delivery, what WorkerFailure, err error) {
	if r.onError != nil {
		r.onError(delivery, &WorkerError{What: what, Err: err})
	}
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
		held, over, late := r.jobs.toExtend(now, now.Add(r.lease/2), r.ceiling)
		for _, job := range late {
			r.notSettled(job, job.late)
		}
		for _, job := range over {
			r.tell(job.delivery, LeaseCeiling, ErrLeaseCeiling)
		}
		for _, held := range held {
			r.client.settler.begin(settlement{kind: extend, duration: r.lease}, held.token, func(err error) {
				if r.jobs.extended(held, time.Now().Add(r.lease), err) {
					r.tell(held.job.delivery, LeaseLost, err)
				}
			})
		}
	}
}
