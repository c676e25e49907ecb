package boltq

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	queuev1 "github.com/boltq/boltq/clients/go/gen/boltq/queue/v1"
	typev1 "github.com/boltq/boltq/clients/go/gen/boltq/type/v1"
)

const (
	// What the server takes in one request.
	batchMessagesMax = 1_000
	requestBytesMax  = 4 << 20
	// Encoded bytes after which no more messages join a request: larger ones gain nothing.
	batchBytes = 1 << 20
	// For the queue's name, lengths and tags around the messages of a request.
	requestOverheadBytes = 1 << 10
	messageOverheadBytes = 8
)

// AckLevel says how much the confirmation of a publish waits for; docs/ack-levels.md has what each survives.
type AckLevel int32

const (
	// AckQuorum waits for a majority of the nodes. It is the default, and the only level that every server takes.
	AckQuorum = AckLevel(queuev1.AckLevel_ACK_LEVEL_QUORUM)
	// AckLeader waits for the log of the leader. There are no ids.
	AckLeader = AckLevel(queuev1.AckLevel_ACK_LEVEL_LEADER)
	// AckNone waits until the leader has it in memory. There are no ids.
	AckNone = AckLevel(queuev1.AckLevel_ACK_LEVEL_NONE)
)

// PublisherOption configures a Publisher.
type PublisherOption func(*Publisher)

// WithMaxPending bounds what is published and not confirmed: so many messages, and so many bytes of them. Publish waits while
// there are more. Defaults 10,000 and 16 MiB.
func WithMaxPending(messages, bytes int) PublisherOption {
	return func(p *Publisher) { p.budget = newBudget(max(1, messages), max(1, bytes)) }
}

// WithAckLevel says how much confirmations wait for. Topics know AckQuorum alone.
func WithAckLevel(level AckLevel) PublisherOption {
	return func(p *Publisher) { p.level = level }
}

// Publisher publishes a stream of messages to one queue or topic. Each is confirmed by itself; many are on their way at a time, so
// it is much quicker than one Publish after the other. When the connection breaks, or another node leads, it sends again
// what was not confirmed, with keys that keep the server from storing a message twice. Messages with an ordering key
// keep their order through that. Use it from any number of goroutines, and Close it.
type Publisher struct {
	client *Client
	// name is that of the queue or topic.
	name   string
	target target
	level  AckLevel
	budget *budget

	life context.Context
	end  context.CancelCauseFunc
	// wake says that there is something to send, or nothing more to come.
	wake chan struct{}
	done chan struct{}

	mu sync.Mutex
	// waiting is not sent, the oldest first.
	waiting []*Confirm
	// published counts messages, and numbers them.
	published uint64
	// outstanding is not confirmed: what waits and what is on its way.
	outstanding int
	// idle is closed when nothing is outstanding; nil if nobody waits for that.
	idle   chan struct{}
	closed bool
}

// Confirm is the outcome of one publish, once it is known.
type Confirm struct {
	done chan struct{}
	id   MessageID
	err  error

	message   *typev1.Message
	bytes     int
	since     time.Time
	generated bool
	// unknown is set once nobody knows whether it was stored; no later failure changes that.
	unknown bool
	number  uint64
}

// Done is closed when the outcome is known.
func (c *Confirm) Done() <-chan struct{} { return c.done }

// Wait waits for the outcome: the id of the stored message, or why it was not stored, or that this is not known. With
// AckLeader and AckNone the id is zero.
func (c *Confirm) Wait(ctx context.Context) (MessageID, error) {
	select {
	case <-c.done:
		return c.id, c.err
	case <-ctx.Done():
		return MessageID{}, context.Cause(ctx)
	}
}

// failed is a publish that was refused here.
func failed(err error) *Confirm {
	confirm := &Confirm{done: make(chan struct{}), err: err}
	close(confirm.done)
	return confirm
}

// NewPublisher makes a publisher for a queue. It opens its stream with the first message.
func (c *Client) NewPublisher(queue string, opts ...PublisherOption) *Publisher {
	return c.newPublisher(queue, func(p *Publisher) target { return toQueue{queue, p.level} }, opts)
}

// NewTopicPublisher makes a publisher for a topic. Messages without an idempotency key get one, as those for a queue do, so that what a
// broken connection left open is sent again and comes once.
func (c *Client) NewTopicPublisher(topic string, opts ...PublisherOption) *Publisher {
	return c.newPublisher(topic, func(*Publisher) target { return toTopic{topic} }, opts)
}

func (c *Client) newPublisher(name string, targetOf func(*Publisher) target, opts []PublisherOption) *Publisher {
	p := &Publisher{
		client: c,
		name:   name,
		level:  AckQuorum,
		budget: newBudget(10_000, 16<<20),
		wake:   make(chan struct{}, 1),
		done:   make(chan struct{}),
	}
	for _, option := range opts {
		option(p)
	}
	p.target = targetOf(p)
	p.life, p.end = context.WithCancelCause(c.life)
	go p.run()
	return p
}

// Publish takes a message and returns when it has room for it, not when it is stored: that is for the Confirm to say. The
// context is for the waiting alone. The message must not be changed afterwards.
func (p *Publisher) Publish(ctx context.Context, message Message) (*Confirm, error) {
	confirm := &Confirm{done: make(chan struct{}), message: message.wire(), since: time.Now()}
	if !utf8.ValidString(p.name) {
		return nil, notText(p.target.what())
	}
	if _, topic := p.target.(toTopic); topic && p.level != AckQuorum {
		return nil, refused("", "publishes to topics are confirmed by a majority of the nodes; WithAckLevel is for queues")
	}
	if err := checkText(confirm.message); err != nil {
		return nil, err
	}
	if confirm.message.IdempotencyKey == "" && p.client.generatesKeys() {
		confirm.message.IdempotencyKey, confirm.generated = p.client.generatedKey(), true
	}
	confirm.bytes = proto.Size(confirm.message) + messageOverheadBytes
	if confirm.bytes > requestBytesMax-requestOverheadBytes {
		return nil, refused("MESSAGE_TOO_LARGE", "message has %d bytes; a request has %d at most", confirm.bytes, requestBytesMax)
	}
	if !p.budget.tryAcquire(confirm.bytes) {
		waiting, cancel := joined(ctx, p.life)
		defer cancel()
		if err := p.budget.acquire(waiting, confirm.bytes); err != nil {
			return nil, err
		}
	}
	p.mu.Lock()
	if p.closed || p.life.Err() != nil {
		p.mu.Unlock()
		p.budget.release(confirm.bytes)
		return nil, ErrClosed
	}
	p.published++
	confirm.number = p.published
	p.waiting = append(p.waiting, confirm)
	p.outstanding++
	p.mu.Unlock()
	p.signal()
	return confirm, nil
}

// Flush waits until everything that was published before is confirmed, one way or the other.
func (p *Publisher) Flush(ctx context.Context) error {
	p.mu.Lock()
	if p.outstanding == 0 {
		p.mu.Unlock()
		return nil
	}
	if p.idle == nil {
		p.idle = make(chan struct{})
	}
	idle := p.idle
	p.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Close takes no more messages, waits until all are confirmed, and ends the stream. If the context ends before, what is not
// confirmed fails with [ErrClosed]: whether it was stored is not known.
func (p *Publisher) Close(ctx context.Context) error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.signal()
	err := p.Flush(ctx)
	p.abandon(ErrClosed)
	return err
}

// abandon ends the stream at once; what is not confirmed fails for this cause.
func (p *Publisher) abandon(cause error) {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.end(cause)
	<-p.done
}

func (p *Publisher) signal() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// resolve tells the outcome of one message.
func (p *Publisher) resolve(confirm *Confirm, id MessageID, err error) {
	confirm.id, confirm.err = id, err
	confirm.message = nil
	close(confirm.done)
	p.budget.release(confirm.bytes)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.outstanding--
	if p.outstanding == 0 && p.idle != nil {
		close(p.idle)
		p.idle = nil
	}
}

// fail tells that a message was not stored, or that this is not known.
func (p *Publisher) fail(confirm *Confirm, failure *Error) {
	if confirm.unknown && !failure.OutcomeUnknown {
		open := *failure
		open.OutcomeUnknown = true
		failure = &open
	}
	p.resolve(confirm, MessageID{}, failure)
}

// again puts messages among those that wait, in the order of publishing.
func (p *Publisher) again(confirms []*Confirm) {
	p.mu.Lock()
	p.waiting = append(confirms, p.waiting...)
	slices.SortFunc(p.waiting, func(a, b *Confirm) int { return cmp.Compare(a.number, b.number) })
	p.mu.Unlock()
	p.signal()
}

// joined is a context that ends with either.
func joined(ctx, life context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(life, func() { cancel(ErrClosed) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}
