package boltq

import (
	"fmt"
	"time"
)

// inFlightMax is how many messages may be in flight, as the server has it.
const inFlightMax = 100_000

// The longest times that the server takes.
const (
	leaseMax      = 12 * time.Hour
	retryDelayMax = 24 * time.Hour
)

// WorkerOption configures a Worker.
type WorkerOption func(*Worker)

// WithConcurrency is how many handlers run at a time, 1 to 100,000. Default 16.
func WithConcurrency(handlers int) WorkerOption {
	return func(w *Worker) { w.concurrency = min(max(1, handlers), inFlightMax) }
}

// WithPrefetch is how many messages may wait here for a handler, so that no handler waits for the network; other workers do
// not get them. Default: as many as handlers. Both together are 100,000 at most. The server counts what is not settled: so
// many and the handlers are in flight, those included whose settlement is on its way.
func WithPrefetch(messages int) WorkerOption {
	return func(w *Worker) { w.prefetch = max(0, messages) }
}

// WithMaxBufferedBytes bounds the payloads and headers of messages that wait for a handler: while there are more, nothing is
// read from the server. Default 16 MiB. One response of the server, up to 4 MiB, may go over it.
func WithMaxBufferedBytes(bytes int) WorkerOption {
	return func(w *Worker) { w.maxBufferedBytes = max(1, bytes) }
}

// WithWorkerLease is the length of leases, 1 s to 12 h, which the worker extends when half of it is over, while a
// message waits for a handler and while that runs. It is how long a message rests when the whole process is gone without a
// word and the server does not notice. Default 30 s.
func WithWorkerLease(lease time.Duration) WorkerOption {
	return func(w *Worker) { w.lease = min(max(time.Second, lease), leaseMax) }
}

// WithMaxLease is how long a handler may take. After that its lease is not extended any more, and its context ends with
// [ErrLeaseCeiling]. Default 10 minutes.
func WithMaxLease(ceiling time.Duration) WorkerOption {
	return func(w *Worker) { w.ceiling = ceiling }
}

// WithStopTimeout is how long Run waits for handlers, and for the answers to settlements, when its context has ended. Default
// 30 s.
func WithStopTimeout(timeout time.Duration) WorkerOption {
	return func(w *Worker) { w.stopTimeout = max(0, timeout) }
}

// WithOnError sets what is called when a handler has failed or panicked, a lease was lost or is not extended any more, or a
// message was not settled. It is called by several goroutines and must not block.
func WithOnError(call func(delivery *Delivery, err *WorkerError)) WorkerOption {
	return func(w *Worker) { w.onError = call }
}

// WorkerFailure says what went wrong with a message of a worker.
type WorkerFailure int

const (
	// HandlerFailed: its handler returned an error or panicked.
	HandlerFailed WorkerFailure = iota + 1
	// LeaseCeiling: its handler runs for as long as WithMaxLease allows; others get the message when its lease ends.
	LeaseCeiling
	// LeaseLost: its lease had ended when it was to be extended. If its handler still runs, it does so for nothing.
	LeaseLost
	// NotSettled: its handler has ended and it could not be settled. It comes again, unless somebody else has settled it.
	NotSettled
)

func (f WorkerFailure) String() string {
	switch f {
	case HandlerFailed:
		return "the handler failed"
	case LeaseCeiling:
		return "the lease is not extended any more"
	case LeaseLost:
		return "the lease was lost"
	case NotSettled:
		return "the message was not settled"
	default:
		return "unknown"
	}
}

// WorkerError is what a worker tells of a message.
type WorkerError struct {
	What WorkerFailure
	Err  error
}

func (e *WorkerError) Error() string { return fmt.Sprintf("boltq: %v: %v", e.What, e.Err) }

func (e *WorkerError) Unwrap() error { return e.Err }

// StopError is returned by Worker.Run if it leaves messages whose handlers had begun. errors.Is finds [ErrStopTimeout] in it
// if that was for want of time.
type StopError struct {
	// NotSettled has the messages whose handlers did not end in time, or whose settlement failed since the stop or had no
	// answer in time. They come again, unless they were settled all the same.
	NotSettled []MessageID
	timedOut   bool
}

func (e *StopError) Error() string {
	if e.timedOut {
		return fmt.Sprintf("%v: %d messages are not settled", ErrStopTimeout, len(e.NotSettled))
	}
	return fmt.Sprintf("boltq: %d messages were not settled", len(e.NotSettled))
}

// Is tells whether it was for want of time.
func (e *StopError) Is(target error) bool { return e.timedOut && target == ErrStopTimeout }

// Worker takes messages of a queue and gives them to a handler, many at a time, and settles them by its outcome. It extends
// the leases of what it holds, connects again when a connection breaks, and does not start a second handler for a
// message that comes again while the first one is at work.
type Worker struct {
	client           *Client
	queue            string
	handler          Handler
	concurrency      int
	prefetch         int
	maxBufferedBytes int
	lease            time.Duration
	ceiling          time.Duration
	stopTimeout      time.Duration
	onError          func(*Delivery, *WorkerError)
}

// NewWorker makes a worker, which begins with Run.
func (c *Client) NewWorker(queue string, handler Handler, opts ...WorkerOption) *Worker {
	w := &Worker{
		client:           c,
		queue:            queue,
		handler:          handler,
		concurrency:      16,
		prefetch:         -1,
		maxBufferedBytes: 16 << 20,
		lease:            30 * time.Second,
		ceiling:          10 * time.Minute,
		stopTimeout:      30 * time.Second,
	}
	for _, option := range opts {
		option(w)
	}
	if w.prefetch < 0 {
		w.prefetch = w.concurrency
	}
	w.prefetch = min(w.prefetch, inFlightMax-w.concurrency)
	return w
}
