package boltq_test

import (
	"context"
	"time"

	"github.com/boltq/boltq/clients/go"
	clusterv1 "github.com/boltq/boltq/clients/go/gen/boltq/cluster/v1"
	exchangev1 "github.com/boltq/boltq/clients/go/gen/boltq/exchange/v1"
	queuev1 "github.com/boltq/boltq/clients/go/gen/boltq/queue/v1"
	topicv1 "github.com/boltq/boltq/clients/go/gen/boltq/topic/v1"
)

// actions are the steps of tests/conformance/README.md, by their names.
var actions map[string]action

func init() {
	actions = map[string]action{
		"stream.receive": receive,
		"stream.close": func(_ context.Context, r *run, a arguments, _ *progress) (any, error) {
			r.streams[a.text("from")].close()
			return object{}, nil
		},
		"many.publish":            manyPublish,
		"many.work":               manyWork,
		"many.consume":            manyConsume,
		"many.progress":           manyProgress,
		"many.stop":               manyStop,
		"join":                    join,
		"server.restart":          command("restart 0"),
		"cluster.kill_leader":     command("kill-leader"),
		"cluster.restart_killed":  command("restart-killed"),
		"cluster.rolling_restart": command("rolling-restart"),
		"sleep": func(ctx context.Context, _ *run, a arguments, _ *progress) (any, error) {
			time.Sleep(a.duration("for"))
			return object{}, ctx.Err()
		},
	}
	for _, group := range []map[string]action{queueActions, topicActions, exchangeActions, cacheActions, clusterActions, workerActions} {
		for name, action := range group {
			actions[name] = action
		}
	}
}

var queueActions = map[string]action{
	"queue.publish": simple(func(ctx context.Context, c *boltq.Client, a arguments) (any, error) {
		id, err := c.Publish(ctx, a.text("queue"), a.message())
		return object{"message_id": id.String()}, err
	}),
	"queue.publish_many": simple(publishMany),
	"queue.consume": simple(func(ctx context.Context, c *boltq.Client, a arguments) (any, error) {
		return deliveries(c.Consume(ctx, a.text("queue"), a.consuming()...))
	}),
	"queue.ack": simple(func(ctx context.Context, c *boltq.Client, a arguments) (any, error) {
		return settled("settled", textsOf(a["tokens"]), c.Ack(ctx, a.tokens()...))
	}),
	"queue.nack": simple(func(ctx context.Context, c *boltq.Client, a arguments) (any, error) {
		var opts []boltq.NackOption
		if a.has("delay") {
			opts = append(opts, boltq.WithDelay(a.duration("delay")))
		}
		if a.flag("dead_letter") {
			opts = append(opts, boltq.WithDeadLetter())
		}
		if a.flag("release") {
			return settled("settled", textsOf(a["tokens"]), c.Release(ctx, a.tokens()...))
		}
		return settled("settled", textsOf(a["tokens"]), c.Nack(ctx, a.tokens(), opts...))
	}),
	"queue.extend": simple(func(ctx context.Context, c *boltq.Client, a arguments) (any, error) {
		return settled("extended", textsOf(a["tokens"]), c.Extend(ctx, a.tokens(), a.duration("lease")))
	}),
	"queue.subscribe": func(_ context.Context, r *run, a arguments, _ *progress) (any, error) {
		stream, err := r.client.Subscribe(r.t.Context(), a.text("queue"), a.consuming()...)
		return opened(r, a.text("as"), stream, err, func(d *boltq.Delivery) any { return delivery(d) })
	},
	"queue.peek": simple(func(ctx context.Context, c *boltq.Client, a arguments) (any, error) {
		return deliveries(c.Peek(ctx, a.text("queue"), a.number("max_messages"), boltq.Linearizable()))
	}),
	"queue.purge": simple(func(ctx context.Context, c *boltq.Client, a arguments) (any, error) {
		return answer[uint64]("purged")(c.PurgeQueue(ctx, a.text("queue")))
	}),
	"queue.purge_dead_letters": simple(func(ctx context.Context, c *boltq.Client, a arguments) (any, error) {
		return answer[uint64]("purged")(c.PurgeDeadLetters(ctx, a.text("queue")))
	}),
	"queue.redrive": simple(func(ctx context.Context, c *boltq.Client, a arguments) (any, error) {
		which := boltq.Redrive{Headers: a.texts("headers"), MaxMessages: uint64(a.number("max_messages"))}
		return answer[uint64]("redriven")(c.RedriveDeadLetters(ctx, a.text("queue"), which))
	}),
	"queue.create": simple(func(ctx context.Context, c *boltq.Client, a arguments) (any, error) {
		created, isNew, err := c.CreateQueue(ctx, a.text("queue"), a.settings()...)
		if err != nil {
			return nil, err
		}
		return object{"created": isNew, "queue": queue(created)}, nil
	}),
	"queue.update": simple(func(ctx context.Context, c *boltq.Client, a arguments) (any, error) {
		updated, err := c.UpdateQueue(ctx, a.text("queue"), a.settings()...)
		if err != nil {
			return nil, err
		}
		return object{"queue": queue(updated)}, nil
	}),
	"queue.delete": simple(func(ctx context.Context, c *boltq.Client, a arguments) (any, error) {
		if a.flag("if_empty") {
			return object{"deleted_messages": 0}, c.DeleteEmptyQueue(ctx, a.text("queue"))
		}
		return answer[uint64]("deleted_messages")(c.DeleteQueue(ctx, a.text("queue")))
	}),
	"queue.get": simple(func(ctx context.Context, c *boltq.Client, a arguments) (any, error) {
		got, err := c.GetQueue(ctx, a.text("queue"), boltq.Linearizable())
		if err != nil {
			return nil, err
		}
		return object{"queue": queue(got)}, nil
	}),
	"queue.list": simple(func(ctx context.Context, c *boltq.Client, a arguments) (any, error) {
		return answer[[]any]("queues")(all(c.Queues(ctx, a.text("prefix"), boltq.Linearizable()), func(q *queuev1.Queue) any { return q.Name }))
	}),
	"queue.scheduled": simple(func(ctx context.Context, c *boltq.Client, a arguments) (any, error) {
		return answer[[]any]("messages")(all(c.Scheduled(ctx, a.text("queue")), func(s boltq.Scheduled) any {
			return object{"message_id": s.ID.String(), "priority": s.Priority}
		}))
	}),
	"queue.cancel": simple(func(ctx context.Context, c *boltq.Client, a arguments) (any, error) {
		ids, err := a.ids("message_ids")
		if err != nil {
			return nil, err
		}
		return settled("cancelled", textsOf(a["message_ids"]), c.CancelScheduled(ctx, ids...))
	}),
	"queue.reschedule": simple(func(ctx context.Context, c *boltq.Client, a arguments) (any, error) {
		id, err := boltq.ParseMessageID(a.text("message_id"))
		if err != nil {
			return nil, err
		}
		return object{}, c.RescheduleAfter(ctx, id, a.duration("delay"))
	}),
}

var topicActions = map[string]action{
	"topic.subscribe": func(_ context.Context, r *run, a arguments, _ *progress) (any, error) {
		var opts []boltq.SubscribeOption
		switch {
		case a.flag("durable"):
			opts = append(opts, boltq.WithDurable(a.text("subscription")))
		case a.has("subscription"):
			opts = append(opts, boltq.WithSubscription(a.text("subscription")))
		}
		if a.has("max_in_flight") {
			opts = append(opts, boltq.WithBacklog(a.number("max_in_flight")))
		}
		stream, err := r.client.SubscribeTopic(r.t.Context(), a.text("topic"), opts...)
		return opened(r, a.text("as"), stream, err, func(m boltq.TopicMessage) any {
			return object{
				"message_id": m.ID.String(), "payload": string(m.Payload), "headers": orEmpty(m.Headers),
				"content_type": m.ContentType, "priority": m.Priority,
			}
		})
	},
	"topic.publish": simple(func(ctx context.Context, c *boltq.Client, a arguments) (any, error) {
		published, err := c.PublishTopic(ctx, a.text("topic"), a.message())
		return object{"message_id": published.ID.String(), "durable_subscriptions": published.DurableSubscriptions}, err
	}),
	"topic.publish_many": simple(publishMany),
	"topic.subscriptions": simple(func(ctx context.Context, c *boltq.Client, a arguments) (any, error) {
		return answer[[]any]("subscriptions")(all(c.Subscriptions(ctx, a.text("topic")), func(s *topicv1.Subscription) any {
			return object{"subscription": s.Subscription, "queue": s.Queue, "backlog": s.Backlog}
		}))
	}),
	"topic.delete_subscription": simple(func(ctx context.Context, c *boltq.Client, a arguments) (any, error) {
		return answer[uint64]("purged")(c.DeleteSubscription(ctx, a.text("topic"), a.text("subscription")))
	}),
	"topic.list": simple(func(ctx context.Context, c *boltq.Client, _ arguments) (any, error) {
		return answer[[]any]("topics")(all(c.Topics(ctx), func(t *topicv1.Topic) any {
			return object{"name": t.Name, "durable_subscriptions": t.DurableSubscriptions}
		}))
	}),
}

var exchangeActions = map[string]action{
	"exchange.declare": simple(func(ctx context.Context, c *boltq.Client, a arguments) (any, error) {
		kind := exchangev1.ExchangeType_value["EXCHANGE_TYPE_"+a.text("type")]
		declared, err := c.DeclareExchange(ctx, boltq.Exchange{
			Name: a.text("name"), Type: boltq.ExchangeType(kind), Durable: a.flag("durable"), Alternate: a.text("alternate_exchange"),
		})
		return object{"exchange": exchange(declared)}, err
	}),
	"exchange.delete": simple(func(ctx context.Context, c *boltq.Client, a arguments) (any, error) {
		return object{}, c.DeleteExchange(ctx, a.text("name"))
	}),
	"exchange.bind": simple(func(ctx context.Context, c *boltq.Client, a arguments) (any, error) {
		return answer[bool]("created")(c.BindQueue(ctx, a.text("exchange"), boltq.Binding{
			Queue: a.text("queue"), Key: a.text("binding_key"), Headers: a.texts("headers"), MatchAll: a.flag("match_all"),
		}))
	}),
	"exchange.unbind": simple(func(ctx context.Context, c *boltq.Client, a arguments) (any, error) {
		return answer[uint64]("removed")(c.UnbindQueue(ctx, a.text("exchange"), a.text("queue"), a.text("binding_key")))
	}),
	"exchange.publish": simple(func(ctx context.Context, c *boltq.Client, a arguments) (any, error) {
		published, err := c.PublishExchange(ctx, a.text("exchange"), a.text("routing_key"), a.message())
		return object{"message_id": published.ID.String(), "routed": published.Routed}, err
	}),
	"exchange.list": simple(func(ctx context.Context, c *boltq.Client, _ arguments) (any, error) {
		return answer[[]any]("exchanges")(all(c.Exchanges(ctx, boltq.Linearizable()), exchange))
	}),
	"exchange.bindings": simple(func(ctx context.Context, c *boltq.Client, a arguments) (any, error) {
		return answer[[]any]("bindings")(all(c.Bindings(ctx, a.text("exchange"), boltq.Linearizable()), func(b *exchangev1.Binding) any {
			return object{
				"queue": b.Queue, "binding_key": b.BindingKey, "headers": orEmpty(b.Headers), "match_all": b.MatchAll,
			}
		}))
	}),
}

var cacheActions = map[string]action{
	"kv.set": simple(func(ctx context.Context, c *boltq.Client, a arguments) (any, error) {
		return answer[uint64]("version")(c.KV().Set(ctx, a.text("key"), []byte(a.text("value")), setOptions(a)...))
	}),
	"kv.get": simple(func(ctx context.Context, c *boltq.Client, a arguments) (any, error) {
		got, found, err := c.KV().Get(ctx, a.text("key"))
		if !found {
			return object{"entry": nil}, err
		}
		return object{"entry": entry(got)}, err
	}),
	"kv.delete": simple(func(ctx context.Context, c *boltq.Client, a arguments) (any, error) {
		if a.has("if_version") {
			return object{"deleted": true}, c.KV().DeleteVersion(ctx, a.text("key"), uint64(a.number("if_version")))
		}
		return answer[bool]("deleted")(c.KV().Delete(ctx, a.text("key")))
	}),
	"kv.exists": simple(func(ctx context.Context, c *boltq.Client, a arguments) (any, error) {
		return answer[bool]("exists")(c.KV().Exists(ctx, a.text("key")))
	}),
	"kv.keys": simple(func(ctx context.Context, c *boltq.Client, a arguments) (any, error) {
		return answer[[]any]("keys")(all(c.KV().Keys(ctx, a.text("pattern")), func(key string) any { return key }))
	}),
	"kv.expire": simple(func(ctx context.Context, c *boltq.Client, a arguments) (any, error) {
		return answer[bool]("found")(c.KV().Expire(ctx, a.text("key"), a.duration("ttl")))
	}),
	"kv.increment": simple(func(ctx context.Context, c *boltq.Client, a arguments) (any, error) {
		delta := int64(1)
		if a.has("delta") {
			delta = int64(a.number("delta"))
		}
		value, version, err := c.KV().Increment(ctx, a.text("key"), delta)
		return object{"value": value, "version": version}, err
	}),
	"kv.flush": simple(func(ctx context.Context, c *boltq.Client, _ arguments) (any, error) {
		return answer[uint64]("removed")(c.KV().Flush(ctx))
	}),
	"kv.watch": func(_ context.Context, r *run, a arguments, _ *progress) (any, error) {
		var opts []boltq.WatchOption
		if a.flag("initial") {
			opts = append(opts, boltq.WithInitial())
		}
		stream, err := r.client.KV().Watch(r.t.Context(), a.text("pattern"), opts...)
		return opened(r, a.text("as"), stream, err, event)
	},
}

var clusterActions = map[string]action{
	"admin.stats": simple(func(ctx context.Context, c *boltq.Client, _ arguments) (any, error) {
		stats, err := c.Stats(ctx)
		if err != nil {
			return nil, err
		}
		storage := object{"mode": stats.Storage.GetMode(), "writable": stats.Storage.GetWritable()}
		return object{"version": stats.Version, "storage": storage}, nil
	}),
	"cluster.status": simple(func(ctx context.Context, c *boltq.Client, _ arguments) (any, error) {
		status, err := c.ClusterStatus(ctx)
		if err != nil {
			return nil, err
		}
		return object{"enabled": status.Enabled, "nodes": nodes(status.Nodes), "groups": groups(status.Groups)}, nil
	}),
}

func nodes(list []*clusterv1.Node) []object {
	shown := make([]object, len(list))
	for index, node := range list {
		shown[index] = object{"node_id": node.NodeId, "voter": node.Voter}
	}
	return shown
}

func groups(list []*clusterv1.Group) []string {
	names := make([]string, len(list))
	for index, group := range list {
		names[index] = group.Name
	}
	return names
}
