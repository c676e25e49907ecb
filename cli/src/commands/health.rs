//! `boltq health`

use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;

use super::Context;
use crate::address::Address;
use crate::args::Tls;
use crate::connect::{Server, Target, answer};
use crate::error::CliError;
use crate::printer::Health;

pub(super) async fn run(context: &mut Context) -> Result<(), CliError> {
    let mut health = context.server.health();
    // The empty name is the server as a whole.
    let response = answer(health.check(HealthCheckRequest { service: String::new() }), None).await?;
    let serving = response.status();
    let status = serving.as_str_name();
    context.printer.print(&Health { status })?;
    match serving {
        ServingStatus::Serving => Ok(()),
        ServingStatus::Unknown | ServingStatus::NotServing | ServingStatus::ServiceUnknown => {
            Err(CliError::NotServing(status))
        }
    }
}

/// Why a call may have broken. Somebody listens there.
pub(super) async fn diagnosis(target: &Target, why: String) -> CliError {
    if answers(target).await {
        return CliError::Lost { why };
    }
    let addr = target.addr.clone();
    match is_admin_port(&addr).await {
        true => CliError::AdminPort { addr },
        false => CliError::NotGrpc {
            addr,
            why,
            hint: hint(&target.tls),
        },
    }
}

/// What may be missing. Who wants a certificate of its clients closes the connection of those that show none, or another one, after
/// the handshake, and whoever makes the connection learns no more than that.
fn hint(tls: &Tls) -> &'static str {
    match (tls.is_asked_for(), tls.identity()) {
        (false, _) => "--tls if it speaks TLS",
        (true, Ok(Some(_))) => "a certificate that its authorities have signed: it may not take that of --cert-file",
        (true, _) => "--cert-file and --key-file if it wants a certificate of its clients",
    }
}

/// Whether `addr` answers the question for health that the admin port of a server has, in plain text.
async fn is_admin_port(addr: &str) -> bool {
    const LONGEST: Duration = Duration::from_secs(3);
    const ANSWER_BYTES_MAX: u64 = 4_096;
    let Ok(Address { host, port, .. }) = Address::read(addr) else {
        return false;
    };
    let ask = async {
        let mut stream = TcpStream::connect((host.as_str(), port)).await?;
        let request = format!("GET /livez HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer).await?;
        io::Result::Ok(answer)
    };
    let answer = timeout(LONGEST, ask).await;
    let answer = answer.ok().and_then(Result::ok).unwrap_or_default();
    answer.starts_with(b"HTTP/1.1 200") && answer.ends_with(br#"{"status":"ok"}"#)
}

/// Whether what listens there knows gRPC at all. For a call that broke: the admin port, another service and a port
/// forward to nowhere take connections too. Nobody there is no proof, the server may just have stopped.
async fn answers(target: &Target) -> bool {
    const LONGEST: Duration = Duration::from_secs(3);
    let Ok(server) = Server::connect(target).await else {
        return true;
    };
    let mut health = server.health();
    let check = answer(health.check(HealthCheckRequest { service: String::new() }), None);
    match timeout(LONGEST, check).await {
        Ok(answered) => !matches!(answered, Err(CliError::Lost { .. })),
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::Args;

    #[test]
    fn the_hint_is_what_was_not_given() {
        let hint = |options: &str| {
            let line = format!("boltq health {options}");
            hint(&Args::try_parse_from(line.split_whitespace()).unwrap().tls)
        };
        assert!(hint("").starts_with("--tls"));
        assert!(hint("--ca-file ca.pem").starts_with("--cert-file and --key-file"));
        assert!(hint("--tls --cert-file c --key-file k").contains("signed"));
    }
}
