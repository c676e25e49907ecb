//! Messages and services generated from the `.proto` files beside this crate. No hand-written code.

/// Encoded descriptor set of every file, for gRPC reflection.
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

/// Administration: `boltq.admin.v1`.
pub mod admin {
    #[allow(missing_docs)]
    pub mod v1 {
        tonic::include_proto!("boltq.admin.v1");
    }
}
