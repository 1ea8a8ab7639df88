//! The list of accepted differences: `case-name = "reason"` lines.

use std::collections::BTreeMap;
use std::path::Path;

use crate::case::Case;

/// Reads the list. Each entry must name a case and give a reason.
pub fn load(file: &Path, cases: &[Case]) -> Result<BTreeMap<String, String>, String> {
    let text = std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    let mut accepted = BTreeMap::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let fault = |what: &str| format!("{}:{}: {what}: `{line}`", file.display(), number + 1);
        let (name, reason) = line.split_once('=').ok_or_else(|| fault("not `name = \"reason\"`"))?;
        let (name, reason) = (name.trim().trim_matches('"'), reason.trim());
        let reason = reason.strip_prefix('"').and_then(|reason| reason.strip_suffix('"')).unwrap_or_default();
        if reason.len() < 20 {
            return Err(fault("a reason is missing"));
        }
        if !cases.iter().any(|case| case.name == name) {
            return Err(fault("no such case"));
        }
        if accepted.insert(name.to_string(), reason.to_string()).is_some() {
            return Err(fault("listed twice"));
        }
    }
    Ok(accepted)
}
