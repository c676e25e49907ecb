//! What the operator wants, from four places: defaults, a JSON file that may have comments, variables (`BOLTQ_*`, and `OTEL_*`
//! where everybody uses those), flags. Later ones win.
//!
//! `keys` is the one table of what exists: name, default, range, variable, description. A key is in there only if it
//! changes something in this version; the few settings that only a variable or a flag has are beside it. `unavailable`
//! lists the documented keys of features that are still missing: they are accepted as long as they leave the feature
//! off, and refused otherwise, because a key that is read and ignored is worse than one that stops the start.
//! Everything else is unknown and refused with the closest name that is known.
//!
//! `load` is the only way to a [`Config`], so code behind it never sees an unchecked value.

mod access_keys;
mod api_key;
mod checked;
mod cluster;
mod comments;
mod document;
mod duration;
mod error;
mod flags;
mod keys;
mod kind;
mod layers;
mod messaging;
mod parse;
pub mod queue_bounds;
mod reload;
mod secret;
#[cfg(test)]
mod tests;
mod tls;
mod unavailable;

pub use api_key::ApiKey;
pub use checked::{
    AllowedOrigins, CacheConfig, Config, LogConfig, LogFormat, MetricsConfig, PerformanceConfig, PublishConfig,
    QueueConfig, SecurityConfig, ServerConfig, StorageConfig, StorageMode, StorageSync, TelemetryConfig,
};
pub use cluster::{ClusterConfig, ClusterTls};
pub(crate) use duration::{format as format_duration, parse as parse_duration};
pub use error::{ConfigError, Origin};
pub use flags::{Action, Flags, with_double_dashes};
pub use layers::{Loaded, load};
pub use messaging::MessagingConfig;
pub use parse::Collector;
pub use reload::{RELOADABLE, Values};
pub use secret::ClusterSecret;
pub use tls::{ClientAuth, ServerTls};
