package boltq

import (
	"context"
	"sync"
	"time"
)

// jobs has the messages that a worker holds, from their delivery to their settlement.
//
// The leases of a stream end with it, so a message that a handler is at work on can be delivered again, to this worker among
// others. Then the job that is there takes the new lease over, and no second handler begins. The same is true for a message
// whose handler has finished and that could not be acknowledged because its lease had ended: it is remembered for as
// long as a lease, and acknowledged when it comes again.
type jobs struct {
	bytesMax int

	mu      sync.Mutex
	changed *sync.Cond
	byID    map[MessageID]*job
	// waiting has no handler yet, the oldest first.
	waiting []*job
	// bytes are those of jobs that wait or are handled.
	bytes int
	// settling counts those whose settlement is on its way.
	settling int
	stopped  bool
}

type jobState int

const (
	jobWaiting jobState = iota
	jobHandled
	jobSettling
	// jobRemembered is done, and not acknowledged.
	jobRemembered
)

// job is one message; what can change is guarded by the mutex of its jobs.
type job struct {
	delivery *Delivery
	bytes    int
	// ctx is that of the handler, and interrupt ends it.
	ctx       context.Context
	interrupt context.CancelCauseFunc

	state jobState
	token Token
	// lost is set when the lease has ended.
	lost     bool
	leaseEnd time.Time
	begun    time.Time
	// again is the same message, delivered while this one is being settled.
	again *Delivery
	// forget is when a job that is remembered goes.
	forget time.Time
	result error
}

func newJobs(bytesMax int) *jobs {
	j := &jobs{bytesMax: bytesMax, byID: make(map[MessageID]*job)}
	j.changed = sync.NewCond(&j.mu)
	return j
}

// add takes a delivery. It returns the job of the same message if that is done and is to be settled with the new lease.
func (j *jobs) add(delivery *Delivery, leaseEnd time.Time) *job {
	j.mu.Lock()
	defer j.mu.Unlock()
	known, ok := j.byID[delivery.ID]
	if !ok {
		j.push(delivery, leaseEnd)
		return nil
	}
	known.token, known.leaseEnd, known.lost = delivery.token, leaseEnd, false
	switch known.state {
	case jobSettling:
		// Only the outcome tells whether this was delivered because of the settlement or in spite of it.
		known.again = delivery
	case jobRemembered:
		known.state = jobSettling
		j.settling++
		return known
	}
	return nil
}

// push adds a job that waits for a handler.
func (j *jobs) push(delivery *Delivery, leaseEnd time.Time) {
	added := &job{delivery: delivery, bytes: deliveryBytes(delivery), token: delivery.token, leaseEnd: leaseEnd}
	j.byID[delivery.ID] = added
	j.waiting = append(j.waiting, added)
	j.bytes += added.bytes
	j.changed.Broadcast()
}

// deliveryBytes is what a message takes, about.
func deliveryBytes(delivery *Delivery) int {
	bytes := len(delivery.Payload) + messageOverheadBytes
	for name, value := range delivery.Headers {
		bytes += len(name) + len(value)
	}
	return bytes
}

// next waits for a job, whose handler gets a context of ctx. nil: there will be none, as stopping has ended.
func (j *jobs) next(ctx, stopping context.Context) *job {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.await(stopping, func() bool { return len(j.waiting) > 0 || j.stopped }) || j.stopped {
		return nil
	}
	job := j.waiting[0]
	j.waiting[0] = nil
	j.waiting = j.waiting[1:]
	job.state, job.begun = jobHandled, time.Now()
	job.ctx, job.interrupt = context.WithCancelCause(ctx)
	return job
}

// finished notes how a handler ended; the job is to be settled next.
func (j *jobs) finished(job *job, result error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	job.state, job.result = jobSettling, result
	j.settling++
	j.bytes -= job.bytes
	j.changed.Broadcast()
}

// outcome says how to settle a job.
func (j *jobs) outcome(job *job) (Token, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return job.token, job.result
}

// afterwards says what is to be done about a job after its settlement.
type afterwards int

const (
	// done: nothing.
	done afterwards = iota
	// settleAgain: it has another lease now, and is to be settled with that.
	settleAgain
	// comesAgain: nothing, but it was not settled.
	comesAgain
)

// settled is told what came of a settlement with a token.
func (j *jobs) settled(job *job, token Token, err error) afterwards {
	j.mu.Lock()
	defer j.mu.Unlock()
	again := job.again
	job.again = nil
	if settledBefore(err) && string(job.token) != string(token) {
		return settleAgain
	}
	j.settling--
	j.changed.Broadcast()
	if settledBefore(err) && job.result == nil {
		job.state, job.forget = jobRemembered, time.Now().Add(rememberedFor)
		return done
	}
	delete(j.byID, job.delivery.ID)
	acknowledged := err == nil && job.result == nil
	if again != nil && !job.lost && !acknowledged {
		// It was given back, and is here already.
		j.push(again, job.leaseEnd)
		return done
	}
	if err != nil {
		return comesAgain
	}
	return done
}

// rememberedFor is how long a message that was handled and could not be acknowledged is known.
const rememberedFor = time.Minute

// streamEnded gives up what has no handler, which comes again, and notes that the other leases have ended.
func (j *jobs) streamEnded() {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, job := range j.waiting {
		delete(j.byID, job.delivery.ID)
		j.bytes -= job.bytes
	}
	j.waiting = nil
	for _, job := range j.byID {
		job.lost = true
	}
	j.changed.Broadcast()
}

// toExtend has the jobs whose lease ends before a time. Handlers that have taken too long are interrupted instead.
func (j *jobs) toExtend(now, before time.Time, ceiling time.Duration) []heldLease {
	j.mu.Lock()
	defer j.mu.Unlock()
	var held []heldLease
	for id, job := range j.byID {
		switch {
		case job.state == jobRemembered && now.After(job.forget):
			delete(j.byID, id)
		case job.state == jobHandled && now.Sub(job.begun) > ceiling:
			job.interrupt(ErrLeaseCeiling)
		case job.state <= jobHandled && !job.lost && job.leaseEnd.Before(before):
			held = append(held, heldLease{job: job, token: job.token})
		}
	}
	return held
}

// heldLease is the lease of a job at some time.
type heldLease struct {
	job   *job
	token Token
}

// extended is told what came of an extension.
func (j *jobs) extended(held heldLease, leaseEnd time.Time, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if string(held.job.token) != string(held.token) {
		return
	}
	switch {
	case err == nil:
		held.job.leaseEnd = leaseEnd
	case settledBefore(err):
		held.job.lost = true
	}
}

// awaitRoom waits until there is room for more deliveries. There is none any more when the worker stops.
func (j *jobs) awaitRoom(ctx context.Context) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.await(ctx, func() bool { return j.bytes < j.bytesMax && !j.stopped }) {
		return context.Cause(ctx)
	}
	return nil
}

// awaitSettled waits until no settlement is on its way.
func (j *jobs) awaitSettled(ctx context.Context) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.await(ctx, func() bool { return j.settling == 0 })
}

// stop lets no more handlers begin.
func (j *jobs) stop() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.stopped = true
	j.changed.Broadcast()
}

// await waits for a condition; false: the context ended before. The mutex is held.
func (j *jobs) await(ctx context.Context, condition func() bool) bool {
	if condition() {
		return ctx.Err() == nil
	}
	stop := context.AfterFunc(ctx, func() {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.changed.Broadcast()
	})
	defer stop()
	for !condition() {
		if ctx.Err() != nil {
			return false
		}
		j.changed.Wait()
	}
	return ctx.Err() == nil
}
