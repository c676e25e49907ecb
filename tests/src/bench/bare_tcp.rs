//! The framing of the binary protocol without a broker: headers are read, bodies are skipped, and all frames of one
//! read are answered with one write of as many replies.

use std::io;
use std::net::Ipv4Addr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::load::Failure;
use super::load_tcp::{FrameCounter, READ_BYTES, publish_reply};

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

async fn echo(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let reply = publish_reply();
    let replies = reply.repeat(REPLIES_PREPARED);
    let mut buffer = vec![0; READ_BYTES];
    let mut counter = FrameCounter::default();
    loop {
        let count = stream.read(&mut buffer).await?;
        if count == 0 {
            return Ok(());
        }
        let mut frames = counter.feed(&buffer[..count], |_| {});
        while frames > 0 {
            let now = frames.min(REPLIES_PREPARED);
            stream.write_all(&replies[..now * reply.len()]).await?;
            frames -= now;
        }
    }
}
