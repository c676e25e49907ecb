//! Messages and services generated from the `.proto` files beside this crate, and the codec that they use.

pub mod codec;

/// Encoded descriptor set of every file that clients may use, for gRPC reflection.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/boltq_descriptor.bin"));

/// Types that several packages use: `boltq.type.v1`.
pub mod r#type {
    #[allow(missing_docs)]
    pub mod v1 {
        tonic::include_proto!("boltq.r#type.v1");
    }
}

/// Work queues: `boltq.queue.v1`.
pub mod queue {
    #[allow(missing_docs)]
    pub mod v1 {
        tonic::include_proto!("boltq.queue.v1");
    }
}

/// Topics: `boltq.topic.v1`.
pub mod topic {
    #[allow(missing_docs)]
    pub mod v1 {
        tonic::include_proto!("boltq.topic.v1");
    }
}

/// Exchanges: `boltq.exchange.v1`.
pub mod exchange {
    #[allow(missing_docs)]
    pub mod v1 {
        tonic::include_proto!("boltq.exchange.v1");
    }
}

/// Administration: `boltq.admin.v1`.
pub mod admin {
    #[allow(missing_docs)]
    pub mod v1 {
        tonic::include_proto!("boltq.admin.v1");
    }
}

/// Membership and leadership: `boltq.cluster.v1`.
pub mod cluster {
    #[allow(missing_docs)]
    pub mod v1 {
        tonic::include_proto!("boltq.cluster.v1");
    }
}

/// The key-value cache: `boltq.kv.v1`.
pub mod kv {
    #[allow(missing_docs)]
    pub mod v1 {
        tonic::include_proto!("boltq.kv.v1");
    }
}

/// Topics of the messaging plane: `boltq.stream.v1`.
pub mod stream {
    #[allow(missing_docs)]
    pub mod v1 {
        tonic::include_proto!("boltq.stream.v1");
    }
}

/// Between the nodes of a cluster: `boltq.internal.v1`.
pub mod internal {
    #[allow(missing_docs)]
    pub mod v1 {
        tonic::include_proto!("boltq.internal.v1");
    }
}
