//! How the lines of a file of patterns, and of a map, are read.

/// A line as an entry; `None` of a comment and of an empty line. As HAProxy has it, a line ends at its first CR, LF or NUL, a comment has
/// its `#` in the first column, blanks at the end belong to a pattern of ACLs but not to a map's value.
pub(super) fn line(line: &[u8], is_map: bool) -> Option<(&[u8], Option<&[u8]>)> {
    if line.first() == Some(&b'#') {
        return None;
    }
    let end = line.iter().position(|byte| matches!(byte, b'\r' | b'\n' | 0)).unwrap_or(line.len());
    let line = trim_start(&line[..end]);
    if line.is_empty() {
        return None;
    }
    if !is_map {
        return Some((line, None));
    }
    let end = line.iter().position(is_blank).unwrap_or(line.len());
    Some((&line[..end], Some(trim_end(trim_start(&line[end..])))))
}

/// The entries of a whole file with the numbers of their lines.
pub(super) fn entries(content: &[u8], is_map: bool) -> impl Iterator<Item = (usize, &[u8], Option<&[u8]>)> {
    let lines = content.split_inclusive(|byte| *byte == b'\n').enumerate();
    lines.filter_map(move |(at, text)| line(text, is_map).map(|(key, value)| (at + 1, key, value)))
}

fn is_blank(byte: &u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

fn trim_start(text: &[u8]) -> &[u8] {
    &text[text.iter().position(|byte| !is_blank(byte)).unwrap_or(text.len())..]
}

fn trim_end(text: &[u8]) -> &[u8] {
    &text[..text.iter().rposition(|byte| !is_blank(byte)).map_or(0, |last| last + 1)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_keys_with_values() {
        let check = |text: &str, is_map: bool, expected: Option<(&str, Option<&str>)>| {
            let read = line(text.as_bytes(), is_map);
            let expected = expected.map(|(key, value)| (key.as_bytes(), value.map(str::as_bytes)));
            assert_eq!(read, expected, "{text:?}");
        };
        check("key value\n", true, Some(("key", Some("value"))));
        check("  key \t two words  \n", true, Some(("key", Some("two words"))));
        check("key", true, Some(("key", Some(""))));
        check("#key value", true, None);
        check(" #key value", true, Some(("#key", Some("value"))));
        check(" \t\n", true, None);
        check("/sp ace \n", false, Some(("/sp ace ", None)));
        check("/a\r\n", false, Some(("/a", None)));
        check("\ra b\n", true, None);
        check("a b\0c\n", true, Some(("a", Some("b"))));
    }
}
