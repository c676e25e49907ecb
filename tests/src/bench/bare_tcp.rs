//! The framing of the binary protocol without a broker: frames are read, their JSON bodies are parsed with the payload left
//! as it is, as any server of this protocol has to, and all frames of one read are answered with one write of as many
//! replies. So it stands to the protocol as the bare gRPC server, which decodes its messages too, stands to gRPC.

use std::borrow::Cow;
use std::io;
use std::net::Ipv4Addr;

use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::load::Failure;
use super::load_tcp::{READ_BYTES, publish_reply};

/// Command, and the length of the body.
const FRAME_HEADER_BYTES: usize = 5;
/// Replies that are ready to be written at once; more are written in several goes.
const REPLIES_PREPARED: usize = 256;

/// Serves until the process ends.
///
/// # Errors
/// The port is taken.
pub async fn serve(port: u16) -> Result<(), Failure> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
    loop {
        let (stream, _) = listener.accept().await?;
        // A connection that breaks is the client's matter: it reports what went wrong.
        tokio::spawn(echo(stream));
    }
}

/// What a publish has to be looked at for.
#[derive(Deserialize)]
struct Publish<'a> {
    #[serde(borrow)]
    topic: Cow<'a, str>,
    #[serde(borrow)]
    payload: &'a RawValue,
}

async fn echo(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let reply = publish_reply();
    let replies = reply.repeat(REPLIES_PREPARED);
    let mut buffer = Vec::with_capacity(READ_BYTES);
    loop {
        if stream.read_buf(&mut buffer).await? == 0 {
            return Ok(());
        }
        let (mut frames, read) = parse(&buffer)?;
        buffer.drain(..read);
        while frames > 0 {
            let now = frames.min(REPLIES_PREPARED);
            stream.write_all(&replies[..now * reply.len()]).await?;
            frames -= now;
        }
    }
}

/// Number of whole frames at the start of `bytes`, and their length.
fn parse(bytes: &[u8]) -> io::Result<(usize, usize)> {
    let (mut frames, mut at) = (0, 0);
    while let Some(header) = bytes.get(at..at + FRAME_HEADER_BYTES) {
        let length = u32::from_le_bytes([header[1], header[2], header[3], header[4]]) as usize;
        let start = at + FRAME_HEADER_BYTES;
        let Some(body) = bytes.get(start..start + length) else {
            break;
        };
        let publish: Publish<'_> = serde_json::from_slice(body)?;
        // Not optimised away: the answer depends on it.
        if publish.topic.is_empty() || publish.payload.get().is_empty() {
            return Err(io::Error::other("a publish without topic or payload"));
        }
        at = start + length;
        frames += 1;
    }
    Ok((frames, at))
}
