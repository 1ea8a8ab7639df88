//! Things by name, and counters, as they stand in a message: maps, kept as lists. A message is written once and read once, from
//! one end to the other, so that nothing has to be found in it.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use baton_proxy::{Counter, CounterBlock};
use serde::de::{DeserializeSeed, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Things by name, in the order in which they were added.
#[derive(Clone, Debug, PartialEq)]
pub struct Named<T>(pub Vec<(Arc<str>, T)>);

impl<T> Named<T> {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Names and things in order.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &T)> {
        self.0.iter().map(|(name, thing)| (name, thing))
    }
}

impl<T> Default for Named<T> {
    fn default() -> Named<T> {
        Named(Vec::new())
    }
}

impl<T> FromIterator<(Arc<str>, T)> for Named<T> {
    fn from_iter<I: IntoIterator<Item = (Arc<str>, T)>>(things: I) -> Named<T> {
        Named(things.into_iter().collect())
    }
}

impl<T: Serialize> Serialize for Named<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter().map(|(name, thing)| (&**name, thing)))
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Named<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Named<T>, D::Error> {
        struct Things<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Things<T> {
            type Value = Named<T>;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("things by name")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Named<T>, A::Error> {
                let mut things = Vec::new();
                while let Some(name) = entries.next_key_seed(Text)? {
                    things.push((name, entries.next_value()?));
                }
                Ok(Named(things))
            }
        }

        deserializer.deserialize_map(Things(PhantomData))
    }
}

/// Reads a name without a copy in between.
struct Text;

impl<'de> DeserializeSeed<'de> for Text {
    type Value = Arc<str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Arc<str>, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Text {
    type Value = Arc<str>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a name")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Arc<str>, E> {
        Ok(text.into())
    }
}

/// Counters, each with its name in [`Counter::NAMED`] in a message; those that are zero are left out, those of a name that is
/// unknown here are ignored. In the order of that list.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counters(Vec<(Counter, u64)>);

/// How many of a server's counters are not zero, mostly.
const USUAL: usize = 8;

impl Counters {
    /// Those of a block as they are now.
    pub fn of(block: &CounterBlock) -> Counters {
        if block.is_untouched() {
            return Counters::default();
        }
        let totals = Counter::NAMED.iter().map(|(counter, _)| (*counter, block.total(*counter)));
        Counters(totals.filter(|(_, total)| *total > 0).collect())
    }

    /// Those of this list.
    pub fn from(counted: Vec<(Counter, u64)>) -> Counters {
        Counters(counted)
    }

    /// Adds them to a block.
    pub fn add_to(&self, block: &CounterBlock) {
        for (counter, amount) in &self.0 {
            block.inherit(*counter, *amount);
        }
    }

    /// What was counted since `before`.
    pub fn since(&self, before: &Counters) -> Counters {
        let was = |counter: Counter| before.0.iter().find(|(other, _)| *other == counter).map_or(0, |(_, was)| *was);
        let grown = self.0.iter().map(|(counter, now)| (*counter, now.wrapping_sub(was(*counter))));
        Counters(grown.filter(|(_, grown)| *grown > 0).collect())
    }

    /// Whether all are zero.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Serialize for Counters {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(counter, amount)| (counter.name(), amount)))
    }
}

impl<'de> Deserialize<'de> for Counters {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Counters, D::Error> {
        struct Amounts;

        impl<'de> Visitor<'de> for Amounts {
            type Value = Counters;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("counters by name")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Counters, A::Error> {
                let mut amounts = Vec::with_capacity(USUAL);
                while let Some(counter) = entries.next_key_seed(Name)? {
                    let amount = entries.next_value()?;
                    amounts.extend(counter.filter(|_| amount > 0).map(|counter| (counter, amount)));
                }
                Ok(Counters(amounts))
            }
        }

        deserializer.deserialize_map(Amounts)
    }
}

/// A counter by its name; `None` when it is unknown here.
struct Name;

impl<'de> DeserializeSeed<'de> for Name {
    type Value = Option<Counter>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Option<Counter>, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Name {
    type Value = Option<Counter>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a counter's name")
    }

    fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<Option<Counter>, E> {
        Ok(Counter::NAMED.iter().find(|(_, other)| *other == name).map(|(counter, _)| *counter))
    }
}
