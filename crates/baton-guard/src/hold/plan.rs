//! What a method will do, as text for people: `--dry-run` prints it.

use std::fmt;

/// Steps in their order, and what undoes them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// What is done before the command, a sentence or a rule each.
    pub begin: Vec<String>,
    /// What is done after it.
    pub end: Vec<String>,
    /// What lets traffic flow when Baton is killed and its guardian too.
    pub safety: String,
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (head, steps) in [("before the command", &self.begin), ("after it", &self.end)] {
            writeln!(f, "{head}:")?;
            for line in steps.iter().flat_map(|step| step.lines()) {
                writeln!(f, "  {line}")?;
            }
        }
        writeln!(f, "if Baton and its guardian are killed:\n  {}", self.safety)
    }
}
