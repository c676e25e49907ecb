//! Lines of a file or of stdin, as batches for the server.
//!
//! A thread reads, because stdin blocks. A batch is closed when it is large, or when no further whole line has been
//! read yet: bulk input gives large batches, and a line that a program writes to the pipe is published at once.
//! Empty lines are skipped. Memory is bounded by the longest line that is accepted, whatever the input holds.

use std::io::{self, BufRead, BufReader, Read};
use std::thread;

use boltq_core::limits::{BATCH_MESSAGES_MAX, MESSAGE_BYTES_MAX};
use bytes::Bytes;
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// Payloads of a batch at most, unless one line alone has more.
const BATCH_BYTES_MAX: usize = 1024 * 1024;
const READ_BYTES: usize = 256 * 1024;
/// Batches that are read ahead.
const AHEAD_BATCHES: usize = 2;

/// Consecutive lines, and where they stood.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Batch {
    pub(super) lines: Vec<Line>,
    /// Numbers of lines that are over the limit of a message.
    pub(super) too_long: Vec<u64>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Line {
    /// From 1.
    pub(super) number: u64,
    pub(super) text: Bytes,
}

/// Starts to read. `overhead_bytes` is what a message has in addition to its line. The batches end with the input, or
/// with an error.
pub(super) fn read(input: impl Read + Send + 'static, overhead_bytes: usize) -> Receiver<io::Result<Batch>> {
    let (out, batches) = channel(AHEAD_BATCHES);
    thread::spawn(move || {
        let mut batcher = Batcher {
            overhead_bytes,
            batch: Batch::default(),
            batch_bytes: 0,
            out,
        };
        let result = batcher.run(BufReader::with_capacity(READ_BYTES, input));
        batcher.hand_over();
        if let Err(error) = result {
            batcher.send(Err(error));
        }
    });
    batches
}

struct Batcher {
    overhead_bytes: usize,
    batch: Batch,
    batch_bytes: usize,
    out: Sender<io::Result<Batch>>,
}

impl Batcher {
    fn run(&mut self, mut input: BufReader<impl Read>) -> io::Result<()> {
        let line_bytes_max = MESSAGE_BYTES_MAX.saturating_sub(self.overhead_bytes);
        for number in 1.. {
            let mut text = Vec::new();
            match read_line(&mut input, &mut text, line_bytes_max)? {
                ReadLine::End => break,
                ReadLine::TooLong => self.batch.too_long.push(number),
                ReadLine::Whole if text.is_empty() => {}
                ReadLine::Whole => self.push(number, text),
            }
            if !input.buffer().contains(&b'\n') {
                self.hand_over();
            }
            if self.out.is_closed() {
                break;
            }
        }
        Ok(())
    }

    fn push(&mut self, number: u64, text: Vec<u8>) {
        let message_bytes = text.len() + self.overhead_bytes;
        if self.batch.lines.len() == BATCH_MESSAGES_MAX || self.batch_bytes + message_bytes > BATCH_BYTES_MAX {
            self.hand_over();
        }
        self.batch_bytes += message_bytes;
        self.batch.lines.push(Line {
            number,
            text: Bytes::from(text),
        });
    }

    fn hand_over(&mut self) {
        self.batch_bytes = 0;
        let batch = std::mem::take(&mut self.batch);
        if batch != Batch::default() {
            self.send(Ok(batch));
        }
    }

    fn send(&self, batch: io::Result<Batch>) {
        // Fails when the command has ended, and then nobody wants the rest.
        let _ = self.out.blocking_send(batch);
    }
}

#[derive(Debug, PartialEq, Eq)]
enum ReadLine {
    Whole,
    /// Skipped, and `text` is of no use.
    TooLong,
    End,
}

/// Reads up to a line end or the end of the input, which `text` gets without `\n` or `\r\n`.
fn read_line(input: &mut impl BufRead, text: &mut Vec<u8>, bytes_max: usize) -> io::Result<ReadLine> {
    let mut any = false;
    let mut too_long = false;
    loop {
        let available = match input.fill_buf() {
            Ok(available) => available,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        if available.is_empty() && !any {
            return Ok(ReadLine::End);
        }
        any = true;
        let line_end = available.iter().position(|&byte| byte == b'\n');
        let part = &available[..line_end.unwrap_or(available.len())];
        // One more for a `\r` that does not count.
        too_long |= text.len() + part.len() > bytes_max + 1;
        if !too_long {
            text.extend_from_slice(part);
        }
        let read = part.len();
        let is_end = line_end.is_some() || available.is_empty();
        input.consume(read + usize::from(line_end.is_some()));
        if is_end {
            break;
        }
    }
    if text.last() == Some(&b'\r') {
        text.pop();
    }
    match too_long || text.len() > bytes_max {
        true => Ok(ReadLine::TooLong),
        false => Ok(ReadLine::Whole),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives its parts one read at a time, as a pipe does.
    struct Parts(Vec<&'static [u8]>);

    impl Read for Parts {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            if self.0.is_empty() {
                return Ok(0);
            }
            let part = self.0.remove(0);
            out[..part.len()].copy_from_slice(part);
            Ok(part.len())
        }
    }

    fn batches(input: impl Read + Send + 'static) -> Vec<Batch> {
        let mut receiver = read(input, 0);
        std::iter::from_fn(|| receiver.blocking_recv())
            .map(Result::unwrap)
            .collect()
    }

    fn numbered(batch: &Batch) -> Vec<(u64, &[u8])> {
        batch.lines.iter().map(|line| (line.number, &line.text[..])).collect()
    }

    #[test]
    fn lines_that_are_there_together_go_together_and_keep_their_numbers() {
        let read = batches(&b"a\n\nb\r\n\xff\nlast"[..]);
        assert_eq!(read.len(), 2);
        assert_eq!(numbered(&read[0]), [(1, &b"a"[..]), (3, b"b"), (4, b"\xff")]);
        assert_eq!(numbered(&read[1]), [(5, &b"last"[..])]);
    }

    #[test]
    fn a_line_does_not_wait_for_the_one_after_it() {
        let read = batches(Parts(vec![b"a\nhal", b"f\n", b"\n", b"c\n"]));
        let read: Vec<_> = read.iter().map(numbered).collect();
        assert_eq!(read, [[(1, &b"a"[..])], [(2, b"half")], [(4, b"c")]]);
    }

    #[test]
    fn batches_stay_under_the_limits_of_the_server() {
        let many = batches(io::Cursor::new(b"x\n".repeat(2_500)));
        assert_eq!(
            many.iter().map(|batch| batch.lines.len()).collect::<Vec<_>>(),
            [1_000, 1_000, 500]
        );
        let large = [&[b'x'; 700_000][..], b"\n"].concat().repeat(4);
        for batch in batches(io::Cursor::new(large)) {
            assert!(batch.lines.len() <= 2);
        }
    }

    #[test]
    fn a_line_over_the_limit_is_named_and_skipped() {
        let mut input = vec![b'x'; MESSAGE_BYTES_MAX + 1];
        input.extend_from_slice(b"\nnext\n");
        let read = batches(io::Cursor::new(input));
        assert_eq!(
            read.iter().flat_map(|batch| batch.too_long.clone()).collect::<Vec<_>>(),
            [1]
        );
        assert_eq!(read.iter().flat_map(numbered).collect::<Vec<_>>(), [(2, &b"next"[..])]);
    }

    #[test]
    fn the_limit_counts_neither_kind_of_line_end() {
        for (input, expected) in [
            (&b"abc\n"[..], ReadLine::Whole),
            (b"abc\r\n", ReadLine::Whole),
            (b"abc", ReadLine::Whole),
            (b"abcd\n", ReadLine::TooLong),
            (b"abcd\r\n", ReadLine::TooLong),
            (b"abcdef", ReadLine::TooLong),
            (b"", ReadLine::End),
        ] {
            let mut text = Vec::new();
            assert_eq!(read_line(&mut &input[..], &mut text, 3).unwrap(), expected, "{input:?}");
        }
    }

    #[test]
    fn an_error_of_the_input_comes_after_what_was_read() {
        struct Broken;
        impl Read for Broken {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::Error::other("broken"))
            }
        }
        let mut receiver = read(Parts(vec![b"a\n"]).chain(Broken), 0);
        assert_eq!(numbered(&receiver.blocking_recv().unwrap().unwrap()), [(1, &b"a"[..])]);
        assert_eq!(receiver.blocking_recv().unwrap().unwrap_err().to_string(), "broken");
        assert!(receiver.blocking_recv().is_none());
    }
}
