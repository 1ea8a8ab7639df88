//! Positions in a circle that belong to servers: the next one whose server will do.

use super::bits::Bits;

/// The places of each server.
#[derive(Debug, Default)]
pub(super) struct Positions {
    /// Where those of each server begin in `places`, and the end of all.
    first: Vec<u32>,
    /// Sorted for each server.
    places: Vec<u32>,
}

impl Positions {
    /// Of `servers` servers, from the owner of each place.
    pub(super) fn new(servers: usize, owners: impl Iterator<Item = u32> + Clone) -> Positions {
        let mut first = vec![0; servers + 1];
        owners.clone().for_each(|owner| first[owner as usize + 1] += 1);
        for server in 0..servers {
            first[server + 1] += first[server];
        }
        let mut places = vec![0; first[servers] as usize];
        let mut next = first.clone();
        for (place, owner) in owners.enumerate() {
            places[next[owner as usize] as usize] = place as u32;
            next[owner as usize] += 1;
        }
        Positions { first, places }
    }

    /// The first place of a server from `start` on, around, that will do.
    pub(super) fn next(&self, server: usize, start: usize, will_do: impl Fn(usize) -> bool) -> Option<usize> {
        let bounds = self.first.get(server).zip(self.first.get(server + 1));
        let own = bounds.map_or(&[][..], |(begin, end)| &self.places[*begin as usize..*end as usize]);
        let (before, after) = own.split_at(own.partition_point(|place| (*place as usize) < start));
        after.iter().chain(before).map(|place| *place as usize).find(|place| will_do(*place))
    }

    /// The first place from `start` on, around, of a server among `free` that will do itself. When few are free, each is asked
    /// where its next place is; when many are, one of the next places is theirs.
    pub(super) fn next_of(
        &self,
        free: &Bits,
        start: usize,
        owner: impl Fn(usize) -> usize,
        will_do: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        let length = self.places.len();
        if free.len() * free.len() > self.first.len() {
            return (start..length).chain(0..start).find(|place| free.contains(owner(*place)) && will_do(*place));
        }
        let next = free.iter().filter_map(|server| self.next(server, start, &will_do));
        next.min_by_key(|place| if *place < start { *place + length } else { *place })
    }
}
