//! `boltq health`

use std::time::Duration;

use tokio::time::timeout;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;

use super::Context;
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

/// Whether what listens there knows gRPC at all. For a call that broke: the admin port, another service and a port
/// forward to nowhere take connections too. Nobody there is no proof, the server may just have stopped.
pub(super) async fn answers(target: &Target) -> bool {
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
