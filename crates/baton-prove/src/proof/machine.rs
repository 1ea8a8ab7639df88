//! The machine on which a proof ran, as far as it bears on the figures.

use std::{fs, thread};

use serde::Serialize;

/// Where a proof ran. What could not be found out is empty or `None`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Machine {
    /// The kernel, such as `Linux 6.1.0-18-amd64`.
    pub kernel: String,
    /// The model of the processor.
    pub cpu: String,
    /// How many processors this process may use.
    pub cpus: usize,
    /// Memory in bytes.
    pub memory: Option<u64>,
    /// The load average of the minute before the proof began: how busy the machine was with other things.
    pub busy: Option<f64>,
    /// Kernel settings that decide what a restart costs, with their values, as `sysctl` names them.
    pub settings: Vec<(String, String)>,
}

/// The settings that are told: how TCP shares its rate, how many connections may wait, and whether waiting ones move on when
/// their listening socket is closed.
const SETTINGS: [&str; 5] = [
    "net.ipv4.tcp_congestion_control",
    "net.core.somaxconn",
    "net.ipv4.tcp_max_syn_backlog",
    "net.ipv4.tcp_abort_on_overflow",
    "net.ipv4.tcp_migrate_req",
];

impl Machine {
    /// This machine, as its `/proc` describes it. Never fails: what cannot be read stays unknown.
    pub fn here() -> Machine {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
        let settings = SETTINGS.map(|name| (name.to_owned(), read(&format!("/proc/sys/{}", name.replace('.', "/")))));
        Machine {
            kernel: format!("{} {}", read("/proc/sys/kernel/ostype"), read("/proc/sys/kernel/osrelease")).trim().into(),
            cpu: field(&read("/proc/cpuinfo"), "model name").unwrap_or_default().to_owned(),
            cpus: thread::available_parallelism().map_or(0, usize::from),
            memory: field(&read("/proc/meminfo"), "MemTotal").and_then(kibibytes),
            busy: read("/proc/loadavg").split(' ').next().and_then(|first| first.parse().ok()),
            settings: settings.into_iter().filter(|(_, value)| !value.is_empty()).collect(),
        }
    }

    /// The machine in a line: kernel, processors, memory, and how busy it was.
    pub fn line(&self) -> String {
        let mut parts = Vec::new();
        if !self.kernel.is_empty() {
            parts.push(self.kernel.clone());
        }
        if self.cpus > 0 {
            let plural = if self.cpus == 1 { "" } else { "s" };
            let model = if self.cpu.is_empty() { String::new() } else { format!(" ({})", self.cpu) };
            parts.push(format!("{} processor{plural}{model}", self.cpus));
        }
        if let Some(memory) = self.memory {
            parts.push(format!("{:.0} GiB", memory as f64 / f64::from(1 << 30)));
        }
        if let Some(busy) = self.busy {
            parts.push(format!("load average {busy:.2} at the start"));
        }
        parts.join(", ")
    }
}

impl Machine {
    /// What makes the latencies doubtful: more work was waiting at the start than there are processors.
    pub fn doubt(&self) -> Option<&'static str> {
        let busy = self.busy.is_some_and(|busy| busy > self.cpus as f64);
        busy.then_some("The machine was busy: latencies are longer than on an idle one, during events and outside.")
    }
}

/// The value of the first line `name : value`.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim())
    })
}

/// Bytes of a size as `/proc/meminfo` writes it: `123 kB`.
fn kibibytes(size: &str) -> Option<u64> {
    size.strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_says_what_it_is() {
        let machine = Machine::here();
        assert!(machine.kernel.starts_with("Linux "), "{machine:?}");
        assert!(machine.cpus > 0 && machine.memory.is_some_and(|bytes| bytes > 1 << 20), "{machine:?}");
        assert!(
            machine.settings.iter().any(|(name, value)| name.ends_with("somaxconn") && value.parse::<u64>().is_ok())
        );
        assert!(machine.line().contains(&machine.kernel));
    }

    #[test]
    fn what_is_unknown_is_not_told() {
        assert_eq!((Machine::default().line().as_str(), Machine::default().doubt()), ("", None));
        let busy = |busy| Machine { cpus: 2, busy: Some(busy), ..Machine::default() };
        assert_eq!([1.9, 2.1].map(|load| busy(load).doubt().is_some()), [false, true]);
        assert_eq!(field("a: 1\nmodel name\t: An X: 2\n", "model name"), Some("An X: 2"));
        assert_eq!((kibibytes("16 kB"), kibibytes("16"), kibibytes("-1 kB")), (Some(16384), None, None));
    }
}
