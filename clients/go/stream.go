package boltq

import (
	"context"
	"errors"
	"io"
	"iter"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// Stream is what a subscription delivers, one item after the other. It connects again by itself for as long as it lives,
// so it ends only with its context, with Close, or with a failure that does not pass. One goroutine reads at a
// time. What was not read waits in the server, but for one response and what the window of the connection holds (see
// WithWindow).
type Stream[T any] struct {
	client *Client
	// open begins one stream of gRPC.
	open func(context.Context, grpc.ClientConnInterface) (source[T], error)
	// again has what to report when a new stream takes the place of one that broke; it may be nil.
	again func() []T

	ctx    context.Context
	cancel context.CancelCauseFunc
	unbind context.CancelFunc

	source   source[T]
	endpoint *endpoint
	// stop ends the present stream of gRPC.
	stop  context.CancelFunc
	pace  *pace
	items []T
	err   error
}

// source is one stream of gRPC.
type source[T any] struct {
	header  func() (metadata.MD, error)
	receive func() ([]T, error)
}

// subscribe opens a stream and returns when a server has accepted it.
func subscribe[T any](
	ctx context.Context, client *Client, open func(context.Context, grpc.ClientConnInterface) (source[T], error), again func() []T,
) (*Stream[T], error) {
	s := &Stream[T]{client: client, open: open, again: again}
	bound, unbind := client.bound(ctx)
	s.unbind = unbind
	s.ctx, s.cancel = context.WithCancelCause(bound)
	s.pace = client.newPace(client.options.retryTimeout)
	if err := s.connect(); err != nil {
		s.Close()
		return nil, err
	}
	s.pace = client.newPace(forever)
	return s, nil
}

// Next waits for the next item. An error is final.
func (s *Stream[T]) Next() (T, error) {
	for len(s.items) == 0 {
		if s.err == nil {
			s.err = s.receive()
		}
		if s.err != nil {
			s.Close()
			var none T
			return none, s.err
		}
	}
	item := s.items[0]
	var none T
	s.items[0] = none
	s.items = s.items[1:]
	return item, nil
}

// All yields one item after the other, and an error as the last. It closes the stream when the loop is left.
func (s *Stream[T]) All() iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		defer s.Close()
		for {
			item, err := s.Next()
			if !yield(item, err) || err != nil {
				return
			}
		}
	}
}

// Close ends the stream; a Next that waits fails with [ErrClosed]. What a queue has delivered and what is not settled is
// ready for others at once.
func (s *Stream[T]) Close() {
	s.cancel(ErrClosed)
	s.unbind()
}

// receive waits for the next response, on a new stream if the present one breaks.
func (s *Stream[T]) receive() error {
	items, err := s.source.receive()
	if err == nil {
		s.items = items
		s.pace.reset()
		return nil
	}
	if err := s.broke(err); err != nil {
		return err
	}
	if err := s.connect(); err != nil {
		return err
	}
	if s.again != nil {
		s.items = s.again()
	}
	return nil
}

// connect opens a stream of gRPC and waits until the server has accepted it.
func (s *Stream[T]) connect() error {
	for {
		endpoint, err := s.client.endpoints.pick()
		if err != nil {
			return err
		}
		s.endpoint = endpoint
		attempt, stop := context.WithCancel(s.ctx)
		s.stop = stop
		s.source, err = s.open(attempt, endpoint.conn)
		if err == nil {
			var header metadata.MD
			header, err = s.source.header()
			if err == nil && header == nil {
				// It was refused; the reason is where an answer would be.
				s.items, err = s.source.receive()
			}
		}
		if err == nil {
			s.client.endpoints.answered.Store(true)
			return nil
		}
		if err := s.broke(err); err != nil {
			return err
		}
	}
}

// broke is told why a stream of gRPC ended, and waits until it is time for another one. The error is final.
func (s *Stream[T]) broke(err error) error {
	s.stop()
	failure := s.pace.judge(s.client.streamFailure(s.ctx, s.endpoint, err))
	if !failure.repeats {
		return failure
	}
	if err := s.pace.wait(s.ctx, failure); err != nil {
		return failure.because(err)
	}
	return nil
}

// streamFailure is the failure that ended a stream of deliveries. The server has no reason to end one in good order, so
// that is a failure too.
func (c *Client) streamFailure(ctx context.Context, from *endpoint, err error) *Error {
	if errors.Is(err, io.EOF) {
		err = passing("the stream ended")
	}
	failure := c.failure(ctx, from, err, true)
	failure.OutcomeUnknown = false
	return failure
}
