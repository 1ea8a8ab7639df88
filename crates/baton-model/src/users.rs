//! `userlist` sections: who may log in, and with which password (configuration manual, 3.4).

use std::fmt;
use std::sync::Arc;

/// A `userlist` section. Names of users are unique in it.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub struct UserList {
    /// Its name.
    pub name: Arc<str>,
    /// The users in the order of the file.
    pub users: Vec<User>,
    /// The names of its groups, with and without users.
    pub groups: Vec<Box<str>>,
}

/// A `user` line.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct User {
    /// The name.
    pub name: Box<str>,
    /// The password; `None`: nobody can log in under this name.
    pub password: Option<Password>,
    /// The groups that it belongs to, by its own line or by a `group` line.
    pub groups: Vec<Box<str>>,
}

/// A password as it is written in the file. It is never printed, not even for debugging.
#[derive(Clone, Eq, Hash, PartialEq)]
pub enum Password {
    /// `insecure-password`: the password itself.
    Plain(Box<str>),
    /// `password`: a hash in the format of crypt(5).
    Hash(Arc<str>),
}

impl fmt::Debug for Password {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Password::Plain(_) => "Plain(…)",
            Password::Hash(_) => "Hash(…)",
        })
    }
}

impl UserList {
    /// The user of that name.
    pub fn user(&self, name: &[u8]) -> Option<&User> {
        self.users.iter().find(|user| user.name.as_bytes() == name)
    }

    /// Whether checking a password of this list may take long: one of them is a hash.
    pub fn has_hashes(&self) -> bool {
        self.users.iter().any(|user| matches!(user.password, Some(Password::Hash(_))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_not_printed() {
        let user = |password| User { name: "tom".into(), password: Some(password), groups: vec!["dev".into()] };
        let list = UserList {
            name: "L".into(),
            users: vec![user(Password::Plain("secret".into())), user(Password::Hash("$5$secret".into()))],
            groups: Vec::new(),
        };
        let shown = format!("{list:?}");
        assert!(shown.contains("tom") && !shown.contains("secret"), "{shown}");
    }
}
