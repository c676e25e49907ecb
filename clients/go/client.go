package boltq

import (
	"context"
	"crypto/rand"
	"errors"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	clusterv1 "github.com/boltq/boltq/clients/go/gen/boltq/cluster/v1"
	exchangev1 "github.com/boltq/boltq/clients/go/gen/boltq/exchange/v1"
	kvv1 "github.com/boltq/boltq/clients/go/gen/boltq/kv/v1"
	queuev1 "github.com/boltq/boltq/clients/go/gen/boltq/queue/v1"
	topicv1 "github.com/boltq/boltq/clients/go/gen/boltq/topic/v1"
)

// Client speaks to a server or a cluster. It is made once and used by all goroutines of a process.
type Client struct {
	options   options
	endpoints *endpoints
	settler   *settler

	// life ends with Close; what works in the background ends with it.
	life context.Context
	end  context.CancelCauseFunc
	// name is random; with a number it makes keys that no other client has.
	name string
	keys atomic.Uint64
	// keysAgain is when messages get generated keys again, in Unix nanoseconds, after a server had no room for them.
	keysAgain atomic.Int64
}

// Connect connects to the first of these addresses that answers, "host:port" with commas in between, and makes sure that
// the server takes what the options show. Without a port it is 9091. Any node of a cluster will do, as each takes every call; with several
// addresses the client goes on when one of them is gone.
func Connect(ctx context.Context, addresses string, opts ...Option) (*Client, error) {
	client, err := New(addresses, opts...)
	if err != nil {
		return nil, err
	}
	if _, err := client.ClusterStatus(ctx); err != nil {
		return nil, errors.Join(err, client.Close())
	}
	return client, nil
}

// New is Connect without connecting: the first call does that.
func New(addresses string, opts ...Option) (*Client, error) {
	var list []string
	for address := range strings.SplitSeq(addresses, ",") {
		if address = strings.TrimSpace(address); address != "" {
			list = append(list, withPort(address))
		}
	}
	if len(list) == 0 {
		return nil, errors.New(`boltq: no address; "localhost:9091" is one`)
	}
	client := &Client{options: defaultOptions(), name: rand.Text()}
	for _, option := range opts {
		if err := option(&client.options); err != nil {
			return nil, err
		}
	}
	endpoints, err := newEndpoints(list, &client.options)
	if err != nil {
		return nil, err
	}
	client.endpoints = endpoints
	client.settler = newSettler(client)
	client.life, client.end = context.WithCancelCause(context.Background())
	return client, nil
}

// portDefault is where servers listen for gRPC if nothing else is configured.
const portDefault = "9091"

// withPort adds the default port to a host without one. What gRPC resolves by a scheme stays as it is.
func withPort(address string) string {
	if _, _, err := net.SplitHostPort(address); err == nil || strings.Contains(address, "/") {
		return address
	}
	host := strings.TrimSuffix(strings.TrimPrefix(address, "["), "]")
	if _, err := netip.ParseAddr(host); err != nil && strings.Contains(host, ":") {
		// It is refused with the reason.
		return address
	}
	return net.JoinHostPort(host, portDefault)
}

// Close ends all connections. What is on its way fails with [ErrClosed]; close publishers and end workers before, if that
// matters.
func (c *Client) Close() error {
	c.end(ErrClosed)
	c.endpoints.close()
	return nil
}

// Conn is for calls that this package does not have: give it to the constructors of the generated packages under gen/. The
// calls show the same credentials and go to the same node as those of the client, and are not repeated.
func (c *Client) Conn() grpc.ClientConnInterface { return currentConn{c} }

// currentConn passes each call to the node that calls go to at that moment.
type currentConn struct{ client *Client }

func (c currentConn) Invoke(ctx context.Context, method string, request, answer any, opts ...grpc.CallOption) error {
	endpoint, err := c.client.endpoints.pick()
	if err != nil {
		return err
	}
	return endpoint.conn.Invoke(ctx, method, request, answer, opts...)
}

func (c currentConn) NewStream(
	ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption,
) (grpc.ClientStream, error) {
	endpoint, err := c.client.endpoints.pick()
	if err != nil {
		return nil, err
	}
	return endpoint.conn.NewStream(ctx, desc, method, opts...)
}

// bound makes a context end with the client too, so that nothing outlives Close.
func (c *Client) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(c.life, func() { cancel(ErrClosed) })
	return ctx, func() {
		stop()
		cancel(context.Canceled)
	}
}

// invoke makes one unary call of a service with the retry layer.
func invoke[Service, Request, Answer any](
	ctx context.Context, c *Client, how repeat, service func(grpc.ClientConnInterface) Service,
	method func(Service, context.Context, *Request, ...grpc.CallOption) (*Answer, error), request *Request,
) (*Answer, error) {
	ctx, cancel := c.bound(ctx)
	defer cancel()
	var answer *Answer
	err := c.retry(ctx, how, func(ctx context.Context, conn grpc.ClientConnInterface) error {
		var err error
		answer, err = method(service(conn), ctx, request)
		return err
	})
	if err != nil {
		return nil, err
	}
	return answer, nil
}

func queues(conn grpc.ClientConnInterface) queuev1.QueueServiceClient {
	return queuev1.NewQueueServiceClient(conn)
}

func topics(conn grpc.ClientConnInterface) topicv1.TopicServiceClient {
	return topicv1.NewTopicServiceClient(conn)
}

func exchanges(conn grpc.ClientConnInterface) exchangev1.ExchangeServiceClient {
	return exchangev1.NewExchangeServiceClient(conn)
}

func cache(conn grpc.ClientConnInterface) kvv1.KvServiceClient { return kvv1.NewKvServiceClient(conn) }

func cluster(conn grpc.ClientConnInterface) clusterv1.ClusterServiceClient {
	return clusterv1.NewClusterServiceClient(conn)
}

// keysRest is how long no keys are generated after a server had no room for them: as long as it remembers them by default.
const keysRest = 10 * time.Minute

// generatesKeys says whether messages get keys now.
func (c *Client) generatesKeys() bool {
	return c.options.generatedKeys && time.Now().UnixNano() >= c.keysAgain.Load()
}

// generatedKey is one that no message of any client has.
func (c *Client) generatedKey() string {
	return c.name + "-" + strconv.FormatUint(c.keys.Add(1), 10)
}

// restKeys leaves what room there is for keys to those who chose theirs.
func (c *Client) restKeys() {
	now := time.Now()
	if c.keysAgain.Swap(now.Add(keysRest).UnixNano()) > now.UnixNano() {
		// Many are refused together, and one warning tells of all.
		return
	}
	c.options.logger.Warn("boltq: the server remembers as many idempotency keys as it may; none are generated for a while",
		"pause", keysRest, "see", "queue.dedup_max_keys")
}
