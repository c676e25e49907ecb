package boltq

import (
	"context"
	"errors"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	queuev1 "github.com/boltq/boltq/clients/go/gen/boltq/queue/v1"
)

// How deliveries are settled: those that are to be settled in the same way at the same time go into one request. While a
// request is on its way others gather, and go with the next one. So a single one waits for nothing, and many cost few
// requests. They are calls of their own and not part of a subscription, so that they succeed also when its stream has just
// broken: the server takes an acknowledgement as long as nobody else holds the message.

type settlementKind int

const (
	ack settlementKind = iota
	nack
	extend
)

// settlement says what is to become of a message; those that are equal share requests.
type settlement struct {
	kind settlementKind
	// duration is the delay of a nack, and the lease of an extension.
	duration   time.Duration
	hasDelay   bool
	deadLetter bool
	// release gives back without a failed attempt.
	release bool
}

// settler gathers settlements of a client.
type settler struct {
	client *Client

	mu sync.Mutex
	// waiting is there for each settlement of which a request is on its way.
	waiting map[settlement][]*toSettle
}

// toSettle is one token whose settlement is asked for.
type toSettle struct {
	token Token
	// then is called once with the outcome; it must not block.
	then func(error)
}

func newSettler(client *Client) *settler {
	return &settler{client: client, waiting: make(map[settlement][]*toSettle)}
}

// settle waits for the outcome of one settlement.
func (s *settler) settle(ctx context.Context, how settlement, token Token) error {
	outcome := make(chan error, 1)
	s.begin(how, token, func(err error) { outcome <- err })
	select {
	case err := <-outcome:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// settleMany waits for the outcomes of many.
func (s *settler) settleMany(ctx context.Context, how settlement, tokens []Token) error {
	type outcome struct {
		index int
		err   error
	}
	outcomes := make(chan outcome, len(tokens))
	for index, token := range tokens {
		s.begin(how, token, func(err error) { outcomes <- outcome{index, err} })
	}
	failures := make(map[int]error)
	for range tokens {
		select {
		case one := <-outcomes:
			if one.err != nil {
				failures[one.index] = one.err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return batchError(failures)
}

// begin asks for a settlement and calls then with its outcome.
func (s *settler) begin(how settlement, token Token, then func(error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	gathered, running := s.waiting[how]
	s.waiting[how] = append(gathered, &toSettle{token: token, then: then})
	if !running {
		go s.run(how)
	}
}

// run sends requests until nothing of this kind waits.
func (s *settler) run(how settlement) {
	for {
		s.mu.Lock()
		gathered := s.waiting[how]
		if len(gathered) == 0 {
			delete(s.waiting, how)
			s.mu.Unlock()
			return
		}
		portion := gathered[:min(len(gathered), batchMessagesMax)]
		s.waiting[how] = gathered[len(portion):]
		s.mu.Unlock()
		s.send(how, portion)
	}
}

// send settles a portion with one request.
func (s *settler) send(how settlement, portion []*toSettle) {
	tokens := make([][]byte, len(portion))
	for index, one := range portion {
		tokens[index] = one.token
	}
	var failures []*queuev1.SettleFailure
	// Whether an attempt may have been carried out before the one that was answered.
	unsure := false
	err := s.client.retry(s.client.life, always, func(ctx context.Context, conn grpc.ClientConnInterface) error {
		var err error
		failures, err = how.request(ctx, queues(conn), tokens)
		if err != nil {
			unsure = unsure || newError(err, true).OutcomeUnknown
		}
		return err
	})
	reasons := make(map[string]queuev1.SettleFailureReason, len(failures))
	for _, failure := range failures {
		reasons[string(failure.Token)] = failure.Reason
	}
	for _, one := range portion {
		reason, refused := reasons[string(one.token)]
		switch {
		case err != nil:
			one.then(err)
		case !refused, unsure && how.kind != extend && reason == queuev1.SettleFailureReason_SETTLE_FAILURE_REASON_NOT_FOUND:
			// What an attempt has settled of which nobody knew is not there any more.
			one.then(nil)
		default:
			one.then(settleError(reason))
		}
	}
}

func (s settlement) request(ctx context.Context, queues queuev1.QueueServiceClient, tokens [][]byte) ([]*queuev1.SettleFailure, error) {
	switch s.kind {
	case ack:
		answer, err := queues.Ack(ctx, &queuev1.AckRequest{DeliveryTokens: tokens})
		return answer.GetFailures(), err
	case nack:
		request := &queuev1.NackRequest{DeliveryTokens: tokens, DeadLetter: s.deadLetter, Release: s.release}
		if s.hasDelay {
			request.Delay = durationpb.New(s.duration)
		}
		answer, err := queues.Nack(ctx, request)
		return answer.GetFailures(), err
	default:
		answer, err := queues.ExtendLease(ctx, &queuev1.ExtendLeaseRequest{
			DeliveryTokens: tokens, Lease: durationpb.New(s.duration),
		})
		return answer.GetFailures(), err
	}
}

// settleError is the failure of one settlement; its reason is the name in the proto.
func settleError(why queuev1.SettleFailureReason) *Error {
	switch why {
	case queuev1.SettleFailureReason_SETTLE_FAILURE_REASON_MALFORMED:
		return &Error{Code: codes.InvalidArgument, Reason: "MALFORMED", Message: "not a token or id of this server"}
	case queuev1.SettleFailureReason_SETTLE_FAILURE_REASON_NOT_FOUND:
		return &Error{Code: codes.NotFound, Reason: "NOT_FOUND", Message: "unknown, settled before, expired or purged"}
	case queuev1.SettleFailureReason_SETTLE_FAILURE_REASON_LEASE_LOST:
		return &Error{Code: codes.FailedPrecondition, Reason: "LEASE_LOST", Message: "somebody else holds the message now"}
	case queuev1.SettleFailureReason_SETTLE_FAILURE_REASON_NOT_SCHEDULED:
		return &Error{Code: codes.FailedPrecondition, Reason: "NOT_SCHEDULED", Message: "it is due, and can be consumed only"}
	case queuev1.SettleFailureReason_SETTLE_FAILURE_REASON_NOT_SETTLED:
		return &Error{
			Code: codes.Unavailable, Reason: "NOT_SETTLED", Message: "it was not stored; the message comes again", retriable: true,
		}
	default:
		return &Error{Code: codes.Unknown, Reason: why.String(), Message: "not settled"}
	}
}

// settledBefore says whether a message is not there to be settled any more, or not for this holder.
func settledBefore(err error) bool {
	return errors.Is(err, ErrNotFound) || errors.Is(err, ErrLeaseLost)
}
