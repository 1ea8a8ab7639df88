//! The tables of public articles as experiments: their numbers of requests and users, their figures beside ours; and behind them what the
//! articles do not count, the experiment `cost`.
//!
//! What an article does not say (how often it restarted, on what machine) is ours: the experiments' own. So figures compare in
//! kind, not one by one: who loses requests, how many times as many, and whose longest request is how long.

use super::{Experiment, Server, built_in};
use crate::proof::Figures;

/// One row of an article's table, to be run.
#[derive(Clone, Debug)]
pub struct ArticleRun {
    /// The table's heading.
    pub table: String,
    /// The experiment, with the article's load.
    pub experiment: Experiment,
    /// The server's name.
    pub server: String,
    /// What the article reports; `None` for what it does not have, as Baton.
    pub figures: Option<Figures>,
}

/// A table: its name on the command line, its heading, what must be known of it, users, and its rows.
struct ArticleTable {
    name: &'static str,
    heading: &'static str,
    source: &'static str,
    note: &'static str,
    users: u32,
    /// Whether its load goes over TLS.
    tls: bool,
    rows: &'static [ArticleRow],
}

/// A row: experiment, server, requests, and the article's figures.
struct ArticleRow(&'static str, &'static str, u64, Option<Reported>);

/// Failed requests of the row's requests, and latencies in milliseconds.
#[derive(Clone, Copy)]
struct Reported {
    failed: u64,
    mean_ms: Option<u64>,
    p99_ms: Option<u64>,
    max_ms: Option<u64>,
}

const fn failed(failed: u64) -> Option<Reported> {
    Some(Reported { failed, mean_ms: None, p99_ms: None, max_ms: None })
}

const TABLES: &[ArticleTable] = &[
    ArticleTable {
        name: "articles-200",
        heading: "10,000 requests of 200 users, over TLS",
        source: "article: 10k requests, 200 users",
        note: "the article does not state the number of restarts",
        users: 200,
        tls: true,
        rows: &[
            ArticleRow(
                "baseline",
                "haproxy",
                10_000,
                Some(Reported { failed: 0, mean_ms: Some(513), p99_ms: None, max_ms: None }),
            ),
            ArticleRow("hard-restart", "haproxy", 10_000, failed(4332)),
            ArticleRow("legacy-reload", "haproxy", 10_000, failed(10)),
            ArticleRow("transfer", "haproxy", 10_000, failed(0)),
            ArticleRow("transfer", "baton", 10_000, None),
            ArticleRow("reload", "baton", 10_000, None),
        ],
    },
    ArticleTable {
        name: "articles-100",
        heading: "100,000 requests of 100 users",
        source: "article: 100k requests, 100 users",
        note: "the article does not state the number of restarts",
        users: 100,
        tls: false,
        rows: &[
            ArticleRow(
                "baseline",
                "haproxy",
                100_000,
                Some(Reported { failed: 0, mean_ms: None, p99_ms: None, max_ms: Some(223) }),
            ),
            ArticleRow("hard-restart", "haproxy", 100_000, failed(104)),
            ArticleRow("legacy-reload", "haproxy", 100_000, failed(3)),
            ArticleRow(
                "transfer",
                "haproxy",
                100_000,
                Some(Reported { failed: 0, mean_ms: None, p99_ms: None, max_ms: Some(224) }),
            ),
            ArticleRow("transfer", "baton", 100_000, None),
            ArticleRow("reload", "baton", 100_000, None),
        ],
    },
    ArticleTable {
        name: "articles-10",
        heading: "200,000 and 1,000,000 requests of 10 users",
        source: "article: 10 users",
        note: "",
        users: 10,
        tls: false,
        rows: &[
            ArticleRow("legacy-reload", "haproxy", 200_000, failed(504)),
            ArticleRow(
                "syn-drop",
                "haproxy",
                10_000,
                Some(Reported { failed: 0, mean_ms: None, p99_ms: None, max_ms: Some(1002) }),
            ),
            ArticleRow(
                "syn-plug",
                "haproxy",
                1_000_000,
                Some(Reported { failed: 0, mean_ms: None, p99_ms: Some(8), max_ms: Some(29) }),
            ),
            ArticleRow("legacy-reload", "baton", 200_000, None),
            ArticleRow("reload", "baton", 1_000_000, None),
        ],
    },
];

/// The name of all tables, with what changes cost behind them.
const ALL: &str = "articles";
/// The experiment of what changes cost.
const COST: &str = "cost";

/// The rows of the tables of this name: one table, or `articles`, which is all of them and `cost`. `None` when there is no such name.
pub fn find(name: &str) -> Option<Vec<ArticleRun>> {
    let tables: Vec<&ArticleTable> = TABLES.iter().filter(|table| name == ALL || table.name == name).collect();
    let behind = (name == ALL).then(cost).into_iter().flatten();
    (!tables.is_empty()).then(|| tables.into_iter().flat_map(rows).chain(behind).collect())
}

/// Names and headings of the tables.
pub fn list() -> impl Iterator<Item = (&'static str, &'static str)> {
    TABLES.iter().map(|table| (table.name, table.heading))
}

/// What a change costs besides failed requests, on each of its servers.
fn cost() -> Vec<ArticleRun> {
    // The test asks for it.
    let experiment = built_in::find(COST).expect("it is built in");
    let run = |server: &Server| ArticleRun {
        table: experiment.title.clone(),
        experiment: experiment.clone(),
        server: server.name.clone(),
        figures: None,
    };
    experiment.servers.iter().map(run).collect()
}

fn rows(table: &'static ArticleTable) -> impl Iterator<Item = ArticleRun> {
    table.rows.iter().map(|ArticleRow(name, server, requests, reported)| {
        // The test reads every row.
        let mut experiment = built_in::find(name).expect("the tables name experiments that there are");
        experiment.load = format!("-c {} --same-length http://{{{{web}}}}/bytes/1000", table.users);
        experiment.requests = Some(*requests);
        if table.tls {
            // Of the title the table's heading tells it.
            let title = experiment.title.clone();
            experiment = experiment.over_tls().expect("servers and load of the tables are ours");
            experiment.title = title;
        }
        let us = |milliseconds: Option<u64>| milliseconds.map(|milliseconds| milliseconds * 1000);
        let figures = reported.map(|reported| Figures {
            source: table.source.into(),
            requests: *requests,
            failed: Some(reported.failed),
            mean_us: us(reported.mean_ms),
            p99_us: us(reported.p99_ms),
            max_us: us(reported.max_ms),
            note: table.note.into(),
        });
        ArticleRun { table: table.heading.to_owned(), experiment, server: (*server).to_owned(), figures }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_names_an_experiment_and_one_of_its_servers() {
        let all = find("articles").expect("the name of all");
        let (cost, tables): (Vec<ArticleRun>, Vec<ArticleRun>) =
            all.into_iter().partition(|run| run.experiment.name == COST);
        assert_eq!(tables.len(), list().map(|(name, _)| find(name).expect("its own name").len()).sum::<usize>());
        for run in tables {
            assert!(run.experiment.server(&run.server).is_some(), "{} on {}", run.experiment.name, run.server);
            assert!((run.server == "baton") == run.figures.is_none(), "{}", run.experiment.name);
        }
        let servers: Vec<&str> = cost.iter().map(|run| &*run.server).collect();
        assert!(["haproxy-ws", "nginx", "baton-reload"].iter().all(|server| servers.contains(server)), "{servers:?}");
        let is_over_tls = |run: &ArticleRun| run.experiment.load.contains("https://");
        assert!(find("articles-200").is_some_and(|rows| rows.iter().all(is_over_tls)), "as the article's");
        assert!(find("article").is_none());
    }
}
