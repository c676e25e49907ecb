package boltq

import (
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
)

// unreached has the attempts of one call or stream of a client that no server has ever answered.
//
// What a client has to know from outside is most often wrong at its first call: the address, the port, TLS. Then its calls do not
// wait for as long as they may take. Each address is tried, and then for a while again, as a server may just be starting; where a
// server answers that is none of ours, waiting does not help. Once one has answered, a failure is an outage, and that is waited out.
type unreached struct {
	// limit is for how long; negative: for ever.
	limit time.Duration
	// end is when waiting is over; zero without a failure.
	end time.Time
	// failures has the last one at each address.
	failures map[string]*Error
}

// note remembers a failure, and returns what to report; nil: another attempt is worth it.
func (u *unreached) note(addresses []string, failure *Error) *Error {
	if len(u.failures) == 0 {
		u.failures = make(map[string]*Error)
		if u.limit >= 0 {
			u.end = time.Now().Add(u.limit)
		}
	}
	u.failures[failure.from] = failure
	wrong, unknown := true, false
	texts := make([]string, 0, len(addresses))
	for _, address := range addresses {
		one, tried := u.failures[address]
		if !tried {
			return nil
		}
		wrong, unknown = wrong && one.wrongServer, unknown || one.OutcomeUnknown
		texts = append(texts, one.Message)
	}
	if !wrong && (u.end.IsZero() || time.Now().Before(u.end)) {
		return nil
	}
	text := strings.Join(texts, "; ")
	if !wrong {
		text = fmt.Sprintf("no server has answered within %v: %s", u.limit, text)
	}
	u.reset()
	return &Error{Code: codes.Unavailable, Message: text, OutcomeUnknown: unknown, retriable: true, wrongServer: wrong}
}

// bound makes a pause no longer than it may be.
func (u *unreached) bound(pause time.Duration) time.Duration {
	if u.end.IsZero() {
		return pause
	}
	return max(0, min(pause, time.Until(u.end)))
}

// reset is for when a server has answered, or a failure was reported.
func (u *unreached) reset() { u.failures, u.end = nil, time.Time{} }
