package boltq_test

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/boltq/boltq/clients/go"
	exchangev1 "github.com/boltq/boltq/clients/go/gen/boltq/exchange/v1"
	queuev1 "github.com/boltq/boltq/clients/go/gen/boltq/queue/v1"
)

// arguments are the members of a step.
type arguments map[string]any

// object is the answer of a step.
type object = map[string]any

type action func(context.Context, *run, arguments, *progress) (any, error)

func (a arguments) text(name string) string {
	text, _ := a[name].(string)
	return text
}

func (a arguments) number(name string) int {
	number, _ := a[name].(float64)
	return int(number)
}

func (a arguments) flag(name string) bool {
	flag, _ := a[name].(bool)
	return flag
}

func (a arguments) has(name string) bool { return a[name] != nil }

func (a arguments) duration(name string) time.Duration { return durationOr(a[name], 0) }

func (a arguments) texts(name string) map[string]string {
	members, _ := a[name].(map[string]any)
	texts := make(map[string]string, len(members))
	for key, value := range members {
		texts[key], _ = value.(string)
	}
	return texts
}

func (a arguments) message() boltq.Message { return message(a["message"]) }

func message(value any) boltq.Message {
	a, _ := value.(map[string]any)
	given := arguments(a)
	return boltq.Message{
		Payload:        []byte(given.text("payload")),
		Headers:        given.texts("headers"),
		ContentType:    given.text("content_type"),
		Priority:       given.number("priority"),
		Delay:          given.duration("delay"),
		TTL:            given.duration("ttl"),
		IdempotencyKey: given.text("idempotency_key"),
		OrderingKey:    given.text("ordering_key"),
	}
}

func (a arguments) tokens() []boltq.Token {
	list, _ := a["tokens"].([]any)
	tokens := make([]boltq.Token, len(list))
	for index, one := range list {
		// What is no hexadecimal text is no token either, and that is for the server to say.
		decoded, err := hex.DecodeString(fmt.Sprint(one))
		if err != nil {
			decoded = []byte(fmt.Sprint(one))
		}
		tokens[index] = decoded
	}
	return tokens
}

func (a arguments) ids(name string) ([]boltq.MessageID, error) {
	list, _ := a[name].([]any)
	ids := make([]boltq.MessageID, len(list))
	for index, one := range list {
		var err error
		if ids[index], err = boltq.ParseMessageID(fmt.Sprint(one)); err != nil {
			return nil, err
		}
	}
	return ids, nil
}

// consuming are the options of consume and subscribe.
func (a arguments) consuming() []boltq.ConsumeOption {
	var opts []boltq.ConsumeOption
	if a.has("max_messages") {
		opts = append(opts, boltq.WithMaxMessages(a.number("max_messages")))
	}
	if a.has("wait") {
		opts = append(opts, boltq.WithWait(a.duration("wait")))
	}
	if a.has("lease") {
		opts = append(opts, boltq.WithLease(a.duration("lease")))
	}
	if a.has("max_in_flight") {
		opts = append(opts, boltq.WithMaxInFlight(a.number("max_in_flight")))
	}
	return opts
}

func delivery(d *boltq.Delivery) object {
	return object{
		"delivery_token": hex.EncodeToString(d.Token()), "message_id": d.ID.String(), "payload": string(d.Payload),
		"headers": orEmpty(d.Headers), "content_type": d.ContentType, "priority": d.Priority, "attempts": d.Attempts,
		"ordering_key": d.OrderingKey,
	}
}

func orEmpty(headers map[string]string) map[string]string {
	if headers == nil {
		return map[string]string{}
	}
	return headers
}

func deliveries(list []*boltq.Delivery, err error) (any, error) {
	answers := make([]object, len(list))
	for index, one := range list {
		answers[index] = delivery(one)
	}
	return object{"deliveries": answers}, err
}

// settled is the answer of a settlement: what was done, and the failures of the rest.
func settled(count string, names []string, err error) (any, error) {
	failures := []object{}
	var batch *boltq.BatchError
	if errors.As(err, &batch) {
		for index, name := range names {
			var failure *boltq.Error
			if errors.As(batch.Failures[index], &failure) {
				failures = append(failures, object{"token": name, "reason": failure.Reason})
			}
		}
		err = nil
	}
	return object{count: len(names) - len(failures), "failures": failures}, err
}

func textsOf(list any) []string {
	var texts []string
	for _, one := range list.([]any) {
		texts = append(texts, fmt.Sprint(one))
	}
	return texts
}

// all reads a sequence.
func all[T any](sequence iter.Seq2[T, error], answer func(T) any) ([]any, error) {
	list := []any{}
	for one, err := range sequence {
		if err != nil {
			return nil, err
		}
		list = append(list, answer(one))
	}
	return list, nil
}

// settings are the options of a queue; those that mask names and that are missing go back to the server.
func (a arguments) settings() []boltq.QueueSetting {
	members, _ := a["settings"].(map[string]any)
	given := arguments(members)
	known := map[string]func() boltq.QueueSetting{
		"max_retry":              func() boltq.QueueSetting { return boltq.MaxRetry(uint32(given.number("max_retry"))) },
		"retry_backoff":          func() boltq.QueueSetting { return boltq.RetryBackoff(given.duration("retry_backoff")) },
		"retry_backoff_max":      func() boltq.QueueSetting { return boltq.RetryBackoffMax(given.duration("retry_backoff_max")) },
		"ack_timeout":            func() boltq.QueueSetting { return boltq.AckTimeout(given.duration("ack_timeout")) },
		"default_ttl":            func() boltq.QueueSetting { return boltq.DefaultTTL(given.duration("default_ttl")) },
		"max_length":             func() boltq.QueueSetting { return boltq.MaxLength(uint64(given.number("max_length"))) },
		"max_length_bytes":       func() boltq.QueueSetting { return boltq.MaxLengthBytes(uint64(given.number("max_length_bytes"))) },
		"overflow":               func() boltq.QueueSetting { return boltq.DropOldest(given.text("overflow") == "DROP_OLDEST") },
		"dead_letter_queue":      func() boltq.QueueSetting { return boltq.DeadLetterQueue(given.text("dead_letter_queue")) },
		"dedup_ttl":              func() boltq.QueueSetting { return boltq.DedupTTL(given.duration("dedup_ttl")) },
		"single_active_consumer": func() boltq.QueueSetting { return boltq.SingleActiveConsumer(given.flag("single_active_consumer")) },
		"paused":                 func() boltq.QueueSetting { return boltq.Paused(given.flag("paused")) },
	}
	var settings []boltq.QueueSetting
	for name := range members {
		settings = append(settings, known[name]())
	}
	mask, _ := a["update_mask"].([]any)
	for _, name := range mask {
		if _, ok := members[fmt.Sprint(name)]; !ok {
			settings = append(settings, boltq.ServerDefault(fmt.Sprint(name)))
		}
	}
	return settings
}

func queue(q *queuev1.Queue) object {
	return object{
		"name": q.GetName(), "ready": q.GetReady(), "leased": q.GetLeased(), "delayed": q.GetDelayed(),
		"dead_letters": q.GetDeadLetters(), "settings": settings(q.GetSettings()),
	}
}

func settings(s *queuev1.QueueSettings) object {
	return object{
		"max_retry": s.MaxRetry, "retry_backoff": shown(s.GetRetryBackoff()), "retry_backoff_max": shown(s.GetRetryBackoffMax()),
		"ack_timeout": shown(s.GetAckTimeout()), "default_ttl": shown(s.GetDefaultTtl()),
		"max_length": s.MaxLength, "max_length_bytes": s.MaxLengthBytes,
		"overflow":          overflow(s.GetOverflow()),
		"dead_letter_queue": s.GetDeadLetterQueue(), "dedup_ttl": shown(s.GetDedupTtl()),
		"single_active_consumer": s.GetSingleActiveConsumer(), "paused": s.GetPaused(),
	}
}

// overflow is what the queue does, also if nothing is said of it.
func overflow(policy queuev1.OverflowPolicy) string {
	if policy == queuev1.OverflowPolicy_OVERFLOW_POLICY_UNSPECIFIED {
		policy = queuev1.OverflowPolicy_OVERFLOW_POLICY_REJECT
	}
	return strings.TrimPrefix(policy.String(), "OVERFLOW_POLICY_")
}

// shown is a duration in the largest unit in which it is a whole number.
func shown(d *durationpb.Duration) any {
	if d == nil {
		return nil
	}
	duration := d.AsDuration()
	for _, unit := range []struct {
		name string
		of   time.Duration
	}{{"h", time.Hour}, {"m", time.Minute}, {"s", time.Second}} {
		if duration%unit.of == 0 {
			return fmt.Sprintf("%d%s", duration/unit.of, unit.name)
		}
	}
	return fmt.Sprintf("%dms", duration.Milliseconds())
}

func exchange(e *exchangev1.Exchange) any {
	return object{
		"name": e.GetName(), "type": strings.TrimPrefix(e.GetType().String(), "EXCHANGE_TYPE_"), "durable": e.GetDurable(),
		"alternate_exchange": e.GetAlternateExchange(), "bindings": e.GetBindings(),
	}
}

func entry(e boltq.Entry) object {
	return object{"key": e.Key, "value": string(e.Value), "version": e.Version}
}

// openStream is a subscription or watch that a step has opened.
type openStream struct {
	next  func() (any, error)
	close func()
}

func opened[T any](r *run, name string, stream *boltq.Stream[T], err error, item func(T) any) (any, error) {
	if err != nil {
		return nil, err
	}
	r.streams[name] = &openStream{close: stream.Close, next: func() (any, error) {
		one, err := stream.Next()
		if err != nil {
			return nil, err
		}
		return item(one), nil
	}}
	return object{}, nil
}

func event(e boltq.Event) any {
	switch e.Kind {
	case boltq.EventPut:
		return object{"put": entry(e.Entry)}
	case boltq.EventRemoved:
		return object{"removed": object{"key": e.Key, "version": e.Version}}
	case boltq.EventReady:
		return object{"ready": object{"version": e.Version}}
	case boltq.EventFlushed:
		return object{"flushed": object{"version": e.Version}}
	default:
		return object{"reset": object{}}
	}
}

// receive takes items of a stream; it ends with the context, and the stream is of no more use then.
func receive(ctx context.Context, r *run, a arguments, _ *progress) (any, error) {
	stream, ok := r.streams[a.text("from")]
	if !ok {
		return nil, fmt.Errorf("there is no stream %q", a.text("from"))
	}
	stop := context.AfterFunc(ctx, stream.close)
	defer stop()
	items := []any{}
	for len(items) < a.number("count") {
		item, err := stream.next()
		if err != nil {
			return nil, err
		}
		items = append(items, item)
	}
	return object{"items": items}, nil
}

func setOptions(a arguments) []boltq.SetOption {
	var opts []boltq.SetOption
	if a.has("ttl") {
		opts = append(opts, boltq.WithTTL(a.duration("ttl")))
	}
	if a.flag("if_absent") {
		opts = append(opts, boltq.IfAbsent())
	}
	if a.flag("if_present") {
		opts = append(opts, boltq.IfPresent())
	}
	if a.has("if_version") {
		opts = append(opts, boltq.IfVersion(uint64(a.number("if_version"))))
	}
	return opts
}

// command is a step that the test bed does.
func command(text string) action {
	return func(_ context.Context, r *run, _ arguments, _ *progress) (any, error) {
		answer, err := r.bed.ask(text)
		if err != nil {
			return nil, err
		}
		return object{"node": answer["name"]}, nil
	}
}

// simple makes an action of a function that needs less.
func simple(do func(context.Context, *boltq.Client, arguments) (any, error)) action {
	return func(ctx context.Context, r *run, a arguments, _ *progress) (any, error) { return do(ctx, r.client, a) }
}

// answer is an object with one member.
func answer[T any](name string) func(T, error) (any, error) {
	return func(value T, err error) (any, error) { return object{name: value}, err }
}
