//! What differs between two records, for a reader.

use crate::record::Record;

/// `None` when nothing differs.
pub fn difference(theirs: &Record, ours: &Record) -> Option<String> {
    let mut titles: Vec<&String> = theirs.sections.iter().map(|(title, _)| title).collect();
    for (title, _) in &ours.sections {
        if !titles.contains(&title) {
            titles.push(title);
        }
    }
    let mut text = String::new();
    for title in titles {
        let (left, right) = (lines(theirs, title), lines(ours, title));
        if left != right {
            text.push_str(&format!("[{title}]{}\n", absence(left.is_some(), right.is_some())));
            text.push_str(&compare_any(left.unwrap_or_default(), right.unwrap_or_default()));
        }
    }
    (!text.is_empty()).then_some(text)
}

fn lines<'a>(record: &'a Record, title: &str) -> Option<&'a [String]> {
    record.sections.iter().find(|(other, _)| other == title).map(|(_, lines)| &lines[..])
}

fn absence(left: bool, right: bool) -> &'static str {
    match (left, right) {
        (true, false) => " only with haproxy",
        (false, true) => " only with the second program",
        _ => "",
    }
}

/// Sections with more lines than this are compared line by line, and only what differs is shown.
const ALIGNED_LINES_MAX: usize = 1000;

/// The most differences shown of a long section.
const DIFFERENCES_SHOWN_MAX: usize = 30;

fn compare_any(left: &[String], right: &[String]) -> String {
    match left.len().max(right.len()) <= ALIGNED_LINES_MAX {
        true => compare(left, right),
        false => compare_generated(left, right),
    }
}

/// Responses of a generated case: of each expression the first difference, with its input, which is the last line before without a blank.
fn compare_generated(left: &[String], right: &[String]) -> String {
    let mut text = format!("  {} lines of haproxy, {} of the second program\n", left.len(), right.len());
    let mut seen: Vec<&str> = Vec::new();
    for (at, (theirs, ours)) in left.iter().zip(right).enumerate() {
        let (expression, _) = theirs.split_once("  ").unwrap_or((theirs, ""));
        let known = theirs == ours || theirs.starts_with("content-length:") || seen.contains(&expression);
        if known || seen.len() == DIFFERENCES_SHOWN_MAX {
            continue;
        }
        seen.push(expression);
        let input = left[..at].iter().rev().find(|line| !line.contains(' ')).map_or("", |line| line);
        text.push_str(&format!("    input | {input}\n  haproxy < {theirs}\n   second > {ours}\n"));
    }
    text
}

/// Both sides, line under line: what they share once, what differs with the side's name.
fn compare(left: &[String], right: &[String]) -> String {
    // Length of the longest common subsequence of the tails.
    let mut common = vec![vec![0_usize; right.len() + 1]; left.len() + 1];
    for l in (0..left.len()).rev() {
        for r in (0..right.len()).rev() {
            common[l][r] = match left[l] == right[r] {
                true => common[l + 1][r + 1] + 1,
                false => common[l + 1][r].max(common[l][r + 1]),
            };
        }
    }
    let mut text = String::new();
    let (mut l, mut r) = (0, 0);
    while l < left.len() || r < right.len() {
        if l < left.len() && r < right.len() && left[l] == right[r] {
            text.push_str(&format!("     both | {}\n", left[l]));
            l += 1;
            r += 1;
        } else if r == right.len() || l < left.len() && common[l + 1][r] >= common[l][r + 1] {
            text.push_str(&format!("  haproxy < {}\n", left[l]));
            l += 1;
        } else {
            text.push_str(&format!("   second > {}\n", right[r]));
            r += 1;
        }
    }
    text
}
