//! Options of ab, wrk and hey: those with one dash and several letters become ours, and those without a counterpart are refused with
//! what to do instead, not ignored.

use std::ffi::OsString;

use clap::Args;

/// Never shown in the help; clap only has to know them, so that they can be answered.
#[derive(Args, Debug)]
pub struct ForeignOptions {
    /// wrk prints percentiles on request; here they are always printed.
    #[arg(short = 'L', long, hide = true)]
    latency: bool,
    #[arg(short = 'b', hide = true)]
    b: Option<String>,
    #[arg(short = 'v', hide = true)]
    verbosity: Option<String>,
    #[arg(short = 'w', hide = true)]
    w: bool,
    #[arg(short = 'x', hide = true)]
    x: Option<String>,
    #[arg(short = 'y', hide = true)]
    y: Option<String>,
    #[arg(short = 'P', hide = true)]
    proxy_user: Option<String>,
    #[arg(short = 'X', hide = true)]
    proxy: Option<String>,
    #[arg(short = 'S', hide = true)]
    s: bool,
    #[arg(short = 'g', hide = true)]
    gnuplot: Option<String>,
    #[arg(short = 'e', hide = true)]
    csv: Option<String>,
    #[arg(short = 'Z', hide = true)]
    ciphers: Option<String>,
    #[arg(short = 'D', hide = true)]
    body: Option<String>,
    #[arg(short = 'o', hide = true)]
    output: Option<String>,
    #[arg(short = 'U', hide = true)]
    user_agent: Option<String>,
}

impl ForeignOptions {
    /// # Errors
    /// The first of them that was given, and the remedy.
    pub fn refuse(&self) -> Result<(), String> {
        let given = [
            ("ab's -b", self.b.is_some(), "set net.ipv4.tcp_rmem and tcp_wmem"),
            ("ab's -v", self.verbosity.is_some(), "--json has every kind of failure, and the first ones in detail"),
            ("ab's -w", self.w, "use --json"),
            ("-x (a table in ab, a proxy in hey)", self.x.is_some(), "use --json, or the proxy's address with --host"),
            ("ab's -y", self.y.is_some(), "use --json"),
            ("ab's -P", self.proxy_user.is_some(), "use -H 'Proxy-Authorization: …'"),
            ("ab's -X", self.proxy.is_some(), "use the proxy's address as the URL, with --host for the site behind it"),
            ("ab's -S", self.s, "leave it out: no warnings about deviations are printed"),
            ("ab's -g", self.gnuplot.is_some(), "use --series FILE"),
            ("ab's -e", self.csv.is_some(), "use --json, which has the percentiles, or --series FILE"),
            ("ab's -Z", self.ciphers.is_some(), "restrict them in the server"),
            ("hey's -D", self.body.is_some(), "use -p FILE, with -m for another method than POST"),
            ("hey's -o", self.output.is_some(), "use --json, or --series FILE for CSV"),
            ("hey's -U", self.user_agent.is_some(), "use -H 'User-Agent: …'"),
        ];
        match given.into_iter().find(|(_, is_given, _)| *is_given) {
            Some((option, _, remedy)) => Err(format!("{option} is not supported: {remedy}")),
            None => Ok(()),
        }
    }
}

/// The arguments of the program; hey's options of several letters are translated if its first one is `load`.
///
/// # Errors
/// One of them that is not supported, and the remedy.
pub fn translate(arguments: &[OsString]) -> Result<Vec<OsString>, String> {
    match arguments.split_first() {
        Some((verb, rest)) if verb == "load" => {
            Ok(std::iter::once(verb.clone()).chain(translated(rest.iter().cloned())?).collect())
        }
        _ => Ok(arguments.to_vec()),
    }
}

/// The arguments after `load`. One dash and several letters would be several options to clap.
pub fn translated(arguments: impl Iterator<Item = OsString>) -> Result<Vec<OsString>, String> {
    let mut ours = Vec::new();
    for argument in arguments {
        match argument.to_str() {
            Some("-host") => ours.push("--host".into()),
            Some("-cpus") => ours.push("--threads".into()),
            // Never done here without -k, and never done at all.
            Some("-disable-keepalive" | "-disable-compression" | "-disable-redirects") => {}
            Some("-h2") => return Err("hey's -h2: HTTP/2 is not supported yet".into()),
            _ => ours.push(argument),
        }
    }
    Ok(ours)
}
