//! Arguments of expressions: what stands for a word in angle brackets. Anything else in such brackets stays.

use super::random::Random;

/// `template` with a value for each word.
pub fn fill(template: &str, random: &mut Random) -> Result<String, String> {
    let mut parts = template.split('<');
    let mut text = parts.next().unwrap_or_default().to_string();
    for part in parts {
        match part.split_once('>').filter(|(word, _)| word.bytes().all(|byte| byte.is_ascii_alphanumeric())) {
            Some((word, rest)) => text.push_str(&format!("{}{rest}", one(word, random)?)),
            None => text.push_str(&format!("<{part}")),
        }
    }
    Ok(text)
}

fn one(word: &str, random: &mut Random) -> Result<String, String> {
    Ok(match word {
        "index" => random.of(&["1", "2", "3", "5", "-1", "-2", "-3", "-7"]).to_string(),
        "count" => random.of(&["0", "1", "2", "3", "9"]).to_string(),
        "small" => random.below(12).to_string(),
        "natural" => random.of(&NUMBERS).trim_start_matches('-').to_string(),
        "negative" => format!("-{}", random.of(&NUMBERS).trim_start_matches('-')),
        "int" => random.of(&NUMBERS).to_string(),
        "day" => random.of(&["3600", "-3600", "86400", "-86400000000", "31536000"]).to_string(),
        "delimiters" => random.of(&[":", "/", "_", ".:", " ", "=;&", "\",\"", "-."]).to_string(),
        "chars" => random.of(&["a", "abc", "0123456789", " ", "/", "\"xyz\"", "-."]).to_string(),
        "separator" => random.of(&["", ":", "-", "--", "\", \""]).to_string(),
        "flag" => random.of(&["0", "1"]).to_string(),
        "mask4" => random.of(&["24", "0", "32", "255.255.0.0", "7", "255.0.255.0"]).to_string(),
        "mask6" => random.of(&["64", "0", "128", "ffff:ffff::", "9"]).to_string(),
        "name" => random.of(&["a", "b", "x", "name", "host", "x-a", "q"]).to_string(),
        other => return Err(format!("no argument is called `{other}`")),
    })
}

const NUMBERS: [&str; 14] = [
    "0",
    "1",
    "-1",
    "2",
    "-3",
    "7",
    "255",
    "65536",
    "-2147483648",
    "2147483647",
    "4294967296",
    "9223372036854775807",
    "-9223372036854775807",
    "1000000007",
];
