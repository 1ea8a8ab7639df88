//! The servers of a backend by name, as a value. One with another server more shares with the one that it was made from what both have: it
//! costs the same for ten thousand servers as for a hundred.

use std::hash::BuildHasher;
use std::ops::Index;
use std::sync::Arc;

use rustc_hash::FxBuildHasher;

use super::{ByName, ServerPlan};

/// The servers of a shard, on average, at which all of them are spread over twice as many shards.
const SHARD: usize = 64;

/// Servers by name.
#[derive(Clone, Debug)]
pub struct ServerPlans {
    /// A power of two of them, so that a part of a name's hash says which one has it.
    shards: Vec<Arc<ByName<Arc<ServerPlan>>>>,
    len: usize,
}

impl ServerPlans {
    /// The server of that name.
    pub fn get(&self, name: &str) -> Option<&Arc<ServerPlan>> {
        self.shards[shard(name, self.shards.len())].get(name)
    }

    /// All of them, in no order.
    pub fn values(&self) -> impl Iterator<Item = &Arc<ServerPlan>> {
        self.shards.iter().flat_map(|shard| shard.values())
    }

    /// These with one more, which takes the place of one of the same name.
    pub fn with(&self, plan: Arc<ServerPlan>) -> ServerPlans {
        if self.len >= self.shards.len() * SHARD {
            return self.values().cloned().chain([plan]).collect();
        }
        let mut plans = self.clone();
        plans.insert(plan);
        plans
    }

    /// These without one.
    pub fn without(&self, name: &str) -> ServerPlans {
        let mut plans = self.clone();
        let at = shard(name, plans.shards.len());
        if Arc::make_mut(&mut plans.shards[at]).remove(name).is_some() {
            plans.len -= 1;
        }
        plans
    }

    fn insert(&mut self, plan: Arc<ServerPlan>) {
        let at = shard(&plan.server.name, self.shards.len());
        let before = Arc::make_mut(&mut self.shards[at]).insert(Arc::clone(&plan.server.name), plan);
        self.len += usize::from(before.is_none());
    }
}

impl Default for ServerPlans {
    fn default() -> ServerPlans {
        ServerPlans { shards: vec![Arc::default()], len: 0 }
    }
}

impl FromIterator<Arc<ServerPlan>> for ServerPlans {
    /// Of two with the same name the last one counts.
    fn from_iter<T: IntoIterator<Item = Arc<ServerPlan>>>(plans: T) -> ServerPlans {
        let all: Vec<Arc<ServerPlan>> = plans.into_iter().collect();
        let count = (all.len() / SHARD + 1).next_power_of_two();
        let mut plans = ServerPlans { shards: vec![Arc::default(); count], len: 0 };
        all.into_iter().for_each(|plan| plans.insert(plan));
        plans
    }
}

impl Index<&str> for ServerPlans {
    type Output = Arc<ServerPlan>;

    fn index(&self, name: &str) -> &Arc<ServerPlan> {
        self.get(name).expect("the server is in the configuration")
    }
}

/// Which of so many shards has a name. The maps themselves go by the lowest and the highest bits.
fn shard(name: &str, shards: usize) -> usize {
    (FxBuildHasher.hash_one(name) >> 24) as usize & (shards - 1)
}

#[cfg(test)]
mod tests {
    use baton_kernel::cells::CellMemory;
    use baton_model::Server;

    use super::*;
    use crate::state::{Counted, CounterBlock};

    fn plan(name: &str) -> Arc<ServerPlan> {
        let server = Arc::new(Server::new(name, 1, None));
        let of = Counted::Server("app".into(), name.into());
        let counters = Arc::new(CounterBlock::new(&Arc::new(CellMemory::private()), of, 1));
        Arc::new(ServerPlan { server, counters, encryption: None })
    }

    #[test]
    fn one_more_leaves_the_others_as_they_were_and_shares_them() {
        let mut plans = ServerPlans::default();
        let mut shared = 0;
        for number in 0..2000 {
            let name = format!("s{number}");
            let next = plans.with(plan(&name));
            assert!(plans.get(&name).is_none() && next.get(&name).is_some());
            shared += plans.shards.iter().zip(&next.shards).filter(|(one, other)| Arc::ptr_eq(one, other)).count();
            plans = next;
        }
        assert_eq!((plans.len, plans.values().count()), (2000, 2000));
        assert!((0..2000).all(|number| *plans[&format!("s{number}")].server.name == format!("s{number}")));
        assert!(plans.get("s2000").is_none());
        assert!(plans.shards.len() >= 32 && shared > 15 * 2000, "{} shards, {shared}", plans.shards.len());
        assert!(plans.shards.iter().all(|shard| shard.len() <= 3 * SHARD), "names are spread");
    }

    #[test]
    fn of_two_with_the_same_name_the_last_one_counts() {
        let (one, other) = (plan("a"), plan("a"));
        let plans: ServerPlans = [one, Arc::clone(&other)].into_iter().collect();
        assert!(Arc::ptr_eq(&plans["a"], &other) && plans.len == 1);
        let third = plan("a");
        let plans = plans.with(Arc::clone(&third));
        assert!(Arc::ptr_eq(&plans["a"], &third) && plans.len == 1);
    }
}
