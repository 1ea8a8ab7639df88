//! Makes the changes: one at each beat, each judged by the proxy's own answer and, where its row says so, by a request.

use std::time::{Duration, Instant};

use baton_control::protocol::Outcome;
use baton_prove::Phase;
use tokio::sync::{mpsc, watch};
use tokio::time::{MissedTickBehavior, interval_at};

use super::changes::{self, DemoStep, Expect};
use super::probe;
use super::proxy::DemoFiles;
use super::scene::{DemoAddresses, DemoState};

/// The time from one change to the next.
pub const BEAT: Duration = Duration::from_millis(500);

/// How many of the proxy's changes are told for one step.
const TOLD_MAX: usize = 3;
/// How much of one of them is told, in characters.
const WORDS_MAX: usize = 120;

/// What became of a step.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Verdict {
    /// Put in use, as it had to be.
    Applied,
    /// Refused, as it had to be.
    Rejected,
    /// Anything else.
    Failed,
}

/// A step, made.
#[derive(Clone, Debug)]
pub struct CompletedStep {
    /// When it began, from the start of the load.
    pub at: Duration,
    /// How long the proxy took to answer.
    pub took: Duration,
    /// What became of it.
    pub verdict: Verdict,
    /// One line about it, in the proxy's words.
    pub text: String,
}

/// Who makes the changes, and what with.
#[derive(Debug)]
pub struct Director {
    /// The proxy.
    pub files: DemoFiles,
    /// The addresses of the scenes.
    pub places: DemoAddresses,
    /// The scene in use.
    pub scene: DemoState,
    /// The flag that measurements are sorted by.
    pub phase: Phase,
    /// The start of the load.
    pub began: Instant,
}

impl Director {
    /// Makes a change at every beat until `stop` is true or nobody listens; a change under way is finished. A beat that was
    /// missed because a change took long is made up for.
    pub async fn direct(mut self, made: mpsc::Sender<CompletedStep>, mut stop: watch::Receiver<bool>) {
        let mut beats = interval_at(tokio::time::Instant::from_std(self.began + BEAT), BEAT);
        beats.set_missed_tick_behavior(MissedTickBehavior::Burst);
        for number in 0.. {
            tokio::select! {
                biased;
                _ = stop.wait_for(|stop| *stop) => return,
                _ = beats.tick() => {}
            }
            let result = self.make(changes::step(number)).await;
            if made.send(result).await.is_err() {
                return;
            }
        }
    }

    async fn make(&mut self, step: &DemoStep) -> CompletedStep {
        let mut next = self.scene.clone();
        (step.change)(&mut next);
        let at = self.began.elapsed();
        let mut took = Duration::ZERO;
        let told = async {
            self.files.write(&next.to_cfg(&self.places))?;
            let change = self.phase.begin();
            let asked = Instant::now();
            let outcome = self.files.reload().await;
            took = asked.elapsed();
            drop(change);
            outcome
        }
        .await;
        let (verdict, text) = match told {
            Ok(outcome) => self.judge(step, next, &outcome).await,
            Err(reason) => (Verdict::Failed, reason),
        };
        CompletedStep { at, took, verdict, text }
    }

    /// Compares what was answered with what the step must do, and looks at its effect.
    async fn judge(&mut self, step: &DemoStep, next: DemoState, outcome: &Outcome) -> (Verdict, String) {
        let text = words(outcome);
        if outcome.accepted && step.expect == Expect::Applied {
            self.scene = next;
        } else if let Err(reason) = self.files.write(&self.scene.to_cfg(&self.places)) {
            // The file always says what is in use, also for who keeps the demo running.
            return (Verdict::Failed, reason);
        }
        let verdict = match verdict(step, outcome) {
            Ok(verdict) => verdict,
            Err(why) => return (Verdict::Failed, format!("{why}: {text}")),
        };
        let Some(effect) = &step.then else { return (verdict, text) };
        match probe::sees((effect.at)(&self.places), effect.path, effect.sees).await {
            Ok(()) => (verdict, format!("{text} (confirmed by a request)")),
            Err(reason) => (Verdict::Failed, format!("{text}, but {reason}")),
        }
    }
}

/// Whether the proxy did what it must.
fn verdict(step: &DemoStep, outcome: &Outcome) -> Result<Verdict, String> {
    match (step.expect, outcome.accepted) {
        (Expect::Applied, false) => Err("a valid file was rejected".into()),
        (Expect::Rejected, true) => Err("a broken file was accepted".into()),
        _ if !all_words(outcome).contains(step.says) => Err(format!("the response should contain '{}'", step.says)),
        (Expect::Applied, true) => Ok(Verdict::Applied),
        (Expect::Rejected, false) => Ok(Verdict::Rejected),
    }
}

/// The proxy's answer in one line.
fn words(outcome: &Outcome) -> String {
    if !outcome.accepted {
        let first = outcome.messages.iter().find(|message| message.severity == "alert").or(outcome.messages.first());
        return first.map_or_else(|| "no reason was reported".into(), |message| one_line(&message.message));
    }
    let changes = &outcome.plan.changes;
    let mut told: Vec<String> = changes.iter().take(TOLD_MAX).map(|change| one_line(&change.change)).collect();
    match changes.len() {
        0 => told.push("nothing changed".into()),
        count if count > TOLD_MAX => told.push(format!("and {} more", count - TOLD_MAX)),
        _ => {}
    }
    told.join("; ")
}

/// Everything the answer says.
fn all_words(outcome: &Outcome) -> String {
    let changes = outcome.plan.changes.iter().map(|change| change.change.as_str());
    let messages = outcome.messages.iter().map(|message| message.message.as_str());
    changes.chain(messages).collect::<Vec<_>>().join("\n")
}

fn one_line(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(WORDS_MAX) {
        Some((end, _)) => format!("{} ...", line[..end].trim_end()),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use baton_control::plan::PlannedChange;
    use baton_control::protocol::Message;

    use super::*;

    fn outcome(accepted: bool, lines: &[&str]) -> Outcome {
        let mut outcome = Outcome { accepted, ..Outcome::default() };
        for line in lines {
            let change = (*line).to_owned();
            match accepted {
                true => outcome.plan.changes.push(PlannedChange { change, ..PlannedChange::default() }),
                false => outcome.messages.push(Message {
                    severity: "alert".into(),
                    id: String::new(),
                    file: String::new(),
                    line: 0,
                    message: change,
                    rendered: String::new(),
                }),
            }
        }
        outcome
    }

    #[track_caller]
    fn check(expect: Expect, accepted: bool, lines: &[&str], verdict_is: Result<Verdict, &str>) {
        let step = DemoStep { change: |_| {}, expect, says: "this", then: None };
        let outcome = outcome(accepted, lines);
        let found = verdict(&step, &outcome);
        assert_eq!(found, verdict_is.map_err(str::to_owned));
    }

    #[test]
    fn only_what_must_come_is_right() {
        check(Expect::Applied, true, &["this changed"], Ok(Verdict::Applied));
        check(Expect::Rejected, false, &["this is wrong"], Ok(Verdict::Rejected));
        check(Expect::Applied, false, &["this is wrong"], Err("a valid file was rejected"));
        check(Expect::Rejected, true, &["this changed"], Err("a broken file was accepted"));
        check(Expect::Applied, true, &[], Err("the response should contain 'this'"));
        check(Expect::Rejected, false, &["that"], Err("the response should contain 'this'"));
    }

    #[test]
    fn an_answer_is_told_in_one_line() {
        let check = |accepted, lines: &[&str], expect: &str| assert_eq!(words(&outcome(accepted, lines)), expect);
        check(true, &[], "nothing changed");
        check(true, &["a", "b\n c"], "a; b c");
        check(true, &["a", "b", "c", "d", "e"], "a; b; c; and 2 more");
        check(false, &["bad\nthing", "worse"], "bad thing");
        check(false, &[], "no reason was reported");
        check(false, &[&"x".repeat(200)], &format!("{} ...", "x".repeat(WORDS_MAX)));
    }
}
