//! While what was asked of the kernel before takes its time.

use std::time::Duration;

use nix::fcntl::{Flock, FlockArg};

use super::*;

/// How long it is looked at; what blocks, blocks for ten seconds.
const LOOKED_AT: Duration = Duration::from_millis(700);

/// The file whose lock is taken while services are changed: who has it keeps everybody else from that.
fn lock() -> Flock<fs::File> {
    let entries = fs::read_dir("/run/baton-direct").unwrap().map(|entry| entry.unwrap().path());
    let all: Vec<_> = entries.flat_map(|path| walk(&path)).filter(|path| path.ends_with("xdp-all.lock")).collect();
    assert_eq!(all.len(), 1, "{all:?}");
    Flock::lock(fs::File::open(&all[0]).unwrap(), FlockArg::LockExclusive).unwrap()
}

fn walk(path: &Path) -> Vec<std::path::PathBuf> {
    match fs::read_dir(path) {
        Ok(entries) => entries.map(|entry| entry.unwrap().path()).collect(),
        Err(_) => vec![path.to_owned()],
    }
}

#[test]
fn the_runtime_api_answers_while_a_reload_waits() {
    lab(1, |lab| {
        let folder = tempfile::tempdir().unwrap();
        let proxy = start(lab, &text(lab, folder.path(), &[1], "flush"));
        let held = lock();
        proxy.write(&text(lab, folder.path(), &[9], "flush"));
        proxy.signal(Signal::SIGUSR2);
        let start = Instant::now();
        let mut answers = 0;
        while start.elapsed() < LOOKED_AT {
            assert!(tell(folder.path(), "show info").contains("Direct_engine"));
            assert!(!proxy.said().contains("Reload"), "it was not kept waiting: {}", proxy.said());
            answers += 1;
        }
        assert!(answers > 1, "it answered once in {:?}", start.elapsed());
        drop(held);
        until("the reload is done", || proxy.said().contains("Reload"));
        assert!(proxy.said().contains("is in use"), "{}", proxy.said());
    });
}
