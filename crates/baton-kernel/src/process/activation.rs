//! Starting a program that finds sockets already open, by systemd's convention (sd_listen_fds(3)): descriptors from
//! [`FIRST`] on, `LISTEN_FDS` says how many and `LISTEN_PID` for whom.

use std::env;
use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::io::fcntl_dupfd_cloexec;

/// The first descriptor that is passed.
pub const FIRST: RawFd = 3;

/// The most sockets that are passed.
pub const SOCKETS_MAX: usize = 1024;

/// Bytes in `LISTEN_PID=` and the longest process number, with the zero at the end.
const LISTEN_PID_BYTES: usize = 24;

/// What is started.
#[derive(Clone, Debug)]
pub struct Launch {
    /// The program: a path, or a name that is looked up in `PATH`.
    pub program: OsString,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// The whole environment, but for `LISTEN_PID` and `LISTEN_FDS`, which are added.
    pub variables: Vec<(OsString, OsString)>,
}

/// Sockets in the places in which programs that are started find them. They stay open as long as this lives.
#[derive(Debug)]
pub struct PassedSockets {
    /// Out of the way of the numbers that the program gets.
    sources: Vec<OwnedFd>,
    /// Whatever this process opens later must not get a number that is overwritten in a started process: all of them are
    /// taken.
    _taken: Vec<OwnedFd>,
}

impl PassedSockets {
    /// Prepares to pass these sockets, in this order. Whatever has a number from [`FIRST`] on now, these sockets included,
    /// must stay open as long as the result lives.
    ///
    /// # Errors
    /// `InvalidInput` for more than [`SOCKETS_MAX`]; `EMFILE` at the limit of open files: each socket takes two more.
    pub fn new(sockets: &[BorrowedFd<'_>]) -> io::Result<PassedSockets> {
        let count = RawFd::try_from(sockets.len()).ok().filter(|_| sockets.len() <= SOCKETS_MAX);
        let end = FIRST + count.ok_or(io::ErrorKind::InvalidInput)?;
        let sources = sockets.iter().map(|socket| fcntl_dupfd_cloexec(socket, end)).collect::<Result<Vec<_>, _>>()?;
        let mut taken = Vec::new();
        if let Some(any) = sources.first() {
            loop {
                let copy = fcntl_dupfd_cloexec(any, FIRST)?;
                if copy.as_raw_fd() >= end {
                    break;
                }
                taken.push(copy);
            }
        }
        Ok(PassedSockets { sources, _taken: taken })
    }

    /// How many sockets are passed.
    pub fn count(&self) -> usize {
        self.sources.len()
    }

    /// Starts a program, the leader of a process group of its own, with nothing to read. Standard output and error are
    /// ours.
    ///
    /// # Errors
    /// `NotFound` when `PATH` has no such program; what the system says of starting it otherwise.
    pub fn start(&self, launch: &Launch) -> io::Result<Child> {
        let path = find(&launch.program)?;
        let numbers: Vec<RawFd> = self.sources.iter().map(AsRawFd::as_raw_fd).collect();
        let mut image = Image::new(&path, launch, numbers.len())?;
        let mut command = Command::new(&path);
        command.stdin(Stdio::null()).process_group(0);
        // SAFETY: between fork and exec the closure makes only dup2, getpid and execve, which are async-signal-safe, and
        // writes to memory that was allocated before. The numbers it overwrites belong to nothing of the standard
        // library's: they are all taken, by descriptors that are never used (`_taken`) or by such as stay open, see
        // `PassedSockets::new`.
        unsafe {
            command.pre_exec(move || {
                for (index, number) in numbers.iter().enumerate() {
                    if libc::dup2(*number, FIRST + index as RawFd) < 0 {
                        return Err(io::Error::last_os_error());
                    }
                }
                Err(image.execute())
            });
        }
        command.spawn()
    }
}

/// What execve(2) takes, made before the fork: afterwards nothing may be allocated.
struct Image {
    path: CString,
    /// Into `strings`, with a null at the end.
    arguments: Vec<*const libc::c_char>,
    /// Into `strings` and `listen_pid`, with a null at the end.
    variables: Vec<*const libc::c_char>,
    /// `LISTEN_PID=`, its number unknown until the process is there.
    listen_pid: *mut [u8; LISTEN_PID_BYTES],
    _strings: Vec<CString>,
}

// SAFETY: the pointers lead to memory that this value owns and that does not move; nobody else has them.
unsafe impl Send for Image {}
// SAFETY: the pointers lead to memory that this value owns, and nothing of it changes but by `&mut`.
unsafe impl Sync for Image {}

impl Drop for Image {
    fn drop(&mut self) {
        // SAFETY: made by `Box::into_raw` in `Image::new`, and nowhere else given back.
        drop(unsafe { Box::from_raw(self.listen_pid) });
    }
}

impl Image {
    fn new(path: &Path, launch: &Launch, count: usize) -> io::Result<Image> {
        let c_string = |bytes: Vec<u8>| CString::new(bytes).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput));
        let words = std::iter::once(&launch.program).chain(&launch.arguments);
        let mut strings: Vec<CString> =
            words.map(|word| c_string(word.as_bytes().to_vec())).collect::<io::Result<_>>()?;
        let words = strings.len();
        for (name, value) in &launch.variables {
            let mut pair = name.clone().into_vec();
            pair.push(b'=');
            pair.extend_from_slice(value.as_bytes());
            strings.push(c_string(pair)?);
        }
        strings.push(c_string(format!("LISTEN_FDS={count}").into_bytes())?);
        let pointers: Vec<*const libc::c_char> = strings.iter().map(|string| string.as_ptr()).collect();
        let (arguments, variables) = pointers.split_at(words);
        let (mut arguments, mut variables) = (arguments.to_vec(), variables.to_vec());
        let mut text = [0; LISTEN_PID_BYTES];
        text[..LISTEN_PID.len()].copy_from_slice(LISTEN_PID);
        let listen_pid = Box::into_raw(Box::new(text));
        arguments.push(std::ptr::null());
        variables.push(listen_pid.cast());
        variables.push(std::ptr::null());
        let path = c_string(path.as_os_str().as_bytes().to_vec());
        let image = |path| Image { path, arguments, variables, listen_pid, _strings: strings };
        match path {
            Ok(path) => Ok(image(path)),
            Err(error) => {
                drop(image(CString::default()));
                Err(error)
            }
        }
    }

    /// Becomes the program; returns only when that fails.
    fn execute(&mut self) -> io::Error {
        // SAFETY: getpid never fails; `listen_pid` is ours alone, see `Image::new`.
        let (pid, text) = unsafe { (libc::getpid(), &mut *self.listen_pid) };
        let digits = &mut text[LISTEN_PID.len()..];
        let count = pid.unsigned_abs().checked_ilog10().unwrap_or(0) as usize + 1;
        let mut rest = pid.unsigned_abs();
        for digit in digits[..count].iter_mut().rev() {
            *digit = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        // SAFETY: a path, and lists of strings that end with a null pointer, all alive and each ending with a zero byte.
        unsafe { libc::execve(self.path.as_ptr(), self.arguments.as_ptr(), self.variables.as_ptr()) };
        io::Error::last_os_error()
    }
}

const LISTEN_PID: &[u8] = b"LISTEN_PID=";

/// Where a program is: as written when there is a slash in it, else by `PATH`.
///
/// # Errors
/// `NotFound` when it is nowhere.
pub fn find(program: &OsStr) -> io::Result<PathBuf> {
    if program.as_bytes().contains(&b'/') {
        return Ok(program.into());
    }
    let folders = env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin".into());
    let is_program =
        |path: &PathBuf| path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0);
    env::split_paths(&folders)
        .map(|folder| folder.join(program))
        .find(is_program)
        .ok_or_else(|| io::ErrorKind::NotFound.into())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::net::TcpListener;
    use std::os::fd::AsFd;

    use super::*;

    fn launch(script: &str) -> Launch {
        let arguments = ["-c", script].map(OsString::from).to_vec();
        Launch { program: "sh".into(), arguments, variables: env::vars_os().collect() }
    }

    #[test]
    fn sockets_are_found_from_three_on() {
        let listeners = [TcpListener::bind("127.0.0.1:0").unwrap(), TcpListener::bind("127.0.0.1:0").unwrap()];
        let seats = PassedSockets::new(&[listeners[1].as_fd(), listeners[0].as_fd()]).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("out");
        let script = format!(
            "{{ echo $LISTEN_FDS; [ $LISTEN_PID = $$ ] && echo mine; readlink /proc/$$/fd/3 /proc/$$/fd/4; }} > {}",
            out.display()
        );
        for _ in 0..2 {
            let mut child = seats.start(&launch(&script)).unwrap();
            assert!(child.wait().unwrap().success());
            let inode = |socket: &TcpListener| nix::sys::stat::fstat(socket).unwrap().st_ino;
            let expect = format!("2\nmine\nsocket:[{}]\nsocket:[{}]\n", inode(&listeners[1]), inode(&listeners[0]));
            assert_eq!(fs::read_to_string(&out).unwrap(), expect);
        }
    }

    #[test]
    fn what_cannot_be_started_is_told() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let seats = PassedSockets::new(&[listener.as_fd()]).unwrap();
        let start = |program: &str| {
            let launch = Launch { program: program.into(), ..launch("") };
            seats.start(&launch).map(|_| ()).unwrap_err().kind()
        };
        assert_eq!(start("no-such-program-at-all"), io::ErrorKind::NotFound);
        assert_eq!(start("/no/such/program"), io::ErrorKind::NotFound);
        assert_eq!(start("/etc/passwd"), io::ErrorKind::PermissionDenied);
        assert_eq!(start("nul\0inside"), io::ErrorKind::NotFound);
    }
}
