package boltq

import (
	"context"
	"iter"
	"time"

	"google.golang.org/grpc"

	topicv1 "github.com/boltq/boltq/clients/go/gen/boltq/topic/v1"
)

// PublishOption configures PublishTopic and PublishExchange.
type PublishOption func(*publishing)

type publishing struct{ repeat repeat }

// AtLeastOnce publishes again also if it is not known whether the message was published, as after a broken connection: then
// it may come twice. A message with an idempotency key is published again without this option, and comes once; one without a
// key fails with [ErrOutcomeUnknown].
func AtLeastOnce() PublishOption {
	return func(p *publishing) { p.repeat = always }
}

func repeatOf(message Message, opts []PublishOption) repeat {
	how := publishing{repeat: repeatable(message.IdempotencyKey)}
	for _, option := range opts {
		option(&how)
	}
	return how.repeat
}

// TopicPublished is what became of a message that was published to a topic.
type TopicPublished struct {
	ID MessageID
	// DurableSubscriptions is how many of them have it in their backlog.
	DurableSubscriptions int
}

// PublishTopic publishes a message to all who subscribe to a topic now, and into the backlogs of its durable subscriptions.
func (c *Client) PublishTopic(ctx context.Context, topic string, message Message, opts ...PublishOption) (TopicPublished, error) {
	answer, err := invoke(ctx, c, repeatOf(message, opts), topics, topicv1.TopicServiceClient.Publish, &topicv1.PublishRequest{Topic: topic, Message: message.wire()})
	return TopicPublished{messageID(answer.GetMessageId()), int(answer.GetDurableSubscriptions())}, err
}

// TopicMessage is a message of a topic. There is nothing to acknowledge.
type TopicMessage struct {
	ID          MessageID
	Payload     []byte
	Headers     map[string]string
	ContentType string
	Priority    int
	PublishedAt time.Time
	// Dropped is how many messages are missing before this one, because the client did not keep up.
	Dropped uint64
}

// SubscribeOption configures SubscribeTopic.
type SubscribeOption func(*topicv1.SubscribeRequest)

// WithSubscription names the subscription. The same name again, on any connection, takes its place: the one before ends with
// [ErrSubscriptionReplaced].
func WithSubscription(name string) SubscribeOption {
	return func(r *topicv1.SubscribeRequest) { r.Subscription = name }
}

// WithDurable names the subscription and keeps messages while nobody is attached, from the first time on; they come first
// then.
func WithDurable(name string) SubscribeOption {
	return func(r *topicv1.SubscribeRequest) { r.Subscription, r.Durable = name, true }
}

// WithBacklog is how many messages may wait in the server for this client, 1 to 100,000. What does not fit is dropped and
// counted, or stays in the backlog of a durable subscription. Default 256.
func WithBacklog(messages int) SubscribeOption {
	return func(r *topicv1.SubscribeRequest) { r.MaxInFlight = uint32(messages) }
}

// SubscribeTopic delivers what is published to a topic from now on, until the context ends. After a broken connection it goes
// on with a new one; what was published in between comes only to a durable subscription.
func (c *Client) SubscribeTopic(ctx context.Context, topic string, opts ...SubscribeOption) (*Stream[TopicMessage], error) {
	request := &topicv1.SubscribeRequest{Topic: topic}
	for _, option := range opts {
		option(request)
	}
	return subscribe(ctx, c, func(ctx context.Context, conn grpc.ClientConnInterface) (source[TopicMessage], error) {
		stream, err := topics(conn).Subscribe(ctx, request)
		if err != nil {
			return source[TopicMessage]{}, err
		}
		dropped := uint64(0)
		return source[TopicMessage]{header: stream.Header, receive: func() ([]TopicMessage, error) {
			response, err := stream.Recv()
			dropped += response.GetDropped()
			messages := topicMessages(response.GetMessages())
			if len(messages) > 0 {
				messages[0].Dropped, dropped = dropped, 0
			}
			return messages, err
		}}, nil
	}, nil)
}

func topicMessages(wire []*topicv1.TopicMessage) []TopicMessage {
	messages := make([]TopicMessage, len(wire))
	for index, message := range wire {
		messages[index] = TopicMessage{
			ID:          messageID(message.MessageId),
			Payload:     message.Payload,
			Headers:     message.Headers,
			ContentType: message.ContentType,
			Priority:    int(message.Priority),
			PublishedAt: timeOf(message.PublishedAt),
		}
	}
	return messages
}

// Topics yields the topics that have a durable subscription, or a subscriber on the node that is asked, by name. An error is
// the last that it yields.
func (c *Client) Topics(ctx context.Context) iter.Seq2[*topicv1.Topic, error] {
	return pages(func(token string) ([]*topicv1.Topic, string, error) {
		answer, err := invoke(ctx, c, always, topics, topicv1.TopicServiceClient.ListTopics, &topicv1.ListTopicsRequest{PageToken: token})
		return answer.GetTopics(), answer.GetNextPageToken(), err
	})
}

// Subscriptions yields the durable subscriptions of a topic, by name. An error is the last that it yields.
func (c *Client) Subscriptions(ctx context.Context, topic string) iter.Seq2[*topicv1.Subscription, error] {
	return pages(func(token string) ([]*topicv1.Subscription, string, error) {
		answer, err := invoke(ctx, c, always, topics, topicv1.TopicServiceClient.ListSubscriptions, &topicv1.ListSubscriptionsRequest{Topic: topic, PageToken: token})
		return answer.GetSubscriptions(), answer.GetNextPageToken(), err
	})
}

// DeleteSubscription removes a durable subscription with its backlog, and says how many messages were in that.
func (c *Client) DeleteSubscription(ctx context.Context, topic, subscription string) (uint64, error) {
	answer, err := invoke(ctx, c, always, topics, topicv1.TopicServiceClient.DeleteSubscription, &topicv1.DeleteSubscriptionRequest{Topic: topic, Subscription: subscription})
	return answer.GetPurged(), err
}
