//! Maglev's hash tables: which server a connection goes to, alike in every director and nearly alike after a server came or went.
//!
//! The algorithm is that of section 3.4 of "Maglev: A Fast and Reliable Software Network Load Balancer" (Eisenbud et al., NSDI 2016):
//! every member has a permutation of the table's entries, by two hashes of its name, and takes in turn the next one of them that is
//! free. A member with a smaller weight than the largest takes a turn less often. Members take their turns in the order of their
//! names, so that the order of a configuration changes nothing.
//!
//! Directors of different versions must agree, so what is here is not to be changed; a test has examples.

/// Who wants entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// What identifies it in every director. No two have the same.
    pub name: Vec<u8>,
    /// Its share. One with 0 gets nothing, any other gets at least one entry.
    pub weight: u32,
}

/// Entries of a table that nobody has, because nobody wants any.
pub const NOBODY: u16 = u16::MAX;

/// Two hashes of a name are made with these.
const OFFSET_SEED: u64 = 0x6261_746f_6e2d_6f66;
const SKIP_SEED: u64 = 0x6261_746f_6e2d_736b;

/// A table of so many entries, a prime: which of the members each one belongs to, by its place among them.
///
/// # Panics
/// With fewer than two entries, or not fewer members than entries and than 65,535.
pub fn table(members: &[Member], entries: usize) -> Vec<u16> {
    assert!(entries > 1 && members.len() < entries && members.len() < usize::from(NOBODY), "more members than entries");
    let mut turns: Vec<MemberProgress> = Vec::with_capacity(members.len());
    for (place, member) in members.iter().enumerate().filter(|(_, member)| member.weight > 0) {
        turns.push(MemberProgress::new(place as u16, member, entries));
    }
    turns.sort_unstable_by_key(|turn| &members[usize::from(turn.place)].name);
    populate(turns, entries)
}

/// The paper's pseudocode 1, with weights.
fn populate(mut turns: Vec<MemberProgress>, entries: usize) -> Vec<u16> {
    let mut table = vec![NOBODY; entries];
    let Some(largest) = turns.iter().map(|turn| turn.weight).max() else { return table };
    // Everybody takes a turn in the first round.
    turns.iter_mut().for_each(|turn| turn.credit = largest - turn.weight);
    let mut free = entries;
    loop {
        for turn in &mut turns {
            turn.credit += turn.weight;
            if turn.credit < largest {
                continue;
            }
            turn.credit -= largest;
            let mut entry = turn.next(entries);
            while table[entry] != NOBODY {
                entry = turn.next(entries);
            }
            table[entry] = turn.place;
            free -= 1;
            if free == 0 {
                return table;
            }
        }
    }
}

/// How far a member is.
struct MemberProgress {
    place: u16,
    weight: u64,
    /// A turn costs the largest weight.
    credit: u64,
    /// The next entry of its permutation, and the way to the one after.
    entry: usize,
    skip: usize,
}

impl MemberProgress {
    fn new(place: u16, member: &Member, entries: usize) -> MemberProgress {
        let entry = (hash(&member.name, OFFSET_SEED) % entries as u64) as usize;
        let skip = (hash(&member.name, SKIP_SEED) % (entries as u64 - 1)) as usize + 1;
        MemberProgress { place, weight: member.weight.into(), credit: 0, entry, skip }
    }

    fn next(&mut self, entries: usize) -> usize {
        let entry = self.entry;
        self.entry = (entry + self.skip) % entries;
        entry
    }
}

/// FNV-1a (64 bits) from a seed, and the finalizer of MurmurHash3; both are in the public domain.
fn hash(bytes: &[u8], seed: u64) -> u64 {
    let mut value = 0xcbf2_9ce4_8422_2325 ^ seed;
    for byte in bytes {
        value = (value ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    value = (value ^ (value >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    value = (value ^ (value >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    value ^ (value >> 33)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A small prime, so that tests are fast, and the one that the engine takes.
    const SMALL: usize = 1009;
    const LARGE: usize = 16_381;

    fn member(number: u32, weight: u32) -> Member {
        Member { name: format!("192.0.2.{number}:80").into_bytes(), weight }
    }

    fn equal(count: u32) -> Vec<Member> {
        (1..=count).map(|number| member(number, 1)).collect()
    }

    fn shares(table: &[u16], members: usize) -> Vec<usize> {
        let mut shares = vec![0; members];
        table.iter().for_each(|entry| shares[usize::from(*entry)] += 1);
        shares
    }

    /// Entries by the names of their owners.
    fn owners(members: &[Member], entries: usize) -> Vec<Vec<u8>> {
        table(members, entries).iter().map(|entry| members[usize::from(*entry)].name.clone()).collect()
    }

    #[test]
    fn directors_of_all_versions_agree() {
        let three = table(&equal(3), 13);
        assert_eq!(three, table(&equal(3), 13));
        assert_eq!(three, EXAMPLE, "what is here is not to be changed");
        let weights = [member(1, 1), member(2, 2), member(3, 0)];
        assert_eq!(table(&weights, 13), WEIGHTED_EXAMPLE, "what is here is not to be changed");
    }

    /// By another program after the same paper.
    const EXAMPLE: [u16; 13] = [1, 0, 2, 2, 0, 0, 0, 2, 0, 1, 2, 1, 1];
    const WEIGHTED_EXAMPLE: [u16; 13] = [1, 1, 1, 0, 1, 0, 0, 0, 0, 1, 1, 1, 1];

    #[test]
    fn the_example_of_the_paper() {
        // Table 1: (3, 4), (0, 2) and (3, 1) are offset and skip of the three; and then the second one is gone.
        let turns = |place, entry, skip| MemberProgress { place, weight: 1, credit: 0, entry, skip };
        let all = vec![turns(0, 3, 4), turns(1, 0, 2), turns(2, 3, 1)];
        assert_eq!(populate(all, 7), [1, 0, 1, 0, 2, 2, 0]);
        assert_eq!(populate(vec![turns(0, 3, 4), turns(2, 3, 1)], 7), [0, 0, 0, 0, 2, 2, 2]);
    }

    #[test]
    fn nobody_gets_what_nobody_wants() {
        assert_eq!(table(&[], 7), [NOBODY; 7]);
        assert_eq!(table(&[member(1, 0), member(2, 0)], 7), [NOBODY; 7]);
        assert_eq!(table(&[member(1, 0), member(2, 65_535)], 7), [1; 7]);
    }

    #[test]
    fn equal_members_have_equal_shares() {
        // Section 5.3 of the paper: the largest share is hardly over the smallest, as they take turns.
        for count in [1, 2, 3, 10, 100, 160] {
            let shares = shares(&table(&equal(count), LARGE), count as usize);
            let (least, most) = (shares.iter().min().unwrap(), shares.iter().max().unwrap());
            assert!(most - least <= 1, "{count}: {least} to {most}");
        }
    }

    #[test]
    fn few_entries_move_when_a_member_goes() {
        for count in [4, 10, 50] {
            let all = equal(count);
            let before = owners(&all, LARGE);
            let gone = &all[1].name;
            let rest: Vec<Member> = all.iter().filter(|member| member.name != *gone).cloned().collect();
            let after = owners(&rest, LARGE);
            let moved = before.iter().zip(&after).filter(|(old, new)| *old != gone && old != new).count();
            // The paper's figure 12 shows some percent for a table a hundred times as large as the pool.
            assert!(moved * 100 < LARGE * 5, "{count}: {moved} of {LARGE} moved without need");
        }
    }

    #[test]
    fn a_share_is_by_weight_and_never_nothing() {
        let members = [member(1, 1), member(2, 2), member(3, 5)];
        let shares = shares(&table(&members, LARGE), 3);
        for (share, part) in shares.iter().zip([1, 2, 5]) {
            assert!(share.abs_diff(LARGE * part / 8) <= 2, "{shares:?}");
        }
        let extreme = [member(1, 1), member(2, 65_535)];
        assert!(super::tests::shares(&table(&extreme, LARGE), 2)[0] >= 1);
    }

    proptest! {
        #[test]
        fn any_members_fill_a_table(weights in prop::collection::vec(0_u32..=65_535, 0..40), turn in 0_usize..40) {
            let members: Vec<Member> = (0..).zip(&weights).map(|(number, weight)| member(number, *weight)).collect();
            let table = table(&members, SMALL);
            let total: u64 = weights.iter().map(|weight| u64::from(*weight)).sum();
            for (place, weight) in weights.iter().enumerate() {
                let share = table.iter().filter(|entry| usize::from(**entry) == place).count();
                let due = if total == 0 { 0.0 } else { SMALL as f64 * f64::from(*weight) / total as f64 };
                // The first round is a turn for everybody.
                prop_assert!((share as f64 - due).abs() <= 2.0 + weights.len() as f64, "{place}: {share} for {due}");
                prop_assert_eq!(share == 0, *weight == 0);
            }
            prop_assert_eq!(table.contains(&NOBODY), total == 0);
            // In another order.
            if total > 0 {
                let mut turned = members.clone();
                turned.rotate_left(turn % members.len());
                turned.reverse();
                prop_assert_eq!(owners(&members, SMALL), owners(&turned, SMALL));
            }
        }
    }
}
