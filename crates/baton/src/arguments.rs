//! HAProxy's command line (management manual, 3), parsed by hand: options with one dash and several letters, and options that
//! take everything up to the next dash, are beyond what argument parsers offer.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use baton_config::Options;
use baton_config::missing::MissingFeature;
use baton_control::handover::message::Stop;
use baton_control::handover::taker::TakeOver;

/// What the command line asks for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Invocation {
    /// `-v` or `-vv`.
    Version {
        /// `-vv`: build options too.
        with_options: bool,
    },
    /// `-cc`: evaluate a condition.
    Condition(String),
    /// Check, or serve.
    Run(Box<Run>),
}

/// What checking or serving needs to know.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// The files, and what the command line says about them.
    pub options: Options,
    /// `-c`: check only.
    pub check: bool,
    /// `-q`.
    pub quiet: bool,
    /// `-V`, or `-d`, which implies it.
    pub verbose: bool,
    /// `-d` or `-db`: stay in the foreground whatever the file says.
    pub foreground: bool,
    /// `-D`.
    pub daemon: bool,
    /// `-W` or `-Ws`, as written.
    pub master_worker: Option<String>,
    /// `-S`: the address of the master's socket, and options with commas between them.
    pub master_socket: Option<String>,
    /// `-p`.
    pub pid_file: Option<PathBuf>,
    /// `-x`: the stats socket of the process whose listening sockets are taken; the last one counts.
    pub old_socket: Option<OsString>,
    /// `-sf` and `-st`, with everything they name.
    pub take_over: TakeOver,
    /// `-C`.
    pub directory: Option<PathBuf>,
    /// Options that make no difference here but were given, as written, and why: worth a notice.
    pub without_effect: Vec<(String, &'static str)>,
}

/// `Options` has no equality of its own; tests compare what they set.
impl PartialEq for Run {
    fn eq(&self, other: &Run) -> bool {
        format!("{self:?}") == format!("{other:?}")
    }
}

impl Eq for Run {}

/// A command line that cannot be followed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Wrong {
    /// Print the usage; before it this alert, if any.
    Usage(Option<String>),
    /// An alert, and no usage.
    Alert(String),
}

/// Understands the arguments after the program's name.
pub fn parse(arguments: &[OsString]) -> Result<Invocation, Wrong> {
    let mut run = Run::default();
    let mut condition = None;
    let mut at = 0;
    while at < arguments.len() {
        let argument = &arguments[at];
        let text = argument.to_string_lossy();
        at += 1;
        let Some(flag) = text.strip_prefix('-').filter(|flag| !flag.is_empty()) else { return Err(Wrong::Usage(None)) };
        let mut value = || {
            let value = arguments.get(at).cloned();
            at += 1;
            value.ok_or_else(|| Wrong::Usage(Some(format!("option '-{flag}' needs an argument"))))
        };
        match flag {
            "-" => {
                run.options.files.extend(arguments[at..].iter().map(PathBuf::from));
                at = arguments.len();
            }
            "v" => return Ok(Invocation::Version { with_options: false }),
            "vv" => return Ok(Invocation::Version { with_options: true }),
            "h" | "-help" => return Err(Wrong::Usage(None)),
            "c" => run.check = true,
            "-leave-out" => {
                let names = value()?;
                let features = MissingFeature::list(&names.to_string_lossy());
                run.options.leave_out.extend(features.map_err(|error| Wrong::Alert(format!("--leave-out: {error}")))?);
            }
            "cc" => condition = Some(value()?.to_string_lossy().into_owned()),
            "f" => run.options.files.push(value()?.into()),
            "p" => run.pid_file = Some(value()?.into()),
            "C" => run.directory = Some(value()?.into()),
            "L" => run.options.local_peer = Some(value()?.to_string_lossy().into_owned()),
            "n" => run.options.maxconn = number(&value()?),
            "N" => run.options.proxy_maxconn = number(&value()?),
            "m" => {
                value()?;
                run.without_effect
                    .push(("-m".into(), "memory is limited by the system (MemoryMax= of systemd, ulimit -v)"));
            }
            "V" => run.verbose = true,
            "q" => run.quiet = true,
            "d" => (run.verbose, run.foreground) = (true, true),
            "db" => run.foreground = true,
            "dS" => run.options.no_splice = true,
            "dD" => run.options.diag = true,
            "dW" => run.options.zero_warning = true,
            "dr" => run.options.ignore_unresolved = true,
            "dV" => run.options.no_server_verify = true,
            "D" => run.daemon = true,
            "W" | "Ws" => run.master_worker = Some(format!("-{flag}")),
            "S" => run.master_socket = Some(value()?.to_string_lossy().into_owned()),
            "x" => {
                let socket = value();
                run.old_socket = Some(
                    socket.map_err(|_| Wrong::Usage(Some("Unix socket path expected with the -x flag\n".into())))?,
                );
            }
            "sf" | "st" => {
                let is_pid = |word: &&OsString| !word.as_bytes().starts_with(b"-");
                let pids = arguments[at..].iter().take_while(is_pid).count();
                let pids: Result<Vec<u32>, Wrong> =
                    arguments[at..at + pids].iter().map(|word| pid(flag, &word.to_string_lossy())).collect();
                let pids = pids?;
                at += pids.len();
                run.take_over.pids.extend(pids);
                run.take_over.stop = if flag == "st" { Stop::Now } else { Stop::Soft };
            }
            _ if flag.starts_with('d') => run.without_effect.push((format!("-{flag}"), debugging(flag))),
            _ => return Err(Wrong::Usage(Some(format!("unknown option '-{flag}'")))),
        }
    }
    if let Some(condition) = condition {
        return Ok(Invocation::Condition(condition));
    }
    if !run.options.leave_out.is_empty() && !run.check {
        return Err(Wrong::Alert(
            "--leave-out is for checks: it needs -c. Nothing is served with lines left out.".into(),
        ));
    }
    if run.options.files.is_empty() {
        return Err(Wrong::Usage(None));
    }
    Ok(Invocation::Run(Box::new(run)))
}

/// `arguments` without those that take something over from another process (`-x`, `-sf`, `-st`).
pub fn without_predecessors(arguments: &[OsString]) -> Vec<OsString> {
    const WITH_VALUE: [&str; 9] = ["-cc", "-f", "-p", "-C", "-L", "-n", "-N", "-m", "-S"];
    let mut kept = Vec::new();
    let mut rest = arguments.iter().peekable();
    while let Some(argument) = rest.next() {
        match argument.to_string_lossy().as_ref() {
            "--" => {
                kept.push(argument.clone());
                kept.extend(rest.by_ref().cloned());
            }
            "-x" => drop(rest.next()),
            "-sf" | "-st" => while rest.next_if(|word| !word.as_bytes().starts_with(b"-")).is_some() {},
            flag => {
                kept.push(argument.clone());
                kept.extend(rest.next_if(|_| WITH_VALUE.contains(&flag)).cloned());
            }
        }
    }
    kept
}

/// Switches of HAProxy, 2.6 to 3.x, that begin with `-d` and change nothing here: why. None of them ends HAProxy's start, not even
/// one that it does not know.
fn debugging(flag: &str) -> &'static str {
    /// By their first letters; the longest that fits counts.
    const KNOWN: [(&str, &str); 15] = [
        ("dA", "Baton has no libraries to archive: it is statically linked except for the C library"),
        ("dC", "printing the configuration is not supported"),
        ("dF", "forwarded data is never copied more than once; -dS turns splicing off"),
        ("dG", "names are only resolved by the system (getaddrinfo)"),
        ("dI", "Baton starts no programs while it serves"),
        ("dK", "`baton help KEYWORD` and docs/configuration.md describe the keywords"),
        ("dL", "Baton has no libraries to list: it is statically linked except for the C library"),
        ("dM", "it debugs HAProxy's memory pools, which Baton does not have"),
        (
            "dR",
            "threads share an address by SO_REUSEPORT, and an address that another process listens on is rejected anyway",
        ),
        ("dZ", "Baton has no zero-copy forwarding; -dS turns splicing off"),
        ("de", "Baton always uses epoll"),
        ("dl", "Baton has no libraries to list: it is statically linked except for the C library"),
        ("dp", "Baton always uses epoll"),
        ("dt", "Baton has no traces; see the log and `baton status`"),
        ("dv", "Baton always uses epoll"),
    ];
    let found = KNOWN.iter().find(|(begin, _)| flag.starts_with(begin));
    found.map_or("unknown option; HAProxy 2.6 reads it as -d", |(_, why)| why)
}

/// As HAProxy reads numbers: what is none, or 0, is "not given".
fn number(value: &OsString) -> Option<u32> {
    value.to_string_lossy().parse().ok().filter(|&number| number > 0)
}

/// A process number, and HAProxy's words for what is none.
fn pid(flag: &str, word: &str) -> Result<u32, Wrong> {
    let digits = word.bytes().take_while(u8::is_ascii_digit).count();
    let (number, rest) = word.split_at(digits);
    if digits == 0 || !rest.is_empty() {
        return Err(Wrong::Alert(format!("-{flag} option: some bytes unconsumed in PID list {{{rest}}}")));
    }
    match number.parse::<i32>() {
        Ok(0) => Err(Wrong::Usage(None)),
        Ok(pid) => Ok(pid.unsigned_abs()),
        Err(_) => {
            Err(Wrong::Alert(format!("-{flag} option: failed to parse {{{word}}}: Numerical result out of range")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Invocation, Wrong> {
        parse(&line.split_whitespace().map(OsString::from).collect::<Vec<_>>())
    }

    #[track_caller]
    fn run(line: &str) -> Run {
        match parsed(line) {
            Ok(Invocation::Run(run)) => *run,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn files_come_by_f_and_after_two_dashes() {
        assert_eq!(run("-f a -c -f b -- c -d").options.files, ["a", "b", "c", "-d"].map(PathBuf::from));
        assert!(run("-c -- a").check);
    }

    #[test]
    fn flags_with_values() {
        let run = run("-f a -p x.pid -C /d -n 100 -N 0 -m 5 -L me -S sock,mode");
        assert_eq!((run.pid_file, run.directory), (Some("x.pid".into()), Some("/d".into())));
        assert_eq!((run.options.maxconn, run.options.proxy_maxconn), (Some(100), None));
        assert_eq!(run.options.local_peer.as_deref(), Some("me"));
        assert_eq!(run.without_effect.iter().map(|(flag, _)| flag).collect::<Vec<_>>(), ["-m"]);
        assert_eq!(run.master_socket.as_deref(), Some("sock,mode"));
    }

    #[test]
    fn lines_are_left_out_of_checks_only() {
        let left_out = run("-c -f a --leave-out lua,caches --leave-out others").options.leave_out;
        assert_eq!(left_out.iter().map(|feature| feature.name).collect::<Vec<_>>(), ["lua", "caches", "others"]);
        let check = |line: &str, expect: &str| match parsed(line) {
            Err(Wrong::Alert(text)) => assert!(text.contains(expect), "{line}: {text}"),
            other => panic!("{line}: {other:?}"),
        };
        check("-f a --leave-out lua", "it needs -c");
        check(
            "-c -f a --leave-out moon",
            "--leave-out: unknown feature 'moon'. The features that Baton lacks are: caches, ",
        );
        assert!(matches!(parsed("-c -f a --leave-out"), Err(Wrong::Usage(Some(_)))));
    }

    #[test]
    fn flags_of_several_letters() {
        let set = run("-f a -db -dD -dW -dr -dM -dMno-merge -dKall -de -dS -Ws");
        assert!(set.foreground && set.options.diag && set.options.zero_warning && set.options.ignore_unresolved);
        assert_eq!(set.master_worker.as_deref(), Some("-Ws"));
        assert!(!set.verbose && run("-f a -d").verbose);
    }

    /// Every switch of 2.6 and 3.x that begins so, and one of none.
    #[test]
    fn no_debugging_switch_ends_the_start() {
        let with_effect = "-d -db -dD -dr -dS -dV -dW";
        let set = run(&format!("-f a {with_effect}"));
        assert_eq!(set.without_effect, [], "these have one");
        assert!(set.options.no_server_verify && set.options.no_splice);
        let all =
            "-dA -dA=x -dC -dCkey -dF -dG -dI -dK -dKall -dL -dM -dMno-merge,tag -dR -dZ -de -dl -dp -dt -dth1 -dv -dX";
        let without = run(&format!("-f a {all}")).without_effect;
        assert_eq!(without.len(), all.split(' ').count(), "{without:?}");
        assert!(without.iter().all(|(flag, why)| all.contains(flag.as_str()) && !why.is_empty()));
        assert!(without.last().is_some_and(|(_, why)| why.starts_with("unknown option")));
        assert_eq!(without.iter().filter(|(_, why)| why.starts_with("unknown option")).count(), 1);
    }

    #[test]
    fn processes_to_take_over_from_go_up_to_the_next_dash() {
        assert!(!run("-f a -sf -c").daemon);
        assert!(run("-sf -f a -c").check);
        let over = |line: &str| {
            let TakeOver { pids, stop, is_masters: _ } = run(line).take_over;
            (pids, stop)
        };
        assert_eq!(over("-f a -sf"), (vec![], Stop::Soft));
        assert_eq!(over("-f a -sf 12 13 -D"), (vec![12, 13], Stop::Soft));
        assert_eq!(over("-f a -sf 1 -st 2"), (vec![1, 2], Stop::Now));
        let check = |line: &str, expect: &str| match parsed(line) {
            Err(Wrong::Alert(text)) => assert!(text.contains(expect), "{line}: {text}"),
            other => panic!("{line}: {other:?}"),
        };
        check("-f a -sf abc", "-sf option: some bytes unconsumed in PID list {abc}");
        check("-f a -st 12x", "-st option: some bytes unconsumed in PID list {x}");
        check("-f a -sf 99999999999", "failed to parse {99999999999}: Numerical result out of range");
        assert_eq!(parsed("-f a -sf 0"), Err(Wrong::Usage(None)));
    }

    #[test]
    fn a_successor_takes_over_from_one_process_only() {
        let check = |line: &str, expect: &str| {
            let words = |line: &str| line.split_whitespace().map(OsString::from).collect::<Vec<_>>();
            assert_eq!(without_predecessors(&words(line)), words(expect), "{line}");
        };
        check("-f a -D -p x.pid -sf 12 13", "-f a -D -p x.pid");
        check("-sf 12 -f -sf -x /old -st -W -- -sf 1", "-f -sf -W -- -sf 1");
        check("-x", "");
    }

    #[test]
    fn the_last_old_socket_counts() {
        assert_eq!(run("-f a -x /one -x abns@two").old_socket, Some("abns@two".into()));
        assert_eq!(run("-f a").old_socket, None);
        assert!(matches!(parsed("-f a -x"), Err(Wrong::Usage(Some(text))) if text.starts_with("Unix socket path")));
    }

    #[test]
    fn what_is_wrong_shows_the_usage() {
        for line in ["", "-f", "-h", "-Z", "-c a", "a", "-", "-c", "-n"] {
            assert!(matches!(parsed(line), Err(Wrong::Usage(_))), "{line}");
        }
    }

    #[test]
    fn questions_come_before_files() {
        assert_eq!(parsed("-v -f"), Ok(Invocation::Version { with_options: false }));
        assert_eq!(parsed("-c -vv"), Ok(Invocation::Version { with_options: true }));
        assert_eq!(parsed("-cc 1"), Ok(Invocation::Condition("1".into())));
    }
}
