//! Spans as OTLP has them.

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::span::{Link, SpanKind};
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span as SpanProto, Status};

use super::context::TraceContext;
use super::span::{Span, Value};

/// What all spans of this server have in common.
pub(super) fn resource(service_name: &str, instance: &str) -> Resource {
    let attributes = [
        ("service.name", service_name),
        ("service.instance.id", instance),
        ("service.version", env!("CARGO_PKG_VERSION")),
    ];
    Resource {
        attributes: attributes.map(|(key, value)| text(key, value)).to_vec(),
        ..Resource::default()
    }
}

/// A call with these spans.
pub(super) fn request(resource: &Resource, spans: &[Span]) -> ExportTraceServiceRequest {
    let scope = InstrumentationScope {
        name: "boltq".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..InstrumentationScope::default()
    };
    ExportTraceServiceRequest {
        resource_spans: vec![ResourceSpans {
            resource: Some(resource.clone()),
            scope_spans: vec![ScopeSpans {
                scope: Some(scope),
                spans: spans.iter().map(span).collect(),
                ..ScopeSpans::default()
            }],
            ..ResourceSpans::default()
        }],
    }
}

fn span(span: &Span) -> SpanProto {
    let parent = span.parent.map(|parent| parent.to_be_bytes().to_vec());
    SpanProto {
        trace_id: span.context.trace.to_be_bytes().to_vec(),
        span_id: span.context.span.to_be_bytes().to_vec(),
        trace_state: state(&span.context),
        parent_span_id: parent.unwrap_or_default(),
        flags: span.context.flags(),
        name: format!("{} {}", span.operation.name(), span.destination),
        kind: SpanKind::Server.into(),
        start_time_unix_nano: span.start_ns,
        end_time_unix_nano: span.end_ns,
        attributes: attributes(span),
        links: span.links.iter().map(link).collect(),
        // Without an error nothing is claimed: that is for who judges the whole.
        status: span.error.as_ref().map(|(_, sentence)| Status {
            message: sentence.clone(),
            code: StatusCode::Error.into(),
        }),
        ..SpanProto::default()
    }
}

fn attributes(span: &Span) -> Vec<KeyValue> {
    let mut attributes = vec![
        text("messaging.system", "boltq"),
        text("messaging.operation.name", span.operation.name()),
        text("messaging.operation.type", span.operation.kind()),
        text("messaging.destination.name", &span.destination),
    ];
    let own = span.attributes.iter().map(|(key, value)| match value {
        Value::Text(value) => text(key, value),
        Value::Number(value) => attribute(key, any_value::Value::IntValue(*value)),
    });
    attributes.extend(own);
    attributes.extend(span.error.as_ref().map(|(word, _)| text("error.type", word)));
    attributes
}

fn link(context: &TraceContext) -> Link {
    Link {
        trace_id: context.trace.to_be_bytes().to_vec(),
        span_id: context.span.to_be_bytes().to_vec(),
        trace_state: state(context),
        flags: context.flags(),
        ..Link::default()
    }
}

fn state(context: &TraceContext) -> String {
    context.state.as_deref().unwrap_or_default().to_owned()
}

fn text(key: &str, value: &str) -> KeyValue {
    attribute(key, any_value::Value::StringValue(value.to_owned()))
}

fn attribute(key: &str, value: any_value::Value) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue { value: Some(value) }),
        ..KeyValue::default()
    }
}
