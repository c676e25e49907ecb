//! The table of operations: what each needs, and what it is called at each door. `docs/security.md` shows it; a test compares
//! them. What is not in it, needs an administrator.
//!
//! The lines between the roles: names, counts and settings are for every key, as statistics have always shown them. Payloads
//! are for consumers. What removes messages that others wait for, or changes where messages go, is for administrators. The
//! cache belongs to all applications alike, so each of them reads and writes it; only emptying it as a whole is not theirs.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::role::{Need, Role};

/// What can be asked for, and what it needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operation {
    /// For people.
    pub name: &'static str,
    /// See there.
    pub need: Need,
}

/// What nobody has thought of.
const UNLISTED: Operation = Operation {
    name: "this",
    need: Need::ADMIN,
};

/// One row.
struct Row {
    operation: Operation,
    /// `package.Service/Method`, without `boltq.` in front of it if that is there.
    grpc: &'static [&'static str],
    /// Commands of the binary protocol.
    binary: &'static [u8],
    /// Paths of the admin port.
    http: &'static [&'static str],
}

const PRODUCER: Need = Need::Role(Role::Producer);
const CONSUMER: Need = Need::Role(Role::Consumer);

const fn row(
    name: &'static str,
    need: Need,
    grpc: &'static [&'static str],
    binary: &'static [u8],
    http: &'static [&'static str],
) -> Row {
    Row {
        operation: Operation { name, need },
        grpc,
        binary,
        http,
    }
}

/// As a table, which is what it is.
#[rustfmt::skip]
static OPERATIONS: &[Row] = &[
    row("health", Need::Nothing,
        &["grpc.health.v1.Health/Check", "grpc.health.v1.Health/Watch"],
        &[],
        &["/health", "/livez", "/readyz"]),
    row("metrics", Need::Nothing, &[], &[], &["/metrics"]),
    row("the description of the admin port", Need::Nothing, &[], &[], &["/openapi.json"]),
    row("showing a key", Need::Nothing, &[], &[0x08], &[]),
    row("the description of the interface", Need::AnyKey,
        &["grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
          "grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"],
        &[], &[]),
    row("settings of the connection", Need::AnyKey, &[], &[0x06, 0x09, 0x13], &[]),
    row("statistics", Need::AnyKey, 
        &["admin.v1.AdminService/GetStats", "admin.v1.AdminService/GetOverview", "admin.v1.AdminService/WatchOverview"],
        &[0x07],
        &["/stats", "/overview"]),
    row("listing queues", Need::AnyKey,
        &["queue.v1.QueueService/ListQueues", "queue.v1.QueueService/GetQueue"],
        &[],
        &["/queues", "/dead-letters"]),
    row("listing topics and subscriptions", Need::AnyKey,
        &["topic.v1.TopicService/ListTopics", "topic.v1.TopicService/ListSubscriptions"],
        &[],
        &["/topics"]),
    row("listing exchanges and bindings", Need::AnyKey,
        &["exchange.v1.ExchangeService/List", "exchange.v1.ExchangeService/ListBindings"],
        &[], &[]),
    row("the status of the cluster", Need::AnyKey,
        &["cluster.v1.ClusterService/GetStatus"],
        &[0x12],
        &["/cluster/status"]),
    row("publishing to a queue", PRODUCER,
        &["queue.v1.QueueService/Publish", "queue.v1.QueueService/PublishStream"],
        &[0x01],
        &["/publish"]),
    row("publishing to a topic", PRODUCER,
        &["topic.v1.TopicService/Publish", "topic.v1.TopicService/PublishStream"],
        &[0x02],
        &["/publish/topic"]),
    row("publishing to an exchange", PRODUCER,
        &["exchange.v1.ExchangeService/Publish"],
        &[0x18],
        &["/exchange/publish"]),
    row("taking messages", CONSUMER,
        &["queue.v1.QueueService/Consume", "queue.v1.QueueService/Subscribe"],
        &[0x03],
        &["/consume"]),
    row("settling messages", CONSUMER,
        &["queue.v1.QueueService/Ack", "queue.v1.QueueService/Nack", "queue.v1.QueueService/ExtendLease"],
        &[0x04, 0x05],
        &["/ack", "/nack"]),
    row("looking at messages", CONSUMER,
        &["queue.v1.QueueService/Peek", "queue.v1.QueueService/ListScheduled"],
        &[], &["/queues/peek"]),
    row("subscribing to a topic", CONSUMER, &["topic.v1.TopicService/Subscribe"], &[], &["/subscribe"]),
    row("listing topics of streams", Need::AnyKey,
        &["stream.v1.StreamService/ListTopics", "stream.v1.StreamService/GetTopic"],
        &[], &[]),
    row("appending to a stream", PRODUCER,
        &["stream.v1.StreamService/Append", "stream.v1.StreamService/AppendStream"],
        &[], &[]),
    row("reading a stream", CONSUMER,
        &["stream.v1.StreamService/Read", "stream.v1.StreamService/Tail"],
        &[], &[]),
    row("positions in streams", CONSUMER,
        &["stream.v1.StreamService/CommitCursor", "stream.v1.StreamService/GetCursors"],
        &[], &[]),
    row("reading the cache", Need::AnyKey,
        &["kv.v1.KvService/Get", "kv.v1.KvService/Exists", "kv.v1.KvService/Keys", "kv.v1.KvService/Watch",
          "kv.v1.KvService/GetStats"],
        &[],
        &["/cache/get", "/cache/exists", "/cache/keys", "/cache/entries", "/cache/stats"]),
    row("changing values of the cache", Need::AnyKey,
        &["kv.v1.KvService/Set", "kv.v1.KvService/Delete", "kv.v1.KvService/Expire", "kv.v1.KvService/Increment"],
        &[],
        &["/cache/set", "/cache/del", "/cache/expire", "/cache/incr"]),
    row("emptying the cache", Need::ADMIN, &["kv.v1.KvService/Flush"], &[], &["/cache/flush"]),
    row("creating, changing and deleting queues", Need::ADMIN,
        &["queue.v1.QueueService/CreateQueue", "queue.v1.QueueService/UpdateQueue",
          "queue.v1.QueueService/DeleteQueue"],
        &[], &[]),
    row("purging", Need::ADMIN,
        &["queue.v1.QueueService/PurgeQueue", "queue.v1.QueueService/PurgeDeadLetters"],
        &[],
        &["/queues/purge", "/dead-letters/purge"]),
    row("cancelling and rescheduling messages", Need::ADMIN,
        &["queue.v1.QueueService/CancelScheduled", "queue.v1.QueueService/Reschedule"],
        &[], &[]),
    row("redriving dead letters", Need::ADMIN, &["queue.v1.QueueService/RedriveDeadLetters"], &[],
        &["/dead-letters/redrive"]),
    row("deleting a subscription", Need::ADMIN, &["topic.v1.TopicService/DeleteSubscription"], &[], &[]),
    row("creating, changing and deleting topics of streams", Need::ADMIN,
        &["stream.v1.StreamService/CreateTopic", "stream.v1.StreamService/UpdateTopic",
          "stream.v1.StreamService/DeleteTopic", "stream.v1.StreamService/DeleteCursors"],
        &[], &[]),
    row("changing exchanges and bindings", Need::ADMIN,
        &["exchange.v1.ExchangeService/Declare", "exchange.v1.ExchangeService/Delete",
          "exchange.v1.ExchangeService/Bind", "exchange.v1.ExchangeService/Unbind"],
        &[0x14, 0x15, 0x16, 0x17],
        &["/exchange/declare", "/exchange/delete", "/exchange/bind", "/exchange/unbind"]),
    row("changing the cluster", Need::ADMIN,
        &["cluster.v1.ClusterService/Join", "cluster.v1.ClusterService/Leave",
          "cluster.v1.ClusterService/TransferLeadership"],
        &[0x10, 0x11],
        &["/cluster/join", "/cluster/leave", "/cluster/transfer"]),
];

type ByName = HashMap<&'static str, Operation>;

static GRPC: LazyLock<ByName> = LazyLock::new(|| by_name(|row| row.grpc));
static HTTP: LazyLock<ByName> = LazyLock::new(|| by_name(|row| row.http));
static COMMANDS: LazyLock<[Operation; 256]> = LazyLock::new(|| {
    let mut operations = [UNLISTED; 256];
    for row in OPERATIONS {
        for code in row.binary {
            operations[usize::from(*code)] = row.operation;
        }
    }
    operations
});

fn by_name(names: impl Fn(&Row) -> &'static [&'static str]) -> ByName {
    let rows = OPERATIONS.iter();
    rows.flat_map(|row| names(row).iter().map(|name| (*name, row.operation)))
        .collect()
}

impl Operation {
    /// What a call of gRPC asks for, by its path.
    #[must_use]
    pub fn of_grpc(path: &str) -> Self {
        let name = path.strip_prefix('/').unwrap_or(path);
        let name = name.strip_prefix("boltq.").unwrap_or(name);
        GRPC.get(name).copied().unwrap_or(UNLISTED)
    }

    /// What a request to the admin port asks for, by its path.
    #[must_use]
    pub fn of_http(path: &str) -> Self {
        HTTP.get(path).copied().unwrap_or(UNLISTED)
    }

    /// What a command of the binary protocol asks for, by its code.
    #[must_use]
    pub fn of_command(code: u8) -> Self {
        COMMANDS[usize::from(code)]
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use prost::Message;

    use super::*;

    const GUIDE: &str = include_str!("../../../docs/security.md");

    fn shown(row: &Row) -> String {
        let code = |names: Vec<String>| {
            names
                .iter()
                .map(|name| format!("`{name}`"))
                .collect::<Vec<_>>()
                .join(" ")
        };
        let grpc = row.grpc.iter().map(|name| match name.split_once("/") {
            Some((service, method)) => {
                let service = service.rsplit('.').next().unwrap_or(service);
                format!("{service}/{method}")
            }
            None => (*name).to_owned(),
        });
        format!(
            "| {} | {} | {} | {} | {} |",
            row.operation.name,
            row.operation.need,
            code(grpc.collect()),
            code(row.binary.iter().map(|code| format!("0x{code:02x}")).collect()),
            code(row.http.iter().map(|path| (*path).to_owned()).collect()),
        )
    }

    #[test]
    fn the_guide_shows_exactly_this_table() {
        let written: Vec<_> = GUIDE
            .lines()
            .skip_while(|line| !line.starts_with("| operation | needs |"))
            .skip(2)
            .take_while(|line| line.starts_with('|'))
            .collect();
        let wanted: Vec<_> = OPERATIONS.iter().map(shown).collect();
        assert_eq!(
            written,
            wanted,
            "the table in docs/security.md has to be:\n{}\n",
            wanted.join("\n")
        );
    }

    #[test]
    fn every_method_of_the_protos_is_in_the_table_once() {
        let descriptors = prost_types::FileDescriptorSet::decode(boltq_proto::FILE_DESCRIPTOR_SET).unwrap();
        let files = descriptors
            .file
            .iter()
            .filter(|file| file.package().starts_with("boltq.") && !file.package().contains("internal"));
        let mut methods = BTreeSet::new();
        for file in files {
            let package = file.package().strip_prefix("boltq.").unwrap();
            for service in &file.service {
                let names = service
                    .method
                    .iter()
                    .map(|method| format!("{package}.{}/{}", service.name(), method.name()));
                methods.extend(names);
            }
        }
        let listed: Vec<_> = OPERATIONS
            .iter()
            .flat_map(|row| row.grpc)
            .filter(|name| !name.starts_with("grpc."))
            .map(|name| (*name).to_owned())
            .collect();
        let unique: BTreeSet<_> = listed.iter().cloned().collect();
        assert_eq!(listed.len(), unique.len());
        assert_eq!(unique, methods, "each method needs a row: what may do it?");
    }

    #[test]
    fn every_name_is_in_the_table_once() {
        let paths = OPERATIONS.iter().flat_map(|row| row.http).count();
        let grpc = OPERATIONS.iter().flat_map(|row| row.grpc).count();
        let codes: Vec<_> = OPERATIONS.iter().flat_map(|row| row.binary).collect();
        assert_eq!((paths, grpc), (HTTP.len(), GRPC.len()));
        assert_eq!(codes.len(), codes.iter().collect::<BTreeSet<_>>().len());
    }

    #[test]
    fn what_nobody_thought_of_is_for_administrators() {
        assert_eq!(Operation::of_grpc("/boltq.queue.v1.QueueService/Invent"), UNLISTED);
        assert_eq!(Operation::of_grpc(""), UNLISTED);
        assert_eq!(Operation::of_http("/invent"), UNLISTED);
        assert_eq!(Operation::of_command(0xfe), UNLISTED);
        assert_eq!(Operation::of_grpc("/boltq.queue.v1.QueueService/Ack").need, CONSUMER);
    }
}
