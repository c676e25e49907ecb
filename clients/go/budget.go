package boltq

import (
	"context"
	"sync"
)

// budget bounds how many messages, and how many bytes of them, are in memory. Who asks first gets room first.
type budget struct {
	bytesMax int

	mu       sync.Mutex
	messages int
	bytes    int
	waiting  []*claim
}

// claim is somebody who waits for room.
type claim struct {
	bytes   int
	granted chan struct{}
}

func newBudget(messages, bytes int) *budget {
	return &budget{bytesMax: bytes, messages: messages, bytes: bytes}
}

// count is what a message takes: one that is larger than all of it takes all, and goes alone.
func (b *budget) count(bytes int) int { return min(bytes, b.bytesMax) }

// tryAcquire takes room for one message, if there is some and nobody waits for it.
func (b *budget) tryAcquire(bytes int) bool {
	bytes = b.count(bytes)
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.waiting) > 0 || !b.fits(bytes) {
		return false
	}
	b.take(bytes)
	return true
}

// acquire waits for room for one message.
func (b *budget) acquire(ctx context.Context, bytes int) error {
	own := &claim{bytes: b.count(bytes), granted: make(chan struct{})}
	b.mu.Lock()
	b.waiting = append(b.waiting, own)
	b.grant()
	b.mu.Unlock()
	select {
	case <-own.granted:
		return nil
	case <-ctx.Done():
		b.withdraw(own)
		return context.Cause(ctx)
	}
}

func (b *budget) fits(bytes int) bool { return b.messages > 0 && b.bytes >= bytes }

func (b *budget) take(bytes int) {
	b.messages--
	b.bytes -= bytes
}

func (b *budget) withdraw(own *claim) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for at, claim := range b.waiting {
		if claim == own {
			b.waiting = append(b.waiting[:at], b.waiting[at+1:]...)
			// Those behind may need less.
			b.grant()
			return
		}
	}
	// It was granted in the same moment.
	b.messages++
	b.bytes += own.bytes
	b.grant()
}

// release gives back the room of one message.
func (b *budget) release(bytes int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.messages++
	b.bytes += b.count(bytes)
	b.grant()
}

func (b *budget) grant() {
	for len(b.waiting) > 0 && b.fits(b.waiting[0].bytes) {
		b.take(b.waiting[0].bytes)
		close(b.waiting[0].granted)
		b.waiting[0] = nil
		b.waiting = b.waiting[1:]
	}
}
