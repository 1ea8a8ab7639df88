//! 10,000 broken configurations made from good ones: none panics, each is judged quickly, and what is accepted has a model.
//! `BATON_SEED=N` repeats a run; the seed is printed when one fails.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use baton_config::{FixedEnvironment, Options, Severity, load};

const GOOD: &[&str] = &[
    include_str!("good/everything.cfg"),
    include_str!("good/simple.cfg"),
    include_str!("good/language.cfg"),
    include_str!("good/rules.cfg"),
];

/// Words that are worth putting anywhere.
const SPICE: &[&str] = &[
    "\"",
    "'",
    "\\",
    "\\x",
    "\\x00",
    "#",
    "${",
    "\"${A",
    "\"$\"",
    "\"${LIST[*]}\"",
    ".if",
    ".elif 1",
    ".else",
    ".endif",
    ".if ((((",
    "no",
    "default",
    "global",
    "defaults",
    "defaults d",
    "frontend f",
    "backend",
    "listen l :80",
    "from",
    "option",
    "timeout",
    "bind :1-65535",
    "server-template x 1-4294967295 localhost:1",
    "-1",
    "0",
    "99999999999999999999",
    "25d",
    "5x",
    "%[",
    "%[src]",
    "{",
    "}",
    "{ path",
    "if",
    "unless",
    "!",
    "||",
    "fd@-1",
    "unix@",
    "ipv6@1.1.1.1:1",
    "::1",
    "[::",
    "]",
    "*",
    ":",
    ",",
    "/",
    "track b/s",
    "check",
    "peers",
    "stats",
    "\u{e9}",
    "\t",
    "",
];

/// A small generator (SplitMix64), so that a run can be repeated.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }
}

fn mutate(text: &str, random: &mut Random) -> Vec<u8> {
    let mut lines: Vec<String> = text.lines().map(str::to_string).collect();
    for _ in 0..=random.below(4) {
        if lines.is_empty() {
            break;
        }
        let at = random.below(lines.len());
        match random.below(9) {
            0 => drop(lines.remove(at)),
            1 => lines.insert(at, lines[at].clone()),
            2 => {
                let other = random.below(lines.len());
                lines.swap(at, other);
            }
            3 => lines.insert(at, SPICE[random.below(SPICE.len())].to_string()),
            kind => {
                let mut words: Vec<&str> = lines[at].split(' ').collect();
                let word = random.below(words.len());
                match kind {
                    4 => drop(words.remove(word)),
                    5 => words.insert(word, words[word]),
                    6 => {
                        let other = random.below(words.len());
                        words.swap(word, other);
                    }
                    7 => words[word] = SPICE[random.below(SPICE.len())],
                    _ => words.insert(word, SPICE[random.below(SPICE.len())]),
                }
                lines[at] = words.join(" ");
            }
        }
    }
    let mut bytes = lines.join("\n").into_bytes();
    bytes.push(b'\n');
    match random.below(4) {
        0 => {
            let at = random.below(bytes.len());
            bytes[at] = random.next() as u8;
        }
        1 => {
            let keep = random.below(bytes.len());
            bytes.truncate(keep);
        }
        _ => {}
    }
    bytes
}

#[test]
fn broken_configurations_are_refused_and_never_panic() {
    const RUNS: usize = 10_000;
    /// Generous: a debug build on a busy machine. A file that took exponential time would take far longer.
    const SLOW: Duration = Duration::from_secs(20);
    let seed = std::env::var("BATON_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(|| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        now.map(|now| now.as_nanos() as u64).unwrap_or(1)
    });
    let mut random = Random(seed);
    let (mut refused, mut accepted) = (0, 0);
    for run in 0..RUNS {
        let bytes = mutate(GOOD[random.below(GOOD.len())], &mut random);
        let mut env = FixedEnvironment::with_file("a.cfg", bytes.clone());
        env.vars.insert("LIST".into(), "a b c".into());
        env.files.insert(PathBuf::from("/errors/503.http"), b"HTTP/1.0 503 x\r\n\r\n".to_vec());
        let begin = Instant::now();
        let outcome = std::panic::catch_unwind(|| load(&Options::file("a.cfg"), &env));
        let took = begin.elapsed();
        let shown = || format!("BATON_SEED={seed}, run {run}:\n{}", String::from_utf8_lossy(&bytes));
        let Ok(loaded) = outcome else { panic!("panicked; {}", shown()) };
        assert!(took < SLOW, "took {took:?}; {}", shown());
        let alerts = loaded.of(Severity::Alert).count();
        assert_eq!(loaded.model.is_none(), alerts > 0, "{}", shown());
        for diagnostic in &loaded.diagnostics {
            assert!(diagnostic.render(1).starts_with('['), "{}", shown());
            assert!(!diagnostic.id.is_empty() && !diagnostic.message.is_empty(), "{}", shown());
        }
        *(if alerts > 0 { &mut refused } else { &mut accepted }) += 1;
    }
    // The mutations must be neither all fatal nor all harmless, or the test would say nothing.
    assert!(refused > RUNS / 4 && accepted > RUNS / 100, "BATON_SEED={seed}: {refused} refused, {accepted} accepted");
}

#[test]
fn good_configurations_are_good() {
    for good in GOOD {
        let mut env = FixedEnvironment::with_file("a.cfg", *good);
        env.vars.insert("LIST".into(), "a b c".into());
        env.files.insert(PathBuf::from("/errors/503.http"), b"HTTP/1.0 503 x\r\n\r\n".to_vec());
        let loaded = load(&Options::file("a.cfg"), &env);
        let faults: Vec<String> = loaded.of(Severity::Alert).map(|alert| alert.render(1)).collect();
        assert!(faults.is_empty(), "{}", faults.join(""));
    }
}
