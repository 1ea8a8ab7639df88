//! Reads configurations as `-c -f FILE…` does and prints what there is to say: `cargo run --example check -- a.cfg`.

use baton_config::{Options, Severity, SystemEnvironment, load};

fn main() -> std::process::ExitCode {
    let options = Options { files: std::env::args_os().skip(1).map(Into::into).collect(), ..Options::default() };
    let loaded = load(&options, &SystemEnvironment);
    for diagnostic in &loaded.diagnostics {
        eprint!("{}", diagnostic.render(std::process::id()));
    }
    if loaded.model.is_some() && !loaded.has_listener() {
        println!("Configuration file has no error but will not start (no listener) => exit(2).");
        return std::process::ExitCode::from(2);
    }
    std::process::ExitCode::from(u8::from(loaded.of(Severity::Alert).next().is_some()))
}
