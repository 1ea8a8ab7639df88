//! Takes out of bytes and log lines what two runs cannot have in common: ports, the process id, dates, timers that are not `-1`.

/// Port numbers and the names to print instead.
pub struct Normal {
    ports: Vec<(String, String)>,
    folder: String,
}

impl Normal {
    pub fn new(ports: Vec<(u16, String)>, folder: &std::path::Path) -> Normal {
        let ports =
            ports.into_iter().filter(|(port, _)| *port != 0).map(|(port, name)| (port.to_string(), name)).collect();
        Normal { ports, folder: folder.display().to_string() }
    }

    /// `bytes` with known ports, where they stand as whole numbers, and the folder named.
    pub fn bytes(&self, bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(bytes.len());
        let mut at = 0;
        while at < bytes.len() {
            if bytes[at..].starts_with(self.folder.as_bytes()) {
                out.extend_from_slice(b"{DIR}");
                at += self.folder.len();
                continue;
            }
            let digits = bytes[at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
            if digits == 0 {
                let rest = &bytes[at + 1..];
                let length = rest.iter().position(|byte| matches!(byte, b'0'..=b'9' | b'/')).unwrap_or(rest.len());
                out.extend_from_slice(&bytes[at..=at + length]);
                at += 1 + length;
                continue;
            }
            let number = &bytes[at..at + digits];
            match self.ports.iter().find(|(port, _)| port.as_bytes() == number) {
                Some((_, name)) => out.extend_from_slice(format!("{{{name}}}").as_bytes()),
                None => out.extend_from_slice(number),
            }
            at += digits;
        }
        out
    }

    /// A traffic log line: no date, no tag of the program, timers as `N` or `-1`, with `counters` the five connection counters.
    pub fn log(&self, line: &[u8], counters: bool) -> String {
        let text = without_dates(&String::from_utf8_lossy(&self.bytes(line)));
        let (priority, rest) = text.split_once('>').unwrap_or(("", &text));
        // `Mon DD HH:MM:SS tag[pid]: message`
        let message =
            rest.split_once("]: ").filter(|(head, _)| head.contains('[')).map_or(rest, |(_, message)| message);
        let tag = rest.get(16..).and_then(|rest| rest.split('[').next()).unwrap_or_default();
        let tag = if ["haproxy", "baton"].contains(&tag) { "" } else { tag };
        let mut slashed = 0;
        let message = &without_clf_timers(message);
        let words: Vec<String> = message
            .split(' ')
            .map(|word| {
                let numbers = word.split('/').filter(|part| part.parse::<i64>().is_ok()).count();
                if numbers < 3 || numbers != word.split('/').count() {
                    return word.to_string();
                }
                slashed += 1;
                match slashed {
                    1 => word.split('/').map(timer).collect::<Vec<_>>().join("/"),
                    2 if !counters => "C/C/C/C/C".to_string(),
                    _ => word.to_string(),
                }
            })
            .collect();
        format!("{priority}> {tag}{}", words.join(" ").trim_end_matches('\n'))
    }
}

/// Entries of stick tables (`0x55d0c0ffee00: key=a use=0 exp=3599998 gpc0=1`) without their addresses in memory, by their keys, and with the
/// time they have left roughly: nothing else of it is the same in two runs.
pub fn entries(bytes: &[u8]) -> Vec<u8> {
    let is_entry = |line: &[u8]| line.starts_with(b"0x") && line.windows(6).any(|part| part == b": key=");
    let mut lines: Vec<Vec<u8>> = bytes.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
    for line in lines.iter_mut().filter(|line| is_entry(line)) {
        let text = String::from_utf8_lossy(line);
        let (_, entry) = text.split_once(": ").unwrap_or_default();
        let words = entry.split(' ').map(|word| match word.strip_prefix("exp=").map(str::parse::<u64>) {
            Some(Ok(left @ 100_001..)) => format!("exp~{}s", (left + 50_000) / 100_000 * 100),
            Some(Ok(left @ 1..)) => format!("exp~{}s", (left + 5_000) / 10_000 * 10),
            _ => word.to_string(),
        });
        *line = format!("entry: {}", words.collect::<Vec<_>>().join(" ")).into_bytes();
    }
    for group in lines.chunk_by_mut(|one, other| [one, other].iter().all(|line| line.starts_with(b"entry: "))) {
        group.sort();
    }
    lines.join(&b'\n')
}

/// Of the table of `show stat` frontends and backends, with those of their columns that are about HTTP/2, by their names.
pub fn http2_counters(bytes: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(bytes);
    let mut rows = text.lines().map(|line| line.trim_start_matches("# ").split(',').collect::<Vec<_>>());
    let names = rows.next().unwrap_or_default();
    let mut lines = Vec::new();
    for row in rows.filter(|row| matches!(row.get(1), Some(&"FRONTEND" | &"BACKEND"))) {
        let columns = names.iter().zip(&row).filter(|(name, _)| name.starts_with("h2_"));
        lines.extend(columns.map(|(name, value)| format!("{} {} {name}={value}\n", row[0], row[1])));
    }
    lines.concat().into_bytes()
}

fn timer(part: &str) -> String {
    match part {
        "-1" => "-1".to_string(),
        part if part.starts_with('+') => "+N".to_string(),
        _ => "N".to_string(),
    }
}

/// A line of the common log format, whose fields stand one by one: milliseconds and timers as `N`, up to the termination state.
fn without_clf_timers(message: &str) -> String {
    const BETWEEN: &str = " \"\" \"\" ";
    let Some((before, fields)) = message.split_once(BETWEEN) else { return message.to_string() };
    let mut is_over = false;
    let fields: Vec<&str> = fields
        .split(' ')
        .map(|word| {
            is_over |= word.len() == 4 && word.ends_with('-');
            if !is_over && word.bytes().all(|byte| byte.is_ascii_digit()) { "N" } else { word }
        })
        .collect();
    format!("{before}{BETWEEN}{}", fields.join(" "))
}

/// `21/Nov/2026:03:51:10.123` and `21/Nov/2026:03:51:10 +0000` as `DATE`.
fn without_dates(text: &str) -> String {
    const SHAPE: &str = "dd/aaa/dddd:dd:dd:dd";
    let is_like = |byte: u8, shape: u8| match shape {
        b'd' => byte.is_ascii_digit(),
        b'a' => byte.is_ascii_alphabetic(),
        other => byte == other,
    };
    let (mut out, mut rest) = (String::new(), text);
    while let Some(at) = rest.find('/').and_then(|at| at.checked_sub(2)) {
        let bytes = rest.as_bytes();
        let is_date = bytes.len() >= at + SHAPE.len()
            && bytes[at..].iter().zip(SHAPE.bytes()).all(|(byte, shape)| is_like(*byte, shape));
        if !is_date {
            let next = rest.find('/').map_or(rest.len(), |slash| slash + 1);
            out.push_str(&rest[..next]);
            rest = &rest[next..];
            continue;
        }
        out.push_str(&rest[..at]);
        out.push_str("DATE");
        rest = &rest[at + SHAPE.len()..];
        let millis = rest.strip_prefix('.').map_or(0, |_| 4);
        let offset = rest.as_bytes().get(1).map_or(0, |sign| if b"+-".contains(sign) { 6 } else { 0 });
        rest = rest.get(millis.max(offset)..).unwrap_or_default();
    }
    out + rest
}

/// `[21/Nov/2026:03:51:10.123]` or `[21/Nov/2026:03:51:10`, which an offset follows.
fn is_date(word: &str) -> bool {
    word.starts_with('[') && word.matches('/').count() == 2 && word.matches(':').count() == 3
}

/// Whether a datagram is about a connection or a request, and not about the program's own life.
pub fn is_traffic(line: &[u8]) -> bool {
    String::from_utf8_lossy(line).split(' ').any(is_date)
}
