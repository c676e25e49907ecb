//! What keys are for, and what operations need.

use std::fmt;

/// What a key is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Everything.
    Admin,
    /// Publishing, to queues, topics and exchanges.
    Producer,
    /// Taking messages, and settling them.
    Consumer,
}

impl Role {
    const ALL: [Self; 3] = [Self::Admin, Self::Producer, Self::Consumer];

    /// As it is written in the configuration.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::Producer => "producer",
            Self::Consumer => "consumer",
        }
    }

    /// `None`: there is no such role.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.name() == name)
    }

    fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// The roles of a key.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Roles(u8);

impl Roles {
    /// These.
    #[must_use]
    pub fn of(roles: &[Role]) -> Self {
        Self(roles.iter().fold(0, |bits, role| bits | role.bit()))
    }

    /// Whether an operation may be done that needs this.
    #[must_use]
    pub fn may(self, need: Need) -> bool {
        match need {
            Need::Nothing | Need::AnyKey => true,
            Need::Role(role) => self.0 & (role.bit() | Role::Admin.bit()) != 0,
        }
    }
}

impl fmt::Display for Roles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let has = |role: &Role| self.0 & role.bit() != 0;
        let names: Vec<_> = Role::ALL.into_iter().filter(has).map(Role::name).collect();
        f.write_str(&names.join(" and "))
    }
}

impl fmt::Debug for Roles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Roles({self})")
    }
}

/// What an operation needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// Not even a key: probes and scrapers have none.
    Nothing,
    /// A key, whatever its role.
    AnyKey,
    /// A key with this role, or an administrator's.
    Role(Role),
}

impl Need {
    /// Everything that is not in the table, so that what is forgotten there is not open.
    pub const ADMIN: Self = Self::Role(Role::Admin);
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("no key"),
            Self::AnyKey => f.write_str("any key"),
            Self::Role(role) => f.write_str(role.name()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_administrator_may_do_everything_and_the_others_what_they_are_for() {
        let needs = [
            Need::Nothing,
            Need::AnyKey,
            Need::Role(Role::Producer),
            Need::Role(Role::Consumer),
            Need::ADMIN,
        ];
        for (roles, allowed) in [
            (&[Role::Admin][..], [true, true, true, true, true]),
            (&[Role::Producer], [true, true, true, false, false]),
            (&[Role::Consumer], [true, true, false, true, false]),
            (&[Role::Producer, Role::Consumer], [true, true, true, true, false]),
        ] {
            let roles = Roles::of(roles);
            assert_eq!(needs.map(|need| roles.may(need)), allowed, "{roles}");
        }
    }

    #[test]
    fn roles_are_written_as_they_are_read() {
        for role in Role::ALL {
            assert_eq!(Role::named(role.name()), Some(role));
        }
        assert_eq!(Role::named("Admin"), None);
        assert_eq!(
            Roles::of(&[Role::Consumer, Role::Producer]).to_string(),
            "producer and consumer"
        );
    }
}
