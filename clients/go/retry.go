package boltq

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
)

// repeat says when a call that failed may be made again.
type repeat int

const (
	// always: doing it twice is as good as doing it once.
	always repeat = iota
	// ifNotApplied: only when the failure says that nothing was done.
	ifNotApplied
)

// retry makes a call, and makes it again as long as its failure can pass: on another node if the failure names the leader
// or the node is gone, after a random pause that grows, and not before the server says so. All calls go through here or,
// if they are streams, use the same pace and the same failure.
func (c *Client) retry(ctx context.Context, how repeat, call func(context.Context, grpc.ClientConnInterface) error) error {
	pace := c.newPace(c.options.retryTimeout)
	// An attempt of which nobody knows leaves that open, whatever becomes of those after it.
	unknown := false
	for {
		endpoint, err := c.endpoints.pick()
		if err != nil {
			return err
		}
		attempt, sent := watchSent(ctx)
		err = call(attempt, endpoint.conn)
		if err == nil {
			c.endpoints.answered.Store(true)
			return nil
		}
		failure := pace.judge(c.failure(ctx, endpoint, err, sent.Load()))
		unknown = unknown || failure.OutcomeUnknown
		failure.OutcomeUnknown = unknown
		if !failure.repeats || (how == ifNotApplied && failure.OutcomeUnknown) {
			return failure
		}
		if err := pace.wait(ctx, failure); err != nil {
			return failure.because(err)
		}
	}
}

// failure translates the error of a call or stream, and moves on from an endpoint that has failed.
func (c *Client) failure(ctx context.Context, from *endpoint, err error, sent bool) *Error {
	failure := newError(err, sent)
	if failure.Reason == reasonUnauthenticated && c.options.shown != "" {
		// The server asks for a key, as if there were none.
		refused := *failure
		refused.Message = fmt.Sprintf("the %s that was shown is none of this server's, or not any more", c.options.shown)
		failure = &refused
	}
	if failure.Reason != "" {
		c.endpoints.answered.Store(true)
	}
	if errors.Is(context.Cause(ctx), ErrClosed) {
		return failure.because(ErrClosed)
	}
	if ctx.Err() != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return failure.because(context.Cause(ctx))
	}
	if ctx.Err() != nil || failure.Code == codes.DeadlineExceeded && failure.Reason == "" {
		// Nobody knows whether the node hangs, and any other one is as good.
		c.endpoints.failed(from, "")
		return failure.because(context.DeadlineExceeded)
	}
	if !c.endpoints.answered.Load() {
		if explained := c.explained(ctx, from, failure); explained != failure {
			failure, sent = explained, false
		}
	}
	if failure.repeats && failure.Code == codes.Unavailable || failure.transportFailed() {
		failure.from = from.address
		moved := c.endpoints.failed(from, failure.leader)
		// Somewhere else it may succeed at once: the node that was named, or any other one than one that is not there.
		failure.atOnce = moved && (failure.leader != "" || !sent)
		c.options.logger.Debug("boltq: a call failed", "address", from.address, "error", failure)
	}
	if failure.Reason == reasonNodeRemoved && !c.endpoints.others() {
		failure.repeats = false
	}
	return failure
}

// explained is a failure with what is probably wrong with the address, if that can be told. No server has answered before.
func (c *Client) explained(ctx context.Context, from *endpoint, failure *Error) *Error {
	explained := *failure
	switch {
	case failure.Code == codes.Unimplemented && failure.Reason == "":
		explained.Message = fmt.Sprintf("%s does not know this call: it is no server of BoltQ, or one of an older version (%s)",
			from.address, failure.Message)
		return &explained
	case !failure.transportFailed() || strings.Contains(failure.Message, "while dialing"):
		return failure
	case strings.Contains(failure.Message, "ALPN") || strings.Contains(failure.Message, "no application protocol"):
		explained.Message = httpOnly(from.address)
	default:
		explained.Message = strangerAt(ctx, from.address, c.options.tls != nil, c.options.connectTimeout)
	}
	if explained.Message == "" {
		return failure
	}
	explained.wrongServer, explained.OutcomeUnknown = true, false
	return &explained
}

// pace is the time between the attempts of one call, or to keep one stream up.
type pace struct {
	min, max time.Duration
	// end is when it gives up; zero: never.
	end      time.Time
	failures int
	// endpoints and unreached are for a client that no server has answered.
	endpoints *endpoints
	unreached unreached
}

// newPace gives up after a time; a negative time is none.
func (c *Client) newPace(timeout time.Duration) *pace {
	p := &pace{
		min: c.options.backoffMin, max: c.options.backoffMax,
		endpoints: c.endpoints, unreached: unreached{limit: c.options.connectTimeout},
	}
	if timeout >= 0 {
		p.end = time.Now().Add(timeout)
	}
	return p
}

// errRetryTimeout says that a call was repeated for as long as WithRetryTimeout allows.
var errRetryTimeout = errors.New("the time for repeating it is over")

// forever is the timeout of a pace that does not give up.
const forever = -1

// reset begins anew, after a success.
func (p *pace) reset() {
	p.failures = 0
	p.unreached.reset()
}

// judge returns the failure to go on with: if no server has ever answered and waiting is of no use, one that is not repeated.
func (p *pace) judge(failure *Error) *Error {
	if failure.from == "" || p.endpoints.answered.Load() {
		return failure
	}
	if verdict := p.unreached.note(p.endpoints.given(), failure); verdict != nil {
		return verdict
	}
	return failure
}

// next is how long to wait now: full jitter, so that clients which failed together do not come back together.
func (p *pace) next() time.Duration {
	bound := p.max
	// More doublings than this are over every bound.
	if shift := min(p.failures, 30); p.min<<shift < p.max && p.min<<shift > 0 {
		bound = p.min << shift
	}
	p.failures++
	return rand.N(bound + 1)
}

// wait waits for the next attempt, at least so long as the server asks for. It returns at once with the reason if that
// would be later than the deadline of the context or than the pace allows.
func (p *pace) wait(ctx context.Context, failure *Error) error {
	if failure.atOnce && p.failures == 0 {
		p.failures++
		return ctx.Err()
	}
	pause := p.unreached.bound(failure.retryAfter + p.next())
	until := time.Now().Add(pause)
	if deadline, ok := ctx.Deadline(); ok && until.After(deadline) {
		return context.DeadlineExceeded
	}
	if !p.end.IsZero() && until.After(p.end) {
		return errRetryTimeout
	}
	return sleep(ctx, pause)
}

func sleep(ctx context.Context, pause time.Duration) error {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
