//! What the plots of the statistics page show: rates and times of the last two minutes, a point a second. Kept only while a configuration
//! has such a page.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

use super::rates::Rates;

/// Points of a plot.
const POINTS_MAX: usize = 120;
/// Objects that have plots; the others have none.
const OBJECTS_MAX: usize = 4096;

/// The plots of all objects, by what names them.
#[derive(Debug)]
pub struct Plots<ObjectKey> {
    objects: HashMap<ObjectKey, VecDeque<PlotPoint>>,
}

/// What was measured in one second.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct PlotPoint {
    /// Requests, or sessions where requests are not counted.
    pub rate: u32,
    /// How long responses take, or sessions in `mode tcp`, in milliseconds: an average.
    pub time_ms: u32,
}

impl<ObjectKey> Default for Plots<ObjectKey> {
    fn default() -> Self {
        Plots { objects: HashMap::new() }
    }
}

impl<ObjectKey: Clone + Eq + Hash> Plots<ObjectKey> {
    /// A second is over, of which `rates` have the figures. What they forgot is forgotten.
    pub fn tick(&mut self, rates: &Rates<ObjectKey>) {
        let mut before = std::mem::take(&mut self.objects);
        for (key, memory) in rates.all() {
            let known = before.remove(key);
            if known.is_none() && self.objects.len() + before.len() >= OBJECTS_MAX {
                continue;
            }
            let requests = if memory.requests.max(0) > 0 { &memory.requests } else { &memory.sessions };
            let [_, _, response, whole] = memory.averages.values();
            let point = PlotPoint {
                rate: requests.last().round() as u32,
                time_ms: if response > 0 { response } else { whole },
            };
            let mut points = known.unwrap_or_default();
            if points.len() == POINTS_MAX {
                points.pop_front();
            }
            points.push_back(point);
            self.objects.insert(key.clone(), points);
        }
    }

    /// Forgets everything: nobody looks any more.
    pub fn clear(&mut self) {
        self.objects = HashMap::new();
    }

    /// The points of an object, the oldest first.
    pub fn of(&self, key: &ObjectKey) -> impl Iterator<Item = PlotPoint> {
        self.objects.get(key).into_iter().flatten().copied()
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::operators::rates::Counted;

    #[test]
    fn a_plot_has_the_last_points_of_what_still_counts() {
        let start = Instant::now();
        let (mut rates, mut plots) = (Rates::new(start), Plots::default());
        let mut tick = |second: u64, objects: &[(&'static str, u64)]| {
            let counted = |(name, requests): &(&'static str, u64)| {
                (*name, Counted { sessions: 1, requests: *requests, ..Counted::default() })
            };
            rates.tick(start + Duration::from_secs(second), objects.iter().map(counted));
            plots.tick(&rates);
            ["web", "app"].map(|name| plots.of(&name).map(|point| point.rate).collect::<Vec<_>>())
        };
        tick(1, &[("web", 5), ("app", 0)]);
        let [web, app] = tick(2, &[("web", 12), ("app", 0)]);
        assert_eq!((web, app), (vec![0, 7], vec![0, 0]));
        let [web, app] = tick(3, &[("web", 12)]);
        assert_eq!((web, app), (vec![0, 7, 0], vec![]), "what is gone has no plot");
        for second in 4..200 {
            let [web, _] = tick(second, &[("web", 12)]);
            assert!(web.len() <= POINTS_MAX);
        }
    }

    #[test]
    fn a_plot_is_forgotten_with_all_others() {
        let (mut rates, mut plots) = (Rates::new(Instant::now()), Plots::default());
        rates.tick(Instant::now(), [("web", Counted::default())].into_iter());
        plots.tick(&rates);
        assert_eq!(plots.of(&"web").count(), 1);
        plots.clear();
        assert_eq!(plots.of(&"web").count(), 0);
    }
}
