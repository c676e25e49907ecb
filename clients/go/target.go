package boltq

import (
	"context"

	"google.golang.org/grpc"

	queuev1 "github.com/boltq/boltq/clients/go/gen/boltq/queue/v1"
	topicv1 "github.com/boltq/boltq/clients/go/gen/boltq/topic/v1"
	typev1 "github.com/boltq/boltq/clients/go/gen/boltq/type/v1"
)

// target is where a publisher publishes to. The services for queues and topics have streams that differ in their types alone.
type target interface {
	// what names the kind: "queue" or "topic".
	what() string
	// open begins a stream.
	open(ctx context.Context, conn grpc.ClientConnInterface) (confirming, error)
}

// confirming is one stream of publishes, with an answer for each batch, in their order.
type confirming interface {
	send(messages []*typev1.Message) error
	receive() (answered, error)
	closeSend() error
}

// answered says what became of a batch.
type answered struct {
	// ids has one for each message, in order.
	ids      [][]byte
	failures []messageFailure
}

// messageFailure says why a message of a batch was refused; index is its position.
type messageFailure struct {
	index           int
	reason, message string
	retriable       bool
}

// wireFailure is what both services call a failure.
type wireFailure interface {
	GetIndex() uint32
	GetReason() string
	GetMessage() string
	GetRetriable() bool
}

func answeredOf[Failure wireFailure](ids [][]byte, failures []Failure) answered {
	answer := answered{ids: ids, failures: make([]messageFailure, len(failures))}
	for at, failure := range failures {
		answer.failures[at] = messageFailure{
			int(failure.GetIndex()), failure.GetReason(), failure.GetMessage(), failure.GetRetriable(),
		}
	}
	return answer
}

// toQueue publishes to a queue.
type toQueue struct {
	name  string
	level AckLevel
}

func (toQueue) what() string { return "queue" }

func (t toQueue) open(ctx context.Context, conn grpc.ClientConnInterface) (confirming, error) {
	stream, err := queues(conn).PublishStream(ctx)
	return &queueStream{stream, t.name, queuev1.AckLevel(t.level)}, err
}

type queueStream struct {
	stream grpc.BidiStreamingClient[queuev1.PublishStreamRequest, queuev1.PublishStreamResponse]
	name   string
	level  queuev1.AckLevel
}

func (s *queueStream) send(messages []*typev1.Message) error {
	request := &queuev1.PublishStreamRequest{Queue: s.name, Messages: messages, AckLevel: s.level}
	// It was named in the first request.
	s.name = ""
	return s.stream.Send(request)
}

func (s *queueStream) receive() (answered, error) {
	response, err := s.stream.Recv()
	return answeredOf(response.GetMessageIds(), response.GetFailures()), err
}

func (s *queueStream) closeSend() error { return s.stream.CloseSend() }

// toTopic publishes to a topic.
type toTopic struct{ name string }

func (toTopic) what() string { return "topic" }

func (t toTopic) open(ctx context.Context, conn grpc.ClientConnInterface) (confirming, error) {
	stream, err := topics(conn).PublishStream(ctx)
	return &topicStream{stream, t.name}, err
}

type topicStream struct {
	stream grpc.BidiStreamingClient[topicv1.PublishStreamRequest, topicv1.PublishStreamResponse]
	name   string
}

func (s *topicStream) send(messages []*typev1.Message) error {
	request := &topicv1.PublishStreamRequest{Topic: s.name, Messages: messages}
	// It was named in the first request.
	s.name = ""
	return s.stream.Send(request)
}

func (s *topicStream) receive() (answered, error) {
	response, err := s.stream.Recv()
	return answeredOf(response.GetMessageIds(), response.GetFailures()), err
}

func (s *topicStream) closeSend() error { return s.stream.CloseSend() }
