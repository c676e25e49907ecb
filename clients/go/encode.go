package boltq

import (
	"context"
	"fmt"
	"unicode/utf8"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	kvv1 "github.com/boltq/boltq/clients/go/gen/boltq/kv/v1"
	queuev1 "github.com/boltq/boltq/clients/go/gen/boltq/queue/v1"
	typev1 "github.com/boltq/boltq/clients/go/gen/boltq/type/v1"
)

// Requests that cannot be sent as they are, or are not taken. gRPC says little of these, and calls some an internal error, of
// which nobody knows what it has done.

// checkUnary tells why a request could not be sent.
func checkUnary(
	ctx context.Context, method string, request, answer any, conn *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption,
) error {
	if err := checkSize(request); err != nil {
		return err
	}
	return unencodable(invoker(ctx, method, request, answer, conn, opts...), request)
}

// checkStream tells why a request of a stream could not be sent.
func checkStream(
	ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption,
) (grpc.ClientStream, error) {
	stream, err := streamer(ctx, desc, conn, method, opts...)
	if err != nil {
		return nil, err
	}
	return checkedStream{stream}, nil
}

type checkedStream struct{ grpc.ClientStream }

// SendMsg implements grpc.ClientStream.
func (s checkedStream) SendMsg(request any) error {
	if _, checked := request.(*queuev1.PublishStreamRequest); !checked {
		if err := checkSize(request); err != nil {
			return err
		}
	}
	return unencodable(s.ClientStream.SendMsg(request), request)
}

// checkSize refuses what servers do not take in one request. They say so without a reason, after all of it has come.
func checkSize(request any) error {
	message, ok := request.(proto.Message)
	if !ok {
		return nil
	}
	bytes := proto.Size(message)
	if bytes <= requestBytesMax {
		return nil
	}
	reason, what := "INVALID_ARGUMENT", "request"
	switch request.(type) {
	case interface{ GetMessage() *typev1.Message }:
		reason, what = "MESSAGE_TOO_LARGE", "message"
	case *kvv1.SetRequest:
		reason, what = "VALUE_TOO_LARGE", "value"
	}
	return refused(reason, "%s has %d bytes with what goes around it; a request has %d at most", what, bytes, requestBytesMax)
}

// unencodable returns err, or what is wrong with the request if that is why it was not sent.
func unencodable(err error, request any) error {
	// Looked at only then, so that calls do not pay for it.
	if status.Code(err) != codes.Internal {
		return err
	}
	if message, ok := request.(proto.Message); ok {
		if field := notUTF8(message.ProtoReflect()); field != "" {
			return notText(field)
		}
	}
	return err
}

func notText(field string) *Error {
	return refused("INVALID_ARGUMENT", "%s is not UTF-8, as all text has to be; the payload may be any bytes", field)
}

// checkText is for messages that are sent together with others, which one that cannot be sent would take along.
func checkText(message *typev1.Message) error {
	valid := utf8.ValidString(message.ContentType) && utf8.ValidString(message.IdempotencyKey) && utf8.ValidString(message.OrderingKey)
	for name, value := range message.Headers {
		valid = valid && utf8.ValidString(name) && utf8.ValidString(value)
	}
	if valid {
		return nil
	}
	return notText(notUTF8(message.ProtoReflect()))
}

// notUTF8 names a field whose text is not UTF-8; "" if there is none.
func notUTF8(message protoreflect.Message) string {
	found := ""
	message.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		name := string(field.Name())
		switch {
		case field.IsMap():
			value.Map().Range(func(key protoreflect.MapKey, value protoreflect.Value) bool {
				if at := notUTF8In(field.MapKey(), key.Value()); at != nil {
					found = fmt.Sprintf("a key of %s, %q,", name, key.String())
				} else if at := notUTF8In(field.MapValue(), value); at != nil {
					found = fmt.Sprintf("%s[%q]%s", name, key.String(), *at)
				}
				return found == ""
			})
		case field.IsList():
			for index := range value.List().Len() {
				if at := notUTF8In(field, value.List().Get(index)); at != nil {
					found = fmt.Sprintf("%s[%d]%s", name, index, *at)
					break
				}
			}
		default:
			if at := notUTF8In(field, value); at != nil {
				found = name + *at
			}
		}
		return found == ""
	})
	return found
}

// notUTF8In says where in a single value text is not UTF-8: in itself if that is empty.
func notUTF8In(field protoreflect.FieldDescriptor, value protoreflect.Value) *string {
	at := ""
	switch field.Kind() {
	case protoreflect.StringKind:
		if utf8.ValidString(value.String()) {
			return nil
		}
	case protoreflect.MessageKind:
		inner := notUTF8(value.Message())
		if inner == "" {
			return nil
		}
		at = "." + inner
	default:
		return nil
	}
	return &at
}
