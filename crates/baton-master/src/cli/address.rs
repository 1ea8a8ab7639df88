//! `-S ADDRESS[,OPTION…]`: an address and the options of `stats socket`, with commas for blanks.

use std::path::PathBuf;

use baton_config::{Options, Severity};
use baton_control::environment::Outside;
use baton_model::StatsSocket;

/// Reads the argument of `-S`, as the reader of the configuration reads `stats socket`. Without `level` a session may do
/// everything, as in HAProxy.
///
/// # Errors
/// The reader's first complaint.
pub fn parse(argument: &str) -> Result<StatsSocket, String> {
    let (address, options) = argument.split_once(',').unwrap_or((argument, ""));
    let wrong = |reason: &str| format!("-S {argument}: {reason}");
    if argument.chars().any(|c| c.is_control() || c.is_whitespace() || "\"'\\#$".contains(c)) {
        return Err(wrong("expected an address and options separated by commas"));
    }
    let line = format!("stats socket {address} level admin {}", options.replace(',', " "));
    let directory = std::env::current_dir().map_err(|error| wrong(&error.to_string()))?;
    let outside = Outside::new(directory, Some(format!("global\n {line}\n").into_bytes()));
    let outside = outside.map_err(|error| wrong(&error.to_string()))?;
    let options = Options { files: vec![PathBuf::from("-")], ..Options::default() };
    let loaded = baton_config::load(&options, &outside);
    if let Some(complaint) = loaded.of(Severity::Alert).next() {
        return Err(wrong(&complaint.message));
    }
    let sockets = loaded.model.map(|model| model.global.stats.sockets).unwrap_or_default();
    sockets.into_iter().next().ok_or_else(|| wrong("expected an address"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_those_of_stats_socket() {
        let check = |argument: &str, expect: &str| match parse(argument) {
            Ok(socket) => assert_eq!(socket.to_string(), expect, "{argument}"),
            Err(error) => assert!(error.contains(expect), "{argument}: {error}"),
        };
        check("/run/x.sock", "unix@/run/x.sock level admin");
        check("/run/x.sock,mode,600,level,user", "unix@/run/x.sock level user mode 600");
        check("127.0.0.1:1234,level,operator", "127.0.0.1:1234 level operator");
        check("/run/x.sock,mode", "-S /run/x.sock,mode: ");
        check("/run/x.sock,dance", "dance");
        check("/run/x.sock\n bind", "commas");
        check("", "-S");
    }
}
