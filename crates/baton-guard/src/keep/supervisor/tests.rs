//! Events in a row, and what is to be done about them.

use super::*;

/// Events in a row at one time; what is said to the operator is left out.
struct SupervisorDriver {
    supervisor: Supervisor,
    now: Instant,
}

impl SupervisorDriver {
    fn new(drain_max: Option<Duration>) -> SupervisorDriver {
        let limits = Limits { ready_within: Duration::from_secs(60), drain_max };
        let mut scene = SupervisorDriver { supervisor: Supervisor::new(limits), now: Instant::now() };
        assert_eq!(scene.supervisor.begin(scene.now), [Action::Start(1)]);
        scene
    }

    fn serving(drain_max: Option<Duration>) -> SupervisorDriver {
        let mut scene = SupervisorDriver::new(drain_max);
        scene.check(Event::Ready(1), &[]);
        scene
    }

    #[track_caller]
    fn check(&mut self, event: Event, expect: &[Action]) {
        let is_act = |act: &Action| {
            !matches!(act, Action::Say(_) | Action::TellReady(_) | Action::TellReloading | Action::TellStopping)
        };
        let acts: Vec<Action> = self.supervisor.on(event, self.now).into_iter().filter(is_act).collect();
        assert_eq!(acts, expect);
    }

    /// Goes on to the next time that is wanted; gives how long that was.
    fn wait(&mut self) -> Duration {
        let at = self.supervisor.wakes().expect("something is due");
        let wait = at.saturating_duration_since(self.now);
        self.now = at;
        wait
    }
}

fn ended(number: Number) -> Event {
    Event::Ended(number, "exit 1".into())
}

#[test]
fn the_new_one_comes_before_the_old_one_goes() {
    let mut scene = SupervisorDriver::serving(None);
    scene.check(Event::Restart, &[Action::Start(2)]);
    scene.check(Event::Ready(2), &[Action::Drain(1)]);
    assert_eq!(scene.supervisor.wakes(), None);
    scene.check(ended(1), &[]);
}

#[test]
fn many_restarts_at_once_are_one_more() {
    let mut scene = SupervisorDriver::serving(None);
    scene.check(Event::Restart, &[Action::Start(2)]);
    scene.check(Event::Restart, &[]);
    scene.check(Event::Restart, &[]);
    scene.check(Event::Ready(2), &[Action::Drain(1), Action::Start(3)]);
    scene.check(Event::Ready(3), &[Action::Drain(2)]);
}

#[test]
fn a_new_one_that_fails_changes_nothing() {
    let mut scene = SupervisorDriver::serving(None);
    scene.check(Event::Restart, &[Action::Start(2)]);
    scene.check(ended(2), &[]);
    scene.check(Event::Restart, &[Action::Start(3)]);
    scene.check(Event::NotStarted(3, "no such file".into()), &[]);
    scene.check(Event::Restart, &[Action::Start(4)]);
    assert_eq!(scene.wait(), Duration::from_secs(60));
    scene.check(Event::Tick, &[Action::Terminate(4)]);
    assert_eq!(scene.wait(), UNREADY_END_MAX);
    scene.check(Event::Tick, &[Action::Kill(4)]);
    scene.check(ended(4), &[]);
    scene.check(Event::Stop, &[Action::Drain(1)]);
    scene.check(ended(1), &[Action::Leave(0)]);
}

#[test]
fn what_a_program_leaves_behind_drains_like_it() {
    let orphaned = |number| Event::Orphaned(number, "exit 0".into());
    let longest = Duration::from_secs(9);
    let mut scene = SupervisorDriver::serving(Some(longest));
    scene.check(Event::Restart, &[Action::Start(2)]);
    scene.check(Event::Ready(2), &[Action::Drain(1)]);
    // The time began when it was told to drain.
    scene.now += longest / 3;
    scene.check(orphaned(1), &[]);
    assert_eq!(scene.wait(), longest - longest / 3);
    scene.check(Event::Tick, &[Action::Kill(1)]);
    scene.check(ended(1), &[]);
    // Of one that ends by itself, and the next one comes at once.
    scene.now += STEADY;
    scene.check(orphaned(2), &[]);
    assert_eq!(scene.wait(), Duration::ZERO);
    scene.check(Event::Tick, &[Action::Start(3)]);
    scene.check(Event::Ready(3), &[]);
    assert_eq!(scene.wait(), longest);
    scene.check(Event::Tick, &[Action::Kill(2)]);
    scene.check(Event::Stop, &[Action::Drain(3)]);
    scene.check(ended(3), &[]);
    scene.check(ended(2), &[Action::Leave(0)]);

    let mut scene = SupervisorDriver::new(None);
    scene.check(orphaned(1), &[]);
    assert_eq!(scene.wait(), UNREADY_END_MAX);
    scene.check(Event::Tick, &[Action::Kill(1)]);
    scene.check(ended(1), &[Action::Leave(1)]);
}

#[test]
fn one_that_crashes_is_started_again_ever_later() {
    let mut scene = SupervisorDriver::serving(None);
    scene.now += STEADY;
    scene.check(ended(1), &[]);
    let mut waits = vec![scene.wait()];
    scene.check(Event::Tick, &[Action::Start(2)]);
    for number in 2..14 {
        if number % 2 == 0 {
            scene.check(Event::Ready(number), &[]);
        }
        scene.check(ended(number), &[]);
        waits.push(scene.wait());
        scene.check(Event::Tick, &[Action::Start(number + 1)]);
    }
    assert_eq!(waits[..3], [Duration::ZERO, BACK_OFF.0, BACK_OFF.0 * 2]);
    assert!(waits.is_sorted() && waits.last() == Some(&BACK_OFF.1), "{waits:?}");
}

#[test]
fn a_crash_while_the_next_one_comes_needs_no_other() {
    let mut scene = SupervisorDriver::serving(None);
    scene.check(Event::Restart, &[Action::Start(2)]);
    scene.check(ended(1), &[]);
    scene.check(Event::Ready(2), &[]);
    scene.check(Event::Restart, &[Action::Start(3)]);
    scene.check(ended(2), &[]);
    scene.check(ended(3), &[]);
    scene.wait();
    scene.check(Event::Tick, &[Action::Start(4)]);
}

#[test]
fn a_command_that_never_served_is_told_at_once() {
    let mut scene = SupervisorDriver::new(None);
    scene.check(ended(1), &[Action::Leave(1)]);
    let mut scene = SupervisorDriver::new(None);
    scene.check(Event::NotStarted(1, "no such file".into()), &[Action::Leave(1)]);
    let mut scene = SupervisorDriver::new(None);
    scene.wait();
    scene.check(Event::Tick, &[Action::Terminate(1)]);
    scene.check(ended(1), &[Action::Leave(1)]);
}

#[test]
fn a_stop_drains_and_a_second_one_kills() {
    let mut scene = SupervisorDriver::serving(Some(Duration::from_secs(5)));
    scene.check(Event::Restart, &[Action::Start(2)]);
    scene.check(Event::Stop, &[Action::Terminate(2), Action::Drain(1)]);
    scene.check(Event::Restart, &[]);
    scene.check(ended(2), &[]);
    assert_eq!(scene.wait(), Duration::from_secs(5));
    scene.check(Event::Tick, &[Action::Kill(1)]);
    scene.check(Event::Stop, &[Action::Kill(1)]);
    scene.check(ended(1), &[Action::Leave(0)]);
}

#[test]
fn not_more_than_so_many_drain() {
    let mut scene = SupervisorDriver::serving(None);
    for number in 2..2 + DRAINING_MAX as Number {
        scene.check(Event::Restart, &[Action::Start(number)]);
        scene.check(Event::Ready(number), &[Action::Drain(number - 1)]);
    }
    scene.check(Event::Restart, &[]);
    scene.check(ended(3), &[]);
    scene.check(Event::Restart, &[Action::Start(18)]);
}
