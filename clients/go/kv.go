package boltq

import (
	"context"
	"iter"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	kvv1 "github.com/boltq/boltq/clients/go/gen/boltq/kv/v1"
)

// KV is the replicated key-value cache. Reads see every write that was answered before.
type KV struct{ client *Client }

// KV returns the key-value cache.
func (c *Client) KV() KV { return KV{c} }

// Entry is a value and what is known of it.
type Entry struct {
	Key   string
	Value []byte
	// Version is that of its last change; every change of the cache has a higher one than all before.
	Version   uint64
	CreatedAt time.Time
	// ExpiresAt is zero if the value stays.
	ExpiresAt time.Time
}

func entry(wire *kvv1.Entry) Entry {
	return Entry{
		Key:       wire.GetKey(),
		Value:     wire.GetValue(),
		Version:   wire.GetVersion(),
		CreatedAt: timeOf(wire.GetCreatedAt()),
		ExpiresAt: timeOf(wire.GetExpiresAt()),
	}
}

// Get returns the value of a key, and whether there is one.
func (k KV) Get(ctx context.Context, key string) (Entry, bool, error) {
	answer, err := invoke(ctx, k.client, always, cache, kvv1.KvServiceClient.Get, &kvv1.GetRequest{Key: key})
	return entry(answer.GetEntry()), answer.GetEntry() != nil, err
}

// SetOption configures KV.Set.
type SetOption func(*kvv1.SetRequest)

// WithTTL is how long the value lives; 0: for ever. Without this option it is as the server says.
func WithTTL(ttl time.Duration) SetOption {
	return func(r *kvv1.SetRequest) { r.Ttl = durationpb.New(ttl) }
}

// IfAbsent sets only if there is no value.
func IfAbsent() SetOption {
	return func(r *kvv1.SetRequest) { r.Condition = &kvv1.SetRequest_IfAbsent{IfAbsent: true} }
}

// IfPresent sets only if there is a value.
func IfPresent() SetOption {
	return func(r *kvv1.SetRequest) { r.Condition = &kvv1.SetRequest_IfPresent{IfPresent: true} }
}

// IfVersion sets only if the value has this version.
func IfVersion(version uint64) SetOption {
	return func(r *kvv1.SetRequest) { r.Condition = &kvv1.SetRequest_IfVersion{IfVersion: version} }
}

// Set sets a key and returns the version of the value. If a condition is not met it fails with [ErrConditionNotMet], whose
// metadata has the "version" that there is. With a condition it is not repeated after a broken connection, because it
// would meet itself: it fails with [ErrOutcomeUnknown].
func (k KV) Set(ctx context.Context, key string, value []byte, opts ...SetOption) (uint64, error) {
	request := &kvv1.SetRequest{Key: key, Value: value}
	for _, option := range opts {
		option(request)
	}
	how := always
	if request.Condition != nil {
		how = ifNotApplied
	}
	answer, err := invoke(ctx, k.client, how, cache, kvv1.KvServiceClient.Set, request)
	return answer.GetVersion(), err
}

// Delete deletes a key and says whether there was a value.
func (k KV) Delete(ctx context.Context, key string) (bool, error) {
	return k.delete(ctx, &kvv1.DeleteRequest{Key: key})
}

// DeleteVersion deletes a key only if its value has this version, and fails with [ErrConditionNotMet] otherwise.
func (k KV) DeleteVersion(ctx context.Context, key string, version uint64) error {
	_, err := k.delete(ctx, &kvv1.DeleteRequest{Key: key, IfVersion: &version})
	return err
}

func (k KV) delete(ctx context.Context, request *kvv1.DeleteRequest) (bool, error) {
	how := always
	if request.IfVersion != nil {
		how = ifNotApplied
	}
	answer, err := invoke(ctx, k.client, how, cache, kvv1.KvServiceClient.Delete, request)
	return answer.GetDeleted(), err
}

// Exists says whether a key has a value.
func (k KV) Exists(ctx context.Context, key string) (bool, error) {
	answer, err := invoke(ctx, k.client, always, cache, kvv1.KvServiceClient.Exists, &kvv1.ExistsRequest{Key: key})
	return answer.GetExists(), err
}

// Keys yields the keys that a pattern names, in byte order: "" or "*" all, "p*", "*s", "*m*", or one key. An error is the
// last that it yields.
func (k KV) Keys(ctx context.Context, pattern string) iter.Seq2[string, error] {
	return pages(func(token string) ([]string, string, error) {
		answer, err := invoke(ctx, k.client, always, cache, kvv1.KvServiceClient.Keys, &kvv1.KeysRequest{Pattern: pattern, PageToken: token})
		return answer.GetKeys(), answer.GetNextPageToken(), err
	})
}

// Expire changes how long the value of a key lives, 0: for ever, and says whether there is one.
func (k KV) Expire(ctx context.Context, key string, ttl time.Duration) (bool, error) {
	answer, err := invoke(ctx, k.client, always, cache, kvv1.KvServiceClient.Expire, &kvv1.ExpireRequest{Key: key, Ttl: duration(ttl)})
	return answer.GetFound(), err
}

// Increment adds to the number that is the value of a key, and returns the sum and its version. It counts from 0 if there is no value. It is
// not repeated if it may have been done.
func (k KV) Increment(ctx context.Context, key string, delta int64) (int64, uint64, error) {
	answer, err := invoke(ctx, k.client, ifNotApplied, cache, kvv1.KvServiceClient.Increment, &kvv1.IncrementRequest{Key: key, Delta: &delta})
	return answer.GetValue(), answer.GetVersion(), err
}

// Flush removes everything, and says how many keys that were.
func (k KV) Flush(ctx context.Context) (uint64, error) {
	answer, err := invoke(ctx, k.client, always, cache, kvv1.KvServiceClient.Flush, &kvv1.FlushRequest{})
	return answer.GetRemoved(), err
}

// Stats has the figures of the cache.
func (k KV) Stats(ctx context.Context) (*kvv1.GetStatsResponse, error) {
	return invoke(ctx, k.client, always, cache, kvv1.KvServiceClient.GetStats, &kvv1.GetStatsRequest{})
}

// EventKind says what an Event tells.
type EventKind int

const (
	// EventPut: the key has this value now.
	EventPut EventKind = iota + 1
	// EventRemoved: the key has no value any more. Only Key and Version are set.
	EventRemoved
	// EventReady: what there was at the beginning has been reported. Only Version is set.
	EventReady
	// EventFlushed: no key has a value any more. Only Version is set.
	EventFlushed
	// EventReset: the connection broke, or the watcher was too slow, and the watch has begun anew: changes in between may be missing.
	// With WithInitial everything that there is follows, so forget what you know.
	EventReset
)

// Event is a change of the cache.
type Event struct {
	Kind EventKind
	Entry
}

// WatchOption configures KV.Watch.
type WatchOption func(*kvv1.WatchRequest)

// WithInitial begins with what is there.
func WithInitial() WatchOption {
	return func(r *kvv1.WatchRequest) { r.Initial = true }
}

// Watch reports changes of the keys that a pattern names (see Keys), those of one key in their order, until the context ends.
func (k KV) Watch(ctx context.Context, pattern string, opts ...WatchOption) (*Stream[Event], error) {
	request := &kvv1.WatchRequest{Pattern: pattern}
	for _, option := range opts {
		option(request)
	}
	return subscribe(ctx, k.client, func(ctx context.Context, conn grpc.ClientConnInterface) (source[Event], error) {
		stream, err := cache(conn).Watch(ctx, request)
		if err != nil {
			return source[Event]{}, err
		}
		return source[Event]{header: stream.Header, receive: func() ([]Event, error) {
			response, err := stream.Recv()
			if err != nil {
				return nil, watchError(err)
			}
			return events(response), nil
		}}, nil
	}, func() []Event { return []Event{{Kind: EventReset}} })
}

// watchError lets a watch begin anew that was too slow: that costs the server no more, however much there is.
func watchError(err error) error {
	failure := newError(err, true)
	if failure.Reason == "WATCH_TOO_SLOW" {
		failure.retriable, failure.repeats = true, true
	}
	return failure
}

func events(response *kvv1.WatchResponse) []Event {
	switch event := response.Event.(type) {
	case *kvv1.WatchResponse_Put:
		return []Event{{EventPut, entry(event.Put)}}
	case *kvv1.WatchResponse_Removed:
		return []Event{{EventRemoved, Entry{Key: event.Removed.GetKey(), Version: event.Removed.GetVersion()}}}
	case *kvv1.WatchResponse_Ready:
		return []Event{{EventReady, Entry{Version: event.Ready.GetVersion()}}}
	case *kvv1.WatchResponse_Flushed:
		return []Event{{EventFlushed, Entry{Version: event.Flushed.GetVersion()}}}
	default:
		// From a newer server.
		return nil
	}
}
