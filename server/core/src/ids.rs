//! Numbers that look alike and must not be swapped.

use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl From<$inner> for $name {
            fn from(inner: $inner) -> Self {
                Self(inner)
            }
        }
    };
}

id! {
    /// A stream of a group: an append-only sequence of records. Given by the state machine, never reused in a group.
    StreamId(u64)
}
id! {
    /// Position of a record in its stream: 1, 2, 3 … without gaps.
    Seq(u64)
}
id! {
    /// The unit of order, replication and failover: one Raft log, one state machine, one leader.
    GroupId(u32)
}
id! {
    /// Position of an entry in the Raft log of its group.
    LogIndex(u64)
}
id! {
    /// Raft term.
    Term(u64)
}
id! {
    /// A node of the cluster, as Raft knows it.
    NodeId(u64)
}

impl Seq {
    /// The first sequence of every stream.
    pub const FIRST: Self = Self(1);

    /// The sequence after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}
