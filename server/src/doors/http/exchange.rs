//! `/exchange/…`: exchanges, bindings, and publishing to them.
//!
//! Checks go in this order: method, body, required members, operation. What the broker refuses is answered with 500, as this
//! API always has.

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use boltq_core::limits::FRAME_BYTES_MAX;

use super::refusal::{Refusal, members, required, whole};
use super::router::{AdminDoor, json};
use crate::doors::exchanges;
use crate::doors::requests::{BINDING_REQUIRED, Bind, Declare, Delete, NAME_REQUIRED, PublishExchange};
use crate::doors::traced;
use crate::service::ServiceError;

type Answer = Result<Response, Refusal>;

pub(super) async fn declare(State(door): State<AdminDoor>, body: Body) -> Answer {
    let body = whole(body, FRAME_BYTES_MAX).await?;
    let declare: Declare<'_> = members(&body)?;
    required(&declare.name, NAME_REQUIRED)?;
    done(exchanges::declare(&door.queues, &declare).await)
}

pub(super) async fn delete(State(door): State<AdminDoor>, body: Body) -> Answer {
    let body = whole(body, FRAME_BYTES_MAX).await?;
    let delete: Delete<'_> = members(&body)?;
    required(&delete.name, NAME_REQUIRED)?;
    done(door.queues.delete_exchange(&delete.name).await)
}

pub(super) async fn bind(State(door): State<AdminDoor>, body: Body) -> Answer {
    let body = whole(body, FRAME_BYTES_MAX).await?;
    let bind = binding(&body)?;
    done(exchanges::bind(&door.queues, &bind).await)
}

pub(super) async fn unbind(State(door): State<AdminDoor>, body: Body) -> Answer {
    let body = whole(body, FRAME_BYTES_MAX).await?;
    let bind = binding(&body)?;
    done(exchanges::unbind(&door.queues, &bind).await)
}

pub(super) async fn publish(State(door): State<AdminDoor>, headers: HeaderMap, body: Body) -> Answer {
    let body = whole(body, FRAME_BYTES_MAX).await?;
    let publish: PublishExchange<'_> = members(&body)?;
    let mut batch = door
        .queues
        .routed_batch()
        .map_err(|error| Refusal::of_service(&error))?;
    batch.called_in(traced::context(&door.queues, &headers));
    exchanges::push_exchange(&mut batch, &publish).map_err(|error| Refusal::of_service(&error))?;
    let answers = batch.publish().await.map_err(|error| Refusal::of_service(&error))?;
    let routed = answers.into_iter().next().unwrap_or(Err(ServiceError::Stopped));
    let routed = routed.map_err(|error| Refusal::of_service(&error))?;
    let body = format!(
        r#"{{"status":"published","id":"{}","routed":{}}}"#,
        routed.id, routed.queues
    );
    Ok(json(StatusCode::OK, body))
}

fn binding(body: &[u8]) -> Result<Bind<'_>, Refusal> {
    let bind: Bind<'_> = members(body)?;
    if bind.is_complete() {
        return Ok(bind);
    }
    Err(Refusal::bad_request(BINDING_REQUIRED))
}

fn done(outcome: Result<(), ServiceError>) -> Answer {
    outcome.map_err(|error| Refusal::of_service(&error))?;
    Ok(json(StatusCode::OK, r#"{"status":"ok"}"#))
}
