package boltq

import (
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc"

	queuev1 "github.com/boltq/boltq/clients/go/gen/boltq/queue/v1"
)

// Delivery is a message of a queue and the right to settle it, for as long as the lease lasts. Settle it with Ack or Nack;
// otherwise it comes again, to whoever asks then.
type Delivery struct {
	ID          MessageID
	Queue       string
	Payload     []byte
	Headers     map[string]string
	ContentType string
	Priority    int
	// Attempts is how often it failed so far, 0 at the first delivery.
	Attempts    int
	PublishedAt time.Time
	// ExpiresAt is zero if it does not expire.
	ExpiresAt time.Time
	// DeliverAt is when it was due; zero without a delay.
	DeliverAt   time.Time
	OrderingKey string

	client *Client
	token  Token
}

// Token names the lease of a delivery. It is opaque, and as good in another process.
type Token []byte

func (c *Client) delivery(queue string, wire *queuev1.Delivery) *Delivery {
	return &Delivery{
		ID:          messageID(wire.MessageId),
		Queue:       queue,
		Payload:     wire.Payload,
		Headers:     wire.Headers,
		ContentType: wire.ContentType,
		Priority:    int(wire.Priority),
		Attempts:    int(wire.Attempts),
		PublishedAt: timeOf(wire.PublishedAt),
		ExpiresAt:   timeOf(wire.ExpiresAt),
		DeliverAt:   timeOf(wire.DeliverAt),
		OrderingKey: wire.OrderingKey,
		client:      c,
		token:       wire.DeliveryToken,
	}
}

func (c *Client) deliveries(queue string, wire []*queuev1.Delivery) []*Delivery {
	deliveries := make([]*Delivery, len(wire))
	for index, one := range wire {
		deliveries[index] = c.delivery(queue, one)
	}
	return deliveries
}

// Token returns what Client.Ack, Client.Nack and Client.Extend take. A message that Peek has shown has none.
func (d *Delivery) Token() Token { return d.token }

// Ack says that the message is done. It returns when that is stored. [ErrNotFound] means that it was settled or has
// expired meanwhile, [ErrLeaseLost] that somebody else holds it.
func (d *Delivery) Ack(ctx context.Context) error {
	return d.client.settler.settle(ctx, settlement{kind: ack}, d.token)
}

// Nack gives the message back as failed: it comes again after a pause, or is moved to the dead letters when it has failed
// too often.
func (d *Delivery) Nack(ctx context.Context, opts ...NackOption) error {
	return d.client.settler.settle(ctx, nackOf(opts), d.token)
}

// Release gives the message back as it came, for who has not worked on it: it is ready for others at once, at its old
// place, and no failed attempt is counted.
func (d *Delivery) Release(ctx context.Context) error {
	return d.client.settler.settle(ctx, released, d.token)
}

// Extend makes the lease end so long from now, 1 s to 12 h.
func (d *Delivery) Extend(ctx context.Context, lease time.Duration) error {
	return d.client.settler.settle(ctx, settlement{kind: extend, duration: lease}, d.token)
}

// NackOption says what becomes of messages that are given back.
type NackOption func(*settlement)

// WithDelay is the pause until the next delivery, 0 to 24 h, instead of the backoff of the server.
func WithDelay(delay time.Duration) NackOption {
	return func(s *settlement) { s.duration, s.hasDelay = delay, true }
}

// WithDeadLetter moves the message to the dead letters at once.
func WithDeadLetter() NackOption {
	return func(s *settlement) { s.deadLetter = true }
}

var released = settlement{kind: nack, release: true}

func nackOf(opts []NackOption) settlement {
	how := settlement{kind: nack}
	for _, option := range opts {
		option(&how)
	}
	return how
}

// Ack is Delivery.Ack for many, by their tokens. If some were not settled the error is a [BatchError]. Up to 1,000 go into
// a request.
func (c *Client) Ack(ctx context.Context, tokens ...Token) error {
	return c.settler.settleMany(ctx, settlement{kind: ack}, tokens)
}

// Nack is Delivery.Nack for many.
func (c *Client) Nack(ctx context.Context, tokens []Token, opts ...NackOption) error {
	return c.settler.settleMany(ctx, nackOf(opts), tokens)
}

// Release is Delivery.Release for many.
func (c *Client) Release(ctx context.Context, tokens ...Token) error {
	return c.settler.settleMany(ctx, released, tokens)
}

// Extend is Delivery.Extend for many.
func (c *Client) Extend(ctx context.Context, tokens []Token, lease time.Duration) error {
	return c.settler.settleMany(ctx, settlement{kind: extend, duration: lease}, tokens)
}

// ConsumeOption configures Consume, Subscribe and workers.
type ConsumeOption func(*consuming)

type consuming struct {
	maxMessages int
	wait        time.Duration
	lease       time.Duration
	maxInFlight int
	maxBatch    int
}

func consumingOf(opts []ConsumeOption) consuming {
	var how consuming
	for _, option := range opts {
		option(&how)
	}
	return how
}

// WithMaxMessages is how many messages Consume returns at most, 1 to 1,000. Default 1.
func WithMaxMessages(count int) ConsumeOption {
	return func(c *consuming) { c.maxMessages = count }
}

// WithWait is how long Consume waits for the first message, up to 60 s. Default: not at all.
func WithWait(wait time.Duration) ConsumeOption {
	return func(c *consuming) { c.wait = wait }
}

// WithLease is how long nobody else gets the messages, 1 s to 12 h. Default: what the queue says.
func WithLease(lease time.Duration) ConsumeOption {
	return func(c *consuming) { c.lease = lease }
}

// WithMaxInFlight is how many messages Subscribe delivers before some are settled, or how many of a topic may wait for the
// client; 1 to 100,000. Default 256.
func WithMaxInFlight(count int) ConsumeOption {
	return func(c *consuming) { c.maxInFlight = count }
}

// Consume leases messages that are ready, or waits for the first. It returns none if there was none in time. The leases
// end by settlement or time only, whatever becomes of the client.
func (c *Client) Consume(ctx context.Context, queue string, opts ...ConsumeOption) ([]*Delivery, error) {
	how := consumingOf(opts)
	answer, err := invoke(ctx, c, always, queues, queuev1.QueueServiceClient.Consume, &queuev1.ConsumeRequest{
		Queue:       queue,
		MaxMessages: uint32(how.maxMessages),
		Wait:        duration(how.wait),
		Lease:       duration(how.lease),
	})
	return c.deliveries(queue, answer.GetDeliveries()), err
}

// Subscribe delivers messages of a queue as they come, until the context ends. When it ends, what was not settled is ready
// for others at once. After a broken connection it goes on with a new one: what was not settled before may then come
// again.
//
//	deliveries, err := client.Subscribe(ctx, "jobs")
//	if err != nil {
//		return err
//	}
//	for delivery, err := range deliveries.All() {
//		if err != nil {
//			return err
//		}
//		…
//	}
func (c *Client) Subscribe(ctx context.Context, queue string, opts ...ConsumeOption) (*Stream[*Delivery], error) {
	how := consumingOf(opts)
	return subscribe(ctx, c, func(ctx context.Context, conn grpc.ClientConnInterface) (source[*Delivery], error) {
		stream, err := openDeliveries(ctx, conn, queue, how)
		if err != nil {
			return source[*Delivery]{}, err
		}
		return source[*Delivery]{header: stream.Header, receive: func() ([]*Delivery, error) {
			response, err := stream.Recv()
			return c.deliveries(queue, response.GetDeliveries()), err
		}}, nil
	}, nil)
}

// openDeliveries begins one stream of deliveries.
func openDeliveries(
	ctx context.Context, conn grpc.ClientConnInterface, queue string, how consuming,
) (queuev1.QueueService_SubscribeClient, error) {
	stream, err := queues(conn).Subscribe(ctx)
	if err != nil {
		return nil, err
	}
	init := &queuev1.SubscribeInit{
		Queue:       queue,
		MaxInFlight: uint32(how.maxInFlight),
		MaxBatch:    uint32(how.maxBatch),
		Lease:       duration(how.lease),
	}
	// If the stream has failed, it says why when it is read. The side of the client stays open: it ends the stream.
	err = stream.Send(&queuev1.SubscribeRequest{Request: &queuev1.SubscribeRequest_Init{Init: init}})
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return stream, nil
}
