// Package boltq is a client for BoltQ: work queues, topics, exchanges and a replicated key-value cache over gRPC.
//
//	client, err := boltq.Connect(ctx, "localhost:9091", boltq.WithAPIKey(key))
//	if err != nil {
//		return err
//	}
//	defer client.Close()
//	id, err := client.Publish(ctx, "email_jobs", boltq.Message{Payload: []byte(`{"to":"a"}`)})
//
// One [Client] is for a whole process. It connects to any node of a cluster, or to one of several addresses, and goes on when
// that node is restarted or is gone.
//
// # Publishing
//
// [Client.Publish] stores one message, [Client.PublishBatch] some, and a [Publisher] a stream of them, with many on their way
// at a time, a [Confirm] for each, and a bound for what is not confirmed.
//
// A publish that gets no answer, because the connection breaks or the leader dies, may have been stored or not. So that it
// can be sent again without being stored twice, each message to a queue gets a random idempotency key, unless it has one. The
// server remembers a key for `queue.dedup_ttl` (10 minutes), in some 200 bytes on every node, and at most `queue.dedup_max_keys`
// (a million): enough for 1,600 messages a second. When there is no more room the client leaves out the keys that it made up,
// for 10 minutes, and logs a warning. Whoever publishes more than that all the time raises the one, lowers the other, or
// switches these keys off with [WithGeneratedKeys]. A message without a key is sent again only if it was surely not
// stored, and fails with [ErrOutcomeUnknown] otherwise.
//
// For [Client.PublishTopic] and [Client.PublishExchange] the client makes no keys. A message with a key of the application is sent
// again there too, and comes once; one without is not sent again if it may have been published, unless [AtLeastOnce] says so. A
// publisher to a topic ([Client.NewTopicPublisher]) makes keys as one to a queue does.
//
// # Connecting
//
// As long as no server has ever answered, calls wait for one for [WithConnectTimeout] and not for as long as they may take, and then
// fail with each address and what went wrong there. If something else listens at the address, or only one side speaks TLS, they
// fail at once with [ErrWrongServer].
//
// # Consuming
//
// A [Worker] takes messages and gives them to a handler: it extends leases while handlers run, settles messages by what the
// handlers return, and stops in good order. [Client.Subscribe] is a stream of deliveries, which the application settles, and
// [Client.Consume] takes some at a time. Delivery is at least once: make the work repeatable.
//
// # Errors
//
// Calls return an [*Error] with the code and the stable reason of the server. Ask with [errors.Is]:
//
//	switch {
//	case errors.Is(err, boltq.ErrQueueFull):
//	case errors.Is(err, boltq.ErrUnauthenticated):
//	case errors.Is(err, boltq.ErrOutcomeUnknown):
//	case errors.Is(err, context.DeadlineExceeded):
//	}
//
// Failures that pass, as while a cluster has no leader, are not seen: the client makes the call again, after random pauses
// that grow, not before the server asks for it, and until the deadline of the context or [WithRetryTimeout]. What would do its
// work twice is made again only if nothing was done.
package boltq
