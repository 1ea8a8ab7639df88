//! Who tracks whom (`track`): pure. What changes of one backend costs what that backend has, however many servers track others.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::check::Key;

/// Servers that follow others, each with a handle `T`.
#[derive(Debug)]
pub(crate) struct Following<T> {
    /// By the tracked server; of one server in the order in which they came.
    followers: FxHashMap<Key, BTreeMap<u64, (Key, T)>>,
    /// What the followers in a backend are entered as above.
    entries: FxHashMap<Arc<str>, Vec<(Key, u64)>>,
    next: u64,
}

impl<T> Default for Following<T> {
    fn default() -> Following<T> {
        Following { followers: FxHashMap::default(), entries: FxHashMap::default(), next: 0 }
    }
}

impl<T: Clone> Following<T> {
    /// A server follows another one from now on.
    pub fn follow(&mut self, tracked: Key, follower: Key, handle: T) {
        self.next += 1;
        self.entries.entry(Arc::clone(&follower.0)).or_default().push((tracked.clone(), self.next));
        self.followers.entry(tracked).or_default().insert(self.next, (follower, handle));
    }

    /// No server of that backend follows another one any more.
    pub fn forget(&mut self, backend: &str) {
        for (tracked, number) in self.entries.remove(backend).unwrap_or_default() {
            if let Some(followers) = self.followers.get_mut(&tracked) {
                followers.remove(&number);
                if followers.is_empty() {
                    self.followers.remove(&tracked);
                }
            }
        }
    }

    /// A server follows no other one any more.
    pub fn leave(&mut self, follower: &Key) {
        let Some(entries) = self.entries.get_mut(&follower.0) else { return };
        let followers = &mut self.followers;
        entries.retain(|(tracked, number)| {
            let Some(all) = followers.get_mut(tracked) else { return true };
            let is_it = all.get(number).is_some_and(|(key, _)| key == follower);
            if is_it {
                all.remove(number);
                if all.is_empty() {
                    followers.remove(tracked);
                }
            }
            !is_it
        });
        if entries.is_empty() {
            self.entries.remove(&follower.0);
        }
    }

    /// Whether a server is followed.
    pub fn is_followed(&self, tracked: &Key) -> bool {
        self.followers.contains_key(tracked)
    }

    /// Who follows a server: who came last first, as HAProxy has them.
    pub fn of(&self, tracked: &Key) -> Vec<(Key, T)> {
        self.followers.get(tracked).map(|followers| followers.values().rev().cloned().collect()).unwrap_or_default()
    }

    /// Whether nobody follows anybody.
    pub fn is_empty(&self) -> bool {
        self.followers.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> Key {
        let (backend, server) = text.split_once('/').unwrap();
        (backend.into(), server.into())
    }

    #[test]
    fn followers_come_and_go_with_their_backend() {
        let mut following = Following::default();
        for (number, (tracked, follower)) in
            [("a/1", "b/1"), ("a/1", "c/1"), ("a/1", "b/2"), ("b/1", "c/2")].into_iter().enumerate()
        {
            following.follow(key(tracked), key(follower), number);
        }
        let of = |following: &Following<usize>, tracked: &str| -> Vec<usize> {
            following.of(&key(tracked)).into_iter().map(|(_, number)| number).collect()
        };
        assert_eq!((of(&following, "a/1"), of(&following, "b/1")), (vec![2, 1, 0], vec![3]));
        following.forget("b");
        assert_eq!((of(&following, "a/1"), of(&following, "b/1")), (vec![1], vec![3]));
        following.follow(key("a/1"), key("b/1"), 4);
        assert_eq!(of(&following, "a/1"), [4, 1]);
        assert!(following.is_followed(&key("a/1")) && !following.is_followed(&key("b/2")));
        following.leave(&key("b/1"));
        following.leave(&key("b/7"));
        assert_eq!(of(&following, "a/1"), [1]);
        following.forget("c");
        following.forget("b");
        assert!(following.is_empty() && following.entries.is_empty());
    }
}
