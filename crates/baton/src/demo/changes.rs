//! The changes of the demo, one row each. To add one: a row in [`STEPS`], and in [`DemoState`] the line it changes.

use super::scene::{ConfigMistake, DemoAddresses, DemoState};

/// One change, and what must come of it.
pub struct DemoStep {
    /// Makes the next scene of the one in use.
    pub change: fn(&mut DemoState),
    /// Whether the proxy must take it.
    pub expect: Expect,
    /// Words that the proxy's answer must have in it.
    pub says: &'static str,
    /// What a request tells afterwards.
    pub then: Option<ExpectedEffect>,
}

/// What the proxy must do with a file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Expect {
    /// Put it in use.
    Applied,
    /// Refuse it whole.
    Rejected,
}

/// What a request must see once a change is in force.
#[derive(Clone, Copy, Debug)]
pub struct ExpectedEffect {
    /// Where it is sent.
    pub at: fn(&DemoAddresses) -> std::net::SocketAddr,
    /// What it asks for.
    pub path: &'static str,
    /// Words that the answer must have in it. The origins answer with what they saw, as JSON.
    pub sees: &'static str,
}

const fn applied(says: &'static str, change: fn(&mut DemoState)) -> DemoStep {
    DemoStep { change, expect: Expect::Applied, says, then: None }
}

const fn rejected(says: &'static str, change: fn(&mut DemoState)) -> DemoStep {
    DemoStep { change, expect: Expect::Rejected, says, then: None }
}

impl DemoStep {
    const fn then(
        self,
        at: fn(&DemoAddresses) -> std::net::SocketAddr,
        path: &'static str,
        sees: &'static str,
    ) -> DemoStep {
        DemoStep { then: Some(ExpectedEffect { at, path, sees }), ..self }
    }
}

/// The changes in their order. After the last one the scene is the first one again, and the round starts over.
pub const STEPS: &[DemoStep] = &[
    applied("server three added", |scene| scene.add_server("three", 1, 10)),
    applied("server three: weight changed", |scene| scene.weigh("three", 30)),
    applied("frontend extra added", |scene| scene.extra = true).then(|at| at.extra, "/", "\"name\":\"origin"),
    applied("backend app: timeout server changed", |scene| scene.timeout_server_s = 20),
    rejected("balanse", |scene| scene.fault = Some(ConfigMistake::UnknownKeyword)),
    applied("frontend web", |scene| scene.header = Some("live")).then(|at| at.web, "/", "\"live\""),
    applied("server one removed", |scene| scene.remove_server("one")).then(|at| at.web, "/", "\"origin-two\""),
    applied("backend app: balance changed", |scene| scene.balance = "leastconn"),
    applied("added", |scene| scene.second_bind = true).then(|at| at.second_bind, "/", "\"live\""),
    rejected("already in use", |scene| scene.fault = Some(ConfigMistake::TakenPort)),
    applied("backend only-two added", |scene| scene.only_two = true).then(|at| at.web, "/only-two", "\"origin-two\""),
    applied("frontend web: maxconn changed", |scene| scene.maxconn = 2000),
    applied("server one added", |scene| scene.add_server("one", 0, 10)),
    applied("frontend extra removed", |scene| scene.extra = false),
    rejected("such.list", |scene| scene.fault = Some(ConfigMistake::MissingFile)),
    applied("frontend web: timeout client changed", |scene| scene.timeout_client_s = 20),
    applied("removed", |scene| scene.second_bind = false),
    applied("frontend web", |scene| scene.header = Some("again")).then(|at| at.web, "/", "\"again\""),
    applied("server three removed", |scene| scene.remove_server("three")),
    // Many things at once, back to the beginning.
    applied("backend only-two removed", |scene| *scene = DemoState::default()).then(
        |at| at.web,
        "/",
        "\"name\":\"origin",
    ),
];

/// The step of this number, counted over all rounds.
pub fn step(number: usize) -> &'static DemoStep {
    &STEPS[number % STEPS.len()]
}

#[cfg(test)]
mod tests {
    use baton_config::{Loaded, Options, SystemEnvironment, load};
    use baton_control::protocol::Message;
    use baton_control::reload::foresee;
    use baton_model::Model;

    use super::super::scene::tests::places;
    use super::*;

    fn read(scene: &DemoState) -> Loaded {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        std::fs::write(file.path(), scene.to_cfg(&places())).expect("it can be written");
        load(&Options { files: vec![file.path().into()], ..Options::default() }, &SystemEnvironment)
    }

    fn messages(of: &[Message]) -> String {
        of.iter().map(|message| message.message.as_str()).collect::<Vec<_>>().join("\n")
    }

    fn model(scene: &DemoState) -> Model {
        let loaded = read(scene);
        let found: Vec<Message> = loaded.diagnostics.iter().map(|diagnostic| Message::of(diagnostic, 0)).collect();
        assert_eq!(messages(&found), "");
        loaded.model.expect("nothing was said against it")
    }

    /// Every good step changes what its row says, every broken one that the reader can judge is refused with its words.
    #[test]
    fn each_step_does_what_its_row_says() {
        let mut scene = DemoState::default();
        for (number, step) in STEPS.iter().enumerate() {
            let mut next = scene.clone();
            (step.change)(&mut next);
            assert_ne!(next, scene, "step {number} changes nothing");
            let fault = next.fault;
            let outcome = foresee(read(&next), &model(&scene), 1, |_| Ok(Vec::new()), &Default::default());
            let plan = outcome.plan.to_string();
            match (step.expect, fault) {
                (Expect::Applied, None) => {
                    assert!(outcome.accepted, "step {number}: {}", messages(&outcome.messages));
                    assert!(plan.contains(step.says), "step {number}: {plan}");
                    scene = next;
                }
                (Expect::Rejected, Some(ConfigMistake::UnknownKeyword | ConfigMistake::MissingFile)) => {
                    assert!(!outcome.accepted, "step {number}");
                    let text = messages(&outcome.messages);
                    assert!(text.contains(step.says), "step {number}: {text}");
                }
                // Only an attempt to listen there can tell.
                (Expect::Rejected, Some(ConfigMistake::TakenPort)) => {}
                (expect, fault) => panic!("step {number}: {expect:?} with {fault:?}"),
            }
        }
        assert_eq!(scene, DemoState::default(), "a round ends where it began");
    }

    #[test]
    fn rounds_follow_each_other() {
        assert_eq!(step(STEPS.len() + 1).says, STEPS[1].says);
    }

    #[test]
    fn a_few_seconds_show_both_kinds() {
        let first = &STEPS[..7];
        let applied = first.iter().filter(|step| step.expect == Expect::Applied).count();
        assert_eq!((applied, first.len() - applied), (6, 1));
    }
}
