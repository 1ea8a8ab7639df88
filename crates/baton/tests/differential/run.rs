//! One case on one program, from the folder to the record.

use std::net::UdpSocket;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use crate::case::Case;
use crate::client;
use crate::origin::Origins;
use crate::places::Places;
use crate::program::Program;
use crate::record::Record;
use crate::world::World;

/// What the harness sends to its own syslog receiver when nothing more will come.
const END: &[u8] = b"end of the run";

/// Runs `case` on `program`. An error is one of the environment or of the start; what happens later is in the record.
pub fn run(case: &Case, program: &Path) -> Result<Record, String> {
    let say = |error: std::io::Error| error.to_string();
    let folder = tempfile::tempdir().map_err(say)?;
    let syslog = UdpSocket::bind("127.0.0.1:0").map_err(say)?;
    let log_address = syslog.local_addr().map_err(say)?;
    let mut named = case.cfg.clone();
    for (_, content) in &case.files {
        named.push_str(&String::from_utf8_lossy(content));
    }
    let mut places = Places::take(&named, folder.path(), log_address).map_err(say)?;
    for (name, content) in &case.files {
        let content = match String::from_utf8(content.clone()) {
            Ok(text) => places.fill(&text).into_bytes(),
            Err(_) => content.clone(),
        };
        let path = folder.path().join(name);
        // A name may have a folder in it.
        path.parent()
            .map_or(Ok(()), std::fs::create_dir_all)
            .and_then(|()| std::fs::write(path, content))
            .map_err(say)?;
    }
    let file = folder.path().join("test.cfg");
    std::fs::write(&file, places.fill(&case.cfg)).map_err(say)?;

    let world = Arc::new(World::default());
    let origins = Origins::start(case, &mut places, &world);
    let receiver = thread::spawn({
        let (world, syslog) = (world.clone(), syslog.try_clone().map_err(say)?);
        move || receive(&world, &syslog)
    });
    let started = Program::start(program, &file, &case.cfg, &places, folder.path());
    let end = started.map(|program| {
        client::play(case, &places, &world);
        program.stop()
    });
    world.change(|state| state.over = Some(Instant::now()));
    origins.finish(&world);
    syslog.send_to(END, log_address).map_err(say)?;
    let _ = receiver.join();
    Ok(Record::new(case, &world.lock(), &places, folder.path(), end?))
}

fn receive(world: &World, syslog: &UdpSocket) {
    let mut buffer = vec![0; 65536];
    while let Ok(size) = syslog.recv(&mut buffer) {
        if &buffer[..size] == END {
            return;
        }
        if crate::normal::is_traffic(&buffer[..size]) {
            world.change(|state| state.logs.push(buffer[..size].to_vec()));
        } else {
            world.change(|state| state.notes.push(String::from_utf8_lossy(&buffer[..size]).into_owned()));
        }
    }
}
