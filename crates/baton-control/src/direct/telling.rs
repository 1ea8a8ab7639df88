//! What is said of `mode direct`: each trouble once, however often it is met, and once that it is over.
//!
//! Work is done again and again, after failures and to repair. So a sentence is news only when it was not true the last time.

use baton_direct::{DirectorReport, KernelError};

use super::addresses;
use super::keeper::{Done, KernelFigures};
use crate::messages::Said;

/// Troubles that are remembered as told.
const TOLD_MAX: usize = 1000;
/// The surroundings are looked at every second, and neighbours come and go: a trouble of theirs is over when it was not met so many
/// times in a row.
const MISSED_MAX: u32 = 5;

/// What a trouble is about: each is looked for at its own times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TroubleKind {
    /// What was to be done in the kernel.
    Work,
    /// What others do, and the engine depends on.
    Surroundings,
    /// Nothing that would ever be over.
    Remark,
}

/// What was told, and is still so.
#[derive(Debug, Default)]
pub struct Telling {
    told: Vec<Trouble>,
    /// What somebody else changed, as of the last repair that found something.
    repaired: Vec<String>,
    /// Repairs in a row that were told of already.
    repeats: u32,
    /// Who changes it again and again.
    fight: Option<String>,
}

#[derive(Debug)]
struct Trouble {
    about: TroubleKind,
    text: String,
    /// How often in a row it was looked for and not met.
    missed: u32,
}

/// Whether all that may be wrong was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Looked {
    /// What is not there is over.
    AtAll,
    /// What is not there may still be so.
    AtSome,
}

/// What was done, for the log.
pub fn logged(text: &str) -> Said {
    Said::Logged(format!("mode direct: {text}"))
}

impl Telling {
    /// What became of work, in words; and whether all of it was done. `explain` adds to a fault what this process lacks.
    pub fn of_work(
        &mut self,
        done: &Done,
        is_repair: bool,
        explain: impl Fn(&KernelError) -> String,
    ) -> (Vec<Said>, bool) {
        let Done { services, vips, held, figures: _ } = done;
        let (mut steps, mut wrong, mut remarks) = (Vec::new(), Vec::new(), Vec::new());
        let (mut is_well, mut looked) = (true, Looked::AtAll);
        match services {
            Ok(DirectorReport { done, taken_over, refused, failed, remarks: other }) => {
                steps.extend(done.iter().cloned());
                let others = taken_over.iter();
                remarks.extend(
                    others.map(|key| format!("service {key} existed in the kernel and is now managed by Baton")),
                );
                wrong.extend(refused.iter().map(|refused| format!("{}: {}", refused.what, refused.why)));
                wrong.extend(failed.iter().map(ToString::to_string));
                remarks.extend(other.iter().cloned());
                is_well &= failed.is_empty();
            }
            Err(fault) => {
                wrong.push(explain(fault));
                (is_well, looked) = (false, Looked::AtSome);
            }
        }
        match vips {
            None => {}
            Some(Ok(report)) => {
                steps.extend(report.added.iter().map(|vip| format!("added virtual address {vip}")));
                steps.extend(report.removed.iter().map(|vip| format!("removed virtual address {vip}")));
                let foreign = report.foreign.iter();
                wrong.extend(
                    foreign.map(|vip| format!("virtual address {vip} existed already: it is not removed at the end")),
                );
                wrong.extend(report.faults.iter().map(ToString::to_string));
                is_well &= report.faults.is_empty();
            }
            Some(Err(fault)) => {
                wrong.push(explain(fault));
                (is_well, looked) = (false, Looked::AtSome);
            }
        }
        wrong.extend(held.iter().map(addresses::stays));
        let mut words = match is_repair {
            true => self.of_repair(steps, looked),
            false => steps.iter().map(|step| logged(step)).collect(),
        };
        words.extend(self.tell(TroubleKind::Remark, remarks, looked));
        words.extend(self.tell(TroubleKind::Work, wrong, looked));
        (words, is_well)
    }

    /// What was done though nothing was asked for is what somebody else had undone.
    fn of_repair(&mut self, steps: Vec<String>, looked: Looked) -> Vec<Said> {
        if steps.is_empty() {
            let is_over = looked == Looked::AtAll && std::mem::take(&mut self.repeats) > 0;
            if looked == Looked::AtAll {
                self.repaired.clear();
                self.fight = None;
            }
            let over = "mode direct: no more outside changes to Baton's kernel state";
            return is_over.then(|| Said::News(over.into())).into_iter().collect();
        }
        let word = |text: &String| match self.repaired.contains(text) {
            true => logged(&format!("restored: {text}")),
            false => Said::Trouble(format!(
                "mode direct: another program changed Baton's kernel state, which is restored: {text}"
            )),
        };
        let words: Vec<Said> = steps.iter().map(word).collect();
        self.repeats += u32::from(words.iter().any(|word| matches!(word, Said::Logged(_))));
        self.fight = (self.repeats > 0).then(|| {
            format!(
                "another program keeps changing Baton's kernel state, which is restored each time: {}",
                steps.join(", ")
            )
        });
        self.repaired = steps;
        words
    }

    /// What was seen when counters were read.
    pub fn of_surroundings(&mut self, counted: &KernelFigures) -> Vec<Said> {
        let KernelFigures { figures, has_lost: _, in_the_way, others, manner: _ } = counted;
        let mut said: Vec<String> = in_the_way.iter().flatten().chain(others).cloned().collect();
        said.extend(in_the_way.as_ref().err().map(ToString::to_string));
        said.extend(figures.as_ref().err().map(ToString::to_string));
        let is_all = in_the_way.is_ok() && figures.is_ok();
        self.tell(TroubleKind::Surroundings, said, if is_all { Looked::AtAll } else { Looked::AtSome })
    }

    /// Something went wrong, and nothing else was looked at.
    pub fn of_failure(&mut self, text: String) -> Vec<Said> {
        self.tell(TroubleKind::Work, vec![text], Looked::AtSome)
    }

    /// Says what is news.
    fn tell(&mut self, about: TroubleKind, said: Vec<String>, looked: Looked) -> Vec<Said> {
        let mut words = Vec::new();
        for text in said.iter().take(TOLD_MAX) {
            if !self.told.iter().any(|trouble| trouble.text == *text) {
                words.push(Said::Trouble(format!("mode direct: {text}")));
            }
            match self.told.iter_mut().find(|trouble| trouble.about == about && trouble.text == *text) {
                Some(trouble) => trouble.missed = 0,
                None => self.told.push(Trouble { about, text: text.clone(), missed: 0 }),
            }
        }
        if looked == Looked::AtAll {
            let longest = if about == TroubleKind::Surroundings { MISSED_MAX } else { 1 };
            let mut over = Vec::new();
            self.told.retain_mut(|trouble| {
                if trouble.about != about || said.contains(&trouble.text) {
                    return true;
                }
                trouble.missed += 1;
                let stays = trouble.missed < longest;
                over.extend((!stays && about != TroubleKind::Remark).then(|| trouble.text.clone()));
                stays
            });
            over.retain(|text| !self.told.iter().any(|trouble| trouble.text == *text));
            words.extend(over.into_iter().map(|text| Said::News(format!("mode direct: resolved: {text}"))));
        }
        // The oldest make room.
        let many = self.told.len().saturating_sub(TOLD_MAX);
        self.told.drain(..many);
        words
    }

    /// What is in the way, as it was met last.
    pub fn complaints(&self) -> impl Iterator<Item = &str> {
        let met = self.told.iter().filter(|trouble| trouble.missed == 0).map(|trouble| &*trouble.text);
        met.chain(self.fight.as_deref())
    }

    /// Nothing is asked for any more, so nothing is in the way.
    pub fn forget(&mut self) {
        *self = Telling::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(text: &str) -> KernelError {
        KernelError::new("the kernel", text, "")
    }

    /// What is said of work that failed so; `Err` is work of which nothing was done.
    fn failing(telling: &mut Telling, failed: Result<&[&str], &str>) -> Vec<Said> {
        let services = match failed {
            Ok(failed) => Ok(DirectorReport {
                failed: failed.iter().map(|text| fault(text)).collect(),
                ..DirectorReport::default()
            }),
            Err(text) => Err(fault(text)),
        };
        telling
            .of_work(&Done { figures: None, services, vips: None, held: Vec::new() }, false, KernelError::to_string)
            .0
    }

    fn warnings<'w>(words: &'w [Said]) -> Vec<&'w str> {
        let text = |word: &'w Said| match word {
            Said::Trouble(text) => Some(&**text),
            Said::Logged(_) | Said::News(_) | Said::Alert(_) | Said::At(..) => None,
        };
        words.iter().filter_map(text).collect()
    }

    #[test]
    fn a_trouble_is_told_once_until_it_is_over() {
        let mut telling = Telling::default();
        assert_eq!(warnings(&failing(&mut telling, Ok(&["a", "b"]))).len(), 2);
        assert_eq!(failing(&mut telling, Ok(&["b", "a"])), []);
        // A retry that does not come so far knows nothing of them.
        assert_eq!(warnings(&failing(&mut telling, Err("c"))), ["mode direct: the kernel: c"]);
        assert_eq!(failing(&mut telling, Err("c")), []);
        assert_eq!(telling.complaints().count(), 3);
        let over = failing(&mut telling, Ok(&["a"]));
        let is = |text: &str| Said::News(format!("mode direct: resolved: the kernel: {text}"));
        assert_eq!(over, [is("b"), is("c")]);
        assert_eq!(failing(&mut telling, Ok(&[])), [is("a")]);
        assert_eq!(failing(&mut telling, Ok(&[])), []);
        assert_eq!(warnings(&failing(&mut telling, Ok(&["a"]))).len(), 1, "a new one");
    }

    #[test]
    fn a_neighbour_that_comes_and_goes_is_told_of_once() {
        let mut telling = Telling::default();
        let mut look = |others: &[&str]| {
            let others = others.iter().map(|text| (*text).to_owned()).collect();
            telling.of_surroundings(&KernelFigures {
                figures: Ok(Vec::new()),
                has_lost: false,
                in_the_way: Ok(Vec::new()),
                others,
                manner: String::new(),
            })
        };
        assert_eq!(look(&["gone"]), [Said::Trouble("mode direct: gone".into())]);
        for _ in 0..20 {
            assert_eq!((look(&[]), look(&["gone"])), (vec![], vec![]));
        }
        for _ in 1..MISSED_MAX {
            assert_eq!(look(&[]), []);
        }
        assert_eq!(look(&[]), [Said::News("mode direct: resolved: gone".into())]);
    }

    #[test]
    fn who_fights_over_what_is_ours_is_told_of_once() {
        let mut telling = Telling::default();
        let repair = |telling: &mut Telling, done: &[&str]| {
            let done = done.iter().map(|text| (*text).to_owned()).collect();
            let services = Ok(DirectorReport { done, ..DirectorReport::default() });
            telling
                .of_work(&Done { figures: None, services, vips: None, held: Vec::new() }, true, KernelError::to_string)
                .0
        };
        assert_eq!(warnings(&repair(&mut telling, &["add service x"])).len(), 1);
        assert_eq!(repair(&mut telling, &[]), [], "somebody's single change");
        assert_eq!(warnings(&repair(&mut telling, &["add service x"])).len(), 1);
        for _ in 0..3 {
            assert_eq!(repair(&mut telling, &["add service x"]), [logged("restored: add service x")]);
        }
        let fights = |telling: &Telling| {
            telling.complaints().filter(|text| text.contains("restored each time: add service x")).count()
        };
        assert_eq!(fights(&telling), 1, "show info has it as long as it goes on");
        assert_eq!(warnings(&repair(&mut telling, &["add service x", "add service y"])).len(), 1);
        assert!(matches!(&repair(&mut telling, &[])[..], [Said::News(_)]));
        assert_eq!(fights(&telling), 0);
        assert_eq!(repair(&mut telling, &[]), []);
    }
}
