package boltq

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"google.golang.org/grpc"
)

// Option configures a Client.
type Option func(*options) error

type options struct {
	credentials callCredentials
	// shown is what the credentials are called.
	shown          string
	tls            *tls.Config
	connectTimeout time.Duration
	retryTimeout   time.Duration
	backoffMin     time.Duration
	backoffMax     time.Duration
	window         int32
	generatedKeys  bool
	logger         *slog.Logger
	dial           []grpc.DialOption
}

func defaultOptions() options {
	return options{
		connectTimeout: 5 * time.Second,
		retryTimeout:   30 * time.Second,
		backoffMin:     50 * time.Millisecond,
		backoffMax:     2 * time.Second,
		window:         1 << 20,
		generatedKeys:  true,
		logger:         slog.New(slog.DiscardHandler),
	}
}

// WithAPIKey shows an API key of the server with every call.
func WithAPIKey(key string) Option {
	return func(o *options) error {
		o.shown = "API key"
		o.credentials = func(context.Context) (map[string]string, error) {
			return map[string]string{"x-api-key": key}, nil
		}
		return nil
	}
}

// WithToken shows a bearer token with every call, as "authorization: Bearer …".
func WithToken(token string) Option {
	return WithTokenSource(func(context.Context) (string, error) { return token, nil })
}

// WithTokenSource asks for a bearer token before every call. The source has to be quick, so it keeps the token as long
// as that is good, and may be called by many goroutines at a time.
func WithTokenSource(source func(context.Context) (string, error)) Option {
	return func(o *options) error {
		if source == nil {
			return errors.New("boltq: the source of tokens is nil")
		}
		o.shown = "token"
		o.credentials = func(ctx context.Context) (map[string]string, error) {
			token, err := source(ctx)
			if err != nil {
				return nil, err
			}
			return map[string]string{"authorization": "Bearer " + token}, nil
		}
		return nil
	}
}

// WithTLS encrypts connections. A nil config believes the authorities of the system.
func WithTLS(config *tls.Config) Option {
	return func(o *options) error {
		if config == nil {
			config = &tls.Config{}
		}
		o.tls = config.Clone()
		return nil
	}
}

// WithCAFile encrypts connections and believes the authorities in a PEM file, and no others.
func WithCAFile(path string) Option {
	return func(o *options) error {
		pem, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("boltq: authorities: %w", err)
		}
		authorities := x509.NewCertPool()
		if !authorities.AppendCertsFromPEM(pem) {
			return fmt.Errorf("boltq: authorities: no certificate in %s", path)
		}
		o.needTLS().RootCAs = authorities
		return nil
	}
}

// WithClientCertificate shows a certificate, for servers that ask clients for one (mTLS). Both files are PEM, and they are
// read for every connection, so new ones are used without a restart.
func WithClientCertificate(certFile, keyFile string) Option {
	return func(o *options) error {
		load := func() (*tls.Certificate, error) {
			certificate, err := tls.LoadX509KeyPair(certFile, keyFile)
			if err != nil {
				return nil, fmt.Errorf("boltq: client certificate: %w", err)
			}
			return &certificate, nil
		}
		if _, err := load(); err != nil {
			return err
		}
		o.needTLS().GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return load() }
		return nil
	}
}

func (o *options) needTLS() *tls.Config {
	if o.tls == nil {
		o.tls = &tls.Config{}
	}
	return o.tls
}

// WithConnectTimeout bounds one attempt to connect to one address, and all of them together as long as no server has ever
// answered this client: its calls fail then, and do not wait as long as they may take. Workers wait for ever. Default 5 s.
func WithConnectTimeout(timeout time.Duration) Option {
	return func(o *options) error {
		if timeout <= 0 {
			return errors.New("boltq: the connect timeout has to be over 0")
		}
		o.connectTimeout = timeout
		return nil
	}
}

// WithRetryTimeout says how long a call is repeated that fails in a way that can pass, as while a cluster has no leader or
// a
// node is restarted. Its context bounds it too. 0 repeats nothing. Default 30 s. Subscriptions and workers
// connect again for as long as their context lives.
func WithRetryTimeout(timeout time.Duration) Option {
	return func(o *options) error {
		o.retryTimeout = max(0, timeout)
		return nil
	}
}

// WithBackoff says how long to wait between attempts: a random time between 0 and a bound, which is the first for the
// first repetition, doubles with each, and is the second at most. Defaults 50 ms and 2 s.
func WithBackoff(first, longest time.Duration) Option {
	return func(o *options) error {
		if first <= 0 || longest < first {
			return errors.New("boltq: the bounds of the backoff have to be over 0, and in their order")
		}
		o.backoffMin, o.backoffMax = first, longest
		return nil
	}
}

// WithWindow is how many bytes of a subscription or watch are on their way from the server before they are read, 64 KiB at
// least; together with the response that is read last, of up to 4 MiB, that is what a slow consumer holds. Default 1 MiB. More
// is quicker over long distances.
func WithWindow(bytes int32) Option {
	return func(o *options) error {
		o.window = max(64<<10, bytes)
		return nil
	}
}

// WithGeneratedKeys says whether messages that are published to a queue without an idempotency key get a random one.
// Default true; the section "Publishing" of the package documentation says what it costs and what it is good for.
func WithGeneratedKeys(generate bool) Option {
	return func(o *options) error {
		o.generatedKeys = generate
		return nil
	}
}

// WithLogger logs lost connections, and what handlers of workers did wrong. Default: nothing is logged.
func WithLogger(logger *slog.Logger) Option {
	return func(o *options) error {
		if logger == nil {
			logger = slog.New(slog.DiscardHandler)
		}
		o.logger = logger
		return nil
	}
}

// WithDialOptions adds options of gRPC, for example interceptors or a dialer.
func WithDialOptions(more ...grpc.DialOption) Option {
	return func(o *options) error {
		o.dial = append(o.dial, more...)
		return nil
	}
}

// callCredentials is the metadata of a call that shows who calls.
type callCredentials func(context.Context) (map[string]string, error)

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (c callCredentials) GetRequestMetadata(ctx context.Context, _ ...string) (map[string]string, error) {
	return c(ctx)
}

// RequireTransportSecurity implements credentials.PerRPCCredentials. Whether to encrypt is for the user to say.
func (c callCredentials) RequireTransportSecurity() bool { return false }
