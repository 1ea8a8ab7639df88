//! `show proc`, in HAProxy's columns.

use std::fmt;
use std::time::Duration;

/// All processes of a master.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Processes {
    /// The master itself.
    pub master: One,
    /// Reloads that were refused.
    pub failed: u32,
    /// The worker that serves, or is being started.
    pub workers: Vec<One>,
    /// Workers that finish what they have.
    pub leaving: Vec<One>,
    /// How a crash loop is, when there is one; not in HAProxy.
    pub trouble: Option<String>,
    /// The last reload was refused: the prompt says so.
    pub last_reload_failed: bool,
}

/// A process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct One {
    /// Its number.
    pub pid: i32,
    /// Reloads of the master; reloads that a worker has lived through.
    pub reloads: u32,
    /// Since it was started.
    pub uptime: Duration,
    /// Of its binary.
    pub version: String,
}

impl fmt::Display for Processes {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = |out: &mut fmt::Formatter<'_>, words: [&str; 5]| {
            let [pid, kind, reloads, uptime, version] = words;
            writeln!(out, "{pid:<15} {kind:<15} {reloads:<15} {uptime:<15} {version:<15}")
        };
        let row = |out: &mut fmt::Formatter<'_>, kind, one: &One, reloads: String| {
            line(out, [&one.pid.to_string(), kind, &reloads, &uptime(one.uptime), &one.version])
        };
        line(out, ["#<PID>", "<type>", "<reloads>", "<uptime>", "<version>"])?;
        row(out, "master", &self.master, format!("{} [failed: {}]", self.master.reloads, self.failed))?;
        writeln!(out, "# workers")?;
        for one in &self.workers {
            row(out, "worker", one, one.reloads.to_string())?;
        }
        if let Some(trouble) = &self.trouble {
            writeln!(out, "# {trouble}")?;
        }
        if !self.leaving.is_empty() {
            writeln!(out, "# old workers")?;
        }
        for one in &self.leaving {
            row(out, "worker", one, one.reloads.to_string())?;
        }
        writeln!(out, "# programs")
    }
}

fn uptime(uptime: Duration) -> String {
    let seconds = uptime.as_secs();
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    format!("{days}d{hours:02}h{minutes:02}m{:02}s", seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_haproxys() {
        let one = |pid, reloads, seconds| One {
            pid,
            reloads,
            uptime: Duration::from_secs(seconds),
            version: "2.6.12-1+deb12u4".into(),
        };
        let mut processes = Processes {
            master: one(13237, 2, 26),
            failed: 1,
            workers: vec![one(13349, 1, 93_784)],
            ..Processes::default()
        };
        let head = "#<PID>          <type>          <reloads>       <uptime>        <version>      \n\
                    13237           master          2 [failed: 1]   0d00h00m26s     2.6.12-1+deb12u4\n\
                    # workers\n\
                    13349           worker          1               1d02h03m04s     2.6.12-1+deb12u4\n";
        assert_eq!(processes.to_string(), format!("{head}# programs\n"));
        processes.leaving.push(one(7, 3, 0));
        processes.trouble = Some("in trouble".into());
        let old = "# in trouble\n# old workers\n\
                   7               worker          3               0d00h00m00s     2.6.12-1+deb12u4\n";
        assert_eq!(processes.to_string(), format!("{head}{old}# programs\n"));
    }
}
