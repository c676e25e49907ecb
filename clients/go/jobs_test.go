package boltq

import (
	"context"
	"errors"
	"testing"
	"time"
)

func someDelivery(id, token byte) *Delivery {
	return &Delivery{ID: MessageID{id}, token: Token{token}}
}

// begun has a job whose handler runs.
func begun(t *testing.T, j *jobs, delivery *Delivery) *job {
	t.Helper()
	if job, _ := j.add(delivery, time.Now().Add(time.Hour)); job != nil {
		t.Fatalf("a new message has a job: %v", job)
	}
	return j.next(t.Context(), t.Context())
}

func waits(j *jobs) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.waiting)
}

func TestAMessageThatComesAgainGivesItsLeaseToTheHandlerThatRuns(t *testing.T) {
	j := newJobs(1 << 20)
	job := begun(t, j, someDelivery(1, 1))
	j.streamEnded()
	if again, _ := j.add(someDelivery(1, 2), time.Now()); again != nil || waits(j) != 0 {
		t.Fatal("it is handled twice")
	}
	j.finished(job, nil)
	if token, _ := j.outcome(job); token[0] != 2 {
		t.Errorf("it is settled with the lease %v", token)
	}
}

func TestAMessageThatComesAgainWhileItIsAcknowledgedIsAcknowledgedAgain(t *testing.T) {
	j := newJobs(1 << 20)
	job := begun(t, j, someDelivery(1, 1))
	j.finished(job, nil)
	token, _ := j.outcome(job)
	j.add(someDelivery(1, 2), time.Now())
	if next := j.settled(job, token, settleError(3)); next != settleAgain {
		t.Fatalf("the lease is lost, and what follows is %v", next)
	}
	token, _ = j.outcome(job)
	if next := j.settled(job, token, nil); token[0] != 2 || next != done || waits(j) != 0 {
		t.Errorf("what follows is %v, and %d wait", next, waits(j))
	}
}

func TestAMessageThatIsGivenBackAndComesAtOnceIsHandledAgain(t *testing.T) {
	j := newJobs(1 << 20)
	job := begun(t, j, someDelivery(1, 1))
	j.finished(job, errors.New("not now"))
	token, _ := j.outcome(job)
	// Its new delivery is quicker than the answer to the settlement.
	j.add(someDelivery(1, 2), time.Now())
	if next := j.settled(job, token, nil); next != done || waits(j) != 1 {
		t.Errorf("what follows is %v, and %d wait", next, waits(j))
	}
}

func TestAMessageThatWasHandledButNotAcknowledgedIsRemembered(t *testing.T) {
	j := newJobs(1 << 20)
	job := begun(t, j, someDelivery(1, 1))
	j.streamEnded()
	j.finished(job, nil)
	token, _ := j.outcome(job)
	j.settled(job, token, settleError(3))
	if again, _ := j.add(someDelivery(1, 2), time.Now()); again != job || waits(j) != 0 {
		t.Fatal("it is handled twice")
	}
	if token, result := j.outcome(job); token[0] != 2 || result != nil {
		t.Errorf("it is settled with %v and %v", token, result)
	}
}

func TestWhatHasNoHandlerIsForgottenWithItsStream(t *testing.T) {
	j := newJobs(1)
	j.add(someDelivery(1, 1), time.Now())
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := j.awaitRoom(ended); err == nil {
		t.Error("there is room although the bytes are used up")
	}
	j.streamEnded()
	if err := j.awaitRoom(t.Context()); err != nil || waits(j) != 0 || len(j.byID) != 0 {
		t.Errorf("%d wait, and there is no room: %v", waits(j), err)
	}
}

func TestALeaseIsExtendedOnceAtATime(t *testing.T) {
	j := newJobs(1 << 20)
	begun(t, j, someDelivery(1, 1))
	soon := time.Now().Add(2 * time.Hour)
	held := func() int {
		leases, _, _ := j.toExtend(time.Now(), soon, time.Hour)
		return len(leases)
	}
	first, _, _ := j.toExtend(time.Now(), soon, time.Hour)
	if len(first) != 1 || held() != 0 {
		t.Fatal("asked again while an answer is awaited")
	}
	j.extended(first[0], time.Time{}, errors.New("not now"))
	if held() != 1 {
		t.Fatal("not asked again after a failure")
	}
	// The same message with another lease needs another extension.
	j.add(someDelivery(1, 2), time.Now())
	if held() != 1 {
		t.Fatal("the new lease is not extended")
	}
	j.extended(first[0], soon.Add(time.Hour), nil)
	if held() != 0 {
		t.Fatal("an answer about the lease before counts for this one")
	}
}
