//! Passwords that are compared with hashes: on threads of their own, and each pair only once for a while.
//!
//! A hash of crypt(5) takes milliseconds to compute, by design: on a core's thread it would delay every other request. So before rules
//! with `http_auth` see a request, its password is compared on another thread, and the result is remembered for the requests after
//! it, of all cores. What is kept is a keyed digest of hash and password, never a password. Rules ask [`matches`], which finds
//! the result there; only where it was forgotten meanwhile, it compares on the spot.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, OnceLock, PoisonError, mpsc};
use std::thread;

use baton_kernel::process::priority;
use baton_rules::passwords;
use tokio::sync::oneshot;

/// Results that are remembered, right and wrong ones: the oldest is forgotten first.
const RESULTS_MAX: usize = 4096;
/// Threads that compare, at most: half of the CPUs, so that a flood of wrong passwords leaves the cores theirs.
const THREADS_MAX: usize = 8;

/// Stands for a hash and a password.
type Digest = [u8; 32];

/// The remembered results.
#[derive(Default)]
struct Results {
    known: HashMap<Digest, bool>,
    order: VecDeque<Digest>,
}

impl Results {
    fn remember(&mut self, digest: Digest, result: bool) {
        if self.known.insert(digest, result).is_none() {
            self.order.push_back(digest);
        }
        while self.order.len() > RESULTS_MAX {
            if let Some(oldest) = self.order.pop_front() {
                self.known.remove(&oldest);
            }
        }
    }
}

static RESULTS: LazyLock<Mutex<Results>> = LazyLock::new(Mutex::default);

fn results() -> MutexGuard<'static, Results> {
    RESULTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The digest of a pair, with a key that this process made and never tells. `None`: the system has no random bytes.
fn digest(hash: &str, password: &[u8]) -> Option<Digest> {
    static KEY: OnceLock<Option<[u8; 32]>> = OnceLock::new();
    let key = KEY.get_or_init(|| {
        let mut key = [0; 32];
        let filled = rustix::rand::getrandom(&mut key[..], rustix::rand::GetRandomFlags::empty());
        filled.is_ok_and(|count| count == key.len()).then_some(key)
    });
    key.as_ref().map(|key| passwords::digest(key, hash, password))
}

/// Whether a password has a hash: as remembered, else compared on the spot.
pub fn matches(hash: &str, password: &[u8]) -> bool {
    let digest = digest(hash, password);
    let known = digest.and_then(|digest| results().known.get(&digest).copied());
    known.unwrap_or_else(|| passwords::matches(hash, password))
}

/// A pair to compare, and who waits for the result.
struct Comparison {
    hash: Arc<str>,
    password: Vec<u8>,
    digest: Digest,
    done: oneshot::Sender<()>,
}

impl Comparison {
    fn run(self) {
        // Whoever waited is gone, or another request had the same password.
        if self.done.is_closed() || results().known.contains_key(&self.digest) {
            return;
        }
        let result = passwords::matches(&self.hash, &self.password);
        results().remember(self.digest, result);
        // A client that is gone does not mind.
        let _ = self.done.send(());
    }
}

/// The way to the threads. It needs no bound of its own: each request has at most one pair of each list in it, and waits for that.
fn comparers() -> io::Result<&'static mpsc::Sender<Comparison>> {
    static COMPARERS: OnceLock<mpsc::Sender<Comparison>> = OnceLock::new();
    if let Some(sender) = COMPARERS.get() {
        return Ok(sender);
    }
    let (sender, receiver) = mpsc::channel::<Comparison>();
    let receiver = Arc::new(Mutex::new(receiver));
    let cpus = thread::available_parallelism().map_or(1, usize::from);
    let mut running = 0;
    for number in 0..(cpus / 2).clamp(1, THREADS_MAX) {
        let receiver = Arc::clone(&receiver);
        let compare = move || {
            // Without the right to it they work as the cores do.
            let _ = priority::run_in_the_background();
            loop {
                let next = receiver.lock().unwrap_or_else(PoisonError::into_inner).recv();
                match next {
                    Ok(comparison) => comparison.run(),
                    Err(mpsc::RecvError) => return,
                }
            }
        };
        match thread::Builder::new().name(format!("passwords/{number}")).spawn(compare) {
            Ok(_) => running += 1,
            Err(error) if running == 0 => return Err(error),
            Err(_) => break,
        }
    }
    // Another core may have been first: its threads serve all, and these end with their sender.
    Ok(COMPARERS.get_or_init(|| sender))
}

/// Compares a password with a hash on another thread. The receiver gets something, or its sender is dropped, when the result is known to
/// [`matches`]. `None`: it is known already.
pub fn compare(hash: Arc<str>, password: Vec<u8>) -> Option<oneshot::Receiver<()>> {
    let digest = digest(&hash, &password)?;
    if results().known.contains_key(&digest) {
        return None;
    }
    let (done, result) = oneshot::channel();
    let comparison = Comparison { hash, password, digest, done };
    match comparers() {
        // The threads never end while there is a sender.
        Ok(comparers) => drop(comparers.send(comparison)),
        // Without a thread, slow is better than never.
        Err(_) => comparison.run(),
    }
    Some(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_results_are_forgotten_first() {
        let mut results = Results::default();
        let digest = |number: usize| {
            let mut digest = [0; 32];
            digest[..8].copy_from_slice(&number.to_le_bytes());
            digest
        };
        for number in 0..RESULTS_MAX + 10 {
            results.remember(digest(number), number % 2 == 0);
            results.remember(digest(number), number % 2 == 0);
        }
        assert_eq!((results.known.len(), results.order.len()), (RESULTS_MAX, RESULTS_MAX));
        assert!(!results.known.contains_key(&digest(9)) && results.known[&digest(10)] && !results.known[&digest(11)]);
    }

    #[test]
    fn a_pair_is_compared_whether_it_is_known_or_not() {
        let hash = "$1$abcdefgh$G//4keteveJp0qb8z2DxG/";
        assert!(passwords::is_known(hash));
        let right = passwords::matches(hash, b"password");
        assert_eq!(matches(hash, b"password"), right);
        let key = digest(hash, b"password").expect("the system has random bytes");
        assert_ne!(digest(hash, b"passwore"), Some(key));
        results().remember(key, !right);
        assert_eq!(matches(hash, b"password"), !right, "what is known is not computed again");
        results().remember(key, right);
        let (done, waiting) = oneshot::channel();
        drop(waiting);
        let other = digest(hash, b"other").unwrap();
        Comparison { hash: hash.into(), password: b"other".to_vec(), digest: other, done }.run();
        assert!(!results().known.contains_key(&other), "nobody waits for it");
    }
}
