package boltq

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/stats"
)

const (
	// A peer that is gone without a word is noticed within the sum. The server takes pings as often as they come, and
	// sends its own every 20 s; 10 s is the least that gRPC allows a client.
	pingInterval = 10 * time.Second
	pingTimeout  = 5 * time.Second
	// Between attempts of gRPC to connect again. The pace of calls is set by retry.go.
	reconnectMin = 50 * time.Millisecond
	reconnectMax = time.Second
	// Requests and answers have at most 4 MiB; an answer has a few bytes around.
	answerBytesMax = 8 << 20
	// It does not bound what a slow consumer holds: gRPC takes what comes off the connection.
	connectionWindowBytes = 16 << 20
	// Leaders that are not among the addresses and are remembered.
	hintsMax = 16
)

// endpoint is one address of a server, with the connection to it.
type endpoint struct {
	address string
	conn    *grpc.ClientConn
}

// endpoints knows the addresses that were given and those of leaders that servers named. All calls go to one of them,
// until that fails.
type endpoints struct {
	dial []grpc.DialOption
	// answered is set once any server has answered a call.
	answered atomic.Bool

	mu         sync.Mutex
	configured []*endpoint
	hinted     []*endpoint
	current    *endpoint
	closed     bool
}

func newEndpoints(addresses []string, o *options) (*endpoints, error) {
	e := &endpoints{dial: dialOptions(o)}
	for _, address := range addresses {
		endpoint, err := e.open(address)
		if err != nil {
			e.close()
			return nil, err
		}
		e.configured = append(e.configured, endpoint)
	}
	// Clients with the same addresses are spread over the nodes.
	e.current = e.configured[rand.N(len(e.configured))]
	return e, nil
}

func dialOptions(o *options) []grpc.DialOption {
	transport := insecure.NewCredentials()
	if o.tls != nil {
		transport = credentials.NewTLS(o.tls)
	}
	dial := []grpc.DialOption{
		grpc.WithTransportCredentials(transport),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: reconnectMin, Multiplier: 1.6, Jitter: 0.2, MaxDelay: reconnectMax},
			MinConnectTimeout: o.connectTimeout,
		}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{
			Time: pingInterval, Timeout: pingTimeout, PermitWithoutStream: true,
		}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(answerBytesMax)),
		// A fixed one; by itself gRPC lets it grow to 16 MiB.
		grpc.WithStaticStreamWindowSize(o.window),
		grpc.WithStaticConnWindowSize(max(connectionWindowBytes, o.window)),
		grpc.WithStatsHandler(sentHandler{}),
		grpc.WithChainUnaryInterceptor(checkUnary),
		grpc.WithChainStreamInterceptor(checkStream),
		// There is one retry layer, and it is not that of gRPC.
		grpc.WithDisableRetry(),
		grpc.WithDisableServiceConfig(),
	}
	if o.credentials != nil {
		dial = append(dial, grpc.WithPerRPCCredentials(o.credentials))
	}
	return append(dial, o.dial...)
}

// open makes an endpoint; it connects with its first call.
func (e *endpoints) open(address string) (*endpoint, error) {
	conn, err := grpc.NewClient(address, e.dial...)
	if err != nil {
		return nil, refused("", "address %q: %v", address, err)
	}
	return &endpoint{address: address, conn: conn}, nil
}

// pick returns where calls go now.
func (e *endpoints) pick() (*endpoint, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, ErrClosed
	}
	return e.current, nil
}

// failed is told that a call to an endpoint failed in a way that another one may not. The next calls go to the leader, if
// it was named, or else to the next address. It says whether that is another one.
func (e *endpoints) failed(failed *endpoint, leader string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed || e.current != failed {
		// Somebody else has told it before.
		return !e.closed
	}
	if leader != "" && leader != failed.address {
		if hinted := e.hint(leader); hinted != nil {
			e.current = hinted
			return true
		}
	}
	at := slices.Index(e.configured, failed)
	e.current = e.configured[(at+1)%len(e.configured)]
	return e.current != failed
}

// hint finds the endpoint of a leader, or makes it.
func (e *endpoints) hint(leader string) *endpoint {
	for _, known := range slices.Concat(e.configured, e.hinted) {
		if known.address == leader {
			return known
		}
	}
	if len(e.hinted) == hintsMax {
		return nil
	}
	hinted, err := e.open(leader)
	if err != nil {
		return nil
	}
	e.hinted = append(e.hinted, hinted)
	return hinted
}

// given has the addresses that the application gave.
func (e *endpoints) given() []string {
	addresses := make([]string, len(e.configured))
	for index, endpoint := range e.configured {
		addresses[index] = endpoint.address
	}
	return addresses
}

// others says whether there is more than one address to ask.
func (e *endpoints) others() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.configured)+len(e.hinted) > 1
}

// close ends all connections and whatever is on its way.
func (e *endpoints) close() {
	e.mu.Lock()
	all := slices.Concat(e.configured, e.hinted)
	e.closed = true
	e.mu.Unlock()
	for _, endpoint := range all {
		// The only error is that it was closed before.
		_ = endpoint.conn.Close()
	}
}

// sentKey is the key of a context for an atomic.Bool that says whether a request may have left.
type sentKey struct{}

// watchSent returns a context for one call, and what tells whether anything of it was sent.
func watchSent(ctx context.Context) (context.Context, *atomic.Bool) {
	sent := new(atomic.Bool)
	return context.WithValue(ctx, sentKey{}, sent), sent
}

// sentHandler notes when a call reaches a connection. Before that it cannot have been carried out.
type sentHandler struct{}

func (sentHandler) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

func (sentHandler) HandleRPC(ctx context.Context, event stats.RPCStats) {
	switch event := event.(type) {
	case *stats.Begin:
		// gRPC itself repeats only what the server has surely not looked at.
		if sent, ok := ctx.Value(sentKey{}).(*atomic.Bool); ok && event.IsTransparentRetryAttempt {
			sent.Store(false)
		}
	case *stats.OutHeader:
		if sent, ok := ctx.Value(sentKey{}).(*atomic.Bool); ok {
			sent.Store(true)
		}
	}
}

func (sentHandler) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

func (sentHandler) HandleConn(context.Context, stats.ConnStats) {}
