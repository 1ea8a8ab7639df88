//! Rules on hosts that live with iptables: through the programs `iptables-restore` and `iptables-save` of the variant that
//! the host uses, and no other.
//!
//! What is ours is in chains of our own, `BATON-…`. A chain of the host gets a jump to one of them and nothing else, and
//! loses only such jumps. Changes that belong together are one `iptables-restore --noflush`, which the kernel takes whole
//! or not at all. What was there before is there afterwards, as `iptables-save` prints it.
//!
//! It does not decide what the rules say, and it flushes nothing that is not ours.

use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

mod text;

use text::Saved;

/// Names of our chains begin with this.
pub const PREFIX: &str = "BATON-";
/// As long as the name of a chain may be (`XT_EXTENSION_MAXNAMELEN` less the end and what xtables keeps for itself).
pub const NAME_MAX: usize = 28;
/// How long the programs may wait for each other's lock, seconds.
const LOCK_SECONDS: &str = "5";
/// Where the programs are, besides `PATH`: the one of a cron job has no `sbin`.
const FOLDERS: [&str; 4] = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"];
/// What to do without the right to the rules.
const NO_RIGHT: &str = "this needs root, or CAP_NET_ADMIN and CAP_NET_RAW";
/// As much of a program's words as goes into an error.
const SAID_MAX: usize = 600;

/// Whose rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    /// `iptables`
    Ipv4,
    /// `ip6tables`
    Ipv6,
}

/// Which of the kernel's two tables the programs of that name speak to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// `iptables-nft`: rules are nftables' in tables named `filter`, `nat`, `mangle` …
    Nft,
    /// `iptables-legacy`: x_tables.
    Legacy,
}

/// The programs of one family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Iptables {
    family: Family,
    variant: Variant,
    save: PathBuf,
    restore: PathBuf,
}

/// A chain of ours.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Chain(String);

/// One change of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The chain is there and empty, whether it was or not.
    Empty(Chain),
    /// A rule at the end of our chain, in the words that would follow `-A CHAIN`.
    Append(Chain, String),
    /// A rule at the head of our chain.
    Insert(Chain, String),
    /// The first rule of our chain that has these words.
    Delete(Chain, String),
    /// A jump to our chain from one of the host's.
    Hook {
        /// A built-in chain, say `INPUT`.
        from: &'static str,
        /// What the jump asks for, say `-p tcp`; may be empty.
        matching: String,
        /// Where it goes to.
        to: Chain,
        /// Before the host's own rules, or after them.
        place: JumpPosition,
    },
    /// That jump is gone.
    Unhook {
        /// As when it was made.
        from: &'static str,
        /// As when it was made.
        matching: String,
        /// As when it was made.
        to: Chain,
    },
    /// The chain, which nothing jumps to, is gone with its rules.
    Remove(Chain),
}

/// Where a jump is put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JumpPosition {
    /// Before the host's own rules.
    First,
    /// After them.
    Last,
}

/// What went wrong, with what can be done about it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No such program.
    #[error("{program} not found: install the package iptables, or use a method that does not need it")]
    Missing {
        /// Its name.
        program: String,
    },
    /// It could not be started or spoken to.
    #[error("cannot run {}: {source}", program.display())]
    Run {
        /// Its path.
        program: PathBuf,
        /// The system's words.
        source: std::io::Error,
    },
    /// It refused.
    #[error("{what}: {}: {said}{}", program.display(), remedy.map(|text| format!("; {text}")).unwrap_or_default())]
    Refused {
        /// What was to be done.
        what: String,
        /// Its path.
        program: PathBuf,
        /// Its words.
        said: String,
        /// What to do, where that is known.
        remedy: Option<&'static str>,
    },
    /// A name that cannot be a chain's.
    #[error("\"{0}\" cannot name a chain: at most 28 letters, digits, '-', '_', '.' with the {PREFIX} before it")]
    Name(String),
    /// Words that cannot be a rule.
    #[error("\"{0}\" cannot be a rule of iptables: it has more than one line, or an end inside")]
    Rule(String),
}

impl Error {
    /// Whether a right was missing.
    pub fn is_no_right(&self) -> bool {
        matches!(self, Error::Refused { remedy: Some(NO_RIGHT), .. })
    }
}

impl Chain {
    /// The chain `BATON-name`.
    ///
    /// # Errors
    /// When the name is too long or has signs that iptables would not take.
    pub fn new(name: &str) -> Result<Chain, Error> {
        let whole = format!("{PREFIX}{name}");
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        match !name.is_empty() && whole.len() <= NAME_MAX && name.bytes().all(fits) {
            true => Ok(Chain(whole)),
            false => Err(Error::Name(name.to_owned())),
        }
    }

    /// With the `BATON-` before it.
    pub fn name(&self) -> &str {
        &self.0
    }
}

impl Family {
    fn program(self) -> &'static str {
        match self {
            Family::Ipv4 => "iptables",
            Family::Ipv6 => "ip6tables",
        }
    }

    /// Where the kernel lists the tables of x_tables that this network namespace has.
    fn legacy_tables(self) -> &'static str {
        match self {
            Family::Ipv4 => "/proc/thread-self/net/ip_tables_names",
            Family::Ipv6 => "/proc/thread-self/net/ip6_tables_names",
        }
    }
}

impl Variant {
    fn suffix(self) -> &'static str {
        match self {
            Variant::Nft => "-nft",
            Variant::Legacy => "-legacy",
        }
    }

    fn other(self) -> Variant {
        match self {
            Variant::Nft => Variant::Legacy,
            Variant::Legacy => Variant::Nft,
        }
    }
}

impl Iptables {
    /// Finds the programs of the variant that this network namespace lives with: what `iptables` is, unless only the
    /// other one has tables.
    ///
    /// # Errors
    /// When there are no such programs, or `iptables -V` fails.
    pub fn find(family: Family) -> Result<Iptables, Error> {
        let usual = search(family.program()).ok_or_else(|| Error::Missing { program: family.program().to_owned() })?;
        let version = said(&usual, &["-V"], "asking for its version")?;
        // Before 1.8 there was only what is called legacy now, and the version did not say so.
        let variant = if version.contains("nf_tables") { Variant::Nft } else { Variant::Legacy };
        let usual = Iptables::of(family, variant, "")?;
        match Iptables::of(family, variant.other(), variant.other().suffix()) {
            Ok(other) if other.has_tables() && !usual.has_tables() => Ok(other),
            Ok(_) | Err(_) => Ok(usual),
        }
    }

    /// The programs of this variant, whatever the host lives with.
    ///
    /// # Errors
    /// When they are not installed.
    pub fn with_variant(family: Family, variant: Variant) -> Result<Iptables, Error> {
        Iptables::of(family, variant, variant.suffix())
    }

    fn of(family: Family, variant: Variant, suffix: &str) -> Result<Iptables, Error> {
        let find = |job: &str| {
            let program = format!("{}{suffix}{job}", family.program());
            search(&program).ok_or(Error::Missing { program })
        };
        Ok(Iptables { family, variant, save: find("-save")?, restore: find("-restore")? })
    }

    /// Whether this variant has tables in this network namespace. It loads none by looking.
    fn has_tables(&self) -> bool {
        match self.variant {
            Variant::Legacy => fs::read_to_string(self.family.legacy_tables()).is_ok_and(|names| !names.is_empty()),
            Variant::Nft => self.save().is_ok_and(|text| text.contains("\n*") || text.starts_with('*')),
        }
    }

    /// Whose rules these programs change.
    pub fn family(&self) -> Family {
        self.family
    }

    /// Which of the kernel's tables they speak to.
    pub fn variant(&self) -> Variant {
        self.variant
    }

    /// All tables, as `iptables-save` prints them.
    ///
    /// # Errors
    /// When the program fails.
    pub fn save(&self) -> Result<String, Error> {
        said(&self.save, &[], "reading the rules")
    }

    /// Makes all these changes of one table, or none of them.
    ///
    /// # Errors
    /// When a rule is none, or the program refuses; nothing is changed then.
    pub fn apply(&self, table: &str, changes: &[Change]) -> Result<(), Error> {
        self.restore(table, &Iptables::script(table, changes)?)
    }

    /// What `iptables-restore --noflush` reads for these changes of one table.
    ///
    /// # Errors
    /// When a rule is none.
    pub fn script(table: &str, changes: &[Change]) -> Result<String, Error> {
        let mut script = format!("*{table}\n");
        for change in changes {
            if let Some(words) = change.words().filter(|words| words.contains(['\n', '\0'])) {
                return Err(Error::Rule(words.to_owned()));
            }
            script.push_str(&format!("{change}\n"));
        }
        script.push_str("COMMIT\n");
        Ok(script)
    }

    /// Does what a script of one table says, or nothing of it.
    ///
    /// # Errors
    /// When the program refuses; nothing is changed then.
    pub fn restore(&self, table: &str, script: &str) -> Result<(), Error> {
        let program = &self.restore;
        let run = |source| Error::Run { program: program.clone(), source };
        let mut child = command(program, ["--noflush", "-w", LOCK_SECONDS])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(run)?;
        let mut input = child.stdin.take().expect("it is piped");
        // One that has ended says why.
        let written = input.write_all(script.as_bytes());
        drop(input);
        let output = child.wait_with_output().map_err(run)?;
        judged(program, &format!("changing the table {table}"), output)?;
        written.map_err(run)
    }

    /// As somebody would type it who has the script done.
    pub fn typed(&self, script: &str) -> String {
        let program = self.restore.file_name().unwrap_or_default().to_string_lossy();
        format!("{program} --noflush -w {LOCK_SECONDS} <<'END'\n{script}END")
    }

    /// Removes our chain and every jump to it, in all tables. One that is not there is no error.
    ///
    /// # Errors
    /// When a program fails.
    pub fn remove(&self, chain: &Chain) -> Result<(), Error> {
        self.removal(chain)?.iter().try_for_each(|(table, script)| self.restore(table, script))
    }

    /// The tables that have our chain or jumps to it, each with the script that removes them.
    ///
    /// # Errors
    /// When the rules cannot be read.
    pub fn removal(&self, chain: &Chain) -> Result<Vec<(String, String)>, Error> {
        let saved = self.save()?;
        let mut scripts = Vec::new();
        for table in Saved::new(&saved).tables() {
            let jumps = table.jumps_to(chain.name());
            if jumps.is_empty() && !table.chains().any(|name| name == chain.name()) {
                continue;
            }
            let mut script = format!("*{}\n", table.name);
            for jump in jumps {
                script.push_str(&format!("-D {jump}\n"));
            }
            script.push_str(&format!("{}\nCOMMIT\n", Change::Remove(chain.clone())));
            scripts.push((table.name.to_owned(), script));
        }
        Ok(scripts)
    }

    /// Our chains in all tables, of which the names go on with this after `BATON-`.
    ///
    /// # Errors
    /// When the rules cannot be read.
    pub fn ours(&self, prefix: &str) -> Result<Vec<Chain>, Error> {
        let whole = format!("{PREFIX}{prefix}");
        let saved = self.save()?;
        let saved = Saved::new(&saved);
        let names = saved.tables().iter().flat_map(|table| table.chains());
        let mut found: Vec<_> =
            names.filter(|name| name.starts_with(&whole)).map(|name| Chain(name.to_owned())).collect();
        found.sort();
        found.dedup();
        Ok(found)
    }

    /// A change as somebody would type it.
    pub fn command(&self, table: &str, change: &Change) -> String {
        let program = self.family.program();
        match change {
            Change::Empty(chain) => format!("{program} -t {table} -N {}", chain.name()),
            Change::Remove(Chain(name)) => {
                format!("{program} -t {table} -F {name} && {program} -t {table} -X {name}")
            }
            Change::Append(..)
            | Change::Insert(..)
            | Change::Delete(..)
            | Change::Hook { .. }
            | Change::Unhook { .. } => {
                format!("{program} -t {table} {change}")
            }
        }
    }
}

impl Change {
    /// What the caller wrote for iptables to read.
    fn words(&self) -> Option<&str> {
        match self {
            Change::Append(_, words) | Change::Insert(_, words) | Change::Delete(_, words) => Some(words),
            Change::Hook { matching, .. } | Change::Unhook { matching, .. } => Some(matching),
            Change::Empty(_) | Change::Remove(_) => None,
        }
    }
}

/// A line of `iptables-restore`; removing a chain takes two.
impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Change::Empty(Chain(name)) => write!(f, ":{name} - [0:0]"),
            Change::Append(Chain(name), rule) => write!(f, "-A {name} {rule}"),
            Change::Insert(Chain(name), rule) => write!(f, "-I {name} {rule}"),
            Change::Delete(Chain(name), rule) => write!(f, "-D {name} {rule}"),
            Change::Hook { from, matching, to: Chain(to), place } => {
                let how = match place {
                    JumpPosition::First => "-I",
                    JumpPosition::Last => "-A",
                };
                write!(f, "{how} {from} {}-j {to}", spaced(matching))
            }
            Change::Unhook { from, matching, to: Chain(to) } => write!(f, "-D {from} {}-j {to}", spaced(matching)),
            Change::Remove(Chain(name)) => write!(f, "-F {name}\n-X {name}"),
        }
    }
}

fn spaced(matching: &str) -> String {
    match matching {
        "" => String::new(),
        some => format!("{some} "),
    }
}

/// The program of this name, in `PATH` or where such programs are.
fn search(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(FOLDERS.map(PathBuf::from));
    folders.map(|folder| folder.join(name)).find(|program| program.is_file())
}

fn command<A: AsRef<OsStr>>(program: &Path, arguments: impl IntoIterator<Item = A>) -> Command {
    let mut command = Command::new(program);
    command.args(arguments).env("LC_ALL", "C").stdin(Stdio::null());
    command
}

/// Runs it to its end and gives its words.
fn said(program: &Path, arguments: &[&str], what: &str) -> Result<String, Error> {
    let output = command(program, arguments).output();
    let output = output.map_err(|source| Error::Run { program: program.to_owned(), source })?;
    judged(program, what, output)
}

fn judged(program: &Path, what: &str, output: Output) -> Result<String, Error> {
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let lines = said.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("Try `"));
    let mut said: String = lines.collect::<Vec<_>>().join("; ").chars().take(SAID_MAX).collect();
    if said.is_empty() {
        said = output.status.to_string();
    }
    let remedy = remedy(&said);
    Err(Error::Refused { what: what.to_owned(), program: program.to_owned(), said, remedy })
}

fn remedy(said: &str) -> Option<&'static str> {
    let has = |words: &[&str]| words.iter().any(|word| said.contains(word));
    if has(&["Permission denied", "Operation not permitted"]) {
        Some(NO_RIGHT)
    } else if has(&["xtables lock", "holding the xtables"]) {
        Some("another program keeps changing the rules: try again")
    } else if has(&["Couldn't load", "No such file or directory", "RULE_APPEND failed", "Extension"]) {
        Some("the kernel may lack a module that this rule needs")
    } else {
        None
    }
}

#[cfg(test)]
mod tests;
