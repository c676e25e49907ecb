package boltq

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// errorDomain is the domain of every google.rpc.ErrorInfo that a server sends.
const errorDomain = "boltq"

// Error is a failure that a server has told, or that kept a call from being answered. Calls return it as error;
// find it with [errors.As], and ask for what matters with [errors.Is] and the Err… values of this package.
type Error struct {
	// Code is the status code of gRPC.
	Code codes.Code
	// Reason is the stable name of the failure, for example "QUEUE_FULL". Empty if it did not come from a server.
	Reason string
	// Message says what was wrong and what to do. Its text may change between versions.
	Message string
	// Metadata is what else the server says, for example "version" with the reason "CONDITION_NOT_MET".
	Metadata map[string]string
	// OutcomeUnknown is set if the call may have been carried out nevertheless.
	OutcomeUnknown bool

	retriable bool
	// repeats says whether this package repeats the call by itself, if that does no harm.
	repeats    bool
	retryAfter time.Duration
	// atOnce is set if the next attempt goes to another node, and need not wait.
	atOnce bool
	// leader is the messaging address of the node to ask instead; empty if it is not known.
	leader string
	// from is the address of the node that was asked, if the call failed on its way.
	from string
	// wrongServer is set if something else answers at the address than a server, or TLS is spoken by one side only.
	wrongServer bool
	// cause is what ended the retries, or the failure of another package.
	cause error
}

// Error implements error.
func (e *Error) Error() string {
	name := e.Reason
	if name == "" {
		name = e.Code.String()
	}
	text := fmt.Sprintf("boltq: %s (%s)", e.Message, name)
	if e.cause != nil {
		text += ": " + e.cause.Error()
	}
	if e.OutcomeUnknown {
		text += "; the outcome is unknown: it may have been carried out"
	}
	return text
}

// Unwrap returns what ended the retries, for example [context.DeadlineExceeded].
func (e *Error) Unwrap() error { return e.cause }

// Retriable says whether the same call can succeed later. What this package repeats by itself it has repeated before it
// returned the error; when there is no room, as with [ErrQueueFull], it repeats nothing, as that is for the application to
// decide.
func (e *Error) Retriable() bool { return e.retriable }

// RetryAfter is how long the server asks to wait before the same call; 0 if it says nothing of that.
func (e *Error) RetryAfter() time.Duration { return e.retryAfter }

// Is makes [errors.Is] true for the Err… values that describe e.
func (e *Error) Is(target error) bool {
	switch target := target.(type) {
	case reason:
		return e.Reason == string(target)
	case code:
		return e.Code == codes.Code(target)
	default:
		return target == ErrOutcomeUnknown && e.OutcomeUnknown || target == ErrWrongServer && e.wrongServer
	}
}

// GRPCStatus lets status.FromError and status.Code of gRPC understand the error.
func (e *Error) GRPCStatus() *status.Status { return status.New(e.Code, e.Message) }

// code is an error that stands for all failures with a status code.
type code codes.Code

func (c code) Error() string { return "boltq: " + codes.Code(c).String() }

// reason is an error that stands for all failures with a reason.
type reason string

func (r reason) Error() string { return "boltq: " + string(r) }

// Failures by their status code.
var (
	ErrInvalidArgument    error = code(codes.InvalidArgument)
	ErrNotFound           error = code(codes.NotFound)
	ErrAlreadyExists      error = code(codes.AlreadyExists)
	ErrPermissionDenied   error = code(codes.PermissionDenied)
	ErrUnauthenticated    error = code(codes.Unauthenticated)
	ErrFailedPrecondition error = code(codes.FailedPrecondition)
	ErrResourceExhausted  error = code(codes.ResourceExhausted)
	ErrUnavailable        error = code(codes.Unavailable)
)

// Failures by their reason; docs/grpc.md has all of them.
var (
	// ErrQueueFull: the queue holds as much as it may.
	ErrQueueFull error = reason("QUEUE_FULL")
	// ErrQueueDeleted: the queue was deleted while somebody waited for its messages.
	ErrQueueDeleted error = reason("QUEUE_DELETED")
	// ErrStorageFull: the disk of the server is full.
	ErrStorageFull error = reason("STORAGE_FULL")
	// ErrLeaseLost: the lease ended and somebody else holds the message now.
	ErrLeaseLost error = reason("LEASE_LOST")
	// ErrConditionNotMet: a condition of Set or Delete of the key-value cache does not hold.
	ErrConditionNotMet error = reason("CONDITION_NOT_MET")
	// ErrSubscriptionReplaced: the subscription to a topic was taken over by another one, or deleted.
	ErrSubscriptionReplaced error = reason("SUBSCRIPTION_REPLACED")
	// ErrClusteringNotEnabled: the node is alone by configuration.
	ErrClusteringNotEnabled error = reason("CLUSTERING_NOT_ENABLED")
)

var (
	// ErrOutcomeUnknown stands for every failure after which the call may have been carried out.
	ErrOutcomeUnknown = errors.New("boltq: the outcome is unknown")
	// ErrWrongServer: something answers at the address, and it is no server of BoltQ, or TLS is spoken by one side only.
	ErrWrongServer = errors.New("boltq: no server of BoltQ")
	// ErrClosed is returned by everything that belongs to a Client or Publisher that was closed.
	ErrClosed = errors.New("boltq: closed")
	// ErrStopTimeout is in what Worker.Run returns if handlers or settlements did not end in time, and is the cause with
	// which the contexts of those handlers end.
	ErrStopTimeout = errors.New("boltq: the worker did not stop in time")
	// ErrLeaseCeiling is the cause with which the context of a handler ends that took longer than WithMaxLease.
	ErrLeaseCeiling = errors.New("boltq: the handler took longer than its lease may be extended")
)

// errHandlerExited is what a handler has failed with that has ended its goroutine.
var errHandlerExited = errors.New("boltq: the handler ended its goroutine and did not return")

// notApplied has the reasons of failures that came before anything was done, so that the call can be repeated without
// doing its work twice. STOPPED is not among them, nor is LEADER_LOST, which tells of a call that was passed on.
var notApplied = map[string]bool{
	reasonNotLeader:                true,
	"QUEUE_FULL":                   true,
	"STORAGE_FULL":                 true,
	"NOT_ENOUGH_REPLICAS":          true,
	reasonKeysFull:                 true,
	"TOO_MANY_UNFINISHED_REQUESTS": true,
	"TOO_MANY_FAILED_ATTEMPTS":     true,
	reasonNodeRemoved:              true,
	"NOT_CURRENT":                  true,
	"NO_LEADER":                    true,
}

// forApplications has the reasons of failures that can pass and that are not repeated here: there is no room, or somebody
// is to be kept out.
var forApplications = map[string]bool{
	"QUEUE_FULL":               true,
	"STORAGE_FULL":             true,
	reasonKeysFull:             true,
	"TOO_MANY_FAILED_ATTEMPTS": true,
}

const (
	reasonKeysFull    = "IDEMPOTENCY_KEYS_FULL"
	reasonNotLeader   = "NOT_LEADER"
	reasonNodeRemoved = "NODE_REMOVED"
	// Of a server, for a call that shows no key that it knows.
	reasonUnauthenticated = "UNAUTHENTICATED"
)

// newError translates what gRPC returned. sent says whether any byte of the request may have left.
func newError(err error, sent bool) *Error {
	var known *Error
	if errors.As(err, &known) {
		return known
	}
	told := status.Convert(err)
	failure := &Error{Code: told.Code(), Message: told.Message()}
	for _, detail := range told.Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok && info.GetDomain() == errorDomain {
			failure.Reason, failure.Metadata = info.GetReason(), info.GetMetadata()
		}
	}
	if failure.Code == codes.Unknown && errors.Is(err, context.Canceled) {
		failure.Code = codes.Canceled
	}
	failure.leader = failure.Metadata["leader"]
	if wait, err := strconv.ParseInt(failure.Metadata["retry_after_ms"], 10, 32); err == nil && wait >= 0 {
		failure.retryAfter = time.Duration(wait) * time.Millisecond
		failure.retriable = true
	}
	failure.retriable = failure.retriable || failure.transportFailed() || failure.Reason == reasonNodeRemoved
	failure.repeats = failure.retriable && !forApplications[failure.Reason]
	failure.OutcomeUnknown = sent && failure.outcomeUnknown()
	return failure
}

// transportFailed says whether the call failed on its way and not by the decision of a server. A stream that the other
// side resets is reported with the code of the reset.
func (e *Error) transportFailed() bool {
	if e.Reason != "" {
		return false
	}
	switch e.Code {
	case codes.Unavailable, codes.Canceled:
		return true
	case codes.Internal, codes.Unknown:
		return strings.Contains(e.Message, "RST_STREAM") || strings.Contains(e.Message, "trailers")
	default:
		return false
	}
}

// outcomeUnknown says whether a call that was sent may have been carried out.
func (e *Error) outcomeUnknown() bool {
	if notApplied[e.Reason] {
		return false
	}
	switch e.Code {
	case codes.Unavailable, codes.Canceled, codes.DeadlineExceeded, codes.Internal, codes.Unknown, codes.DataLoss:
		return true
	default:
		return false
	}
}

// because returns a copy of e with what ended the retries; it is not repeated any more.
func (e *Error) because(cause error) *Error {
	ended := *e
	ended.cause, ended.repeats = cause, false
	return &ended
}

// passing is a failure of a stream that is found here, and that another stream does not have.
func passing(format string, arguments ...any) *Error {
	return &Error{
		Code: codes.Unavailable, Message: fmt.Sprintf(format, arguments...), OutcomeUnknown: true, retriable: true, repeats: true,
	}
}

// refused is a failure that is found here, before anything was sent.
func refused(reason, format string, arguments ...any) *Error {
	return &Error{Code: codes.InvalidArgument, Reason: reason, Message: fmt.Sprintf(format, arguments...)}
}

// BatchError says which items of a batch failed. The others were done.
type BatchError struct {
	// Failures has the failure of each item that failed, by its position from 0.
	Failures map[int]error
}

// Error implements error.
func (e *BatchError) Error() string {
	first := -1
	for index := range e.Failures {
		if first < 0 || index < first {
			first = index
		}
	}
	return fmt.Sprintf("boltq: %d items of the batch failed; the first is %d: %v", len(e.Failures), first, e.Failures[first])
}

// Unwrap returns all failures, so that [errors.Is] is true for what any of them is.
func (e *BatchError) Unwrap() []error {
	failures := make([]error, 0, len(e.Failures))
	for _, failure := range e.Failures {
		failures = append(failures, failure)
	}
	return failures
}

// batchError is nil without failures.
func batchError(failures map[int]error) error {
	if len(failures) == 0 {
		return nil
	}
	return &BatchError{Failures: failures}
}
