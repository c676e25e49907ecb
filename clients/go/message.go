package boltq

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	typev1 "github.com/boltq/boltq/clients/go/gen/boltq/type/v1"
)

// Message is what a publisher hands over. Only the payload is needed.
type Message struct {
	// Payload is any bytes; with everything else of the message up to 4 MiB.
	Payload []byte
	// Headers are for the application, 64 KiB in all.
	Headers map[string]string
	// ContentType is the media type of the payload. A payload of "application/json" is checked to be JSON.
	ContentType string
	// Priority is from 0 to 9; 9 is delivered first.
	Priority int
	// Delay is the time until the message may be delivered. Only for queues.
	Delay time.Duration
	// TTL is the time until the message is discarded, the delay included. 0: never.
	TTL time.Duration
	// IdempotencyKey makes publishing repeatable, up to 200 bytes: a message with a key that its queue, its topic, or its exchange
	// with its routing key remembers is not stored again, and the answer is that of the first one. Empty: for a queue the client
	// makes a random one, unless WithGeneratedKeys says otherwise; for topics and exchanges there is none.
	IdempotencyKey string
	// OrderingKey is that of messages which are delivered in the order of publishing and one at a time, up to 200
	// bytes. Only for queues, and without a priority or delay.
	OrderingKey string
}

// JSON is a message whose payload is value as JSON.
func JSON(value any) (Message, error) {
	payload, err := json.Marshal(value)
	if err != nil {
		return Message{}, fmt.Errorf("boltq: payload: %w", err)
	}
	return Message{Payload: payload, ContentType: "application/json"}, nil
}

func (m *Message) wire() *typev1.Message {
	message := &typev1.Message{
		Payload:        m.Payload,
		Headers:        m.Headers,
		ContentType:    m.ContentType,
		Priority:       int32(min(max(m.Priority, 0), 9)), //nolint:gosec // It is in its range.
		IdempotencyKey: m.IdempotencyKey,
		OrderingKey:    m.OrderingKey,
	}
	if m.Delay > 0 {
		message.Delay = durationpb.New(m.Delay)
	}
	if m.TTL > 0 {
		message.Ttl = durationpb.New(m.TTL)
	}
	return message
}

// messageIDBytes is the length of an id.
const messageIDBytes = 16

// MessageID names a message; the server gives it.
type MessageID [messageIDBytes]byte

// ParseMessageID reads what MessageID.String has written.
func ParseMessageID(text string) (MessageID, error) {
	var id MessageID
	decoded, err := hex.DecodeString(text)
	if err != nil || len(decoded) != messageIDBytes {
		return id, refused("INVALID_ARGUMENT", "%q is no id of a message; one has 32 hexadecimal digits", text)
	}
	copy(id[:], decoded)
	return id, nil
}

// String is the id as 32 hexadecimal digits, as every door but gRPC shows it.
func (id MessageID) String() string { return hex.EncodeToString(id[:]) }

// IsZero says whether it is no id: that of a message which was not stored, or whose id is not known.
func (id MessageID) IsZero() bool { return id == MessageID{} }

func messageID(wire []byte) MessageID {
	var id MessageID
	copy(id[:], wire)
	return id
}

// timeOf is the zero time for a timestamp that is unset.
func timeOf(timestamp *timestamppb.Timestamp) time.Time {
	if timestamp == nil {
		return time.Time{}
	}
	return timestamp.AsTime()
}

// duration is unset for 0.
func duration(d time.Duration) *durationpb.Duration {
	if d == 0 {
		return nil
	}
	return durationpb.New(d)
}
