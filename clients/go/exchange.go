package boltq

import (
	"context"
	"iter"

	exchangev1 "github.com/boltq/boltq/clients/go/gen/boltq/exchange/v1"
)

// ExchangeType says how an exchange chooses queues.
type ExchangeType int32

const (
	// DirectExchange chooses bindings whose key is the routing key.
	DirectExchange = ExchangeType(exchangev1.ExchangeType_EXCHANGE_TYPE_DIRECT)
	// FanoutExchange chooses all bindings.
	FanoutExchange = ExchangeType(exchangev1.ExchangeType_EXCHANGE_TYPE_FANOUT)
	// TopicExchange chooses bindings whose key is a pattern that the routing key matches: "*" is one word, "#" any number.
	TopicExchange = ExchangeType(exchangev1.ExchangeType_EXCHANGE_TYPE_TOPIC)
	// HeadersExchange chooses bindings whose headers the message has.
	HeadersExchange = ExchangeType(exchangev1.ExchangeType_EXCHANGE_TYPE_HEADERS)
)

// Exchange is what DeclareExchange declares.
type Exchange struct {
	Name string
	// Type is DirectExchange if it is not set.
	Type ExchangeType
	// Durable is kept as it is declared; all exchanges survive a restart as the rest does.
	Durable bool
	// Alternate is the exchange that gets what matches no binding; empty: none.
	Alternate string
}

// DeclareExchange creates an exchange, and returns what there is now: one that exists with the same type stays as it is.
func (c *Client) DeclareExchange(ctx context.Context, exchange Exchange) (*exchangev1.Exchange, error) {
	answer, err := invoke(ctx, c, always, exchanges, exchangev1.ExchangeServiceClient.Declare, &exchangev1.DeclareRequest{
		Name:              exchange.Name,
		Type:              exchangev1.ExchangeType(exchange.Type),
		Durable:           exchange.Durable,
		AlternateExchange: exchange.Alternate,
	})
	return answer.GetExchange(), err
}

// DeleteExchange removes an exchange with its bindings. The queues stay.
func (c *Client) DeleteExchange(ctx context.Context, name string) error {
	_, err := invoke(ctx, c, always, exchanges, exchangev1.ExchangeServiceClient.Delete, &exchangev1.DeleteRequest{Name: name})
	return err
}

// Binding makes an exchange choose a queue.
type Binding struct {
	Queue string
	// Key is compared with routing keys, up to 255 bytes.
	Key string
	// Headers are what a message has to have, for a HeadersExchange: all of them with MatchAll, or else one.
	Headers  map[string]string
	MatchAll bool
}

// BindQueue binds a queue to an exchange, and says whether the binding is new.
func (c *Client) BindQueue(ctx context.Context, exchange string, binding Binding) (bool, error) {
	answer, err := invoke(ctx, c, always, exchanges, exchangev1.ExchangeServiceClient.Bind, &exchangev1.BindRequest{Exchange: exchange, Binding: &exchangev1.Binding{
		Queue: binding.Queue, BindingKey: binding.Key, Headers: binding.Headers, MatchAll: binding.MatchAll,
	}})
	return answer.GetCreated(), err
}

// UnbindQueue removes all bindings of a queue with a key, and says how many.
func (c *Client) UnbindQueue(ctx context.Context, exchange, queue, key string) (uint64, error) {
	answer, err := invoke(ctx, c, always, exchanges, exchangev1.ExchangeServiceClient.Unbind, &exchangev1.UnbindRequest{Exchange: exchange, Queue: queue, BindingKey: key})
	return answer.GetRemoved(), err
}

// ExchangePublished is what became of a message that was published to an exchange.
type ExchangePublished struct {
	ID MessageID
	// Routed is how many queues have a copy. 0: no binding matched, and the message is gone.
	Routed int
}

// PublishExchange puts a copy of a message into each queue that the exchange chooses. The exchange "" chooses the queue that
// the routing key names.
func (c *Client) PublishExchange(
	ctx context.Context, exchange, routingKey string, message Message, opts ...PublishOption,
) (ExchangePublished, error) {
	answer, err := invoke(ctx, c, repeatOf(message, opts), exchanges, exchangev1.ExchangeServiceClient.Publish, &exchangev1.PublishRequest{Exchange: exchange, RoutingKey: routingKey, Message: message.wire()})
	return ExchangePublished{messageID(answer.GetMessageId()), int(answer.GetRouted())}, err
}

// Exchanges yields all exchanges by name. An error is the last that it yields.
func (c *Client) Exchanges(ctx context.Context, opts ...ReadOption) iter.Seq2[*exchangev1.Exchange, error] {
	return pages(func(token string) ([]*exchangev1.Exchange, string, error) {
		answer, err := invoke(ctx, c, always, exchanges, exchangev1.ExchangeServiceClient.List, &exchangev1.ListRequest{PageToken: token, Linearizable: linearizable(opts)})
		return answer.GetExchanges(), answer.GetNextPageToken(), err
	})
}

// Bindings yields the bindings of an exchange by their keys. An error is the last that it yields.
func (c *Client) Bindings(ctx context.Context, exchange string, opts ...ReadOption) iter.Seq2[*exchangev1.Binding, error] {
	return pages(func(token string) ([]*exchangev1.Binding, string, error) {
		answer, err := invoke(ctx, c, always, exchanges, exchangev1.ExchangeServiceClient.ListBindings, &exchangev1.ListBindingsRequest{Exchange: exchange, PageToken: token, Linearizable: linearizable(opts)})
		return answer.GetBindings(), answer.GetNextPageToken(), err
	})
}
