package boltq

import (
	"context"
	"errors"

	queuev1 "github.com/boltq/boltq/clients/go/gen/boltq/queue/v1"
)

// Publish stores a message in a queue, which is created on first use, and returns when it is as durable as the server
// promises. If the connection breaks it is sent again, with a key that keeps it from being stored twice; without a key it
// is sent again only if it was surely not stored, and fails with [ErrOutcomeUnknown] otherwise.
func (c *Client) Publish(ctx context.Context, queue string, message Message) (MessageID, error) {
	request := &queuev1.PublishRequest{Queue: queue, Message: message.wire()}
	chosen := request.Message.IdempotencyKey != ""
	generated := !chosen && c.generatesKeys()
	if generated {
		request.Message.IdempotencyKey = c.generatedKey()
	}
	id, err := c.publish(ctx, request)
	var failure *Error
	if !chosen && errors.As(err, &failure) && failure.Reason == reasonKeysFull && !failure.OutcomeUnknown {
		// Also without a key: it is refused for the key of another message that came together with it.
		if generated {
			c.restKeys()
		}
		request.Message.IdempotencyKey = ""
		return c.publish(ctx, request)
	}
	return id, err
}

func (c *Client) publish(ctx context.Context, request *queuev1.PublishRequest) (MessageID, error) {
	answer, err := invoke(ctx, c, repeatable(request.Message.IdempotencyKey), queues, queuev1.QueueServiceClient.Publish, request)
	return messageID(answer.GetMessageId()), err
}

// repeatable says when a publish may be made again: with a key, always.
func repeatable(key string) repeat {
	if key != "" {
		return always
	}
	return ifNotApplied
}

// PublishBatch stores messages in a queue, in as few requests as possible, and returns their ids in their order. If some
// were not stored, their ids are zero and the error is a [BatchError]. It is sent again like Publish. For a stream of
// messages use a [Publisher].
func (c *Client) PublishBatch(ctx context.Context, queue string, messages []Message) ([]MessageID, error) {
	publisher := c.NewPublisher(queue)
	defer publisher.abandon(ErrClosed)
	confirms := make([]*Confirm, 0, len(messages))
	failures := make(map[int]error)
	for _, message := range messages {
		confirm, err := publisher.Publish(ctx, message)
		if err != nil {
			confirm = failed(err)
		}
		confirms = append(confirms, confirm)
	}
	ids := make([]MessageID, len(messages))
	for index, confirm := range confirms {
		select {
		case <-confirm.Done():
		case <-ctx.Done():
			// All are told then what is known of them.
			publisher.abandon(context.Cause(ctx))
		}
		id, err := confirm.Wait(context.WithoutCancel(ctx))
		if err != nil {
			failures[index] = err
		}
		ids[index] = id
	}
	return ids, batchError(failures)
}
