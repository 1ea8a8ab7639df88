//! Addresses on their way out, found by what cores call them and by where they are.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use baton_proxy::ListenerId;

use super::Place;
use super::leaving::Leaving;

/// All of them. An address that was removed again and again is there as often.
#[derive(Debug, Default)]
pub(super) struct Departures {
    by_id: BTreeMap<ListenerId, Leaving>,
    at: HashMap<Place, BTreeSet<ListenerId>>,
}

impl Departures {
    /// One more.
    pub(super) fn add(&mut self, leaving: Leaving) {
        self.at.entry(leaving.place.clone()).or_default().insert(leaving.id);
        self.by_id.insert(leaving.id, leaving);
    }

    /// Takes one out.
    pub(super) fn take(&mut self, id: ListenerId) -> Option<Leaving> {
        let leaving = self.by_id.remove(&id)?;
        if let Some(there) = self.at.get_mut(&leaving.place) {
            there.remove(&id);
            if there.is_empty() {
                self.at.remove(&leaving.place);
            }
        }
        Some(leaving)
    }

    /// Takes out the one that has been longest at a place.
    pub(super) fn take_at(&mut self, place: &Place) -> Option<Leaving> {
        self.take(*self.at.get(place)?.first()?)
    }

    /// The one that has been longest at a place.
    pub(super) fn at(&self, place: &Place) -> Option<&Leaving> {
        self.by_id.get(self.at.get(place)?.first()?)
    }

    /// As [`Departures::at`], to change it.
    pub(super) fn at_mut(&mut self, place: &Place) -> Option<&mut Leaving> {
        self.by_id.get_mut(self.at.get(place)?.first()?)
    }

    /// All of them, the oldest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Leaving> {
        self.by_id.values()
    }

    /// As [`Departures::iter`], to change them.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Leaving> {
        self.by_id.values_mut()
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }
}
