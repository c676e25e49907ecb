//! Cases in which other brokers failed, and what clients of older ones rely on, as far as they belong to no single part of the
//! product. `docs/conformance.md` names the tests of all such cases, these and the others.

mod acknowledged;
mod backlog;
mod calls;
mod churn;
mod clients;
mod consumers;
mod content;
mod documented;
mod leader_change;
mod operations;
mod replicas;
