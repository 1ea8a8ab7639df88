//! The order of a crate's modules, for the tests that hold it: each module uses those below it only.

use std::fs;
use std::path::Path;

/// Looks at all sources of the crate at `root` (its `CARGO_MANIFEST_DIR`). `order` has the modules from the top to what uses no other one.
///
/// # Panics
/// With what does not keep to the order.
pub fn check(root: &str, order: &[&str]) {
    let src = Path::new(root).join("src");
    let mut wrong = Vec::new();
    for entry in fs::read_dir(&src).expect("the sources") {
        let path = entry.expect("the sources").path();
        let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
        let Some(at) = order.iter().position(|module| *module == name) else {
            wrong.push(format!("{name} has no place in the order"));
            continue;
        };
        let above = used(&path).into_iter().filter(|used| !order[at..].contains(&used.as_str()));
        wrong.extend(above.map(|used| format!("{name} uses {used}")));
    }
    assert_eq!(wrong, Vec::<String>::new());
}

/// The modules that a file, or all files of a folder, name by `crate::`.
fn used(path: &Path) -> Vec<String> {
    if path.is_dir() {
        let files = fs::read_dir(path).expect("a folder").map(|entry| entry.expect("a folder").path());
        return files.flat_map(|file| used(&file)).collect();
    }
    let text = fs::read_to_string(path).expect("a source file");
    let code: Vec<&str> = text.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
    code.join("\n")
        .split("crate::")
        .skip(1)
        .flat_map(named)
        .filter(|name| name.starts_with(char::is_lowercase))
        .collect()
}

/// What stands behind `crate::`: a name, or several in braces.
fn named(rest: &str) -> Vec<String> {
    let word = |text: &str| {
        text.trim_start().split(|char: char| !char.is_alphanumeric() && char != '_').next().map(str::to_owned)
    };
    let Some(list) = rest.strip_prefix('{') else { return word(rest).into_iter().collect() };
    let (mut depth, mut parts) = (0_i32, vec![String::new()]);
    for char in list.chars() {
        match char {
            '}' if depth == 0 => break,
            ',' if depth == 0 => parts.push(String::new()),
            char => {
                depth += i32::from(char == '{') - i32::from(char == '}');
                parts.last_mut().expect("it starts with one and only grows").push(char);
            }
        }
    }
    parts.iter().filter_map(|part| word(part)).collect()
}
