//! Compiles the protos with protox, so that a build needs nothing but cargo.

use std::{env, error::Error, fs, path::PathBuf};

use prost::Message;

const PROTOS: &[&str] = &[
    "boltq/type/v1/message.proto",
    "boltq/queue/v1/queue.proto",
    "boltq/topic/v1/topic.proto",
    "boltq/exchange/v1/exchange.proto",
    "boltq/admin/v1/admin.proto",
    "boltq/cluster/v1/cluster.proto",
    "boltq/kv/v1/kv.proto",
    "boltq/stream/v1/stream.proto",
];
/// For reflection alone: tonic-types has its code.
const SHOWN_PROTOS: &[&str] = &["google/rpc/error_details.proto"];
/// Between nodes: not part of what reflection shows to clients.
const INTERNAL_PROTOS: &[&str] = &["boltq/internal/v1/peer.proto"];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=boltq");
    println!("cargo:rerun-if-changed=google");
    let descriptors = protox::compile(PROTOS, ["."])?;
    // tonic-prost-build writes no descriptor file when it is handed a compiled set; reflection needs one.
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let mut shown = descriptors.clone();
    shown.file.extend(protox::compile(SHOWN_PROTOS, ["."])?.file);
    fs::write(out.join("boltq_descriptor.bin"), shown.encode_to_vec())?;
    for set in [descriptors, protox::compile(INTERNAL_PROTOS, ["."])?] {
        tonic_prost_build::configure()
            .bytes(".")
            .btree_map(".")
            .codec_path("crate::codec::BoundedCodec")
            .compile_fds(set)?;
    }
    Ok(())
}
