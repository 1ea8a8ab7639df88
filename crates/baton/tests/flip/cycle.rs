//! The whole cycle of a reload.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::process::{Child, Stdio};

use super::machine::*;
use super::support::until;

/// Whether a process is gone, or dead and only waits for its parent.
fn is_dead(pid: &str) -> bool {
    fs::read(format!("/proc/{pid}/cmdline")).map_or(true, |line| line.is_empty())
}

/// A command that says by a file that it has begun, with a child of its own, and would go on for long.
fn endless(machine: &Machine) -> String {
    format!("sleep 300 & echo $$ $! > {0}.new; mv {0}.new {0}; wait", machine.run.path().join("pids").display())
}

/// Its processes, once it has begun.
fn begun(machine: &Machine) -> Vec<String> {
    let path = machine.run.path().join("pids");
    until("the command has begun", || path.exists());
    let pids = fs::read_to_string(&path).expect("it is there").split_whitespace().map(str::to_owned).collect();
    fs::remove_file(path).expect("it is ours");
    pids
}

#[test]
fn the_whole_cycle_reloads_the_idle_one_and_stops_where_that_fails() {
    in_network(|machine| {
        let _both = [haproxy("blue", BLUE), haproxy("green", GREEN)];
        machine.init("");
        let run = |blue: &str, green: &str| {
            format!("run --reload-blue '{blue}' --reload-green '{green}' --wait 100ms --drain 0s")
        };
        let said = machine.does(&run("false", "echo $BATON_FLIP_COLOUR at $BATON_FLIP_ADDRESS"));
        assert!(said.contains("green at 127.0.0.1:8001\n") && said.contains("go to green"), "{said}");
        let said = machine.refuses(&run("exit 7", "false"));
        assert!(said.contains("'exit 7', ended with exit status: 7"), "{said}");
        let said = machine.refuses(&format!("{} --check /none", run("true", "false")));
        assert!(said.contains("status 404") && said.contains("new connections still go to green"), "{said}");
        assert_eq!(who(FRONT), "green");
        let mut long = connect(FRONT);
        assert_eq!(ask(&mut long), "green");
        let said = machine.does(&run("true", "false"));
        assert!(said.contains("green keeps 1 open connection"), "{said}");
        assert_eq!([who(FRONT), ask(&mut long)], ["blue", "green"]);
        drop(long);
        machine.does("remove");
    });
}

#[test]
fn commands_end_when_their_time_is_up() {
    in_network(|machine| {
        let _both = [haproxy("blue", BLUE), haproxy("green", GREEN)];
        machine.init("");
        let endless = endless(machine);
        let said = machine.refuses(&format!("run --reload-blue true --reload-green '{endless}' --reload-limit 2s"));
        assert!(said.contains("took longer than 2 s and was killed; new connections still go to blue"), "{said}");
        begun(machine).iter().for_each(|pid| until("it is dead", || is_dead(pid)));
        let said = machine.refuses(&format!("to green --check '{endless}' --check-limit 2s"));
        assert!(said.contains("took longer than 2 s and was killed"), "{said}");
        begun(machine).iter().for_each(|pid| until("it is dead", || is_dead(pid)));
        assert_eq!(who(FRONT), "blue");
        machine.does("remove");
        machine.is_as_before();
    });
}

#[test]
fn a_killed_cycle_takes_its_command_along() {
    in_network(|machine| {
        let _both = [haproxy("blue", BLUE), haproxy("green", GREEN)];
        machine.init("");
        let line = format!("run --reload-blue true --reload-green '{}'", endless(machine));
        let mut child = machine.command(&line).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
        let pids = begun(machine);
        assert_eq!(pids.len(), 2);
        child.kill().expect("it is ours");
        child.wait().expect("it is ours");
        pids.iter().for_each(|pid| until("it is dead", || is_dead(pid)));
        // Nobody has the lock any more, and all is as it was.
        machine.does("to green");
        machine.does("remove");
        machine.is_as_before();
    });
}

/// The next line that says so.
fn says(child: &mut Child, what: &str) {
    let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    for line in lines {
        let line = line.expect("it speaks");
        if line.contains(what) {
            return;
        }
    }
    panic!("it did not say '{what}'");
}

#[test]
fn as_long_as_the_old_process_listens_too_nothing_is_flipped() {
    in_network(|machine| {
        let _blue = haproxy("blue", BLUE);
        let mut old = haproxy("green", GREEN);
        machine.init("");
        let (config, pid) = (machine.run.path().join("new.cfg"), machine.run.path().join("new.pid"));
        fs::write(&config, config_of("green", GREEN)).expect("the folder is ours");
        // A reload that says nothing to the old process.
        let reload = format!("haproxy -D -f {} -p {}", config.display(), pid.display());
        let run = format!("run --reload-blue true --reload-green '{reload}' --drain 0s");
        let end_new = || {
            shell(&format!("kill -9 $(cat {})", pid.display()));
        };
        let said = machine.refuses(&format!("{run} --wait 200ms"));
        assert!(said.contains("1 of its sockets are shared with another process than the reloaded one"), "{said}");
        assert!(said.contains("new connections still go to blue"), "{said}");
        assert_eq!(who(FRONT), "blue");
        end_new();
        // The next one sees one old socket, and waits until it is closed.
        until("the sockets of the new process are closed", || shell("ss -Hltn sport = :8001").lines().count() == 1);
        let mut child = machine.command(&run).stdout(Stdio::piped()).spawn().expect("it starts");
        says(&mut child, "green is reloaded");
        assert_eq!(who(FRONT), "blue");
        assert!(child.try_wait().expect("it is ours").is_none(), "it waits");
        old.end();
        assert!(child.wait().expect("it is ours").success());
        assert_eq!(who(FRONT), "green");
        assert!(TcpStream::connect(GREEN).is_ok());
        end_new();
        machine.does("remove");
    });
}
