//! Each door does what its specification says, byte for byte where the specification says bytes.

mod admin_http;
mod api_key;
mod binary_auth;
mod binary_bodies;
mod binary_confirms;
mod binary_frames;
mod binary_prefetch;
mod binary_replies;
mod cluster_off;
mod configuration;
mod grpc_ack_levels;
mod grpc_errors;
mod grpc_overview;
mod grpc_platform;
mod grpc_publish_stream;
mod grpc_queues;
mod grpc_settling;
mod grpc_subscribe;
