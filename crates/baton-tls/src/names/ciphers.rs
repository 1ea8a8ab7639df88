//! Cipher suites: OpenSSL's list for TLS 1.2 (`ciphers`, the grammar of ciphers(1)) and its names for TLS 1.3
//! (`ciphersuites`).
//!
//! rustls has the suites with ECDHE and authenticated encryption, and no others: those with CBC, RSA key exchange or
//! finite-field Diffie-Hellman are known by name, left out and noted. Of the grammar everything is read: words joined by `+`,
//! `!`, `-` and `+` before them, `@STRENGTH`, `@SECLEVEL=…`.

use rustls::crypto::aws_lc_rs::cipher_suite as suites;
use rustls::{CipherSuite, SupportedCipherSuite};

use super::absent::ABSENT;
use super::{NameError, NameList, listed, parts};

/// A suite that rustls has.
pub(super) struct Row {
    pub name: &'static str,
    /// TLS's own name, which OpenSSL takes as well.
    standard: &'static str,
    suite: SupportedCipherSuite,
    pub bits: u16,
    /// The words of OpenSSL's grammar that mean it.
    words: &'static [&'static str],
}

/// For TLS 1.2, in OpenSSL's own order.
const TLS12: &[Row] = &[
    Row {
        name: "ECDHE-ECDSA-AES256-GCM-SHA384",
        standard: "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
        suite: suites::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
        bits: 256,
        words: &["ECDSA", "aECDSA", "AES", "AES256", "AESGCM", "SUITEB128", "SUITEB192"],
    },
    Row {
        name: "ECDHE-RSA-AES256-GCM-SHA384",
        standard: "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
        suite: suites::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
        bits: 256,
        words: &["aRSA", "AES", "AES256", "AESGCM"],
    },
    Row {
        name: "ECDHE-ECDSA-CHACHA20-POLY1305",
        standard: "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
        suite: suites::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
        bits: 256,
        words: &["ECDSA", "aECDSA", "CHACHA20"],
    },
    Row {
        name: "ECDHE-RSA-CHACHA20-POLY1305",
        standard: "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
        suite: suites::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
        bits: 256,
        words: &["aRSA", "CHACHA20"],
    },
    Row {
        name: "ECDHE-ECDSA-AES128-GCM-SHA256",
        standard: "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
        suite: suites::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
        bits: 128,
        words: &["ECDSA", "aECDSA", "AES", "AES128", "AESGCM", "SUITEB128", "SUITEB128ONLY"],
    },
    Row {
        name: "ECDHE-RSA-AES128-GCM-SHA256",
        standard: "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
        suite: suites::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
        bits: 128,
        words: &["aRSA", "AES", "AES128", "AESGCM"],
    },
];

/// For TLS 1.3, in OpenSSL's own order.
const TLS13: &[Row] = &[
    Row {
        name: "TLS_AES_256_GCM_SHA384",
        standard: "",
        suite: suites::TLS13_AES_256_GCM_SHA384,
        bits: 256,
        words: &[],
    },
    Row {
        name: "TLS_CHACHA20_POLY1305_SHA256",
        standard: "",
        suite: suites::TLS13_CHACHA20_POLY1305_SHA256,
        bits: 256,
        words: &[],
    },
    Row {
        name: "TLS_AES_128_GCM_SHA256",
        standard: "",
        suite: suites::TLS13_AES_128_GCM_SHA256,
        bits: 128,
        words: &[],
    },
];

/// Words of the grammar that mean every suite for TLS 1.2 that rustls has.
#[rustfmt::skip]
const ALL_OF_THEM: &[&str] = &[
    "ALL", "DEFAULT", "HIGH", "TLSv1.2", "kECDHE", "kEECDH", "ECDHE", "EECDH", "ECDH", "kECDH",
];

/// Words that mean none of them.
#[rustfmt::skip]
const NONE_OF_THEM: &[&str] = &[
    "COMPLEMENTOFALL", "COMPLEMENTOFDEFAULT", "MEDIUM", "LOW", "EXP", "EXPORT", "EXPORT40", "EXPORT56", "eNULL", "NULL",
    "aNULL", "kRSA", "RSA", "kDHE", "kEDH", "DHE", "EDH", "DH", "ADH", "AECDH", "kDH", "kDHr", "kDHd", "aDH", "kECDHr",
    "kECDHe", "aECDH", "aDSS", "DSS", "TLSv1.0", "TLSv1", "SSLv3", "SSLv2", "AESCCM", "AESCCM8", "ARIA", "ARIA128",
    "ARIA256", "ARIAGCM", "CAMELLIA", "CAMELLIA128", "CAMELLIA256", "3DES", "DES", "RC4", "RC2", "IDEA", "SEED", "MD5",
    "SHA1", "SHA", "SHA256", "SHA384", "GOST94", "GOST89MAC", "GOST12", "GOST89", "kGOST", "aGOST", "aGOST01", "PSK",
    "kPSK", "kECDHEPSK", "kDHEPSK", "kRSAPSK", "aPSK", "SRP", "kSRP", "aSRP", "KRB5", "kKRB5", "aKRB5", "kFZA", "FZA",
    "CBC",
];

pub(super) fn of(suite: CipherSuite) -> Option<&'static Row> {
    TLS13.iter().chain(TLS12).find(|row| row.suite.suite() == suite)
}

pub(super) fn any(code: u16) -> Option<&'static str> {
    let absent = || ABSENT.binary_search_by_key(&code, |&(code, _)| code).ok().map(|at| ABSENT[at].1);
    of(CipherSuite::from(code)).map(|row| row.name).or_else(absent)
}

/// The suites for TLS 1.2 of `ciphers`.
///
/// An unknown word is ignored, as by OpenSSL, and noted, as long as something is left: lists are copied from machine to machine, and
/// name what one version or another had.
///
/// # Errors
/// Nothing that rustls has, or an unknown command (`@…`).
pub fn ciphers(text: &str) -> Result<NameList<SupportedCipherSuite>, NameError> {
    let mut list = CipherList::default();
    for part in parts(text, &[':', ',', ' ', ';']) {
        // `DEFAULT@SECLEVEL=1` is two: an `@` begins a part of its own.
        let at = part.find('@').unwrap_or(part.len());
        let (words, command) = part.split_at(at);
        if !words.is_empty() {
            list.take(words);
        }
        if !command.is_empty() {
            list.command(&command[1..])?;
        }
    }
    let left_out = || (!list.absent.is_empty()).then(|| left_out(&list.absent));
    if list.used.is_empty() {
        if let Some(word) = list.unknown.first() {
            return Err(unknown(word));
        }
        let message = left_out().unwrap_or_else(|| format!("no supported TLS 1.2 cipher in '{text}'"));
        return Err(
            NameError::new(message).hint("use ECDHE with AES-GCM or CHACHA20, such as ECDHE+AESGCM:ECDHE+CHACHA20")
        );
    }
    Ok(NameList {
        found: list.used.iter().map(|&nth| TLS12[nth].suite).collect(),
        notes: left_out().into_iter().chain(passed_over("cipher", &list.unknown)).collect(),
    })
}

/// The suites for TLS 1.3 of `ciphersuites`, names between colons.
///
/// # Errors
/// Nothing that rustls has.
pub fn ciphersuites(text: &str) -> Result<NameList<SupportedCipherSuite>, NameError> {
    const HINT: &str = "use TLS_AES_128_GCM_SHA256, TLS_AES_256_GCM_SHA384 or TLS_CHACHA20_POLY1305_SHA256";
    let mut found = Vec::new();
    let (mut absent, mut unknown) = (Vec::new(), Vec::new());
    for name in parts(text, &[':']) {
        match TLS13.iter().find(|row| row.name == name) {
            Some(row) if found.contains(&row.suite) => {}
            Some(row) => found.push(row.suite),
            None if is_absent(name) => absent.push(name),
            None => unknown.push(name),
        }
    }
    if found.is_empty() {
        if let Some(name) = unknown.first() {
            return Err(NameError::new(format!("unknown TLS 1.3 cipher suite '{name}'")).hint(HINT));
        }
        let message = if absent.is_empty() { "no cipher suite is given".to_owned() } else { left_out(&absent) };
        return Err(NameError::new(message).hint(HINT));
    }
    let left_out = (!absent.is_empty()).then(|| left_out(&absent));
    Ok(NameList { found, notes: left_out.into_iter().chain(passed_over("TLS 1.3 cipher suite", &unknown)).collect() })
}

/// The suites for TLS 1.2 where nothing is configured, in OpenSSL's order.
pub fn default_ciphers() -> Vec<SupportedCipherSuite> {
    TLS12.iter().map(|row| row.suite).collect()
}

/// The suites for TLS 1.3 where nothing is configured, in OpenSSL's order.
pub fn default_ciphersuites() -> Vec<SupportedCipherSuite> {
    TLS13.iter().map(|row| row.suite).collect()
}

/// A list of ciphers while it is read: places in [`TLS12`].
struct CipherList<'a> {
    used: Vec<usize>,
    /// The others, in the order in which a word of several takes them.
    unused: Vec<usize>,
    absent: Vec<&'a str>,
    /// Words that OpenSSL does not know either.
    unknown: Vec<&'a str>,
}

impl Default for CipherList<'_> {
    fn default() -> Self {
        CipherList { used: Vec::new(), unused: (0..TLS12.len()).collect(), absent: Vec::new(), unknown: Vec::new() }
    }
}

impl<'a> CipherList<'a> {
    fn take(&mut self, part: &'a str) {
        let (sign, words) = match part.as_bytes()[0] {
            sign @ (b'!' | b'-' | b'+') => (sign, &part[1..]),
            _ => (b' ', part),
        };
        let meant = match meant(words) {
            Ok(meant) => meant,
            Err(word) => return self.unknown.push(word),
        };
        if meant.is_empty() && sign == b' ' && is_absent(words) {
            self.absent.push(words);
        }
        let split = |list: &[usize]| list.iter().partition::<Vec<usize>, _>(|nth| meant.contains(nth));
        let (used, rest) = split(&self.used);
        let (unused, others) = split(&self.unused);
        match sign {
            b'!' => (self.used, self.unused) = (rest, others),
            // As OpenSSL has it: what was taken away comes first when it is asked for again.
            b'-' => (self.used, self.unused) = (rest, [&*used, &*self.unused].concat()),
            b'+' => self.used = [rest, used].concat(),
            _ => {
                self.used.extend(unused);
                self.unused = others;
            }
        }
    }

    fn command(&mut self, command: &str) -> Result<(), NameError> {
        match command.strip_prefix("SECLEVEL=") {
            // Levels below 4 ask for less than any suite here has.
            Some("0" | "1" | "2" | "3") => {}
            Some("4" | "5") => {
                self.used.retain(|&nth| TLS12[nth].bits >= 192);
                self.unused.retain(|&nth| TLS12[nth].bits >= 192);
            }
            Some(level) => return Err(NameError::new(format!("'@SECLEVEL={level}' is not a level from 0 to 5"))),
            None if command == "STRENGTH" => self.used.sort_by_key(|&nth| std::cmp::Reverse(TLS12[nth].bits)),
            None => return Err(unknown(&format!("@{command}"))),
        }
        Ok(())
    }
}

/// The places in [`TLS12`] of what `A+B` means: what is both. `Err`: the word that OpenSSL does not know.
fn meant(words: &str) -> Result<Vec<usize>, &str> {
    let mut meant: Vec<usize> = (0..TLS12.len()).collect();
    for word in words.split('+') {
        let known = ALL_OF_THEM.contains(&word)
            || NONE_OF_THEM.contains(&word)
            || is_absent(word)
            || TLS13.iter().any(|row| row.name == word)
            || TLS12.iter().any(|row| row.is(word));
        if !known {
            return Err(word);
        }
        meant.retain(|&nth| ALL_OF_THEM.contains(&word) || TLS12[nth].is(word));
    }
    Ok(meant)
}

impl Row {
    fn is(&self, word: &str) -> bool {
        self.name == word || self.standard == word || self.words.contains(&word)
    }
}

fn is_absent(name: &str) -> bool {
    ABSENT.iter().any(|&(_, absent)| absent == name) || OLD_NAMES.contains(&name)
}

/// Names that OpenSSL had for some of [`ABSENT`] before version 1.1.0, and still takes.
const OLD_NAMES: [&str; 2] = ["EDH-DSS-DES-CBC3-SHA", "EDH-RSA-DES-CBC3-SHA"];

/// That words are ignored, a note each.
fn passed_over(what: &str, words: &[&str]) -> Vec<String> {
    words.iter().map(|word| format!("unknown {what} '{word}' ignored")).collect()
}

fn unknown(word: &str) -> NameError {
    NameError::new(format!("unknown cipher '{word}'"))
        .hint("use OpenSSL's names and keywords, such as ECDHE-RSA-AES128-GCM-SHA256, ECDHE+AESGCM or HIGH:!aNULL")
}

/// Why names were left out, those of one reason together.
fn left_out(names: &[&str]) -> String {
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    for name in names {
        let reason = reason(name);
        match reasons.iter_mut().find(|(other, _)| *other == reason) {
            Some((_, names)) => names.push(name),
            None => reasons.push((reason, vec![name])),
        }
    }
    let texts: Vec<String> =
        reasons.iter().map(|(reason, names)| format!("{} ignored: {reason}", listed(names))).collect();
    texts.join("; ")
}

fn reason(name: &str) -> &'static str {
    let begins = |with: &[&str]| with.iter().any(|start| name.starts_with(start));
    if name.contains("NULL") || begins(&["ADH-", "AECDH-"]) {
        "suites without encryption or authentication are not supported"
    } else if name.contains("PSK") || name.contains("SRP") {
        "pre-shared keys and passwords are not supported"
    } else if begins(&["DHE-", "EDH-"]) {
        "finite-field Diffie-Hellman is not supported"
    } else if begins(&["ECDHE-", "TLS_"]) {
        "only AES-GCM and CHACHA20-POLY1305 are supported"
    } else {
        "RSA key exchange is not supported"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn say(result: Result<NameList<SupportedCipherSuite>, NameError>) -> String {
        match result {
            Ok(named) => {
                let names: Vec<&str> = named.found.iter().map(|suite| of(suite.suite()).unwrap().name).collect();
                [vec![names.join(":")], named.notes].concat().join(" | ")
            }
            Err(fault) => format!("error: {}", fault.message),
        }
    }

    fn check(text: &str, expect: &str) {
        assert_eq!(say(ciphers(text)), expect, "{text}");
    }

    /// What OpenSSL gives of `text` for TLS 1.2, less what rustls lacks. `None`: it refuses the list.
    fn openssl(text: &str) -> Option<String> {
        let run = std::process::Command::new("openssl").args(["ciphers", "-s", "-tls1_2", text]).output();
        let run = run.expect("openssl is installed by scripts/setup");
        run.status.success().then(|| {
            let all = String::from_utf8(run.stdout).expect("names are text");
            let ours = |name: &&str| TLS12.iter().any(|row| row.name == *name);
            all.trim().split(':').filter(ours).collect::<Vec<_>>().join(":")
        })
    }

    #[test]
    fn lists_mean_what_they_mean_to_openssl() {
        for text in [
            "ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256:ECDHE-ECDSA-AES256-GCM-SHA384:ECDHE-RSA-AES256-GCM-SHA384:\
             ECDHE-ECDSA-CHACHA20-POLY1305:ECDHE-RSA-CHACHA20-POLY1305:DHE-RSA-AES128-GCM-SHA256:DHE-RSA-AES256-GCM-SHA384:\
             DHE-RSA-CHACHA20-POLY1305",
            "HIGH:!aNULL:!MD5",
            "ECDHE+AESGCM:ECDHE+CHACHA20",
            "EECDH+AESGCM:EDH+AESGCM:AES256+EECDH",
            "ALL",
            "DEFAULT",
            "aRSA+AESGCM:ECDSA",
            "ALL:!ECDSA",
            "ALL:-CHACHA20:CHACHA20",
            "ALL:+AES256",
            "AES128:AES256:@STRENGTH",
            "CHACHA20:!AES:ALL",
            "DEFAULT@SECLEVEL=1",
            "HIGH:@SECLEVEL=4",
            "AESGCM, CHACHA20",
            "kEECDH+aRSA+AES128",
            "ECDHE-RSA-AES128-GCM-SHA256:-ECDHE-RSA-AES128-GCM-SHA256:HIGH",
        ] {
            let ours = say(ciphers(text));
            let ours = ours.split(" | ").next().unwrap_or_default();
            match openssl(text) {
                Some(theirs) => assert_eq!(ours, theirs, "{text}"),
                None => assert!(ours.starts_with("error"), "{text}: {ours}"),
            }
        }
    }

    #[test]
    fn names_of_the_standard_are_taken_too() {
        check(
            "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256:ECDHE-RSA-AES128-GCM-SHA256",
            "ECDHE-RSA-CHACHA20-POLY1305:ECDHE-RSA-AES128-GCM-SHA256",
        );
    }

    #[test]
    fn what_rustls_lacks_is_left_out_and_said() {
        check(
            "DHE-RSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-SHA:AES128-SHA:ECDHE-RSA-AES128-GCM-SHA256:DES-CBC3-SHA",
            "ECDHE-RSA-AES128-GCM-SHA256 | DHE-RSA-AES128-GCM-SHA256 ignored: finite-field Diffie-Hellman is not \
             supported; ECDHE-RSA-AES128-SHA ignored: only AES-GCM and CHACHA20-POLY1305 are supported; AES128-SHA \
             and DES-CBC3-SHA ignored: RSA key exchange is not supported",
        );
        check("AES128-SHA", "error: AES128-SHA ignored: RSA key exchange is not supported");
        check("kRSA", "error: no supported TLS 1.2 cipher in 'kRSA'");
        check("", "error: no supported TLS 1.2 cipher in ''");
    }

    #[test]
    fn typing_errors_are_named() {
        check("ECDHE+AESGCN", "error: unknown cipher 'AESGCN'");
        check(
            "CHACHA20+aRSA:EDH-RSA-DES-CBC3-SHA:AESGCN+ECDHE:!EXPORT1024",
            "ECDHE-RSA-CHACHA20-POLY1305 | EDH-RSA-DES-CBC3-SHA ignored: finite-field Diffie-Hellman is not supported | \
             unknown cipher 'AESGCN' ignored | unknown cipher 'EXPORT1024' ignored",
        );
        check("ECDHE-RSA-AES128-GCM-SHA265", "error: unknown cipher 'ECDHE-RSA-AES128-GCM-SHA265'");
        check("CHACHA20+aRSA:!aNUL", "ECDHE-RSA-CHACHA20-POLY1305 | unknown cipher 'aNUL' ignored");
        check("HIGH:@SECLEVEL=9", "error: '@SECLEVEL=9' is not a level from 0 to 5");
        check("HIGH:@STRENGHT", "error: unknown cipher '@STRENGHT'");
    }

    #[test]
    fn suites_of_tls13() {
        let check = |text: &str, expect: &str| assert_eq!(say(ciphersuites(text)), expect, "{text}");
        check(
            "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256",
            "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256",
        );
        check(
            "TLS_AES_128_CCM_SHA256:TLS_AES_256_GCM_SHA384",
            "TLS_AES_256_GCM_SHA384 | TLS_AES_128_CCM_SHA256 ignored: only AES-GCM and CHACHA20-POLY1305 are supported",
        );
        check(
            "TLS_AES_128:TLS_AES_256_GCM_SHA384",
            "TLS_AES_256_GCM_SHA384 | unknown TLS 1.3 cipher suite 'TLS_AES_128' ignored",
        );
        check("TLS_AES_128", "error: unknown TLS 1.3 cipher suite 'TLS_AES_128'");
        check("", "error: no cipher suite is given");
    }

    #[test]
    fn every_code_has_its_name() {
        assert!(ABSENT.is_sorted_by_key(|(code, _)| code), "names are found by their code");
        assert_eq!(any(0x1301), Some("TLS_AES_128_GCM_SHA256"));
        assert_eq!(any(0xc02f), Some("ECDHE-RSA-AES128-GCM-SHA256"));
        assert_eq!(any(0x002f), Some("AES128-SHA"));
        assert_eq!(any(0x0a0a), None);
    }
}
