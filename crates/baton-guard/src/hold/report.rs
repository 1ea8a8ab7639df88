//! What a run tells at its end, in sentences.

use std::time::Duration;

use super::guardian::Cause;
use super::method::{HoldCounts, MethodName};
use super::run::HoldReport;

impl HoldReport {
    /// Sentences for people, the most important one first.
    pub fn sentences(&self) -> Vec<String> {
        let mut out: Vec<String> = self.faults.iter().map(ToString::to_string).collect();
        let (Some(method), Some(cause)) = (self.method, self.cause) else {
            return out;
        };
        if cause != Cause::Killed {
            out.push(self.held(method));
        }
        if self.held.over_limit > 0 {
            out.push(format!("{} more exceeded the limit and passed", self.held.over_limit));
        }
        out.extend(self.held.remarks.iter().cloned());
        out.extend(self.early(cause).map(str::to_owned));
        out
    }

    /// The report as one JSON object, times in milliseconds.
    pub fn json(&self) -> serde_json::Value {
        // To the microsecond.
        let milliseconds = |time: Duration| (time.as_secs_f64() * 1e6).round() / 1e3;
        let delay = self.held.delay;
        serde_json::json!({
            "targets": self.targets,
            "method": self.method,
            "ended_by": self.cause,
            "held_ms": milliseconds(self.held_for),
            "connections": self.held.connections,
            "over_limit": self.held.over_limit,
            "delay_median_ms": delay.and_then(|delay| delay.median).map(milliseconds),
            "delay_longest_ms": delay.map(|delay| milliseconds(delay.longest)),
            "remarks": self.held.remarks,
            "faults": self.faults.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "exit": self.exit,
        })
    }

    fn held(&self, method: MethodName) -> String {
        let (targets, time) = (&self.targets, rounded(self.held_for));
        let HoldCounts { connections, delay, .. } = self.held;
        match method {
            MethodName::Migrate => format!(
                "migrate: for {time} the kernel moved {} of this network namespace, including those to {targets}; none was \
                 delayed",
                count(connections, "connection")
            ),
            MethodName::Drop => format!(
                "drop: {} to {targets} dropped for {time}; clients retransmit them after 1 s, then 2 s, 4 s …",
                count(connections, "SYN")
            ),
            MethodName::Queue | MethodName::Plug => {
                let delay = match delay {
                    None => String::new(),
                    Some(delay) => {
                        let median = delay.median.map(|median| format!("{} in the median, ", rounded(median)));
                        format!("; waited {}max {}", median.unwrap_or_default(), rounded(delay.longest))
                    }
                };
                format!("{method}: {} to {targets} held, {time} in total{delay}", count(connections, "connection"))
            }
        }
    }

    /// What to say when it was not the command's end that let go.
    fn early(&self, cause: Cause) -> Option<&'static str> {
        match cause {
            Cause::Command => None,
            Cause::Deadline => {
                Some("the limit (--max) was reached before the command ended: later connections were not held")
            }
            Cause::Signal => Some("the guardian process was stopped: later connections were not held"),
            Cause::Killed | Cause::Orphaned => Some(
                "the guardian process was killed or hung: its changes are undone, and later connections were not held",
            ),
        }
    }
}

fn count(number: u64, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// As precisely as anybody wants to know.
fn rounded(time: Duration) -> String {
    match time.as_secs_f64() {
        short if short < 0.01 => format!("{:.1} ms", short * 1e3),
        short if short < 1.0 => format!("{:.0} ms", short * 1e3),
        seconds if seconds < 60.0 => format!("{seconds:.2} s"),
        long => format!("{long:.0} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::method::Delay;
    use super::*;

    fn report(method: MethodName, cause: Cause, held: HoldCounts) -> String {
        let report = HoldReport {
            targets: super::super::Targets::new(vec![":80".parse().unwrap()]).unwrap(),
            method: Some(method),
            cause: Some(cause),
            held_for: Duration::from_millis(143),
            held,
            faults: Vec::new(),
            exit: 0,
        };
        report.sentences().join("\n")
    }

    #[test]
    fn times_are_rounded() {
        let check = |time, expect: &str| assert_eq!(rounded(Duration::from_micros(time)), expect);
        check(6_123, "6.1 ms");
        check(740_456, "740 ms");
        check(1_354_999, "1.35 s");
        check(75_400_000, "75 s");
    }

    #[test]
    fn sentences_say_what_was_done() {
        let delay = Delay { median: Some(Duration::from_micros(6100)), longest: Duration::from_millis(120) };
        let held = HoldCounts { connections: 12, delay: Some(delay), ..HoldCounts::default() };
        let text = report(MethodName::Queue, Cause::Command, held);
        assert_eq!(text, "queue: 12 connections to :80 held, 143 ms in total; waited 6.1 ms in the median, max 120 ms");
        let text = report(MethodName::Migrate, Cause::Command, HoldCounts { connections: 1, ..HoldCounts::default() });
        assert_eq!(
            text,
            "migrate: for 143 ms the kernel moved 1 connection of this network namespace, including those to :80; none was delayed"
        );
        let text = report(MethodName::Drop, Cause::Deadline, HoldCounts { over_limit: 2, ..HoldCounts::default() });
        assert!(text.contains("0 SYNs to :80") && text.contains("2 more exceeded") && text.contains("--max"), "{text}");
    }
}
