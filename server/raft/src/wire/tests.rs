use boltq_core::Term;
use openraft::EntryPayload;

use super::*;
use crate::encoding::{to_entry_id, to_log_id};
use crate::types::{EntryData, LogId, RaftEntry};

fn log_id(term: u64, index: u64) -> LogId {
    to_log_id(EntryId {
        term: Term(term),
        leader: NodeId(7),
        index: LogIndex(index),
    })
}

fn requests() -> Vec<Bytes> {
    let entry = |index, payload| RaftEntry {
        log_id: log_id(3, index),
        payload,
    };
    let append = AppendEntriesRequest {
        vote: Vote::new_committed(3, 7),
        prev_log_id: Some(log_id(2, 9)),
        entries: vec![
            entry(10, EntryPayload::Blank),
            entry(
                11,
                EntryPayload::Normal(EntryData::new(Bytes::from_static(b"commands"))),
            ),
        ],
        leader_commit: None,
    };
    let mut vote = VoteRequest::new(Vote::new(4, 8), Some(log_id(3, 11)));
    vote.leadership_transfer = true;
    let transfer = TransferLeaderRequest::new(Vote::new_committed(3, 7), 8, None);
    [
        Request::Append(append),
        Request::Vote(vote.clone()),
        Request::PreVote(vote),
        Request::Transfer(transfer),
        Request::ReadIndex,
        Request::Room,
        Request::Feed(NodeId(7)),
    ]
    .map(Request::encode)
    .to_vec()
}

#[test]
fn requests_come_back_and_cut_ones_are_refused() {
    for bytes in requests() {
        let again = Request::decode(&bytes).unwrap().encode();
        assert_eq!(again, bytes);
        for end in 0..bytes.len() {
            assert!(Request::decode(&bytes.slice(..end)).is_err(), "{end} of {bytes:?}");
        }
        let longer = Bytes::from([&bytes[..], &[0]].concat());
        assert!(Request::decode(&longer).is_err());
    }
}

#[test]
fn answers_come_back() {
    for answer in [
        AppendEntriesResponse::Success,
        AppendEntriesResponse::PartialSuccess(Some(log_id(1, 2))),
        AppendEntriesResponse::PartialSuccess(None),
        AppendEntriesResponse::Conflict,
        AppendEntriesResponse::HigherVote(Vote::new(9, 1)),
    ] {
        assert_eq!(decode_append_answer(&encode_append_answer(&answer)), Ok(answer));
    }
    for granted in [true, false] {
        let answer = VoteResponse::new(Vote::new(9, 1), Some(log_id(1, 2)), granted);
        assert_eq!(decode_vote_answer(&encode_vote_answer(&answer)), Ok(answer));
    }
    let (expected, actual) = (Vote::new(9, 1), Vote::new_committed(9, 1));
    for answer in [
        Ok(()),
        Err(TransferLeaderError::VoteChanged { expected, actual }),
        Err(TransferLeaderError::LogNotFlushed {
            expected: Some(log_id(1, 2)),
            actual: None,
        }),
    ] {
        assert_eq!(decode_transfer_answer(&encode_transfer_answer(&answer)), Ok(answer));
    }
    for answer in [
        ReadIndex::Is(LogIndex(u64::MAX)),
        ReadIndex::NotLeader,
        ReadIndex::NoMajority,
        ReadIndex::Stopped,
    ] {
        assert_eq!(decode_read_index_answer(&encode_read_index_answer(answer)), Ok(answer));
    }
    for room in [true, false] {
        assert_eq!(decode_room_answer(&encode_room_answer(room)), Ok(room));
    }
    assert_eq!(decode_feed_answer(&encode_feed_answer()), Ok(()));
    assert_eq!(decode_snapshot_answer(&encode_snapshot_answer(&expected)), Ok(expected));
}

#[test]
fn the_head_of_a_snapshot_comes_back() {
    let head = SnapshotHead {
        vote: Vote::new_committed(1, 2),
        applied: to_entry_id(&log_id(1, 2)),
        membership: Bytes::from_static(b"members"),
    };
    let bytes = head.encode();
    assert_eq!(SnapshotHead::decode(&bytes), Ok(head));
    assert!(SnapshotHead::decode(&bytes.slice(1..)).is_err());
}

/// From another node, so anything may come.
#[test]
fn any_change_of_any_byte_is_read_or_refused() {
    for bytes in requests() {
        for at in 0..bytes.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut changed = bytes.to_vec();
                changed[at] = value;
                // Whether it is refused depends on what the byte means.
                let _ = Request::decode(&Bytes::from(changed));
            }
        }
    }
}

/// They are where fuzzing starts, too.
#[test]
fn recorded_messages_are_read_and_written_as_they_were() {
    let seeds = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/seeds/raft_message");
    let mut count = 0;
    for file in std::fs::read_dir(seeds).unwrap() {
        let path = file.unwrap().path();
        let bytes = Bytes::from(std::fs::read(&path).unwrap());
        assert!(crate::fuzzing::message(&bytes), "{}", path.display());
        count += 1;
    }
    assert!(count >= 13, "{count}");
}

/// Fuzzing found that the data was dropped without a word.
#[test]
fn an_entry_without_commands_that_has_data_is_refused() {
    let entry = Entry {
        id: to_entry_id(&log_id(3, 1)),
        kind: 0,
        data: Bytes::from_static(b"data"),
    };
    assert!(to_raft_entry(entry).is_err());
}
