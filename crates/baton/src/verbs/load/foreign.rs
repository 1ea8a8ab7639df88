//! Options of `ab` that have no counterpart here: each is refused with what to do instead, not taken in silence.

use clap::Args;

/// Never shown in the help; clap only has to know them, so that they can be answered.
#[derive(Args, Debug)]
pub struct ForeignOptions {
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
    #[arg(short = 'z', hide = true)]
    z: Option<String>,
    #[arg(short = 'P', hide = true)]
    proxy_user: Option<String>,
    #[arg(short = 'X', hide = true)]
    proxy: Option<String>,
    #[arg(short = 'd', hide = true)]
    d: bool,
    #[arg(short = 'S', hide = true)]
    s: bool,
    #[arg(short = 'g', hide = true)]
    gnuplot: Option<String>,
    #[arg(short = 'e', hide = true)]
    csv: Option<String>,
    #[arg(short = 'Z', hide = true)]
    ciphers: Option<String>,
}

impl ForeignOptions {
    /// # Errors
    /// The first of them that was given, and the remedy.
    pub fn refuse(&self) -> Result<(), String> {
        let given = [
            ("-b", self.b.is_some(), "set net.ipv4.tcp_rmem and tcp_wmem"),
            ("-v", self.verbosity.is_some(), "--json has every kind of failure, and the first ones singly"),
            ("-w", self.w, "use --json"),
            ("-x", self.x.is_some(), "use --json"),
            ("-y", self.y.is_some(), "use --json"),
            ("-z", self.z.is_some(), "use --json"),
            ("-P", self.proxy_user.is_some(), "use -H 'Proxy-Authorization: …'"),
            ("-X", self.proxy.is_some(), "ask the proxy's own address, with --host for the site behind it"),
            ("-d", self.d, "use --json, and take what you need"),
            ("-S", self.s, "leave it out: nothing here warns about deviations"),
            ("-g", self.gnuplot.is_some(), "use --series FILE"),
            ("-e", self.csv.is_some(), "use --json, which has the percentiles, or --series FILE"),
            ("-Z", self.ciphers.is_some(), "restrict them in the server"),
        ];
        match given.into_iter().find(|(_, is_given, _)| *is_given) {
            Some((option, _, remedy)) => Err(format!("ab's {option} is not an option here: {remedy}")),
            None => Ok(()),
        }
    }
}
