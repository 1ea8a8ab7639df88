//! Overrides as lines of haproxy.cfg: each `server` line as it has to be for the file to say what is in force.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use baton_config::ServerLine;
use baton_model::{Field, Model, Object, Override, Overrides, Server, Setting};

use super::OverrideRecord;

/// The first line. A file that does not begin with it is not overwritten.
const HEAD: &str = "# Settings made at run time ('save overrides').";

/// Lines that replace those of the files, which `asked` is made of: a section for each backend, with comments that say what was set.
pub fn of(overrides: &Overrides, asked: &Model) -> String {
    let mut out = format!("{HEAD}\n");
    // An agent will say again what it said.
    let kept = || overrides.iter().filter(|(_, set)| !set.by.is_agent());
    if kept().next().is_none() {
        out.push_str("# There are none.\n");
        return out;
    }
    out.push_str("# Put these lines in the place of those of the same servers, frontends and limits and reload.\n");
    let mut backends: BTreeMap<&Arc<str>, BTreeMap<&Arc<str>, Vec<&Override>>> = BTreeMap::new();
    let mut last = None;
    for (object, set) in kept() {
        match object {
            Object::Server { backend, server } => {
                backends.entry(backend).or_default().entry(server).or_default().push(set);
                continue;
            }
            Object::Process if last != Some(object) => drop(writeln!(out, "#\nglobal")),
            Object::Frontend { frontend } if last != Some(object) => {
                let role = asked.frontend(frontend).map_or("frontend", |proxy| proxy.role.word());
                let _ = writeln!(out, "#\n{role} {frontend}");
            }
            Object::Process | Object::Frontend { .. } => {}
        }
        last = Some(object);
        comment(&mut out, object, set);
        let _ = match &set.value {
            Setting::Service(_) => writeln!(out, "    disabled"),
            value => writeln!(out, "    {} {value}", value.field().word()),
        };
    }
    for (backend, servers) in backends {
        let proxy = asked.backend(backend);
        let _ = writeln!(out, "#\n{} {backend}", proxy.map_or("backend", |proxy| proxy.role.word()));
        for (name, sets) in servers {
            let server = proxy.and_then(|proxy| proxy.servers.iter().find(|server| server.name == *name));
            let object = Object::server(backend, name);
            server_lines(&mut out, &object, name, server.map(|server| &**server), &sets);
        }
    }
    out
}

/// What was set, by whom and when.
fn comment(out: &mut String, object: &Object, set: &Override) {
    let record = OverrideRecord::of(object, set);
    let value = format!("{} {} (file: {})", record.field, record.value, record.file).replace(['\n', '\r'], " ");
    // Writing to a string cannot fail, here and elsewhere.
    let _ = writeln!(out, "    # {value} by {} at {}", record.by(), record.at());
}

fn server_lines(out: &mut String, object: &Object, name: &str, server: Option<&Server>, sets: &[&Override]) {
    sets.iter().for_each(|set| comment(out, object, set));
    match line(server, sets) {
        Some(line) => drop(writeln!(out, "    server {name} {line}")),
        None => drop(writeln!(out, "    # server {name} is deleted: remove its line")),
    }
}

/// What stands behind the name of a server with these overrides; `None`: it is deleted.
fn line(server: Option<&Server>, sets: &[&Override]) -> Option<ServerLine> {
    let of = |field: Field| sets.iter().map(|set| &set.value).find(|value| value.field() == field);
    let mut line = ServerLine::read(server.map_or("", |server| &server.written.0));
    if let Some(text) = of(Field::Line) {
        if !line.set(text) {
            return None;
        }
        // One that was added begins so.
        let maintenance = baton_model::AdminState { maintenance: true, drain: false };
        line.set(&Setting::Health(false));
        if line.has("agent-check") {
            line.set(&Setting::Agent(false));
        }
        line.set(&Setting::State(maintenance));
    }
    // A state may need another weight than the one that is set.
    let fields = Field::ALL.into_iter().filter(|field| !matches!(field, Field::Line | Field::State));
    for value in fields.chain([Field::State]).filter_map(of) {
        line.set(value);
    }
    Some(line)
}

/// Writes a fragment to a file, all of it or nothing. An earlier fragment is replaced; any other file is not.
///
/// # Errors
/// What is in the way.
pub fn write(path: &Path, text: &str) -> Result<(), String> {
    match begins_with_head(path) {
        Ok(true) => {}
        Ok(false) => return Err("the file exists and was not written by 'save overrides'".into()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error.to_string()),
    }
    let mut name = path.file_name().ok_or("not the path of a file")?.to_owned();
    name.push(format!(".{}.new", std::process::id()));
    let aside = path.with_file_name(name);
    let written = create(&aside).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&aside, path)
    });
    written.map_err(|error| {
        // What could not be created is not there.
        let _ = fs::remove_file(&aside);
        error.to_string()
    })
}

/// Creates a file that is not there: neither another file nor a link is followed.
fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

/// Whether it is a file that an earlier `save overrides` wrote. Nothing waits for a pipe.
fn begins_with_head(path: &Path) -> io::Result<bool> {
    if !fs::symlink_metadata(path)?.is_file() {
        return Ok(false);
    }
    let mut begin = String::new();
    let read = File::open(path)?.take(HEAD.len() as u64).read_to_string(&mut begin);
    Ok(read.is_ok() && begin == HEAD)
}

#[cfg(test)]
mod tests {
    use baton_config::{FixedEnvironment, Options, load};
    use baton_model::{AdminState, Author};

    use super::*;

    const CONFIG: &str = "defaults\n mode http\n timeout client 1s\n timeout server 1s\n timeout connect 1s\n\
        frontend f\n bind 127.0.0.1:80\n default_backend b\n\
        backend b\n default-server check\n server s1 127.0.0.1:1 weight 7\n server s2 127.0.0.1:2 disabled\n server s3 127.0.0.1:3\n";

    fn model(text: &str) -> Model {
        let env = FixedEnvironment::with_file("a.cfg", text);
        let loaded = load(&Options::file("a.cfg"), &env);
        loaded.model.unwrap_or_else(|| panic!("{:?}\n{text}", loaded.diagnostics))
    }

    fn set(overrides: &mut Overrides, server: &str, value: Setting, model: &Model) {
        let servers = &model.backend("b").unwrap().servers;
        let file = servers.iter().find(|one| &*one.name == server).map(|server| &**server);
        let file = Setting::of(value.field(), file);
        let object = Object::server(&"b".into(), &server.into());
        overrides.set(object, Override { value, file, by: Author::default(), at_s: 0 });
    }

    #[test]
    fn files_with_the_lines_of_a_fragment_say_what_is_in_force() {
        let asked = model(CONFIG);
        let mut overrides = Overrides::default();
        let state = |maintenance, drain| Setting::State(AdminState { maintenance, drain });
        set(&mut overrides, "s1", Setting::Weight(3), &asked);
        set(&mut overrides, "s1", state(true, false), &asked);
        set(&mut overrides, "s2", state(false, false), &asked);
        set(&mut overrides, "s2", Setting::Health(false), &asked);
        set(&mut overrides, "s3", Setting::Line(None), &asked);
        set(&mut overrides, "n1", Setting::Line(Some("127.0.0.1:9 check weight 4".into())), &asked);
        let text = of(&overrides, &asked);
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim().starts_with('#')).collect();
        let expect = [
            "backend b",
            "    server n1 127.0.0.1:9 weight 4 no-check disabled",
            "    server s1 127.0.0.1:1 weight 3 disabled",
            "    server s2 127.0.0.1:2 no-check enabled",
        ];
        assert_eq!(lines, expect, "{text}");
        assert!(text.contains("# server s3 is deleted: remove its line\n") && !text.contains("\n\n"), "{text}");
        let head = CONFIG.split("\nbackend b").next().unwrap();
        let section = lines.join("\n").replace("backend b", "backend b\n default-server check");
        let after = model(&format!("{head}\n{section}\n"));
        let backend = after.backend("b").unwrap();
        let shown =
            |server: &Arc<Server>| (server.name.to_string(), server.weight, server.disabled, server.check.enabled);
        let shown: Vec<_> = backend.servers.iter().map(shown).collect();
        let expect = [("n1", 4, true, false), ("s1", 3, true, true), ("s2", 1, false, false)];
        assert_eq!(shown, expect.map(|(name, weight, disabled, checked)| (name.to_owned(), weight, disabled, checked)));
    }

    #[test]
    fn only_an_earlier_fragment_is_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("saved.cfg");
        let text = of(&Overrides::default(), &Model::default());
        assert_eq!((write(&path, &text), write(&path, &text)), (Ok(()), Ok(())));
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
        fs::write(&path, "global\n").unwrap();
        assert!(write(&path, &text).is_err());
        assert_eq!(
            (fs::read_to_string(&path).unwrap().as_str(), fs::read_dir(folder.path()).unwrap().count()),
            ("global\n", 1)
        );
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(write(&link, &text).is_err() && write(folder.path(), &text).is_err());
        assert!(write(&folder.path().join("no/such"), &text).is_err());
    }
}
