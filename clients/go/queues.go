package boltq

import (
	"context"
	"errors"
	"io"
	"iter"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	queuev1 "github.com/boltq/boltq/clients/go/gen/boltq/queue/v1"
)

// ReadOption configures calls that only look at something.
type ReadOption func(*reading)

type reading struct{ linearizable bool }

// Linearizable makes an answer have everything in it that was answered before, whichever node is asked. Without it a node
// answers from what it has, which may be a little older.
func Linearizable() ReadOption {
	return func(r *reading) { r.linearizable = true }
}

func linearizable(opts []ReadOption) bool {
	var how reading
	for _, option := range opts {
		option(&how)
	}
	return how.linearizable
}

// QueueSetting is a setting of a queue, for CreateQueue and UpdateQueue. docs/queues.md says what they do.
type QueueSetting func(*queueSettings)

type queueSettings struct {
	settings queuev1.QueueSettings
	// mask names what is to change.
	mask []string
}

func setting(name string, set func(*queuev1.QueueSettings)) QueueSetting {
	return func(s *queueSettings) {
		set(&s.settings)
		s.mask = append(s.mask, name)
	}
}

// MaxRetry is how many deliveries follow the first before a message becomes a dead letter, 0 to 1,000.
func MaxRetry(count uint32) QueueSetting {
	return setting("max_retry", func(s *queuev1.QueueSettings) { s.MaxRetry = &count })
}

// RetryBackoff is the pause after the first failure, 0 to 1 h; it doubles with each further one.
func RetryBackoff(pause time.Duration) QueueSetting {
	return setting("retry_backoff", func(s *queuev1.QueueSettings) { s.RetryBackoff = durationpb.New(pause) })
}

// RetryBackoffMax is the longest pause, 0 to 24 h.
func RetryBackoffMax(pause time.Duration) QueueSetting {
	return setting("retry_backoff_max", func(s *queuev1.QueueSettings) { s.RetryBackoffMax = durationpb.New(pause) })
}

// AckTimeout is the length of a lease for which the consumer asks no other, 10 ms to 7 days.
func AckTimeout(lease time.Duration) QueueSetting {
	return setting("ack_timeout", func(s *queuev1.QueueSettings) { s.AckTimeout = durationpb.New(lease) })
}

// DefaultTTL is the time to live of messages that are published without one, 1 ms to 10 years.
func DefaultTTL(ttl time.Duration) QueueSetting {
	return setting("default_ttl", func(s *queuev1.QueueSettings) { s.DefaultTtl = durationpb.New(ttl) })
}

// MaxLength is how many messages the queue may hold, at least 1.
func MaxLength(messages uint64) QueueSetting {
	return setting("max_length", func(s *queuev1.QueueSettings) { s.MaxLength = &messages })
}

// MaxLengthBytes is how many bytes of messages the queue may hold, at least 1.
func MaxLengthBytes(bytes uint64) QueueSetting {
	return setting("max_length_bytes", func(s *queuev1.QueueSettings) { s.MaxLengthBytes = &bytes })
}

// DropOldest says whether a full queue discards its oldest messages instead of refusing new ones.
func DropOldest(drop bool) QueueSetting {
	overflow := queuev1.OverflowPolicy_OVERFLOW_POLICY_REJECT
	if drop {
		overflow = queuev1.OverflowPolicy_OVERFLOW_POLICY_DROP_OLDEST
	}
	return setting("overflow", func(s *queuev1.QueueSettings) { s.Overflow = overflow })
}

// DeadLetterQueue is where messages go that failed too often.
func DeadLetterQueue(queue string) QueueSetting {
	return setting("dead_letter_queue", func(s *queuev1.QueueSettings) { s.DeadLetterQueue = queue })
}

// DedupTTL is how long idempotency keys are remembered, 1 s to 7 days.
func DedupTTL(ttl time.Duration) QueueSetting {
	return setting("dedup_ttl", func(s *queuev1.QueueSettings) { s.DedupTtl = durationpb.New(ttl) })
}

// SingleActiveConsumer says whether one consumer at a time gets messages.
func SingleActiveConsumer(single bool) QueueSetting {
	return setting("single_active_consumer", func(s *queuev1.QueueSettings) { s.SingleActiveConsumer = single })
}

// Paused says whether nothing is delivered for now.
func Paused(paused bool) QueueSetting {
	return setting("paused", func(s *queuev1.QueueSettings) { s.Paused = paused })
}

// ServerDefault leaves settings to the server again; they have the names of the fields of QueueSettings, "max_retry" for
// example. Only for UpdateQueue.
func ServerDefault(names ...string) QueueSetting {
	return func(s *queueSettings) { s.mask = append(s.mask, names...) }
}

func settingsOf(settings []QueueSetting) *queueSettings {
	all := new(queueSettings)
	for _, setting := range settings {
		setting(all)
	}
	return all
}

// CreateQueue creates a queue with settings of its own. Publishing and consuming create queues too, so nobody has to. It says
// whether the queue is new; one that is there with the same settings stays as it is, and [ErrAlreadyExists] means others.
func (c *Client) CreateQueue(ctx context.Context, queue string, settings ...QueueSetting) (*queuev1.Queue, bool, error) {
	answer, err := invoke(ctx, c, always, queues, queuev1.QueueServiceClient.CreateQueue, &queuev1.CreateQueueRequest{Queue: queue, Settings: &settingsOf(settings).settings})
	return answer.GetQueue(), answer.GetCreated(), err
}

// UpdateQueue changes these settings of a queue, and no others.
func (c *Client) UpdateQueue(ctx context.Context, queue string, settings ...QueueSetting) (*queuev1.Queue, error) {
	all := settingsOf(settings)
	answer, err := invoke(ctx, c, always, queues, queuev1.QueueServiceClient.UpdateQueue, &queuev1.UpdateQueueRequest{
		Queue: queue, Settings: &all.settings, UpdateMask: &fieldmaskpb.FieldMask{Paths: all.mask},
	})
	return answer.GetQueue(), err
}

// DeleteQueue deletes a queue with everything in it, and says how many messages went with it.
func (c *Client) DeleteQueue(ctx context.Context, queue string) (uint64, error) {
	return c.deleteQueue(ctx, &queuev1.DeleteQueueRequest{Queue: queue})
}

// DeleteEmptyQueue deletes a queue if there is no message in it.
func (c *Client) DeleteEmptyQueue(ctx context.Context, queue string) error {
	_, err := c.deleteQueue(ctx, &queuev1.DeleteQueueRequest{Queue: queue, IfEmpty: true})
	return err
}

func (c *Client) deleteQueue(ctx context.Context, request *queuev1.DeleteQueueRequest) (uint64, error) {
	answer, err := invoke(ctx, c, always, queues, queuev1.QueueServiceClient.DeleteQueue, request)
	return answer.GetDeletedMessages(), err
}

// GetQueue has the figures and settings of a queue.
func (c *Client) GetQueue(ctx context.Context, queue string, opts ...ReadOption) (*queuev1.Queue, error) {
	answer, err := invoke(ctx, c, always, queues, queuev1.QueueServiceClient.GetQueue, &queuev1.GetQueueRequest{Queue: queue, Linearizable: linearizable(opts)})
	return answer.GetQueue(), err
}

// Queues yields the queues whose names begin with a prefix, by name. An error is the last that it yields.
func (c *Client) Queues(ctx context.Context, prefix string, opts ...ReadOption) iter.Seq2[*queuev1.Queue, error] {
	return pages(func(token string) ([]*queuev1.Queue, string, error) {
		answer, err := invoke(ctx, c, always, queues, queuev1.QueueServiceClient.ListQueues, &queuev1.ListQueuesRequest{PageToken: token, Prefix: prefix, Linearizable: linearizable(opts)})
		return answer.GetQueues(), answer.GetNextPageToken(), err
	})
}

// pages yields the items of one page after the other.
func pages[T any](page func(token string) ([]T, string, error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for token := ""; ; {
			items, next, err := page(token)
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			for _, item := range items {
				if !yield(item, nil) {
					return
				}
			}
			if next == "" {
				return
			}
			token = next
		}
	}
}

// Peek shows up to 1,000 messages that are ready, in the order of delivery, without leasing them.
func (c *Client) Peek(ctx context.Context, queue string, count int, opts ...ReadOption) ([]*Delivery, error) {
	answer, err := invoke(ctx, c, always, queues, queuev1.QueueServiceClient.Peek, &queuev1.PeekRequest{Queue: queue, MaxMessages: uint32(count), Linearizable: linearizable(opts)})
	return c.deliveries(queue, answer.GetDeliveries()), err
}

// PurgeQueue removes the ready messages of a queue, and says how many.
func (c *Client) PurgeQueue(ctx context.Context, queue string) (uint64, error) {
	answer, err := invoke(ctx, c, always, queues, queuev1.QueueServiceClient.PurgeQueue, &queuev1.PurgeQueueRequest{Queue: queue})
	return answer.GetPurged(), err
}

// PurgeDeadLetters removes the dead letters of a queue that are ready, and says how many.
func (c *Client) PurgeDeadLetters(ctx context.Context, queue string) (uint64, error) {
	answer, err := invoke(ctx, c, always, queues, queuev1.QueueServiceClient.PurgeDeadLetters, &queuev1.PurgeDeadLettersRequest{Queue: queue})
	return answer.GetPurged(), err
}

// Redrive says which dead letters are sent back, and how fast.
type Redrive struct {
	// Headers are those that a message has to have.
	Headers map[string]string
	// MaxMessages bounds their number; 0: no bound.
	MaxMessages uint64
	// MaxPerSecond bounds how fast; 0: no bound.
	MaxPerSecond uint32
}

// RedriveDeadLetters sends dead letters back to their queue, and says how many, also if it fails on the way.
func (c *Client) RedriveDeadLetters(ctx context.Context, queue string, which Redrive) (uint64, error) {
	ctx, cancel := c.bound(ctx)
	defer cancel()
	var total uint64
	err := c.retry(ctx, ifNotApplied, func(ctx context.Context, conn grpc.ClientConnInterface) error {
		request := &queuev1.RedriveDeadLettersRequest{
			Queue: queue, Headers: which.Headers, MaxMessages: which.MaxMessages, MaxPerSecond: which.MaxPerSecond,
		}
		if which.MaxMessages > 0 {
			if total >= which.MaxMessages {
				return nil
			}
			request.MaxMessages -= total
		}
		redriven, err := redrive(ctx, conn, request)
		total += redriven
		return err
	})
	return total, err
}

func redrive(ctx context.Context, conn grpc.ClientConnInterface, request *queuev1.RedriveDeadLettersRequest) (uint64, error) {
	stream, err := queues(conn).RedriveDeadLetters(ctx, request)
	if err != nil {
		return 0, err
	}
	var redriven uint64
	for {
		response, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return redriven, nil
		}
		if err != nil {
			return redriven, err
		}
		redriven = response.Redriven
	}
}

// Scheduled is a message that is not due yet.
type Scheduled struct {
	ID        MessageID
	DeliverAt time.Time
	Priority  int
}

// Scheduled yields the messages of a queue that are not due yet, in the order of their due times. An error is the last that
// it yields.
func (c *Client) Scheduled(ctx context.Context, queue string) iter.Seq2[Scheduled, error] {
	return pages(func(token string) ([]Scheduled, string, error) {
		answer, err := invoke(ctx, c, always, queues, queuev1.QueueServiceClient.ListScheduled, &queuev1.ListScheduledRequest{Queue: queue, PageToken: token})
		messages := make([]Scheduled, len(answer.GetMessages()))
		for index, message := range answer.GetMessages() {
			messages[index] = Scheduled{messageID(message.MessageId), timeOf(message.DeliverAt), int(message.Priority)}
		}
		return messages, answer.GetNextPageToken(), err
	})
}

// CancelScheduled removes up to 1,000 messages that are not due yet. If some could not be removed the error is a [BatchError].
func (c *Client) CancelScheduled(ctx context.Context, ids ...MessageID) error {
	request := &queuev1.CancelScheduledRequest{MessageIds: make([][]byte, len(ids))}
	for index, id := range ids {
		request.MessageIds[index] = id[:]
	}
	answer, err := invoke(ctx, c, ifNotApplied, queues, queuev1.QueueServiceClient.CancelScheduled, request)
	if err != nil {
		return err
	}
	failures := make(map[int]error)
	for _, failure := range answer.Failures {
		for index, id := range ids {
			if string(id[:]) == string(failure.Token) {
				failures[index] = settleError(failure.Reason)
			}
		}
	}
	return batchError(failures)
}

// Reschedule gives a message that is not due yet another due time, which may be past.
func (c *Client) Reschedule(ctx context.Context, id MessageID, due time.Time) error {
	return c.reschedule(ctx, &queuev1.RescheduleRequest{
		MessageId: id[:], Due: &queuev1.RescheduleRequest_DeliverAt{DeliverAt: timestamppb.New(due)},
	})
}

// RescheduleAfter makes a message due so long from now, by the clock of the server.
func (c *Client) RescheduleAfter(ctx context.Context, id MessageID, delay time.Duration) error {
	return c.reschedule(ctx, &queuev1.RescheduleRequest{
		MessageId: id[:], Due: &queuev1.RescheduleRequest_Delay{Delay: durationpb.New(delay)},
	})
}

func (c *Client) reschedule(ctx context.Context, request *queuev1.RescheduleRequest) error {
	_, err := invoke(ctx, c, always, queues, queuev1.QueueServiceClient.Reschedule, request)
	return err
}
