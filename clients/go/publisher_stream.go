package boltq

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc/codes"

	typev1 "github.com/boltq/boltq/clients/go/gen/boltq/type/v1"
)

// Inside of a Publisher: one stream after the other. A message is in exactly one place: among those that wait, in a
// batch that is on its way, or resolved. Batches are answered in the order in which they were sent.

// errReopen says that a stream is of no more use although it did not fail: its node no longer leads.
var errReopen = errors.New("boltq: the stream has to be opened again")

// run opens streams as long as there is something to send, until the publisher ends.
func (p *Publisher) run() {
	defer close(p.done)
	defer p.failAll()
	pace := p.client.newPace(forever)
	for p.awaitWork() {
		stream := &publishStream{publisher: p, pace: pace}
		failure := stream.run()
		if failure == nil {
			continue
		}
		p.giveUp(stream.onTheirWay(), failure)
		// What was refused for a reason that can pass has noted when it may come again.
		if pace.wait(p.life, failure) != nil {
			return
		}
	}
}

// awaitWork waits until a message waits to be sent; false: the publisher ended.
func (p *Publisher) awaitWork() bool {
	for {
		p.mu.Lock()
		work := len(p.waiting) > 0
		p.mu.Unlock()
		if work {
			return p.life.Err() == nil
		}
		select {
		case <-p.wake:
		case <-p.life.Done():
			return false
		}
	}
}

// giveUp decides what becomes of everything after a stream failed: what may be sent again is, in its order.
func (p *Publisher) giveUp(sent []*Confirm, failure *Error) {
	p.mu.Lock()
	waiting := p.waiting
	p.waiting = nil
	p.mu.Unlock()
	var again []*Confirm
	for _, confirm := range sent {
		confirm.unknown = confirm.unknown || failure.OutcomeUnknown
		if p.mayRepeat(confirm, failure) {
			again = append(again, confirm)
		} else {
			p.fail(confirm, failure)
		}
	}
	// These were not sent on this stream, so nothing became of them.
	untouched := *failure
	untouched.OutcomeUnknown = false
	for _, confirm := range waiting {
		if p.mayRepeat(confirm, &untouched) {
			again = append(again, confirm)
		} else {
			p.fail(confirm, &untouched)
		}
	}
	p.again(again)
}

// mayRepeat says whether a message is to be sent again after this failure.
func (p *Publisher) mayRepeat(confirm *Confirm, failure *Error) bool {
	if !failure.repeats || time.Since(confirm.since) > p.client.options.retryTimeout {
		return false
	}
	return !failure.OutcomeUnknown || confirm.message.IdempotencyKey != ""
}

// failAll resolves what is left when the publisher ends.
func (p *Publisher) failAll() {
	p.mu.Lock()
	waiting := p.waiting
	p.waiting = nil
	p.mu.Unlock()
	ended := (&Error{Code: codes.Canceled, Message: "the publisher ended"}).because(context.Cause(p.life))
	for _, confirm := range waiting {
		p.fail(confirm, ended)
	}
}

// publishStream is one stream of a publisher.
type publishStream struct {
	publisher *Publisher
	pace      *pace

	mu sync.Mutex
	// sent is on its way, the oldest first.
	sent []*batch
	// ordered counts the batches among them that have ordering keys.
	ordered int
	// notBefore is when messages that were refused may be sent again.
	notBefore time.Time
	// reopen is set when the stream is of no more use.
	reopen bool
	// turn says that something of this has changed.
	turn chan struct{}
}

// batch is one request.
type batch struct {
	confirms []*Confirm
	ordered  bool
}

// run sends until there is nothing more to send or the stream fails. nil: it ended in good order.
func (s *publishStream) run() *Error {
	p := s.publisher
	endpoint, err := p.client.endpoints.pick()
	if err != nil {
		return newError(err, false).because(ErrClosed)
	}
	ctx, cancel := context.WithCancel(p.life)
	defer cancel()
	attempt, sent := watchSent(ctx)
	s.turn = make(chan struct{}, 1)
	stream, err := p.target.open(attempt, endpoint.conn)
	if err == nil {
		err = s.exchange(ctx, stream)
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errReopen):
		p.client.endpoints.failed(endpoint, "")
		// Nothing is on its way.
		return passing("another node leads")
	default:
		return s.pace.judge(p.client.failure(p.life, endpoint, err, sent.Load()))
	}
}

// exchange sends and receives until both are done.
func (s *publishStream) exchange(ctx context.Context, stream confirming) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	received := make(chan error, 1)
	go func() {
		err := s.receive(stream)
		// Nobody is there to answer what would still be sent.
		cancel()
		received <- err
	}()
	for {
		next := s.next(ctx)
		if next == nil {
			break
		}
		messages := make([]*typev1.Message, len(next.confirms))
		for index, confirm := range next.confirms {
			messages[index] = confirm.message
		}
		if stream.send(messages) != nil {
			// The receiver has the reason.
			break
		}
	}
	// It fails only if the stream has failed, which the receiver tells.
	_ = stream.closeSend()
	err := <-received
	if err == nil && s.reopened() {
		return errReopen
	}
	return err
}

// next waits for messages and takes as many as go into a request; they are on their way from then on. nil: nothing more
// is to be sent on this stream.
func (s *publishStream) next(ctx context.Context) *batch {
	p := s.publisher
	for {
		batch, pause, ended := s.take()
		if batch != nil || ended {
			return batch
		}
		var timer <-chan time.Time
		if pause > 0 {
			timer = time.After(pause)
		}
		select {
		case <-p.wake:
		case <-s.turn:
		case <-timer:
		case <-ctx.Done():
			return nil
		}
	}
}

// take takes what may be sent now. Without that it says how long to wait at least, 0 for a signal, or that there will be
// nothing more.
func (s *publishStream) take() (next *batch, pause time.Duration, ended bool) {
	p := s.publisher
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reopen {
		return nil, 0, true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.waiting) == 0 {
		return nil, 0, p.closed && p.outstanding == 0
	}
	if pause := time.Until(s.notBefore); pause > 0 {
		return nil, pause, false
	}
	count, bytes, ordered := 0, 0, false
	for _, confirm := range p.waiting {
		if confirm.generated && !confirm.unknown && !p.client.generatesKeys() {
			// It would be refused, and those behind it that have none would come before it.
			confirm.message.IdempotencyKey, confirm.generated = "", false
		}
		if count == batchMessagesMax || count > 0 && bytes+confirm.bytes > batchBytes {
			break
		}
		// Those with ordering keys wait for the ones before: if they were refused, these would overtake them.
		if confirm.message.OrderingKey != "" {
			if s.ordered > 0 {
				break
			}
			ordered = true
		}
		count++
		bytes += confirm.bytes
	}
	if count == 0 {
		return nil, 0, false
	}
	next = &batch{confirms: append([]*Confirm(nil), p.waiting[:count]...), ordered: ordered}
	clear(p.waiting[:count])
	p.waiting = p.waiting[count:]
	s.sent = append(s.sent, next)
	if ordered {
		s.ordered++
	}
	return next, 0, false
}

// receive settles batches until the stream ends.
func (s *publishStream) receive(stream confirming) error {
	for {
		answer, err := stream.receive()
		if errors.Is(err, io.EOF) {
			if len(s.onTheirWay()) > 0 {
				return passing("the stream ended before all was answered")
			}
			return nil
		}
		if err != nil {
			return err
		}
		s.publisher.client.endpoints.answered.Store(true)
		s.answered(answer)
	}
}

// answered settles the oldest batch that is on its way.
func (s *publishStream) answered(answer answered) {
	s.mu.Lock()
	if len(s.sent) == 0 {
		s.mu.Unlock()
		return
	}
	batch := s.sent[0]
	s.sent[0] = nil
	s.sent = s.sent[1:]
	s.mu.Unlock()

	failures := make(map[int]messageFailure, len(answer.failures))
	for _, failure := range answer.failures {
		failures[failure.index] = failure
	}
	var again []*Confirm
	for index, confirm := range batch.confirms {
		if failure, ok := failures[index]; ok {
			if s.refused(confirm, failure) {
				again = append(again, confirm)
			}
			continue
		}
		var id MessageID
		if index < len(answer.ids) {
			id = messageID(answer.ids[index])
		}
		s.publisher.resolve(confirm, id, nil)
	}
	if len(again) > 0 {
		s.publisher.again(again)
	} else {
		s.pace.reset()
	}
	if batch.ordered {
		// Not before those that are sent again wait for that: others with their keys would be first.
		s.mu.Lock()
		s.ordered--
		s.mu.Unlock()
	}
	select {
	case s.turn <- struct{}{}:
	default:
	}
}

// refused decides about one message of a batch that was refused: whether it is to be sent again.
func (s *publishStream) refused(confirm *Confirm, told messageFailure) bool {
	p := s.publisher
	failure := &Error{Code: codeOf(told), Reason: told.reason, Message: told.message, retriable: told.retriable}
	failure.repeats = told.retriable && !forApplications[told.reason]
	failure.OutcomeUnknown = failure.retriable && failure.outcomeUnknown()
	confirm.unknown = confirm.unknown || failure.OutcomeUnknown
	if told.reason == reasonKeysFull && confirm.generated && !confirm.unknown {
		p.client.restKeys()
		confirm.message.IdempotencyKey, confirm.generated = "", false
		return true
	}
	if !p.mayRepeat(confirm, failure) {
		p.fail(confirm, failure)
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if told.reason == reasonNotLeader {
		// A stream is passed on to the leader when it is opened, and not later.
		s.reopen = true
	}
	if !time.Now().Before(s.notBefore) {
		s.notBefore = time.Now().Add(s.pace.next())
	}
	return true
}

// codeOf is the status code that a call would have had for the reason of a single message.
func codeOf(failure messageFailure) codes.Code {
	switch {
	case failure.reason == "QUEUE_FULL" || failure.reason == "STORAGE_FULL" || failure.reason == reasonKeysFull:
		return codes.ResourceExhausted
	case failure.retriable:
		return codes.Unavailable
	default:
		return codes.InvalidArgument
	}
}

func (s *publishStream) reopened() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reopen
}

// onTheirWay has the messages of all batches that were not answered.
func (s *publishStream) onTheirWay() []*Confirm {
	s.mu.Lock()
	defer s.mu.Unlock()
	var confirms []*Confirm
	for _, batch := range s.sent {
		confirms = append(confirms, batch.confirms...)
	}
	return confirms
}
