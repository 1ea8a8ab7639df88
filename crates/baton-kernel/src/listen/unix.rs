//! Unix sockets in the file system: bound aside and renamed into place.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::AT_FDCWD;
use nix::sys::stat::{FchmodatFlags, Mode, fchmodat};
use socket2::Domain;

use super::{Hidden, ListenError, ListenOptions, ListenReason, Prepared, backlog_int, finish, new_socket};
use crate::Endpoint;
use crate::endpoint::temporary_name;

/// The file by which a unix socket is reached, and which file exactly that was: by now the path may lead to the
/// socket of somebody else, which must not be removed in our name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketFile {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl SocketFile {
    /// The socket file that is at `path` now.
    pub(crate) fn at(path: &Path) -> io::Result<SocketFile> {
        let found = fs::symlink_metadata(path)?;
        Ok(SocketFile { path: path.to_owned(), device: found.dev(), inode: found.ino() })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the path still leads to this very file.
    pub fn is_current(&self) -> bool {
        SocketFile::at(&self.path).is_ok_and(|now| now == *self)
    }

    /// Removes the file unless another one has taken its place; says whether it did. Between the look and the
    /// removal another process may still replace it; nothing but a lock between the two could prevent that.
    pub fn remove(&self) -> io::Result<bool> {
        if !self.is_current() {
            return Ok(false);
        }
        fs::remove_file(&self.path)?;
        Ok(true)
    }

    /// Sets mode and owner as asked.
    pub(crate) fn own(&self, options: &ListenOptions) -> io::Result<()> {
        own(&self.path, options)
    }
}

pub(super) fn prepare(endpoint: &Endpoint, path: &Path, options: &ListenOptions) -> Result<Prepared, ListenError> {
    if is_no_socket(path) {
        return Err(ListenError::new(endpoint, ListenReason::NotASocketFile, None));
    }
    let name = temporary_name(path);
    let address = Endpoint::Unix(name.clone())
        .to_sockaddr()
        .map_err(|e| ListenError::new(endpoint, ListenReason::NameTooLong, e))?;
    let socket = new_socket(endpoint, Domain::UNIX, options)?;
    // Left by a process of the same number that died between bind and rename.
    if fs::symlink_metadata(&name).is_ok_and(|found| found.file_type().is_socket()) {
        let _ = fs::remove_file(&name);
    }
    socket.bind(&address).map_err(|e| ListenError::bind(endpoint, e))?;
    let aside = TemporarySocket { name, path: path.to_owned(), is_renamed: false };
    own(&aside.name, options).map_err(|e| ListenError::new(endpoint, ListenReason::Ownership, e))?;
    socket.listen(backlog_int(options.backlog)).map_err(|e| ListenError::listen(endpoint, e))?;
    let listening = finish(endpoint, socket.into(), None)?;
    Ok(Prepared { listening, options: options.clone(), hidden: Hidden::Aside(aside) })
}

fn is_no_socket(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| !found.file_type().is_socket())
}

/// Changes only what is otherwise by now: a file that was made for us needs no right to it. Who may write to the directory can put
/// something else under the name, which is not to be given away: a link is not followed, nor is a file with other names changed.
fn own(path: &Path, options: &ListenOptions) -> io::Result<()> {
    let found = fs::symlink_metadata(path)?;
    if !found.file_type().is_socket() || found.nlink() != 1 {
        return Err(io::Error::other("another program has replaced it"));
    }
    let uid = options.uid.filter(|&uid| uid != found.uid());
    let gid = options.gid.filter(|&gid| gid != found.gid());
    if uid.is_some() || gid.is_some() {
        std::os::unix::fs::lchown(path, uid, gid)?;
    }
    if let Some(mode) = options.mode.map(|mode| mode & 0o7777).filter(|&mode| mode != found.mode() & 0o7777) {
        let bits = Mode::from_bits_truncate(mode);
        match fchmodat(AT_FDCWD, path, bits, FchmodatFlags::NoFollowSymlink) {
            // Older kernels need /proc for that, which a process in a jail has not; what it could be led to there is its own.
            Err(Errno::EOPNOTSUPP) => fs::set_permissions(path, fs::Permissions::from_mode(mode))?,
            done => done?,
        }
    }
    Ok(())
}

/// A socket's file under its temporary name; removed unless it is renamed.
#[derive(Debug)]
pub(super) struct TemporarySocket {
    name: PathBuf,
    path: PathBuf,
    is_renamed: bool,
}

impl TemporarySocket {
    /// Puts the file into its place, over whatever socket is there.
    pub(super) fn rename(mut self) -> io::Result<SocketFile> {
        // Looked at under the temporary name: by the path another process may have replaced it already.
        let found = SocketFile::at(&self.name)?;
        fs::rename(&self.name, &self.path)?;
        self.is_renamed = true;
        Ok(SocketFile { path: self.path.clone(), ..found })
    }
}

impl Drop for TemporarySocket {
    fn drop(&mut self) {
        if !self.is_renamed {
            let _ = fs::remove_file(&self.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_somebody_else_put_in_place_of_a_socket_is_not_given_away() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let precious = std::os::unix::net::UnixListener::bind(at("precious")).map(|_| at("precious")).unwrap();
        fs::set_permissions(&precious, fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(at("file"), "").unwrap();
        std::os::unix::fs::symlink(&precious, at("link")).unwrap();
        let options = ListenOptions { mode: Some(0o666), ..ListenOptions::default() };
        assert!(own(&at("file"), &options).is_err() && own(&at("link"), &options).is_err());
        fs::hard_link(&precious, at("other")).unwrap();
        assert!(own(&at("other"), &options).is_err());
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&precious), 0o600);
        fs::remove_file(at("other")).unwrap();
        own(&precious, &options).unwrap();
        assert_eq!(mode(&precious), 0o666);
    }
}
