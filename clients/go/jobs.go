package boltq

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// jobs has the messages that a worker holds, from their delivery to their settlement.
//
// The leases of a stream end with it, so a message that a handler is at work on can be delivered again, to this worker among
// others. Then the job that is there takes the new lease over, and no second handler begins. The same is true for a message
// whose handler has finished and that could not be acknowledged because its lease had ended: it is remembered for as
// minute, and acknowledged if it comes again. Only if it does not it was not settled.
type jobs struct {
	bytesMax int

	mu      sync.Mutex
	changed *sync.Cond
	byID    map[MessageID]*job
	// waiting has no handler yet, the oldest first.
	waiting []*job
	// bytes are those of jobs that wait.
	bytes int
	// settling counts those whose settlement is on its way, and releasing those that are given back as they came.
	settling, releasing int
	stopped             bool
	// left has the messages whose settlement has failed since it stopped.
	left []MessageID
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
	// extending is the token whose extension is on its way: while the server is slow, asking again would only make it slower.
	extending Token
	begun     time.Time
	// givenUp: it was handled for too long.
	givenUp bool
	// again is the same message, delivered while this one is being settled.
	again *Delivery
	// forget is when a job that is remembered goes, and late why it was not acknowledged.
	forget time.Time
	late   error
	result error
}

func newJobs(bytesMax int) *jobs {
	j := &jobs{bytesMax: bytesMax, byID: make(map[MessageID]*job)}
	j.changed = sync.NewCond(&j.mu)
	return j
}

// add takes a delivery. It returns the job of the same message if that is done and is to be settled with the new lease. A
// new message is refused if no handler begins any more.
func (j *jobs) add(delivery *Delivery, leaseEnd time.Time) (done *job, refused bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	known, ok := j.byID[delivery.ID]
	if !ok {
		if j.stopped {
			return nil, true
		}
		j.push(delivery, leaseEnd)
		return nil, false
	}
	known.token, known.leaseEnd, known.lost = delivery.token, leaseEnd, false
	switch known.state {
	case jobSettling:
		// Only the outcome tells whether this was delivered because of the settlement or in spite of it.
		known.again = delivery
	case jobRemembered:
		known.state = jobSettling
		j.settling++
		return known, false
	}
	return nil, false
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
	j.bytes -= job.bytes
	j.changed.Broadcast()
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
	// notSettled: it is to be told.
	notSettled
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
	if errors.Is(err, ErrLeaseLost) && job.result == nil {
		job.state, job.forget, job.late = jobRemembered, time.Now().Add(rememberedFor), err
		return done
	}
	var asked *nackError
	if j.stopped && (err != nil || errors.As(job.result, &asked) && asked.release) {
		j.left = append(j.left, job.delivery.ID)
	}
	delete(j.byID, job.delivery.ID)
	acknowledged := err == nil && job.result == nil
	if again != nil && !job.lost && !acknowledged {
		// It was given back, and is here already.
		j.push(again, job.leaseEnd)
	}
	if err != nil {
		return notSettled
	}
	return done
}

// rememberedFor is how long a message that was handled and could not be acknowledged is known.
const rememberedFor = time.Minute

// streamEnded gives up what has no handler, which comes again, and notes that the other leases have ended.
func (j *jobs) streamEnded() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.takeWaiting()
	for _, job := range j.byID {
		job.lost = true
	}
}

// toExtend has the jobs whose lease ends before a time. Handlers that have taken too long are interrupted instead, and
// returned the first time, and so are jobs that were remembered and did not come again.
func (j *jobs) toExtend(now, before time.Time, ceiling time.Duration) (held []heldLease, over, late []*job) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for id, job := range j.byID {
		switch {
		case job.state == jobRemembered && now.After(job.forget):
			delete(j.byID, id)
			late = append(late, job)
		case job.state == jobHandled && now.Sub(job.begun) > ceiling:
			if !job.givenUp {
				job.givenUp = true
				over = append(over, job)
			}
			job.interrupt(ErrLeaseCeiling)
		case job.state <= jobHandled && !job.lost && job.leaseEnd.Before(before) && string(job.extending) != string(job.token):
			job.extending = job.token
			held = append(held, heldLease{job: job, token: job.token})
		}
	}
	return held, over, late
}

// heldLease is the lease of a job at some time.
type heldLease struct {
	job   *job
	token Token
}

// extended is told what came of an extension; true: the lease was lost before.
func (j *jobs) extended(held heldLease, leaseEnd time.Time, err error) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if string(held.job.extending) == string(held.token) {
		held.job.extending = nil
	}
	if string(held.job.token) != string(held.token) || held.job.state > jobHandled {
		return false
	}
	switch {
	case err == nil:
		held.job.leaseEnd = leaseEnd
	case settledBefore(err) && !held.job.lost:
		held.job.lost = true
		return true
	}
	return false
}

// awaitRoom waits until there is room for more deliveries. When the worker stops there always is, as they are given back.
func (j *jobs) awaitRoom(ctx context.Context) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.await(ctx, func() bool { return j.bytes < j.bytesMax || j.stopped }) {
		return context.Cause(ctx)
	}
	return nil
}

// awaitSettled waits until no settlement is on its way.
func (j *jobs) awaitSettled(ctx context.Context) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.await(ctx, func() bool { return j.settling == 0 && j.releasing == 0 })
}

// releases counts messages that are given back as they came.
func (j *jobs) releases(change int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.releasing += change
	j.changed.Broadcast()
}

// stop lets no more handlers begin, and returns the leases of what waited for one.
func (j *jobs) stop() []Token {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.stopped = true
	return j.takeWaiting()
}

// takeWaiting takes out what has no handler. The mutex is held.
func (j *jobs) takeWaiting() []Token {
	taken := make([]Token, len(j.waiting))
	for index, job := range j.waiting {
		taken[index] = job.token
		delete(j.byID, job.delivery.ID)
		j.bytes -= job.bytes
	}
	j.waiting = nil
	j.changed.Broadcast()
	return taken
}

// takeRemembered takes out what was remembered: it will not come again to this worker.
func (j *jobs) takeRemembered() []*job {
	j.mu.Lock()
	defer j.mu.Unlock()
	var late []*job
	for id, job := range j.byID {
		if job.state == jobRemembered {
			delete(j.byID, id)
			j.left = append(j.left, id)
			late = append(late, job)
		}
	}
	return late
}

// unsettled has the messages whose handlers have begun and that were not settled, as far as is known.
func (j *jobs) unsettled() []MessageID {
	j.mu.Lock()
	defer j.mu.Unlock()
	left := slices.Clone(j.left)
	for id, job := range j.byID {
		if job.state == jobHandled || job.state == jobSettling {
			left = append(left, id)
		}
	}
	return left
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
