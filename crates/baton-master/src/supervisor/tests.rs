use super::*;

/// One line of a story: events before the colon, the expected effects after it.
///
/// Events: `start`, `ready N`, `exit N CODE` (negative: a signal), `reload`, `upgrade`, `soft`, `term`, `int`, `+MS` (time
/// passes and is looked at).
#[track_caller]
fn check(story: &str) -> Supervisor {
    let mut supervisor = Supervisor::default();
    let mut now = Instant::now();
    for line in story.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (event, expect) = line.split_once(':').expect("a colon");
        let words: Vec<&str> = event.split_whitespace().collect();
        let id = || WorkerId(words[1].parse().unwrap());
        let effects = match words[0] {
            "start" => supervisor.start(now),
            "ready" => supervisor.ready(id(), "1", now),
            "exit" => {
                let code: i32 = words[2].parse().unwrap();
                let ended = if code < 0 { Ended::Signaled(-code) } else { Ended::Exited(code) };
                supervisor.exited(id(), ended, now)
            }
            "reload" => supervisor.reload(false, now),
            "upgrade" => supervisor.reload(true, now),
            "soft" => supervisor.stop(Stop::Soft, now),
            "term" => supervisor.stop(Stop::Hard(SIGTERM), now),
            "int" => supervisor.stop(Stop::Hard(SIGINT), now),
            time => {
                now += Duration::from_millis(time.strip_prefix('+').expect("an event").parse().unwrap());
                supervisor.time(now)
            }
        };
        let words: Vec<String> = effects.iter().filter_map(word).collect();
        assert_eq!(words.join(", "), expect.trim(), "{line}");
        for worker in supervisor.starting.iter_mut().map(|starting| &mut starting.worker) {
            worker.pid = 100 + worker.id.0 as i32;
        }
    }
    supervisor
}

/// Messages are left out: what is said is not what is done.
fn word(effect: &Effect) -> Option<String> {
    Some(match effect {
        Effect::Spawn { id, why, text } => format!("spawn {} {why:?} {text:?}", id.0),
        Effect::Reload(id) => format!("reload {}", id.0),
        Effect::Retire(id) => format!("retire {}", id.0),
        Effect::Signal(id, signal) => format!("kill {} {signal}", id.0),
        Effect::Upgraded => "upgraded".into(),
        Effect::NotUpgraded { id, .. } => format!("not upgraded {}", id.0),
        Effect::Started => "started".into(),
        Effect::Reexec => "reexec".into(),
        Effect::Exit(code) => format!("exit {code}"),
        Effect::Say(..) => return None,
    })
}

#[test]
fn a_worker_that_dies_is_replaced_at_once_by_the_text_that_was_in_use() {
    check(
        "start: spawn 1 First Files
         ready 1: started
         +600:
         exit 1 -9: spawn 2 Replace LastGood
         ready 2:
         +10:
         exit 2 -11: spawn 3 Replace LastGood
         ready 3:
         exit 3 0: spawn 4 Replace LastGood",
    );
}

#[test]
fn the_first_one_failing_is_the_failure_of_the_master() {
    check("start: spawn 1 First Files\n exit 1 1: exit 1");
    check("start: spawn 1 First Files\n exit 1 -11: exit 139");
    check("start: spawn 1 First Files\n exit 1 0: exit 1");
    check("start: spawn 1 First Files\n +59999:\n +1: kill 1 9\n exit 1 -9: exit 137");
}

#[test]
fn a_crash_loop_backs_off_and_ends_when_one_settles() {
    let supervisor = check(
        "start: spawn 1 First Files
         ready 1: started
         exit 1 -6: spawn 2 Replace LastGood
         exit 2 1: spawn 3 Replace LastGood
         exit 3 1: spawn 4 Replace LastGood
         exit 4 1: spawn 5 Replace LastGood
         exit 5 1: spawn 6 Replace LastGood
         exit 6 1:
         +99:
         +1: spawn 7 Replace LastGood
         exit 7 1:
         +199:
         +1: spawn 8 Replace LastGood
         exit 8 1:
         +400: spawn 9 Replace LastGood
         ready 9:
         +499:
         exit 9 -6:
         +799:
         +1: spawn 10 Replace LastGood
         ready 10:
         +500:
         exit 10 -6: spawn 11 Replace LastGood",
    );
    assert_eq!((supervisor.crashes, supervisor.crashed_total), (1, 10));
    assert_eq!((backoff(11), backoff(12), backoff(u32::MAX)), (Duration::from_millis(3200), BACKOFF_MAX, BACKOFF_MAX));
}

#[test]
fn a_crash_loop_is_told_of() {
    let story = "start: spawn 1 First Files\n ready 1: started\n +600:\n";
    let now = Instant::now() + Duration::from_secs(60);
    assert_eq!(check(story).crash_loop(now), None);
    let looping = check(&(story.to_owned() + "exit 1 -6: spawn 2 Replace LastGood"));
    assert_eq!(looping.crash_loop(now), Some((1, Duration::ZERO)));
}

#[test]
fn a_reload_ends_the_wait_of_a_crash_loop_with_the_files_of_now() {
    let crashes: String = (1..=5).map(|id| format!("exit {id} 1: spawn {} Replace LastGood\n", id + 1)).collect();
    check(&format!(
        "start: spawn 1 First Files
         ready 1: started
         {crashes} exit 6 1:
         reload: spawn 7 Replace Files
         +200:
         exit 7 1:
         +200: spawn 8 Replace LastGood
         reload:
         exit 8 1: spawn 9 Replace Files
         reload:
         ready 9: reload 9"
    ));
}

#[test]
fn a_reload_is_the_living_workers_business() {
    let mut supervisor = check(
        "start: spawn 1 First Files
         reload:
         ready 1: started, reload 1
         reload: reload 1",
    );
    supervisor.reloaded(true);
    supervisor.reloaded(false);
    assert_eq!((supervisor.reloads, supervisor.reloads_failed, supervisor.last_reload_failed), (2, 1, true));
    assert_eq!(supervisor.current().unwrap().reloads, 1);
}

#[test]
fn an_upgrade_replaces_worker_and_master() {
    let supervisor = check(
        "start: spawn 1 First Files
         ready 1: started
         upgrade: spawn 2 Upgrade Files
         reload:
         ready 2: retire 1, upgraded, reexec, reload 2
         exit 1 0:",
    );
    assert!(supervisor.leaving().is_empty());
}

#[test]
fn a_failed_upgrade_leaves_the_worker_before() {
    check(
        "start: spawn 1 First Files
         ready 1: started
         upgrade: spawn 2 Upgrade Files
         exit 2 1: not upgraded 2
         upgrade: spawn 3 Upgrade Files
         +59999:
         +1: kill 3 9
         ready 3:
         exit 3 -9: not upgraded 3
         reload: reload 1",
    );
}

#[test]
fn a_worker_that_dies_during_an_upgrade_is_replaced_by_the_new_one() {
    check(
        "start: spawn 1 First Files
         ready 1: started
         upgrade: spawn 2 Upgrade Files
         exit 1 -9:
         exit 2 1: not upgraded 2, spawn 3 Replace LastGood",
    );
    check(
        "start: spawn 1 First Files
         ready 1: started
         upgrade: spawn 2 Upgrade Files
         exit 1 -9:
         ready 2: upgraded, reexec
         reload: reload 2",
    );
    let supervisor = check(
        "start: spawn 1 First Files
         ready 1: started
         upgrade: spawn 2 Upgrade Files
         exit 1 0:
         ready 2: upgraded, reexec",
    );
    assert_eq!(supervisor.crashed_total, 0, "it ended in peace");
}

#[test]
fn too_many_that_leave_are_ended() {
    let mut story = String::from("start: spawn 1 First Files\n ready 1: started\n");
    for id in 2..=10 {
        let kill = if id == 10 { "kill 1 15, " } else { "" };
        story +=
            &format!("upgrade: spawn {id} Upgrade Files\n ready {id}: retire {}, {kill}upgraded, reexec\n", id - 1);
    }
    check(&story);
}

#[test]
fn a_soft_stop_waits_for_everybody_and_a_hard_one_does_not() {
    let two = "start: spawn 1 First Files
         ready 1: started
         upgrade: spawn 2 Upgrade Files
         ready 2: retire 1, upgraded, reexec\n";
    check(&(two.to_owned() + "soft: kill 2 10\n soft:\n reload:\n exit 2 0:\n +100000:\n exit 1 0: exit 0"));
    check(&(two.to_owned() + "soft: kill 2 10\n term: kill 1 15, kill 2 15\n exit 1 -15:\n exit 2 -15: exit 0"));
    check(&(two.to_owned() + "int: kill 1 2, kill 2 2\n exit 1 -2:\n exit 2 -2: exit 130"));
    check(&(two.to_owned() + "term: kill 1 15, kill 2 15\n exit 1 -15:\n +4999:\n +1: kill 2 9\n exit 2 -9: exit 0"));
}

#[test]
fn a_stop_in_the_middle_of_a_start_or_a_wait() {
    check("start: spawn 1 First Files\n soft: kill 1 15\n ready 1:\n exit 1 -15: exit 0");
    let crashes: String = (1..=5).map(|id| format!("exit {id} 1: spawn {} Replace LastGood\n", id + 1)).collect();
    check(&format!("start: spawn 1 First Files\n ready 1: started\n {crashes} exit 6 1:\n term: exit 0"));
}

#[test]
fn a_crash_is_said_in_haproxys_words() {
    let mut supervisor = check("start: spawn 1 First Files\n ready 1: started");
    let effects = supervisor.exited(WorkerId(1), Ended::Signaled(11), Instant::now());
    let text = "Current worker (101) exited with code 139 (Segmentation fault)";
    assert_eq!(effects[0], Effect::Say(Tone::Alert, text.into()));
}
