//! What is to be done to whom: names, files, or options of the command line.

use std::path::Path;
use std::time::Duration;

use baton_prove::experiment::{Expect, Experiment, Network, Server, articles, built_in};
use baton_prove::proof::Figures;

use super::Prove;

/// How often an event is done when nobody says it.
const EVERY: Duration = Duration::from_millis(200);
/// How much smaller and larger experiments can be made.
const SCALES: std::ops::RangeInclusive<f64> = 0.001..=1000.0;
/// The longest file that is read, in bytes.
const FILE_MAX: u64 = 1 << 20;

/// One experiment on one server.
#[derive(Debug)]
pub struct ChosenExperiment {
    /// The experiment.
    pub experiment: Experiment,
    /// The place of the server in it.
    at: usize,
    /// The heading under which it stands with others.
    pub group: Option<String>,
    /// What articles report of the same.
    pub articles: Vec<Figures>,
}

impl ChosenExperiment {
    /// Whether it is as an article had it, over TLS.
    fn is_over_tls(&self) -> bool {
        self.experiment.load.contains("https://")
    }

    /// The server.
    pub fn server(&self) -> &Server {
        &self.experiment.servers[self.at]
    }
}

/// Finds everything that was asked for.
///
/// # Errors
/// A sentence: which name, file or server is wrong, and what could be meant.
pub fn choose(command: &Prove) -> Result<Vec<ChosenExperiment>, String> {
    if !SCALES.contains(&command.scale) {
        return Err(format!("--scale must be between {} and {}", SCALES.start(), SCALES.end()));
    }
    let mut all = match &command.reload {
        Some(reload) => each_server(own(command, reload)?),
        None => named(&command.names)?,
    };
    for ChosenExperiment { experiment, .. } in &mut all {
        if let Some(load) = &command.load {
            experiment.load.clone_from(load);
        }
        if command.machine_network && experiment.network == Network::Either {
            experiment.network = Network::Machine;
        }
    }
    if command.tls {
        for one in all.iter_mut().filter(|one| !one.is_over_tls()) {
            if one.experiment.held.is_some() {
                let reason = "connections that are held open are not measured over TLS";
                one.experiment.servers[one.at].absent = Some(reason.to_owned());
                continue;
            }
            one.experiment = one.experiment.over_tls().ok_or_else(|| {
                let name = &one.experiment.name;
                format!("'{name}' cannot run over TLS: it has no 'bind {{{{web}}}}' or 'listen {{{{web}}}};', or its load does \
                    not use http://{{{{web}}}}")
            })?;
        }
    }
    let Some(only) = command.server.as_deref().filter(|name| command.reload.is_none() && *name != "all") else {
        return Ok(all);
    };
    let (chosen, others): (Vec<ChosenExperiment>, Vec<ChosenExperiment>) =
        all.into_iter().partition(|one| is_of(only, &one.server().name));
    if chosen.is_empty() {
        let mut known: Vec<&str> = others.iter().map(|one| one.server().name.as_str()).collect();
        known.sort_unstable();
        known.dedup();
        return Err(format!("none of these experiments has a server '{only}'; they have {}", known.join(", ")));
    }
    Ok(chosen)
}

fn named(names: &[String]) -> Result<Vec<ChosenExperiment>, String> {
    let mut chosen = Vec::new();
    for name in names {
        match name.as_str() {
            "all" => chosen.extend(built_in::all().into_iter().flat_map(each_server)),
            file if file.ends_with(".toml") || file.contains('/') => chosen.extend(each_server(read(Path::new(file))?)),
            name => match (articles::find(name), built_in::find(name)) {
                (Some(rows), _) => chosen.extend(rows.into_iter().flat_map(of_article)),
                (None, Some(experiment)) => chosen.extend(each_server(experiment)),
                (None, None) => return Err(unknown(name)),
            },
        }
    }
    Ok(chosen)
}

/// Whether a row is of this server: `haproxy` means `haproxy-sf` too.
fn is_of(only: &str, name: &str) -> bool {
    name.strip_prefix(only).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

fn each_server(experiment: Experiment) -> Vec<ChosenExperiment> {
    let servers = 0..experiment.servers.len();
    servers
        .map(|at| ChosenExperiment { experiment: experiment.clone(), at, group: None, articles: Vec::new() })
        .collect()
}

fn of_article(run: articles::ArticleRun) -> Option<ChosenExperiment> {
    let at = run.experiment.servers.iter().position(|server| server.name == run.server)?;
    let articles = run.figures.into_iter().collect();
    Some(ChosenExperiment { experiment: run.experiment, at, group: Some(run.table), articles })
}

/// What is said of a name that is none.
pub fn unknown(name: &str) -> String {
    format!("unknown experiment '{name}'; 'baton prove list' lists all; a file must end in .toml")
}

fn read(file: &Path) -> Result<Experiment, String> {
    let told = |error: std::io::Error| format!("cannot read {}: {error}", file.display());
    if std::fs::metadata(file).map_err(told)?.len() > FILE_MAX {
        return Err(format!("{} is longer than {FILE_MAX} bytes", file.display()));
    }
    let text = std::fs::read_to_string(file).map_err(told)?;
    let name = file.file_stem().unwrap_or_default().to_string_lossy();
    Experiment::parse(&name, &text).map_err(|fault| format!("{}, {fault}", file.display()))
}

/// An experiment of options.
fn own(command: &Prove, reload: &str) -> Result<Experiment, String> {
    let load = command.load.clone().ok_or("--reload needs --load, such as --load '-c 20 http://127.0.0.1:8080/'")?;
    let start = command.server.clone().unwrap_or_default();
    let server = Server {
        name: start
            .split_whitespace()
            .next()
            .map_or("server", |program| program.rsplit('/').next().unwrap_or(program))
            .into(),
        pid_file: command.pid_file.clone(),
        what: "reload".into(),
        event: Some(reload.into()),
        expect: Expect::NoFailure,
        ..Server::default()
    };
    let network = if start.is_empty() { Network::Machine } else { Network::Either };
    Ok(Experiment {
        held: None,
        name: "own".into(),
        title: "Custom".into(),
        about: format!("Effect on clients of: {reload}"),
        every: Some(command.every.unwrap_or(EVERY)),
        time: None,
        requests: None,
        load,
        network,
        servers: vec![Server { start, ..server }],
    })
}
