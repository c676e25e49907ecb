//! Requests that are encoded once.
//!
//! What a client takes from the processors is missing on the side of the server when both share a machine, and hides what the
//! server can do. All batches of a publisher are alike but for their stamps, so they are copied, and the stamps written over.

use std::marker::PhantomData;

use boltq_proto::queue::v1::{AckLevel, PublishStreamRequest, PublishStreamResponse};
use boltq_proto::r#type::v1::Message as QueueMessage;
use bytes::{BufMut, Bytes};
use prost::Message;
use prost::encoding::encoded_len_varint;
use tonic::Status;
use tonic::codec::{Codec, EncodeBuf, Encoder};
use tonic_prost::{ProstCodec, ProstDecoder};

use crate::driver::Batch;
use crate::stamp::{STAMP_BYTES, Stamp};

/// Of the fields that matter here; all have numbers up to 15.
const TAG_BYTES: usize = 1;

/// A request, and where the payloads are in it.
#[derive(Debug)]
pub(super) struct Template {
    request: Vec<u8>,
    /// Of the first payload.
    payload_at: usize,
    /// From one payload to the next.
    message_bytes: usize,
    messages: usize,
    stamped: bool,
}

impl Template {
    /// The first request of a stream names the queue; later ones may have an empty name.
    pub(super) fn of(batch: &Batch, queue: &str, ack_level: AckLevel) -> Self {
        let message = QueueMessage {
            payload: vec![b'x'; batch.payload_bytes].into(),
            ..QueueMessage::default()
        };
        let message_len = message.encoded_len();
        let queue_bytes = match queue.len() {
            0 => 0,
            len => TAG_BYTES + encoded_len_varint(len as u64) + len,
        };
        let request = PublishStreamRequest {
            queue: queue.to_owned(),
            messages: vec![message; batch.messages],
            ack_level: ack_level.into(),
        };
        let in_message = TAG_BYTES + encoded_len_varint(batch.payload_bytes as u64);
        let message_head = TAG_BYTES + encoded_len_varint(message_len as u64);
        Self {
            request: request.encode_to_vec(),
            payload_at: queue_bytes + message_head + in_message,
            message_bytes: message_head + message_len,
            messages: batch.messages,
            stamped: batch.payload_bytes >= STAMP_BYTES,
        }
    }

    /// The request with this stamp in every payload.
    pub(super) fn stamped(&self, stamp: Stamp) -> Bytes {
        let mut request = self.request.clone();
        if self.stamped {
            let stamp = stamp.to_bytes();
            for message in 0..self.messages {
                let at = self.payload_at + message * self.message_bytes;
                if let Some(place) = request.get_mut(at..at + STAMP_BYTES) {
                    place.copy_from_slice(&stamp);
                }
            }
        }
        request.into()
    }
}

/// Sends bytes that are a message already, decodes answers as usual.
#[derive(Debug, Default)]
pub(super) struct EncodedCodec(PhantomData<PublishStreamResponse>);

impl Codec for EncodedCodec {
    type Encode = Bytes;
    type Decode = PublishStreamResponse;
    type Encoder = BytesEncoder;
    type Decoder = ProstDecoder<PublishStreamResponse>;

    fn encoder(&mut self) -> BytesEncoder {
        BytesEncoder
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProstCodec::<PublishStreamResponse, PublishStreamResponse>::default().decoder()
    }
}

pub(super) struct BytesEncoder;

impl Encoder for BytesEncoder {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put(item);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::stamp::Clock;

    #[test]
    fn stamps_are_where_the_payloads_are() {
        let stamp = Clock::start().stamp(Instant::now());
        for queue in ["", "q", &"long".repeat(50)] {
            for payload_bytes in [0, 15, 16, 17, 127, 128, 20_000] {
                for messages in [1, 3] {
                    let batch = Batch {
                        queue: queue.to_owned(),
                        messages,
                        payload_bytes,
                    };
                    let request = Template::of(&batch, queue, AckLevel::Leader).stamped(stamp);
                    let request = PublishStreamRequest::decode(request).unwrap();
                    let mut expected = vec![b'x'; payload_bytes];
                    if payload_bytes >= STAMP_BYTES {
                        expected[..STAMP_BYTES].copy_from_slice(&stamp.to_bytes());
                    }
                    assert_eq!((request.queue.as_str(), request.ack_level()), (queue, AckLevel::Leader));
                    assert_eq!(request.messages.len(), messages);
                    assert!(request.messages.iter().all(|message| message.payload == expected));
                }
            }
        }
    }
}
