use boltq_proto::queue::v1 as proto;

use super::*;
use crate::Client;

struct Messages(Client);

impl Messages {
    fn new() -> Self {
        Self(Client::builder().address("localhost:1").build().expect("a client"))
    }

    /// A message under a lease.
    fn delivery(&self, id: u8, token: u8) -> Delivery {
        let wire = proto::Delivery {
            message_id: vec![id].into(),
            delivery_token: vec![token].into(),
            payload: vec![0; 10].into(),
            ..proto::Delivery::default()
        };
        Delivery::new(wire, self.0.settler().clone())
    }
}

const LOST: Result<()> = Err(Error::NotSettled(NotSettled::LeaseLost));

fn end() -> Instant {
    Instant::now() + Duration::from_secs(30)
}

/// A job whose handler runs.
fn running(jobs: &mut Jobs, delivery: &Delivery) {
    assert!(jobs.add(delivery.clone(), end()).is_none());
    assert_eq!(jobs.begin(Instant::now()).expect("one that waits").id(), delivery.id());
}

fn waiting(jobs: &mut Jobs) -> usize {
    assert_eq!(jobs.waiting_bytes() == 0, jobs.waiting.is_empty());
    jobs.take_waiting().len()
}

#[tokio::test]
async fn a_message_that_comes_again_gives_its_lease_to_the_handler_that_runs() {
    let (messages, mut jobs) = (Messages::new(), Jobs::default());
    running(&mut jobs, &messages.delivery(1, 1));
    jobs.stream_ended();
    assert!(jobs.add(messages.delivery(1, 2), end()).is_none());
    let due = jobs
        .finished(&messages.delivery(1, 1).id(), Settlement::Ack)
        .expect("a job");
    assert_eq!((&due.delivery.token()[..], waiting(&mut jobs)), (&[2][..], 0));
}

#[tokio::test]
async fn a_message_that_comes_again_while_it_is_acknowledged_is_acknowledged_again() {
    let (messages, mut jobs) = (Messages::new(), Jobs::default());
    running(&mut jobs, &messages.delivery(1, 1));
    let due = jobs
        .finished(&messages.delivery(1, 1).id(), Settlement::Ack)
        .expect("a job");
    jobs.add(messages.delivery(1, 2), end());
    let Afterwards::Again(due) = jobs.settled(due, LOST, Instant::now()) else {
        panic!("it has another lease");
    };
    assert_eq!(&due.delivery.token()[..], [2]);
    assert!(matches!(jobs.settled(due, Ok(()), Instant::now()), Afterwards::Nothing));
    assert_eq!((waiting(&mut jobs), jobs.by_id.len()), (0, 0));
}

#[tokio::test]
async fn a_message_that_is_given_back_and_comes_at_once_is_handled_again() {
    let (messages, mut jobs) = (Messages::new(), Jobs::default());
    running(&mut jobs, &messages.delivery(1, 1));
    let nack = Settlement::Nack { delay: None };
    let due = jobs.finished(&messages.delivery(1, 1).id(), nack).expect("a job");
    // Its new delivery is quicker than the answer to the settlement.
    jobs.add(messages.delivery(1, 2), end());
    assert!(matches!(jobs.settled(due, Ok(()), Instant::now()), Afterwards::Nothing));
    assert_eq!(waiting(&mut jobs), 1);
}

#[tokio::test]
async fn a_message_whose_acknowledgement_came_too_late_is_acknowledged_if_it_comes_again_and_told_otherwise() {
    let (messages, mut jobs) = (Messages::new(), Jobs::default());
    let now = Instant::now();
    for id in [1, 2, 3] {
        running(&mut jobs, &messages.delivery(id, 1));
    }
    jobs.stream_ended();
    for id in [1, 2, 3] {
        let due = jobs
            .finished(&messages.delivery(id, 1).id(), Settlement::Ack)
            .expect("a job");
        assert_eq!(jobs.unsettled().count(), usize::from(4 - id));
        assert!(matches!(jobs.settled(due, LOST, now), Afterwards::Nothing));
    }
    assert_eq!(jobs.unsettled().count(), 0);
    let due = jobs.add(messages.delivery(1, 2), end()).expect("it is acknowledged");
    assert_eq!((&due.delivery.token()[..], due.how), (&[2][..], Settlement::Ack));
    let soon = jobs.leases(now, now, Duration::MAX);
    assert!(soon.not_settled.is_empty());
    let late = jobs.leases(now + REMEMBERED_FOR, now, Duration::MAX);
    assert_eq!(late.not_settled.len(), 2);
    assert!(jobs.add(messages.delivery(2, 2), end()).is_none());
    assert_eq!(waiting(&mut jobs), 1);
}

#[tokio::test]
async fn what_is_gone_is_told_at_once_and_what_is_remembered_when_the_worker_ends() {
    let (messages, mut jobs) = (Messages::new(), Jobs::default());
    for id in [1, 2] {
        running(&mut jobs, &messages.delivery(id, 1));
    }
    let gone = Err(Error::NotSettled(NotSettled::NotFound));
    let due = jobs
        .finished(&messages.delivery(1, 1).id(), Settlement::Ack)
        .expect("a job");
    assert!(matches!(
        jobs.settled(due, gone, Instant::now()),
        Afterwards::NotSettled(..)
    ));
    let due = jobs
        .finished(&messages.delivery(2, 1).id(), Settlement::Ack)
        .expect("a job");
    assert!(matches!(jobs.settled(due, LOST, Instant::now()), Afterwards::Nothing));
    let told = jobs.take_remembered();
    assert_eq!((told.len(), jobs.by_id.len()), (1, 0));
    assert_eq!(told[0].0.id(), messages.delivery(2, 1).id());
}

#[tokio::test]
async fn what_has_no_handler_is_forgotten_with_its_stream() {
    let (messages, mut jobs) = (Messages::new(), Jobs::default());
    jobs.add(messages.delivery(1, 1), end());
    assert!(jobs.waiting_bytes() >= 10 && jobs.knows(&messages.delivery(1, 1)));
    jobs.stream_ended();
    assert!(jobs.begin(Instant::now()).is_none() && !jobs.knows(&messages.delivery(1, 1)));
    assert_eq!(jobs.waiting_bytes(), 0);
}

#[tokio::test]
async fn leases_are_extended_up_to_the_ceiling_of_a_handler_and_told_once_when_they_are_lost() {
    let (messages, mut jobs) = (Messages::new(), Jobs::default());
    let (now, ceiling) = (Instant::now(), Duration::from_secs(100));
    running(&mut jobs, &messages.delivery(1, 1));
    jobs.add(messages.delivery(2, 1), now + Duration::from_secs(30));
    let count = |leases: &Leases| (leases.to_extend.len(), leases.over_ceiling.len());
    let soon = now + Duration::from_secs(15);
    assert_eq!(count(&jobs.leases(now, soon, ceiling)), (0, 0));
    let late = now + Duration::from_secs(60);
    assert_eq!(count(&jobs.leases(now, late, ceiling)), (2, 0));
    assert_eq!(
        count(&jobs.leases(now, late, ceiling)),
        (0, 0),
        "they are asked for already"
    );
    let lease = messages.delivery(2, 1);
    assert!(jobs.extended(&lease, soon, Err(Error::Closed)).is_none());
    // What waits has no ceiling.
    let over = now + Duration::from_secs(101);
    assert_eq!(count(&jobs.leases(over, late, ceiling)), (1, 1));
    let id = messages.delivery(1, 1).id();
    let nack = Settlement::Nack { delay: None };
    assert!(jobs.finished(&id, nack).is_some());
    assert!(jobs.finished(&id, Settlement::Ack).is_none(), "it was given up before");
    let refused = Err(Error::Closed);
    assert!(
        jobs.extended(&lease, over, refused).is_none(),
        "it can be better the next time"
    );
    assert_eq!(count(&jobs.leases(over, late, ceiling)), (1, 0));
    assert!(jobs.extended(&lease, over, LOST).is_some());
    assert!(jobs.extended(&lease, over, LOST).is_none());
    assert_eq!(count(&jobs.leases(over, late, ceiling)), (0, 0));
}
