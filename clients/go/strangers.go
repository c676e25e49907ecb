package boltq

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"time"
)

// What answers at an address where no gRPC does: for a failure that says what is probably wrong. A wrong port, or TLS on one side
// only, otherwise shows as a connection that breaks for no reason. A connection of its own is begun as gRPC begins one, and
// another one as HTTP/1.1 does, and the first bytes of the answers tell. It is done only for a connection that broke before
// any server has answered.

// asHTTP2 is the preface of HTTP/2, and settings, which are none.
const asHTTP2 = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"

const (
	// headBytes is the head of a frame: what is needed to tell anything from anything else.
	headBytes     = 9
	frameSettings = 4
	tlsAlert      = 0x15
	tlsMajor      = 3
)

// spoken is what somebody speaks.
type spoken int

const (
	spokenNothing spoken = iota
	spokenTLS
	spokenHTTP1
	spokenHTTP2
	spokenOther
)

// strangerAt says what is wrong with an address; empty: nothing that could be told from here in this time.
func strangerAt(ctx context.Context, address string, secure bool, within time.Duration) string {
	if host, _, err := net.SplitHostPort(address); err != nil || strings.Contains(host, "/") {
		return ""
	}
	switch speaks := spokenAt(ctx, address, within/2); {
	case speaks == spokenTLS && !secure:
		return address + " speaks TLS, and this client does not: switch it on with WithTLS or WithCAFile"
	case speaks == spokenHTTP2 && secure:
		return address + " does not speak TLS, and this client does: leave TLS out, or give the port that is encrypted"
	case speaks == spokenHTTP1:
		return httpOnly(address)
	case speaks == spokenOther:
		return address + " speaks neither gRPC nor HTTP: it is probably the port of another protocol. gRPC is on 9091 if nothing else is configured"
	default:
		return ""
	}
}

// httpOnly says what is wrong with an address that speaks HTTP/1.1 and nothing later.
func httpOnly(address string) string {
	return address + " speaks HTTP/1.1 and not gRPC: it is probably the port of the HTTP API. gRPC is on 9091 if nothing else is configured"
}

func spokenAt(ctx context.Context, address string, within time.Duration) spoken {
	first := spokenIn(answerTo(ctx, asHTTP2, address, within))
	if first != spokenNothing && first != spokenOther {
		return first
	}
	// Servers of HTTP/1.1 may hang up on the other without a word.
	request := fmt.Sprintf("GET / HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", address)
	if second := spokenIn(answerTo(ctx, request, address, within)); second != spokenNothing {
		return second
	}
	return first
}

func spokenIn(head []byte) spoken {
	switch {
	case len(head) == 0:
		return spokenNothing
	case len(head) > 1 && head[0] == tlsAlert && head[1] == tlsMajor:
		return spokenTLS
	case bytes.HasPrefix(head, []byte("HTTP/1.")):
		return spokenHTTP1
	case len(head) >= headBytes && head[3] == frameSettings && binary.BigEndian.Uint32(head[5:]) == 0:
		return spokenHTTP2
	default:
		return spokenOther
	}
}

// answerTo returns the first bytes of what is answered; none if nothing is.
func answerTo(ctx context.Context, request, address string, within time.Duration) []byte {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil
	}
	// It ends the reading, too.
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	defer func() { _ = conn.Close() }()
	if _, err := io.WriteString(conn, request); err != nil {
		return nil
	}
	head := make([]byte, headBytes)
	count, _ := io.ReadFull(conn, head)
	return head[:count]
}
