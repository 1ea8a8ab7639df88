//! What is said of certificates that cannot be used: once for each state of their files, and not before it is clear that the
//! other file of a pair is not on its way.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use baton_tls::store::CertificateProblem;

/// Certificates that are remembered; those beyond are complained about each time.
const REMEMBERED_MAX: usize = 8192;

/// What was said.
#[derive(Debug, Default)]
pub(super) struct Complaints {
    /// By certificate: what is wrong, and whether it was said.
    known: HashMap<PathBuf, (String, bool)>,
}

impl Complaints {
    /// Whether to look once more before anything is said.
    pub(super) fn waits(&mut self, problem: &CertificateProblem) -> bool {
        if self.known.contains_key(&problem.path) || self.known.len() >= REMEMBERED_MAX {
            return false;
        }
        self.known.insert(problem.path.clone(), (problem.to_string(), false));
        true
    }

    /// What to say now, if it was not said already. `serves`: an older certificate does.
    pub(super) fn complain(&mut self, problem: &CertificateProblem, serves: bool) -> Option<String> {
        let text = problem.to_string();
        if self.known.get(&problem.path).is_some_and(|(known, is_said)| *is_said && *known == text) {
            return None;
        }
        if self.known.len() < REMEMBERED_MAX || self.known.contains_key(&problem.path) {
            self.known.insert(problem.path.clone(), (text.clone(), true));
        }
        let meanwhile = if serves { "The certificate in use stays in use" } else { "It is not used" };
        Some(format!("{}. {meanwhile}: {}.", capital(&text), problem.remedy()))
    }

    /// It is good, or gone.
    pub(super) fn forget(&mut self, path: &Path) {
        self.known.remove(path);
    }
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}
