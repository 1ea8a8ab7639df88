//! What is printed as a plan is what would be done: run by a shell, it makes the same.

use super::machine::*;

/// Runs what `flip LINE --dry-run` prints, and gives the rules that come of it.
#[track_caller]
fn typed(machine: &Machine, line: &str) -> String {
    let before = rules();
    let plan = machine.does(&format!("{line} --dry-run"));
    assert_eq!(rules(), before, "a plan changes nothing");
    shell(&format!("set -e\n{plan}"));
    rules()
}

#[track_caller]
fn done(machine: &Machine, line: &str) -> String {
    machine.does(line);
    rules()
}

#[test]
fn a_plan_that_is_typed_does_the_same() {
    for method in METHODS {
        in_network(|machine| {
            let _both = [haproxy("blue", "*:8000,:::8000 v6only"), haproxy("green", "*:8001,:::8001 v6only")];
            for setting in [
                "--listen :80 --blue 127.0.0.1:8000 --green 127.0.0.1:8001",
                "--listen [::1]:80 --blue [::1]:8000 --green [::1]:8001",
                "--listen :80 --blue 127.0.0.1:8000 --blue [::1]:8000 --green :8001",
            ] {
                let init = format!("init --method {method} {setting}");
                let plan = typed(machine, &init);
                let is_open = localnet();
                // Nobody remembers what was typed; the kernel has it.
                typed(machine, "remove");
                shell(&format!("echo 0 > {LOCALNET}"));
                machine.is_as_before();
                assert_eq!(done(machine, &init), plan, "{init}");
                assert_eq!(localnet(), is_open, "{init}");
                assert!(machine.does(&format!("{init} --dry-run")).starts_with("# web is set up already"));
                let plan = typed(machine, "to green");
                machine.does("to blue");
                assert_eq!(done(machine, "to green"), plan, "{init}");
                machine.does("to blue");
                let other = format!("init --method {method} --listen 127.0.0.1:81 --blue :8000 --green :8001");
                let plan = typed(machine, &other);
                machine.does(&format!("{init} --active blue"));
                assert_eq!(done(machine, &other), plan, "{other}");
                assert_eq!(localnet(), "0");
                machine.does(&init);
                typed(machine, "remove");
                machine.is_as_before();
                machine.does("remove");
                // The loopback's switch is somebody else's.
                shell(&format!("echo 1 > {LOCALNET}"));
                machine.does(&format!("{init} --active blue"));
                let plan = typed(machine, &other);
                machine.does("remove");
                machine.does(&format!("{init} --active blue"));
                assert_eq!(done(machine, &other), plan, "{other}");
                machine.does("remove");
                assert_eq!(localnet(), "1");
                shell(&format!("echo 0 > {LOCALNET}"));
                machine.is_as_before();
            }
        });
    }
}

#[test]
fn a_plan_is_refused_where_the_thing_would_be() {
    in_network(|machine| {
        let init = format!("init --listen :80 --blue {BLUE} --green {GREEN}");
        assert!(machine.refuses(&format!("{init} --dry-run")).contains("does not respond"));
        assert!(machine.does(&format!("{init} --dry-run --force")).contains("nft -f -"));
        let _blue = haproxy("blue", BLUE);
        let plan = machine.does(&format!("{init} --dry-run --check 'exit 1'"));
        assert!(plan.contains("# check blue (127.0.0.1:8000) with 'exit 1'"), "it is not run: {plan}");
        assert!(machine.refuses("to green --dry-run").contains("it does not exist"));
        machine.does(&init);
        assert!(machine.refuses("to green --dry-run").contains("does not respond"));
        let plan = machine.does("run --reload-blue true --reload-green 'echo it'\\''s' --dry-run");
        let reload = "BATON_FLIP_COLOUR='green' BATON_FLIP_ADDRESS='127.0.0.1:8001' sh -c 'echo it'\\''s'";
        assert!(plan.lines().any(|line| line == reload), "{plan}");
        machine.does("remove");
        machine.is_as_before();
        assert!(machine.does("status").contains("There is no flip"));
    });
}
