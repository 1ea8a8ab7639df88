//! Passwords against hashes in the format of crypt(5), as `password` of a `userlist` has them: md5, sha256, sha512, bcrypt, yescrypt.
//!
//! Except for md5, checking one takes milliseconds by design, so that guessing is slow. Whoever serves requests does it on another
//! thread and remembers the result.

use sha_crypt::password_hash::PasswordVerifier;
use sha_crypt::{PasswordHashRef, ShaCrypt};
use sha2::{Digest, Sha256};
use yescrypt::Yescrypt;

/// How a hash is made, by what it begins with.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum HashKind {
    Md5,
    Sha,
    Bcrypt,
    Yescrypt,
}

const PREFIXES: [(&str, HashKind); 7] = [
    ("$1$", HashKind::Md5),
    ("$5$", HashKind::Sha),
    ("$6$", HashKind::Sha),
    ("$2a$", HashKind::Bcrypt),
    ("$2b$", HashKind::Bcrypt),
    ("$2y$", HashKind::Bcrypt),
    ("$y$", HashKind::Yescrypt),
];

fn kind(hash: &str) -> Option<HashKind> {
    PREFIXES.iter().find(|(prefix, _)| hash.starts_with(prefix)).map(|(_, kind)| *kind)
}

/// Whether a hash is of a kind that [`matches()`] checks.
pub fn is_known(hash: &str) -> bool {
    kind(hash).is_some()
}

/// Whether a password has this hash. False for a hash that is malformed or of an unknown kind. Takes as long as the hash asks for.
pub fn matches(hash: &str, password: &[u8]) -> bool {
    let Some(kind) = kind(hash) else { return false };
    match kind {
        HashKind::Md5 => {
            let salt = hash["$1$".len()..].split('$').next().unwrap_or_default();
            is_equal(&md5crypt::md5crypt(password, &salt.as_bytes()[..salt.len().min(8)]), hash.as_bytes())
        }
        HashKind::Sha => {
            PasswordHashRef::new(hash).is_ok_and(|hash| ShaCrypt::default().verify_password(password, hash).is_ok())
        }
        HashKind::Bcrypt => bcrypt::verify(password, hash).unwrap_or(false),
        HashKind::Yescrypt => {
            PasswordHashRef::new(hash).is_ok_and(|hash| Yescrypt::default().verify_password(password, hash).is_ok())
        }
    }
}

/// Stands for a hash and a password: with a random key that is kept secret it tells nothing about either.
pub fn digest(key: &[u8; 32], hash: &str, password: &[u8]) -> [u8; 32] {
    let mut digest = Sha256::new();
    digest.update(key);
    digest.update((hash.len() as u64).to_le_bytes());
    digest.update(hash);
    digest.update(password);
    digest.finalize().into()
}

/// Whether two texts are equal, in a time that depends on their lengths alone: how long it takes tells nothing about a password.
pub fn is_equal(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len()
        && std::hint::black_box(one.iter().zip(other).fold(0, |all, (one, other)| all | (one ^ other))) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What perl's crypt(3) makes of the word `password` with a salt.
    fn crypt(setting: &str, password: &str) -> String {
        let script = "print crypt($ARGV[1], $ARGV[0])";
        let made = std::process::Command::new("perl").args(["-e", script, setting, password]).output();
        String::from_utf8(made.expect("perl is part of Debian").stdout).expect("a hash is text")
    }

    #[test]
    fn hashes_of_every_kind_are_those_of_the_c_library() {
        for setting in [
            "$1$abcdefgh$",
            "$1$ab$",
            "$5$saltsaltsaltsalt$",
            "$5$rounds=1000$salt$",
            "$6$s./Z$",
            "$6$rounds=5001$salt$",
            "$2a$04$abcdefghijklmnopqrstuu",
            "$2b$05$abcdefghijklmnopqrstuu",
            "$2y$04$abcdefghijklmnopqrstuu",
            "$y$j75$LdJMENpBABJJ3hIHjB1Bi.$",
            "$y$j75$abcd$",
        ] {
            for password in ["", "x", "a longer one, with blanks", "pässword", &"0123456789".repeat(7)] {
                let hash = crypt(setting, password);
                assert!(hash.len() > setting.len(), "crypt(3) does not know {setting}: {hash}");
                assert!(is_known(&hash) && matches(&hash, password.as_bytes()), "{hash} {password}");
                assert!(!matches(&hash, format!("y{password}").as_bytes()), "{hash} {password}");
                assert!(!matches(&hash[..hash.len() - 1], password.as_bytes()), "{hash} {password}");
            }
        }
    }

    #[test]
    fn what_is_no_hash_matches_nothing() {
        for hash in [
            "",
            "junk",
            "$",
            "$1$",
            "$1",
            "$5$",
            "$6$$",
            "$6$a",
            "$6$rounds=x$a$b",
            "$2b$",
            "$2b$99$x",
            "$y$",
            "$y$$$",
            "$7$a$b",
            "*",
            "!",
        ] {
            for password in [&b""[..], b"junk", hash.as_bytes()] {
                assert!(!matches(hash, password), "{hash}");
            }
        }
        assert!(!is_known("junk") && !is_known("$7$a"));
    }

    #[test]
    fn comparing_texts() {
        assert!(is_equal(b"", b"") && is_equal(b"ab", b"ab"));
        assert!(!is_equal(b"ab", b"ac") && !is_equal(b"ab", b"abc") && !is_equal(b"", b"a"));
    }
}
