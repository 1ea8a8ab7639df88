//! `baton certs`: the certificates of the running process, or of files.

mod offline;
mod table;

use std::path::PathBuf;
use std::process::ExitCode;

use baton_control::protocol::{CertificateFacts, Certificates, Reply, Request, Synced};
use clap::{Args, Subcommand};

use super::whom::TargetProcess;
use offline::OfflineCheck;

/// List, validate and reload certificates.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  baton certs list\n  baton certs check /etc/baton/certs\n  baton certs sync")]
pub struct CertsCommand {
    #[command(subcommand)]
    action: CertsAction,
}

#[derive(Debug, Subcommand)]
enum CertsAction {
    /// List the certificates in use, or those of files and directories, sorted by expiry
    List {
        /// Files or directories to read instead of the running process's certificates
        paths: Vec<PathBuf>,
        #[command(flatten)]
        process: TargetProcess,
        /// Print everything as JSON
        #[arg(long)]
        json: bool,
    },
    /// Show the certificates in use that are valid for a host name, or have a path
    Show {
        /// Host name, or path as in the configuration
        name: String,
        #[command(flatten)]
        process: TargetProcess,
    },
    /// Validate files and directories without a running process; exit code 1 if a certificate is invalid
    Check {
        /// Files or directories
        #[arg(required = true)]
        paths: Vec<PathBuf>,
    },
    /// Apply changed certificate files now, and wait until they are in use
    Sync {
        #[command(flatten)]
        process: TargetProcess,
        /// Print everything as JSON
        #[arg(long)]
        json: bool,
    },
}

/// Does it.
pub fn run(command: &CertsCommand) -> Result<ExitCode, String> {
    match &command.action {
        CertsAction::List { paths, process, json } if paths.is_empty() => {
            let certificates = in_use(process)?;
            super::print_text(if *json { as_json(&certificates) } else { table::list(certificates.certificates) });
            Ok(ExitCode::SUCCESS)
        }
        CertsAction::List { paths, json, .. } => {
            let OfflineCheck { certificates, refused } = offline::judge(paths)?;
            let count = refused.len();
            refused
                .iter()
                .for_each(|refused| super::say_line(format_args!("baton: {}: {}", refused.reason, refused.remedy)));
            let certificates = Certificates { certificates };
            super::print_text(if *json { as_json(&certificates) } else { table::list(certificates.certificates) });
            Ok(if count == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        CertsAction::Show { name, process } => show(name, process),
        CertsAction::Check { paths } => {
            let OfflineCheck { certificates, refused } = offline::judge(paths)?;
            refused
                .iter()
                .for_each(|refused| super::print_line(format_args!("{}: {}", refused.reason, refused.remedy)));
            super::print_line(format_args!("{} valid, {} invalid", certificates.len(), refused.len()));
            Ok(if refused.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        CertsAction::Sync { process, json } => match process.ask(Request::SyncCertificates)? {
            Reply::Synced(synced) => {
                match json {
                    true => super::print_line(serde_json::to_string(&synced).unwrap_or_default()),
                    false => super::print_text(table::synced(&synced)),
                }
                Ok(if is_whole(&synced) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
            }
            other => Err(unexpected(other)),
        },
    }
}

fn in_use(process: &TargetProcess) -> Result<Certificates, String> {
    match process.ask(Request::Certificates)? {
        Reply::Certificates(certificates) => Ok(*certificates),
        other => Err(unexpected(other)),
    }
}

fn show(name: &str, process: &TargetProcess) -> Result<ExitCode, String> {
    let is_meant = |facts: &CertificateFacts| {
        facts.path.as_os_str() == name || facts.names.iter().any(|own| is_good_for(own, name))
    };
    let found: Vec<_> = in_use(process)?.certificates.into_iter().filter(is_meant).collect();
    if found.is_empty() {
        return Err(format!("no certificate in use has the path '{name}' or is valid for this name"));
    }
    found.iter().for_each(|facts| super::print_text(table::details(facts)));
    Ok(ExitCode::SUCCESS)
}

/// Whether a name of a certificate, perhaps with `*` for its first label, is this host's.
fn is_good_for(own: &str, host: &str) -> bool {
    let own_rest = own.strip_prefix("*.");
    let host_rest = host.split_once('.').map(|(_, rest)| rest);
    own.eq_ignore_ascii_case(host)
        || matches!((own_rest, host_rest), (Some(own), Some(host)) if own.eq_ignore_ascii_case(host))
}

fn is_whole(synced: &Synced) -> bool {
    synced.refused.is_empty()
}

fn as_json(certificates: &Certificates) -> String {
    serde_json::to_string(certificates).unwrap_or_default() + "\n"
}

fn unexpected(reply: Reply) -> String {
    match reply {
        Reply::Failed { reason } => reason,
        other => format!("unexpected reply: {other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_compared_as_clients_do() {
        assert!(is_good_for("a.example", "A.example") && is_good_for("*.example", "a.example"));
        assert!(!is_good_for("*.example", "b.a.example") && !is_good_for("*.example", "example"));
        assert!(!is_good_for("a.example", "b.example"));
    }
}
