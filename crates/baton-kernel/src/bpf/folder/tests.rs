use std::fs::{self, Permissions};
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};

use super::*;
use crate::bpf::direct::{Direct, XdpMode};
use crate::bpf::tests::apart;
use crate::bpf::{Choice, Slot};

/// Somebody without rights.
const NOBODY: u32 = 65_534;

/// That the path is told, what is wrong with it and what helps.
#[track_caller]
fn tells(error: &str, path: &Path, wrong: &str, remedy: &str) {
    let path = path.display().to_string();
    assert!(error.contains(&path) && error.contains(wrong) && error.contains(remedy), "{error}");
}

#[test]
fn what_somebody_else_made_is_refused_with_what_helps() {
    apart(|mounted| {
        let (kind, name) = (mounted.join("kind"), mounted.join("kind/name"));
        fs::create_dir_all(&name).unwrap();
        // As everybody may, where the file system is mounted without a mode.
        chown(&kind, Some(NOBODY), None).unwrap();
        for error in [Folder::find(&name).unwrap_err(), Folder::make(&name).unwrap_err()] {
            tells(&error.to_string(), &kind, "belongs to user 65534", "chmod 700");
        }
        let direct = Direct::make(&name, 10).unwrap_err().to_string();
        tells(&direct, &kind, "belongs to user 65534", &format!("rm -r {}", kind.display()));
        assert_eq!(Direct::find(&name).unwrap_err().to_string(), direct);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = [(Slot { colour: 0, is_six: false }, listener.as_fd())];
        let choice = Choice::at(&name);
        let refused = [
            choice.exists().unwrap_err(),
            choice.active().unwrap_err(),
            choice.install(&[], &socket, 0).unwrap_err(),
            choice.remove().unwrap_err(),
        ];
        refused.iter().for_each(|error| tells(&error.to_string(), &kind, "belongs to user 65534", "rm -r"));
        fs::remove_dir_all(&kind).unwrap();
        Folder::make(&name).unwrap();
    });
}

#[test]
fn folders_that_others_may_write_to_are_refused() {
    apart(|mounted| {
        let (kind, name) = (mounted.join("kind"), mounted.join("kind/name"));
        Folder::make(&name).unwrap();
        for (path, mode) in [(&kind, 0o777), (&kind, 0o1777), (&name, 0o775)] {
            fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
            tells(&Folder::find(&name).unwrap_err().to_string(), path, &format!("{mode:o}"), "chmod go-w");
            fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
        }
        // The user whom it was given to.
        Folder::make(&name).unwrap().give_to([], NOBODY, NOBODY).unwrap();
        Folder::find(&name).unwrap().unwrap();
    });
}

#[test]
fn links_on_the_way_are_not_followed() {
    apart(|mounted| {
        let elsewhere = tempfile::tempdir().unwrap();
        fs::create_dir_all(elsewhere.path().join("name")).unwrap();
        let (kind, name) = (mounted.join("kind"), mounted.join("kind/name"));
        symlink(elsewhere.path(), &kind).unwrap();
        tells(&Folder::make(&name).unwrap_err().to_string(), &kind, "a link", "rm ");
        fs::remove_file(&kind).unwrap();
        fs::create_dir(&kind).unwrap();
        symlink(elsewhere.path().join("name"), &name).unwrap();
        tells(&Folder::find(&name).unwrap_err().to_string(), &name, "a link", "rm ");
        tells(&Direct::make(&name, 10).unwrap_err().to_string(), &name, "a link", "rm ");
    });
}

#[test]
fn a_user_to_whom_it_was_given_reaches_nothing_else_by_it() {
    apart(|mounted| {
        let victims = tempfile::tempdir().unwrap();
        let victim = victims.path().join("services");
        fs::write(&victim, "root's own").unwrap();
        let name = mounted.join("kind/name");
        let mut direct = Direct::make(&name, 10).unwrap();
        // Links among what is given on, under names of ours and others.
        for link in ["link-77-native", "mine"] {
            symlink(&victim, name.join(link)).unwrap();
        }
        direct.give_to(NOBODY, NOBODY).unwrap();
        assert_eq!(fs::metadata(&victim).unwrap().uid(), nix::unistd::geteuid().as_raw());
        assert_eq!(fs::metadata(name.join("services")).unwrap().uid(), NOBODY);
        fs::remove_file(name.join("link-77-native")).unwrap();
        // A link in place of a map, even to another one of the same kind.
        fs::rename(name.join("of_servers"), name.join("aside")).unwrap();
        symlink(name.join("of_services"), name.join("of_servers")).unwrap();
        let error = Direct::find(&name).unwrap_err().to_string();
        assert!(error.contains("not a pinned object"), "{error}");
        // Another folder in its place: what is removed is what was made.
        fs::rename(&name, mounted.join("kind/gone")).unwrap();
        symlink(victims.path(), &name).unwrap();
        assert!(direct.remove().is_err(), "there is something else in it");
        assert!(victim.exists());
        assert!(!mounted.join("kind/gone/services").exists());
    });
}

#[test]
fn made_anew_it_is_nobody_elses() {
    apart(|mounted| {
        let name = mounted.join("kind/name");
        Folder::make(&name).unwrap().give_to([], NOBODY, NOBODY).unwrap();
        let victim = mounted.join("victim");
        fs::create_dir(&victim).unwrap();
        symlink(&victim, name.join("services")).unwrap();
        let mut direct = Direct::make(&name, 10).unwrap();
        assert_eq!(fs::metadata(&name).unwrap().uid(), nix::unistd::geteuid().as_raw());
        assert!(fs::symlink_metadata(name.join("services")).unwrap().is_file());
        // And what is held open is enough, whatever becomes of the path.
        fs::rename(mounted.join("kind"), mounted.join("other")).unwrap();
        assert_eq!(direct.attach(1, "lo", &[XdpMode::Generic]).unwrap(), XdpMode::Generic);
        assert!(direct.renew().unwrap().is_empty());
        direct.detach(1).unwrap();
        direct.remove().unwrap();
        assert!(!mounted.join("other/name").exists());
    });
}
