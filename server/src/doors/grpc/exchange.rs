//! `boltq.exchange.v1.ExchangeService`.

use boltq_core::limits::BATCH_MESSAGES_MAX;
use boltq_proto::exchange::v1::exchange_service_server::ExchangeService;
use boltq_proto::exchange::v1::{
    BindRequest, BindResponse, Binding, DeclareRequest, DeclareResponse, DeleteRequest, DeleteResponse, Exchange,
    ExchangeType, ListBindingsRequest, ListBindingsResponse, ListRequest, ListResponse, PublishRequest,
    PublishResponse, UnbindRequest, UnbindResponse,
};
use bytes::Bytes;
use tonic::{Request, Response, Status};

use super::convert;
use super::error::invalid;
use crate::doors::traced;
use crate::service::{
    BindingInfo, ExchangeInfo, ExchangeKind, HeaderRule, NewBinding, NewExchange, Queues, ServiceError,
};

const PAGE_DEFAULT: usize = 100;

pub(super) struct ExchangeDoor {
    queues: Queues,
}

impl ExchangeDoor {
    pub(super) fn new(queues: Queues) -> Self {
        Self { queues }
    }
}

fn kind(number: i32) -> Result<ExchangeKind, Status> {
    match ExchangeType::try_from(number) {
        Ok(ExchangeType::Unspecified | ExchangeType::Direct) => Ok(ExchangeKind::Direct),
        Ok(ExchangeType::Fanout) => Ok(ExchangeKind::Fanout),
        Ok(ExchangeType::Topic) => Ok(ExchangeKind::Topic),
        Ok(ExchangeType::Headers) => Ok(ExchangeKind::Headers),
        Err(_) => Err(invalid(format!("type {number} is not known; 1 to 4 are"))),
    }
}

fn exchange(info: ExchangeInfo) -> Exchange {
    let kind = match info.kind {
        ExchangeKind::Direct => ExchangeType::Direct,
        ExchangeKind::Fanout => ExchangeType::Fanout,
        ExchangeKind::Topic => ExchangeType::Topic,
        ExchangeKind::Headers => ExchangeType::Headers,
    };
    Exchange {
        name: info.name,
        r#type: kind.into(),
        durable: info.durable,
        alternate_exchange: info.alternate,
        bindings: info.bindings as u64,
    }
}

fn binding(info: BindingInfo) -> Binding {
    let headers = info.rule.pairs().map(|(key, value)| (key.to_owned(), value.to_owned()));
    Binding {
        headers: headers.collect(),
        match_all: info.rule.all(),
        queue: info.queue,
        binding_key: info.key,
    }
}

#[tonic::async_trait]
impl ExchangeService for ExchangeDoor {
    async fn declare(&self, request: Request<DeclareRequest>) -> Result<Response<DeclareResponse>, Status> {
        let request = request.into_inner();
        let new = NewExchange {
            name: &request.name,
            kind: kind(request.r#type)?,
            durable: request.durable,
            alternate: &request.alternate_exchange,
        };
        let declared = self.queues.declare_exchange(new).await?;
        Ok(Response::new(DeclareResponse {
            exchange: Some(exchange(declared)),
        }))
    }

    async fn delete(&self, request: Request<DeleteRequest>) -> Result<Response<DeleteResponse>, Status> {
        self.queues.delete_exchange(&request.into_inner().name).await?;
        Ok(Response::new(DeleteResponse {}))
    }

    async fn bind(&self, request: Request<BindRequest>) -> Result<Response<BindResponse>, Status> {
        let request = request.into_inner();
        let binding = request.binding.ok_or_else(|| invalid("binding is missing"))?;
        let pairs = binding
            .headers
            .iter()
            .map(|(key, value)| (key.as_str(), value.as_str()));
        let new = NewBinding {
            exchange: &request.exchange,
            queue: &binding.queue,
            key: &binding.binding_key,
            rule: &HeaderRule::new(binding.match_all, pairs),
        };
        let created = self.queues.bind(new).await?;
        Ok(Response::new(BindResponse { created }))
    }

    async fn unbind(&self, request: Request<UnbindRequest>) -> Result<Response<UnbindResponse>, Status> {
        let UnbindRequest {
            exchange,
            queue,
            binding_key,
        } = request.into_inner();
        let removed = self.queues.unbind(&exchange, &queue, &binding_key).await?;
        Ok(Response::new(UnbindResponse {
            removed: removed as u64,
        }))
    }

    async fn publish(&self, request: Request<PublishRequest>) -> Result<Response<PublishResponse>, Status> {
        let caller = traced::context(&self.queues, request.metadata().as_ref());
        let request = request.into_inner();
        let message = request.message.ok_or_else(|| invalid("message is missing"))?;
        let mut batch = self.queues.routed_batch()?;
        batch.called_in(caller);
        convert::push_exchange(&mut batch, &request.exchange, &request.routing_key, &message)?;
        let routed = batch.publish().await?.pop().ok_or(ServiceError::Stopped)??;
        Ok(Response::new(PublishResponse {
            message_id: Bytes::copy_from_slice(&routed.id.0),
            routed: routed.queues as u64,
        }))
    }

    async fn list(&self, request: Request<ListRequest>) -> Result<Response<ListResponse>, Status> {
        let request = request.into_inner();
        let max = convert::count(request.page_size, "page_size", PAGE_DEFAULT, BATCH_MESSAGES_MAX)?;
        self.queues.begin_look(request.linearizable).await?;
        let (page, more) = self.queues.exchanges(&request.page_token, max);
        let last = page.last().filter(|_| more).map(|last| last.name.clone());
        Ok(Response::new(ListResponse {
            exchanges: page.into_iter().map(exchange).collect(),
            next_page_token: last.unwrap_or_default(),
        }))
    }

    async fn list_bindings(
        &self,
        request: Request<ListBindingsRequest>,
    ) -> Result<Response<ListBindingsResponse>, Status> {
        let request = request.into_inner();
        let max = convert::count(request.page_size, "page_size", PAGE_DEFAULT, BATCH_MESSAGES_MAX)?;
        let after = match request.page_token.as_str() {
            "" => 0,
            token => token
                .parse()
                .map_err(|_| invalid("page_token is not one of this server"))?,
        };
        self.queues.begin_look(request.linearizable).await?;
        let (page, more) = self.queues.bindings(&request.exchange, after, max)?;
        let next_page_token = if more {
            (after + page.len()).to_string()
        } else {
            String::new()
        };
        Ok(Response::new(ListBindingsResponse {
            bindings: page.into_iter().map(binding).collect(),
            next_page_token,
        }))
    }
}
