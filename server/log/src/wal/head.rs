//! The end of the write-ahead log: where the next frame goes, and what waits to be written.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use boltq_core::GroupId;
use bytes::Bytes;

use super::payload::{GroupStart, Start};
use super::{Batch, Outgoing};
use crate::files::LogFile;
use crate::frame::{self, Kind, Mark};
use crate::types::FileId;

/// A file that can be written to from its start to its end.
pub(crate) struct Prepared {
    pub(crate) id: FileId,
    pub(crate) handle: Arc<dyn LogFile>,
    pub(crate) bytes: u64,
}

/// The first file that each group needs.
type Needs = BTreeMap<GroupId, Option<FileId>>;

/// Guarded by one lock, which is held for as long as it takes to count.
pub(crate) struct Head {
    file: FileId,
    file_bytes: u64,
    end: u64,
    /// Bytes that were given places since the log was opened, on top of those that a replay found.
    total_bytes: u64,
    groups: BTreeMap<GroupId, GroupStart>,
    /// The file of the first entry after the newest durable checkpoint of a group, or that it was to go to.
    checkpoints: BTreeMap<GroupId, FileId>,
    /// What the first frames said that each group needs: that of the newest file that is on the device, and those after it.
    starts: VecDeque<(FileId, Needs)>,
    next: Option<Prepared>,
    /// The last file that there was when something was erased: none up to it may be recycled, and all of them are to go.
    erase_upto: FileId,
    /// Bytes that the next file has to have, if it is not an ordinary one.
    wanted_bytes: u64,
    batches: Vec<Batch>,
    /// The writer sleeps.
    pub(crate) idle: bool,
    /// The keeper should look for files that nothing needs.
    pub(crate) tidy: bool,
    closed: bool,
}

impl Head {
    /// Starts `first`, after the file `previous` whose frames end at `previous_end`.
    pub(crate) fn new(
        first: Prepared,
        previous: (FileId, u32),
        groups: BTreeMap<GroupId, GroupStart>,
        checkpoints: BTreeMap<GroupId, FileId>,
        total_bytes: u64,
    ) -> Self {
        let mut head = Self {
            file: previous.0,
            file_bytes: 0,
            end: u64::from(previous.1),
            total_bytes,
            groups,
            checkpoints,
            starts: VecDeque::new(),
            next: Some(first),
            erase_upto: FileId::NONE,
            wanted_bytes: 0,
            batches: Vec::new(),
            idle: false,
            tidy: false,
            closed: false,
        };
        let frames = head.roll().into_iter().collect();
        head.push(Batch {
            frames,
            sync: false,
            done: None,
        });
        head
    }

    /// Bytes of the first frame of the next file.
    pub(crate) fn start_bytes(&self) -> u64 {
        start_bytes(&self.groups)
    }

    /// Bytes that can still be given places without another file.
    pub(crate) fn left_bytes(&self) -> u64 {
        let next = self
            .next
            .as_ref()
            .map_or(0, |next| next.bytes.saturating_sub(self.start_bytes()));
        self.file_bytes.saturating_sub(self.end) + next
    }

    /// The place that the next frame gets, if it fits.
    pub(crate) fn end(&self) -> Mark {
        Mark {
            file: u64::from(self.file.0),
            offset: offset(self.end),
        }
    }

    /// The file that places are given in.
    pub(crate) fn file(&self) -> FileId {
        self.file
    }

    /// A frame that says up to where everything is on the device, with its place; none if the file is full.
    pub(crate) fn mark(&mut self) -> Option<Outgoing> {
        let mut frame = Outgoing::other(Kind::Mark, Bytes::new());
        if !self.fits(frame.bytes()) {
            return None;
        }
        self.place(&mut frame);
        Some(frame)
    }

    pub(crate) fn total_bytes(&self) -> u64 {
        self.total_bytes
    }

    pub(crate) fn fits(&self, bytes: u64) -> bool {
        self.end + bytes <= self.file_bytes
    }

    pub(crate) fn next_fits(&self, bytes: u64) -> bool {
        self.next.as_ref().is_some_and(|next| next.bytes >= bytes)
    }

    pub(crate) fn want(&mut self, bytes: u64) {
        self.wanted_bytes = self.wanted_bytes.max(bytes);
    }

    pub(crate) fn wanted_bytes(&self) -> u64 {
        self.wanted_bytes
    }

    pub(crate) fn set_next(&mut self, next: Prepared) -> Option<Prepared> {
        self.wanted_bytes = 0;
        self.next.replace(next)
    }

    pub(crate) fn take_next(&mut self) -> Option<Prepared> {
        self.next.take()
    }

    /// The file that was asked for cannot be had.
    pub(crate) fn forget_wanted(&mut self) {
        self.wanted_bytes = 0;
    }

    /// Goes on to the next file, if there is one, and returns its first frame, which has its place.
    pub(crate) fn roll(&mut self) -> Option<Outgoing> {
        let next = self.next.take()?;
        let start = Start {
            file_bytes: offset(next.bytes),
            previous: self.file,
            previous_end: offset(self.end),
            groups: self.groups.iter().map(|(id, group)| (*id, group.clone())).collect(),
        };
        let needs = self.groups.iter().map(|(id, group)| (*id, group.needed_from));
        self.starts.push_back((next.id, needs.collect()));
        self.file = next.id;
        self.file_bytes = next.bytes;
        self.end = 0;
        let mut frame = Outgoing::other(Kind::Start, start.encode());
        frame.opens = Some(next.handle);
        self.place(&mut frame);
        Some(frame)
    }

    /// Gives a place to a frame that fits.
    pub(crate) fn place(&mut self, frame: &mut Outgoing) {
        frame.set_place(self.file, offset(self.end));
        self.end += frame.bytes();
        self.total_bytes += frame.bytes();
        if let Some(prefix) = frame.prefix() {
            let group = self.groups.entry(prefix.group).or_default();
            group.needed_from.get_or_insert(self.file);
        }
    }

    pub(crate) fn push(&mut self, batch: Batch) {
        self.batches.push(batch);
    }

    pub(crate) fn group(&mut self, id: GroupId) -> &mut GroupStart {
        self.groups.entry(id).or_default()
    }

    /// A checkpoint of the group is durable; the first entry after it is in `replay`, or was to go there.
    pub(crate) fn checkpointed(&mut self, group: GroupId, replay: FileId) {
        self.checkpoints.insert(group, replay);
    }

    /// The first file that has to stay, when everything is on the device up to the first frame of `durable`.
    ///
    /// A start knows no more than the first frame of a file and the checkpoints, and refuses a log that begins after what
    /// they ask for. So nothing goes before both they and the groups as they are now agree.
    pub(crate) fn replay_from(&mut self, durable: FileId) -> FileId {
        while self.starts.get(1).is_some_and(|(file, _)| *file <= durable) {
            self.starts.pop_front();
        }
        self.first_needed(durable)
    }

    fn first_needed(&self, durable: FileId) -> FileId {
        let Some((file, needs)) = self.starts.iter().rfind(|(file, _)| *file <= durable) else {
            return FileId::NONE;
        };
        let said = needs.iter().map(|(group, needed)| {
            let replay = self.checkpoints.get(group).copied().unwrap_or_default();
            needed.unwrap_or(*file).max(replay)
        });
        said.chain(self.needed_now()).min().unwrap_or(*file).min(*file)
    }

    fn needed_now(&self) -> impl Iterator<Item = FileId> {
        self.groups.values().filter_map(|group| group.needed_from)
    }

    /// Everything up to the file `upto` is to go.
    pub(crate) fn erase(&mut self, upto: FileId) {
        self.erase_upto = upto.max(self.erase_upto);
    }

    pub(crate) fn erase_upto(&self) -> FileId {
        self.erase_upto
    }

    /// Whether the log has to go on in another file before those that are to go can: it is in one of them itself, or
    /// the first frame of its file says that they are needed, which they are no more.
    pub(crate) fn holds_erased(&self, durable: FileId) -> bool {
        let upto = self.erase_upto;
        let said = || self.first_needed(durable) <= upto && self.needed_now().all(|file| file > upto);
        upto > FileId::NONE && (self.file <= upto || durable >= self.file && said())
    }

    pub(crate) fn take_idle(&mut self) -> bool {
        std::mem::take(&mut self.idle)
    }

    pub(crate) fn take_batches(&mut self) -> Vec<Batch> {
        std::mem::take(&mut self.batches)
    }

    pub(crate) fn has_batches(&self) -> bool {
        !self.batches.is_empty()
    }

    pub(crate) fn has_next(&self) -> bool {
        self.next.is_some()
    }

    pub(crate) fn close(&mut self) {
        self.closed = true;
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }
}

/// At most this many bytes does the first frame of a file take that starts with these groups.
pub(crate) fn start_bytes(groups: &BTreeMap<GroupId, GroupStart>) -> u64 {
    let payload: usize = groups.values().map(|group| 64 + group.vote.len()).sum();
    frame::frame_bytes(64 + payload) as u64
}

/// Files are at most 2^31 bytes long or hold one entry of at most 2^30, so that offsets fit.
fn offset(at: u64) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}
