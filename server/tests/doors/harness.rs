//! A node on free ports, and a client of the binary protocol that does only what it is told.

use std::net::SocketAddr;
use std::time::Duration;

use boltq_server::config::{Config, Flags, load};
use boltq_server::node::Node;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Longer than anything takes, shorter than anybody's patience.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) const OK: u8 = 0;
pub(crate) const ERROR: u8 = 1;
pub(crate) const EMPTY: u8 = 2;

pub(crate) const PUBLISH: u8 = 0x01;
pub(crate) const CONSUME: u8 = 0x03;
pub(crate) const ACK: u8 = 0x04;
pub(crate) const NACK: u8 = 0x05;
pub(crate) const PING: u8 = 0x06;
pub(crate) const STATS: u8 = 0x07;
pub(crate) const AUTH: u8 = 0x08;
pub(crate) const PREFETCH: u8 = 0x09;
pub(crate) const CONFIRM_SELECT: u8 = 0x13;

/// A node that stops when it is told, or with its test.
pub(crate) struct Server {
    pub(crate) messaging: SocketAddr,
    pub(crate) admin: SocketAddr,
    stop: oneshot::Sender<()>,
    running: JoinHandle<()>,
}

impl Server {
    pub(crate) async fn start() -> Self {
        Self::start_with(|_| {}).await
    }

    /// In memory, on free ports of this machine alone, with what `change` makes of it.
    pub(crate) async fn start_with(change: impl FnOnce(&mut Config)) -> Self {
        let mut config = load(&Flags::default(), []).unwrap().config;
        config.server.host = "127.0.0.1".to_owned();
        config.server.http_port = 0;
        config.server.tcp_port = 0;
        config.queue.retry_backoff = Duration::ZERO;
        change(&mut config);
        let node = Node::start(&config).await.unwrap();
        let (messaging, admin) = (node.messaging(), node.admin());
        let (stop, stopped) = oneshot::channel();
        let running = tokio::spawn(async move {
            let stopped = async {
                let _ = stopped.await;
            };
            node.run(stopped).await.unwrap();
        });
        Self {
            messaging,
            admin,
            stop,
            running,
        }
    }

    pub(crate) async fn client(&self) -> Client {
        Client {
            stream: TcpStream::connect(self.messaging).await.unwrap(),
        }
    }

    pub(crate) async fn stop(self) {
        self.stop.send(()).unwrap();
        timeout(PATIENCE, self.running).await.unwrap().unwrap();
    }
}

/// One connection.
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
}

pub(crate) fn frame(code: u8, body: &str) -> Vec<u8> {
    let mut frame = vec![code];
    frame.extend_from_slice(&u32::try_from(body.len()).unwrap().to_le_bytes());
    frame.extend_from_slice(body.as_bytes());
    frame
}

impl Client {
    pub(crate) async fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }

    /// The next frame: its status, and the text of its body.
    pub(crate) async fn frame(&mut self) -> (u8, String) {
        let read = async {
            let mut header = [0; 5];
            self.stream.read_exact(&mut header).await.unwrap();
            let length = u32::from_le_bytes(header[1..].try_into().unwrap());
            let mut body = vec![0; length as usize];
            self.stream.read_exact(&mut body).await.unwrap();
            (header[0], String::from_utf8(body).unwrap())
        };
        timeout(PATIENCE, read).await.expect("no reply")
    }

    /// The next frame, its body as JSON; an empty one is `null`.
    pub(crate) async fn reply(&mut self) -> (u8, Value) {
        let (status, body) = self.frame().await;
        if body.is_empty() {
            return (status, Value::Null);
        }
        (status, serde_json::from_str(&body).unwrap())
    }

    pub(crate) async fn ask(&mut self, code: u8, body: &str) -> (u8, Value) {
        self.send(&frame(code, body)).await;
        self.reply().await
    }

    /// The id of the message.
    pub(crate) async fn publish(&mut self, queue: &str, payload: &Value) -> String {
        let (status, reply) = self
            .ask(PUBLISH, &json!({"topic": queue, "payload": payload}).to_string())
            .await;
        assert_eq!((status, &reply["topic"]), (OK, &json!(queue)), "{reply}");
        id_of(&reply)
    }

    pub(crate) async fn consume(&mut self, queue: &str) -> (u8, Value) {
        self.ask(CONSUME, &json!({"topic": queue}).to_string()).await
    }

    /// Asks until there is a message: one that failed comes back in the background.
    pub(crate) async fn consume_soon(&mut self, queue: &str) -> Value {
        let wait = async {
            loop {
                match self.consume(queue).await {
                    (OK, message) => return message,
                    (EMPTY, _) => tokio::time::sleep(Duration::from_millis(5)).await,
                    other => panic!("{other:?}"),
                }
            }
        };
        timeout(PATIENCE, wait).await.expect("no message")
    }

    pub(crate) async fn settle(&mut self, code: u8, id: &str) -> (u8, Value) {
        self.ask(code, &json!({"id": id}).to_string()).await
    }

    /// Waits until the server closes, and returns what it sent before.
    pub(crate) async fn closed(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        timeout(PATIENCE, self.stream.read_to_end(&mut rest))
            .await
            .expect("still open")
            .unwrap();
        rest
    }
}

pub(crate) fn id_of(reply: &Value) -> String {
    let id = reply["id"].as_str().unwrap();
    assert!(
        id.len() == 32 && id.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')),
        "{id}"
    );
    id.to_owned()
}

pub(crate) fn error(text: &str) -> (u8, Value) {
    (ERROR, json!({"error": text}))
}

pub(crate) fn status(text: &str) -> (u8, Value) {
    (OK, json!({"status": text}))
}
