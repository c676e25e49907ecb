//! What is known of a cluster, with the names of `boltq.cluster.v1`.

use std::io::{self, Write};

use boltq_proto::cluster::v1 as pb;
use serde::Serialize;

use super::layout::{columns, pairs};
use super::plain::printable;
use super::{Show, json};

/// As `boltq.cluster.v1.GetStatusResponse`; without clustering, `enabled` is all there is.
#[derive(Debug, Serialize)]
pub(crate) struct ClusterStatus {
    enabled: bool,
    #[serde(flatten)]
    cluster: Option<Cluster>,
}

#[derive(Debug, Serialize)]
struct Cluster {
    node: Node,
    cluster_id: String,
    removed: bool,
    nodes: Vec<Node>,
    groups: Vec<Group>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Node {
    node_id: String,
    raft_address: String,
    messaging_address: String,
    admin_address: String,
    voter: bool,
    version: String,
}

#[derive(Debug, Serialize)]
struct Group {
    name: String,
    /// Without the prefix of the enum.
    state: &'static str,
    leader_id: String,
    term: u64,
    last_index: u64,
    applied_index: u64,
    members: Vec<Member>,
}

#[derive(Debug, Serialize)]
struct Member {
    node_id: String,
    address: String,
    voter: bool,
    /// Only the leader knows.
    lag: Option<u64>,
}

/// A node was taken in.
#[derive(Debug, Serialize)]
pub(crate) struct Joined {
    pub(crate) node: Node,
    pub(crate) groups: Vec<String>,
}

/// A node was removed.
#[derive(Debug, Serialize)]
pub(crate) struct Left {
    pub(crate) node_id: String,
    pub(crate) groups: Vec<String>,
}

/// A group was handed over.
#[derive(Debug, Serialize)]
pub(crate) struct Transferred {
    pub(crate) group: String,
    pub(crate) leader: Node,
}

impl Show for ClusterStatus {
    fn table(&self, out: &mut dyn Write) -> io::Result<()> {
        let Some(Cluster {
            node,
            cluster_id,
            removed,
            nodes,
            groups,
        }) = &self.cluster
        else {
            return writeln!(out, "clustering is not enabled on this node");
        };
        let cluster_id = if cluster_id.is_empty() {
            "not yet known"
        } else {
            cluster_id
        };
        pairs(&[("cluster", &cluster_id), ("this node", &node.node_id)], out)?;
        if *removed {
            writeln!(
                out,
                "this node was removed from the cluster; what it shows is as old as that"
            )?;
        }
        if !nodes.is_empty() {
            writeln!(out)?;
        }
        let header = ["NODE", "ROLE", "MESSAGING", "ADMIN", "RAFT", "VERSION"];
        let rows: Vec<_> = nodes.iter().map(Node::row).collect();
        columns(header, &rows, out)?;
        if !groups.is_empty() {
            writeln!(out)?;
        }
        let header = ["GROUP", "THIS NODE", "LEADER", "TERM", "LAST", "APPLIED", "MEMBERS"];
        let rows: Vec<_> = groups.iter().map(Group::row).collect();
        columns(header, &rows, out)
    }

    fn json(&self, out: &mut dyn Write) -> io::Result<()> {
        json::line(self, out)
    }
}

impl Show for Joined {
    fn table(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "{} joined as {}", printable(&self.node.node_id), self.node.role())
    }

    fn json(&self, out: &mut dyn Write) -> io::Result<()> {
        json::line(self, out)
    }
}

impl Show for Left {
    fn table(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "{} was removed", printable(&self.node_id))
    }

    fn json(&self, out: &mut dyn Write) -> io::Result<()> {
        json::line(self, out)
    }
}

impl Show for Transferred {
    fn table(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(
            out,
            "{} is led by {}",
            printable(&self.group),
            printable(&self.leader.node_id)
        )
    }

    fn json(&self, out: &mut dyn Write) -> io::Result<()> {
        json::line(self, out)
    }
}

impl Node {
    fn role(&self) -> &'static str {
        if self.voter { "voter" } else { "non-voter" }
    }

    fn row(&self) -> [String; 6] {
        [
            self.node_id.clone(),
            self.role().to_owned(),
            self.messaging_address.clone(),
            self.admin_address.clone(),
            self.raft_address.clone(),
            self.version.clone(),
        ]
    }
}

impl Group {
    fn row(&self) -> [String; 7] {
        let leader = if self.leader_id.is_empty() {
            "-"
        } else {
            &self.leader_id
        };
        let members: Vec<_> = self.members.iter().map(Member::brief).collect();
        [
            self.name.clone(),
            self.state.to_ascii_lowercase(),
            leader.to_owned(),
            self.term.to_string(),
            self.last_index.to_string(),
            self.applied_index.to_string(),
            members.join(", "),
        ]
    }
}

impl Member {
    /// The name, and what is special about it.
    fn brief(&self) -> String {
        let learner = (!self.voter).then(|| "learner".to_owned());
        let lag = self.lag.filter(|lag| *lag > 0).map(|lag| format!("lag {lag}"));
        let special: Vec<_> = learner.into_iter().chain(lag).collect();
        match special.is_empty() {
            true => self.node_id.clone(),
            false => format!("{} ({})", self.node_id, special.join(", ")),
        }
    }
}

impl From<pb::GetStatusResponse> for ClusterStatus {
    fn from(status: pb::GetStatusResponse) -> Self {
        let pb::GetStatusResponse {
            enabled,
            node,
            cluster_id,
            nodes,
            groups,
            removed,
        } = status;
        let cluster = enabled.then(|| Cluster {
            node: node.unwrap_or_default().into(),
            cluster_id,
            removed,
            nodes: nodes.into_iter().map(Node::from).collect(),
            groups: groups.into_iter().map(Group::from).collect(),
        });
        Self { enabled, cluster }
    }
}

impl From<pb::Node> for Node {
    fn from(node: pb::Node) -> Self {
        let pb::Node {
            node_id,
            raft_address,
            messaging_address,
            admin_address,
            voter,
            version,
        } = node;
        Self {
            node_id,
            raft_address,
            messaging_address,
            admin_address,
            voter,
            version,
        }
    }
}

impl From<pb::Group> for Group {
    fn from(group: pb::Group) -> Self {
        let state = group.state().as_str_name();
        let pb::Group {
            name,
            state: _,
            leader_id,
            term,
            last_index,
            applied_index,
            members,
        } = group;
        Self {
            name,
            state: state.strip_prefix("GROUP_STATE_").unwrap_or(state),
            leader_id,
            term,
            last_index,
            applied_index,
            members: members.into_iter().map(Member::from).collect(),
        }
    }
}

impl From<pb::Member> for Member {
    fn from(member: pb::Member) -> Self {
        let pb::Member {
            node_id,
            address,
            voter,
            lag,
        } = member;
        Self {
            node_id,
            address,
            voter,
            lag,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::shown;
    use super::*;
    use crate::args::Format;

    fn node(id: &str, voter: bool) -> pb::Node {
        pb::Node {
            node_id: id.into(),
            raft_address: format!("{id}:9100"),
            messaging_address: format!("{id}:9091"),
            admin_address: format!("{id}:9090"),
            voter,
            version: "0.1.0".into(),
        }
    }

    fn member(id: &str, voter: bool, lag: Option<u64>) -> pb::Member {
        pb::Member {
            node_id: id.into(),
            address: format!("{id}:9100"),
            voter,
            lag,
        }
    }

    fn status() -> ClusterStatus {
        let group = |name: &str, leader: &str, state: pb::GroupState, members| pb::Group {
            name: name.into(),
            state: state.into(),
            leader_id: leader.into(),
            term: 4,
            last_index: 90_211,
            applied_index: 90_210,
            members,
        };
        let members = vec![
            member("n1", true, Some(0)),
            member("n2", true, Some(3)),
            member("n4", false, None),
        ];
        ClusterStatus::from(pb::GetStatusResponse {
            enabled: true,
            node: Some(node("n1", true)),
            removed: false,
            cluster_id: "00000000000000ff".into(),
            nodes: vec![node("n1", true), node("n4", false)],
            groups: vec![
                group("meta", "", pb::GroupState::Candidate, vec![member("n1", true, None)]),
                group("queue", "n1", pb::GroupState::Leader, members),
            ],
        })
    }

    #[test]
    fn a_cluster_is_two_tables() {
        let expected = "\
cluster    00000000000000ff
this node  n1

NODE  ROLE       MESSAGING  ADMIN    RAFT     VERSION
n1    voter      n1:9091    n1:9090  n1:9100  0.1.0
n4    non-voter  n4:9091    n4:9090  n4:9100  0.1.0

GROUP  THIS NODE  LEADER  TERM   LAST  APPLIED  MEMBERS
meta   candidate  -          4  90211    90210  n1
queue  leader     n1         4  90211    90210  n1, n2 (lag 3), n4 (learner)
";
        assert_eq!(shown(Format::Table, &status()), expected);
    }

    #[test]
    fn a_node_that_was_removed_says_so() {
        let mut removed = status();
        removed.cluster.as_mut().unwrap().removed = true;
        let table = shown(Format::Table, &removed);
        assert!(
            table.contains("\nthis node was removed from the cluster; what it shows is as old as that\n"),
            "{table}"
        );
    }

    #[test]
    fn without_clustering_enabled_is_all_there_is() {
        let alone = || ClusterStatus::from(pb::GetStatusResponse::default());
        assert_eq!(shown(Format::Json, &alone()), "{\"enabled\":false}\n");
        assert_eq!(
            shown(Format::Table, &alone()),
            "clustering is not enabled on this node\n"
        );
    }

    #[test]
    fn json_has_the_names_of_the_api() {
        let json: serde_json::Value = serde_json::from_str(&shown(Format::Json, &status())).unwrap();
        assert_eq!(json["enabled"], true);
        assert_eq!(json["node"]["messaging_address"], "n1:9091");
        assert_eq!(json["groups"][1]["state"], "LEADER");
        assert_eq!(
            json["groups"][1]["members"][1],
            serde_json::json!({"node_id": "n2", "address": "n2:9100", "voter": true, "lag": 3})
        );
    }
}
