package boltq

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	typev1 "github.com/boltq/boltq/clients/go/gen/boltq/type/v1"
)

// told is an error as a server sends it.
func told(code codes.Code, reason string, metadata map[string]string) error {
	status, err := status.New(code, "text").WithDetails(&errdetails.ErrorInfo{Domain: errorDomain, Reason: reason, Metadata: metadata})
	if err != nil {
		panic(err)
	}
	return status.Err()
}

func TestWhichFailuresAreRepeatedAndWhichMayHaveBeenCarriedOut(t *testing.T) {
	soon := map[string]string{"retry_after_ms": "100"}
	leader := func(more ...string) map[string]string {
		metadata := map[string]string{"retry_after_ms": "100"}
		for at := 0; at < len(more); at += 2 {
			metadata[more[at]] = more[at+1]
		}
		return metadata
	}
	for name, test := range map[string]struct {
		err              error
		unsent           bool
		repeats, unknown bool
		retriable        bool
	}{
		"not sent":                 {err: status.Error(codes.Unavailable, "refused"), unsent: true, repeats: true, retriable: true},
		"broken":                   {err: status.Error(codes.Unavailable, "EOF"), repeats: true, retriable: true, unknown: true},
		"reset":                    {err: status.Error(codes.Canceled, "RST_STREAM"), repeats: true, retriable: true, unknown: true},
		"reset as internal":        {err: status.Error(codes.Internal, "stream terminated by RST_STREAM"), repeats: true, retriable: true, unknown: true},
		"undecodable":              {err: status.Error(codes.Internal, "failed to decode"), unknown: true},
		"no leader known":          {err: told(codes.Unavailable, "NOT_LEADER", soon), repeats: true, retriable: true},
		"leader known":             {err: told(codes.Unavailable, "NOT_LEADER", leader("leader", "a:1", "leader_id", "n1")), repeats: true, retriable: true},
		"passed on":                {err: told(codes.Unavailable, "LEADER_LOST", soon), repeats: true, retriable: true, unknown: true},
		"stopping":                 {err: told(codes.Unavailable, "STOPPED", soon), repeats: true, retriable: true, unknown: true},
		"no majority":              {err: told(codes.Unavailable, "NO_MAJORITY", soon), repeats: true, retriable: true, unknown: true},
		"not in sync":              {err: told(codes.Unavailable, "NOT_IN_SYNC", soon), repeats: true, retriable: true, unknown: true},
		"not enough replicas":      {err: told(codes.Unavailable, "NOT_ENOUGH_REPLICAS", soon), repeats: true, retriable: true},
		"removed":                  {err: told(codes.Unavailable, "NODE_REMOVED", nil), repeats: true, retriable: true},
		"stalled":                  {err: told(codes.DeadlineExceeded, "REQUEST_STALLED", soon), repeats: true, retriable: true, unknown: true},
		"too much at a time":       {err: told(codes.ResourceExhausted, "TOO_MANY_UNFINISHED_REQUESTS", soon), repeats: true, retriable: true},
		"too much on a connection": {err: told(codes.ResourceExhausted, "TOO_MANY_UNFINISHED_REQUESTS", nil)},
		"full queue":               {err: told(codes.ResourceExhausted, "QUEUE_FULL", soon), retriable: true},
		"full disk":                {err: told(codes.ResourceExhausted, "STORAGE_FULL", soon), retriable: true},
		"keys":                     {err: told(codes.ResourceExhausted, "IDEMPOTENCY_KEYS_FULL", soon), retriable: true},
		"guessing":                 {err: told(codes.ResourceExhausted, "TOO_MANY_FAILED_ATTEMPTS", soon), retriable: true},
		"invalid":                  {err: told(codes.InvalidArgument, "INVALID_NAME", nil)},
		"another domain":           {err: func() error { return status.Error(codes.NotFound, "x") }()},
		"deadline of the client":   {err: status.FromContextError(context.DeadlineExceeded).Err(), unknown: true},
		"damaged":                  {err: told(codes.DataLoss, "STORAGE_DAMAGED", nil), unknown: true},
	} {
		t.Run(name, func(t *testing.T) {
			failure := newError(test.err, !test.unsent)
			if failure.repeats != test.repeats || failure.OutcomeUnknown != test.unknown || failure.Retriable() != test.retriable {
				t.Errorf("repeats %v, unknown %v, retriable %v", failure.repeats, failure.OutcomeUnknown, failure.Retriable())
			}
		})
	}
}

func TestErrorsAreFoundByCodeReasonAndCause(t *testing.T) {
	failure := newError(told(codes.FailedPrecondition, "CONDITION_NOT_MET", map[string]string{"version": "7"}), true)
	err := fmt.Errorf("the lock: %w", failure.because(context.DeadlineExceeded))
	for _, want := range []error{ErrConditionNotMet, ErrFailedPrecondition, context.DeadlineExceeded} {
		if !errors.Is(err, want) {
			t.Errorf("it is no %v", want)
		}
	}
	for _, other := range []error{ErrNotFound, ErrQueueFull, ErrOutcomeUnknown, context.Canceled} {
		if errors.Is(err, other) {
			t.Errorf("it is a %v", other)
		}
	}
	var found *Error
	if !errors.As(err, &found) || found.Metadata["version"] != "7" || status.Code(err) != codes.FailedPrecondition {
		t.Errorf("it is %v", found)
	}
	if !errors.Is(&Error{OutcomeUnknown: true}, ErrOutcomeUnknown) {
		t.Error("the outcome is not said to be unknown")
	}
	for _, unknown := range []bool{true, false} {
		text := (&Error{OutcomeUnknown: unknown, cause: ErrClosed}).Error()
		if strings.Contains(text, "outcome is unknown") != unknown || !strings.Contains(text, ErrClosed.Error()) {
			t.Errorf("the text is %q", text)
		}
	}
	batch := batchError(map[int]error{3: failure, 1: ErrClosed})
	if !errors.Is(batch, ErrClosed) || !errors.Is(batch, ErrConditionNotMet) || batchError(nil) != nil {
		t.Errorf("the batch is %v", batch)
	}
}

func TestPausesGrowAreRandomAndKeepWhatTheServerAndTheDeadlineSay(t *testing.T) {
	p := &pace{min: 10 * time.Millisecond, max: 100 * time.Millisecond}
	different := make(map[time.Duration]bool)
	for attempt, bound := range []time.Duration{10, 20, 40, 80, 100, 100} {
		for range 50 {
			p.failures = attempt
			pause := p.next()
			different[pause] = true
			if pause < 0 || pause > bound*time.Millisecond {
				t.Errorf("pause %d is %v", attempt, pause)
			}
		}
	}
	if len(different) < 100 {
		t.Errorf("300 pauses have %d lengths", len(different))
	}
	p.failures = 1 << 20
	if pause := p.next(); pause > p.max {
		t.Errorf("after many failures it is %v", pause)
	}

	p = &pace{min: time.Nanosecond, max: time.Nanosecond}
	begun := time.Now()
	if err := p.wait(t.Context(), &Error{retryAfter: 30 * time.Millisecond}); err != nil || time.Since(begun) < 30*time.Millisecond {
		t.Errorf("it waited %v, %v", time.Since(begun), err)
	}
	// It does not begin to wait for what comes after the end.
	hour := &Error{retryAfter: time.Hour}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := p.wait(ctx, hour); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("with a deadline: %v", err)
	}
	p.end = time.Now().Add(time.Minute)
	if err := p.wait(t.Context(), hour); !errors.Is(err, errRetryTimeout) {
		t.Errorf("with a timeout: %v", err)
	}
	p.reset()
	hour.atOnce = true
	if err := p.wait(t.Context(), hour); err != nil {
		t.Errorf("another node: %v", err)
	}
	if err := p.wait(t.Context(), hour); err == nil {
		t.Error("it goes from node to node without a pause")
	}
}

func TestCallsGoToTheLeaderThatWasNamedOrToTheNextAddress(t *testing.T) {
	client, err := New("a:1,b:1,c:1")
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	e := client.endpoints
	e.current = e.configured[0]
	move := func(leader, want string) {
		t.Helper()
		from, _ := e.pick()
		moved := e.failed(from, leader)
		to, _ := e.pick()
		if to.address != want || moved != (from != to) {
			t.Errorf("from %s it goes to %s and not to %s", from.address, to.address, want)
		}
	}
	first := e.current
	move("", "b:1")
	move("c:1", "c:1")
	move("leader:1", "leader:1")
	move("leader:1", "a:1")
	move("a:1", "b:1")
	// Who is told late does not move what is new.
	e.failed(first, "")
	if now, _ := e.pick(); now.address != "b:1" {
		t.Errorf("it goes to %s", now.address)
	}
	for leader := range hintsMax + 5 {
		from, _ := e.pick()
		e.failed(from, fmt.Sprintf("l%d:1", leader))
	}
	if len(e.hinted) != hintsMax {
		t.Errorf("%d leaders are remembered", len(e.hinted))
	}
}

func TestABudgetIsUsedInOrderAndGivenBack(t *testing.T) {
	b := newBudget(2, 100)
	if !b.tryAcquire(60) || b.tryAcquire(60) || !b.tryAcquire(40) || b.tryAcquire(0) {
		t.Fatal("messages or bytes are not bounded")
	}
	ctx, cancel := context.WithCancel(t.Context())
	large, small := make(chan error, 1), make(chan error, 1)
	go func() { large <- b.acquire(ctx, 1_000) }()
	waiting := func(want int) bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return len(b.waiting) == want
	}
	for !waiting(1) {
		time.Sleep(time.Millisecond)
	}
	go func() { small <- b.acquire(t.Context(), 1) }()
	for !waiting(2) {
		time.Sleep(time.Millisecond)
	}
	b.release(40)
	if !waiting(2) {
		t.Fatal("it overtakes who was first")
	}
	cancel()
	if err := <-large; !errors.Is(err, context.Canceled) {
		t.Errorf("who gave up got %v", err)
	}
	if err := <-small; err != nil {
		t.Errorf("who was behind got %v", err)
	}
	b.release(1)
	b.release(60)
	if b.messages != 2 || b.bytes != 100 {
		t.Errorf("%d messages and %d bytes are free", b.messages, b.bytes)
	}
}

func TestIdsAreReadAsTheyAreWritten(t *testing.T) {
	id := MessageID{1, 2, 255}
	if read, err := ParseMessageID(id.String()); err != nil || read != id || id.IsZero() {
		t.Errorf("%v, %v", read, err)
	}
	for _, wrong := range []string{"", "01", "zz0000000000000000000000000000000"} {
		if _, err := ParseMessageID(wrong); !errors.Is(err, ErrInvalidArgument) {
			t.Errorf("%q: %v", wrong, err)
		}
	}
}

func TestAnAddressWithoutAPortHasThatOfServers(t *testing.T) {
	for given, want := range map[string]string{
		"localhost":            "localhost:9091",
		"localhost:1":          "localhost:1",
		"10.0.0.1":             "10.0.0.1:9091",
		"::1":                  "[::1]:9091",
		"[::1]":                "[::1]:9091",
		"[::1]:1":              "[::1]:1",
		"fe80::1%eth0":         "[fe80::1%eth0]:9091",
		"dns:///boltq.example": "dns:///boltq.example",
		"unix:/run/boltq":      "unix:/run/boltq",
		"passthrough:///a:1":   "passthrough:///a:1",
	} {
		if got := withPort(given); got != want {
			t.Errorf("%q is %q", given, got)
		}
	}
	client, err := New("a, b:1")
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if a, b := client.endpoints.configured[0], client.endpoints.configured[1]; a.address != "a:9091" || b.address != "b:1" {
		t.Errorf("it goes to %s and %s", a.address, b.address)
	}
}

func TestAPublishWithAKeyIsMadeAgainWhereverItGoes(t *testing.T) {
	attempts := 0
	client, err := New("a:1", WithBackoff(time.Millisecond, time.Millisecond), WithDialOptions(grpc.WithChainUnaryInterceptor(
		func(ctx context.Context, _ string, _, _ any, _ *grpc.ClientConn, _ grpc.UnaryInvoker, _ ...grpc.CallOption) error {
			if attempts++; attempts == 1 {
				ctx.Value(sentKey{}).(*atomic.Bool).Store(true)
				return status.Error(codes.Unavailable, "EOF")
			}
			return nil
		})))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for name, publish := range map[string]func(Message, ...PublishOption) error{
		"topic": func(message Message, opts ...PublishOption) error {
			_, err := client.PublishTopic(t.Context(), "news", message, opts...)
			return err
		},
		"exchange": func(message Message, opts ...PublishOption) error {
			_, err := client.PublishExchange(t.Context(), "x", "", message, opts...)
			return err
		},
	} {
		attempts = 0
		if err := publish(Message{IdempotencyKey: "order-17"}); err != nil || attempts != 2 {
			t.Errorf("%s, with a key: %v after %d attempts", name, err, attempts)
		}
		attempts = 0
		if err := publish(Message{}, AtLeastOnce()); err != nil || attempts != 2 {
			t.Errorf("%s, at least once: %v after %d attempts", name, err, attempts)
		}
		attempts = 0
		if err := publish(Message{}); !errors.Is(err, ErrOutcomeUnknown) || attempts != 1 {
			t.Errorf("%s, without a key: %v after %d attempts", name, err, attempts)
		}
	}
}

func TestAnAttemptOfWhichNobodyKnowsLeavesTheOutcomeOpen(t *testing.T) {
	client, err := New("a:1", WithBackoff(time.Millisecond, time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for _, last := range []error{
		status.Error(codes.Unavailable, "refused"),
		told(codes.ResourceExhausted, reasonKeysFull, nil),
	} {
		attempts := 0
		calling, giveUp := context.WithCancel(t.Context())
		defer giveUp()
		err = client.retry(calling, always, func(ctx context.Context, _ grpc.ClientConnInterface) error {
			attempts++
			if attempts == 3 {
				giveUp()
			}
			if attempts == 1 {
				ctx.Value(sentKey{}).(*atomic.Bool).Store(true)
				return status.Error(codes.Unavailable, "EOF")
			}
			return last
		})
		if attempts < 2 || !errors.Is(err, ErrOutcomeUnknown) {
			t.Errorf("after %d attempts: %v", attempts, err)
		}
	}

	publisher := client.NewPublisher("jobs")
	defer publisher.abandon(ErrClosed)
	stream := &publishStream{publisher: publisher, pace: client.newPace(forever)}
	full := messageFailure{reason: reasonKeysFull, retriable: true}
	fresh := func(unknown bool) *Confirm {
		publisher.mu.Lock()
		publisher.outstanding++
		publisher.mu.Unlock()
		return &Confirm{
			done: make(chan struct{}), since: time.Now(), generated: true, unknown: unknown,
			message: &typev1.Message{IdempotencyKey: "made up"},
		}
	}
	// A key that was made up is left out only if no message can be there that has it.
	if confirm := fresh(false); !stream.refused(confirm, full) || confirm.message.IdempotencyKey != "" {
		t.Error("it is not sent without its key")
	}
	confirm := fresh(true)
	if stream.refused(confirm, full) {
		t.Error("it is sent without its key")
	}
	if _, err := confirm.Wait(t.Context()); !errors.Is(err, ErrOutcomeUnknown) {
		t.Errorf("it fails with %v", err)
	}
}

func TestNothingOvertakesWhatIsRefusedWithAnOrderingKey(t *testing.T) {
	client, err := New("a:1")
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	publisher := client.NewPublisher("jobs")
	defer publisher.abandon(ErrClosed)
	confirm := &Confirm{done: make(chan struct{}), since: time.Now(), generated: true, message: &typev1.Message{OrderingKey: "a", IdempotencyKey: "made up"}}
	stream := &publishStream{
		publisher: publisher, pace: client.newPace(forever), turn: make(chan struct{}, 1), ordered: 1,
		sent: []*batch{{confirms: []*Confirm{confirm}, ordered: true}},
	}
	ordered := func() int {
		stream.mu.Lock()
		defer stream.mu.Unlock()
		return stream.ordered
	}
	publisher.mu.Lock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		stream.answered(answered{failures: []messageFailure{{reason: reasonKeysFull, retriable: true}}})
	}()
	// It cannot wait to be sent again as long as this has the lock.
	time.Sleep(50 * time.Millisecond)
	if ordered() != 1 {
		t.Error("others with the key may be sent before it waits to be sent again")
	}
	publisher.outstanding++
	publisher.mu.Unlock()
	<-done
	if ordered() != 0 || confirm.generated {
		t.Errorf("%d are on their way", ordered())
	}
}
