//! The experiments that come with the program: each is one file of the folder `built_in`.

use super::Experiment;

/// Their names and texts, in the order in which they are listed and run. To add one: a file, and its row here.
pub const ALL: &[(&str, &str)] = &[
    ("baseline", include_str!("built_in/baseline.toml")),
    ("hard-restart", include_str!("built_in/hard-restart.toml")),
    ("legacy-reload", include_str!("built_in/legacy-reload.toml")),
    ("syn-drop", include_str!("built_in/syn-drop.toml")),
    ("syn-plug", include_str!("built_in/syn-plug.toml")),
    ("migrate-requests", include_str!("built_in/migrate-requests.toml")),
    ("transfer", include_str!("built_in/transfer.toml")),
    ("master-worker", include_str!("built_in/master-worker.toml")),
    ("tableflip", include_str!("built_in/tableflip.toml")),
    ("ipset-swap", include_str!("built_in/ipset-swap.toml")),
    ("hold", include_str!("built_in/hold.toml")),
    ("flip", include_str!("built_in/flip.toml")),
    ("reload", include_str!("built_in/reload.toml")),
    ("refused-reload", include_str!("built_in/refused-reload.toml")),
    ("upgrade", include_str!("built_in/upgrade.toml")),
    ("worker-crash", include_str!("built_in/worker-crash.toml")),
    ("cost", include_str!("built_in/cost.toml")),
    ("direct", include_str!("built_in/direct.toml")),
];

/// The experiment of this name.
pub fn find(name: &str) -> Option<Experiment> {
    ALL.iter().find(|(known, _)| *known == name).map(|(name, text)| read(name, text))
}

/// All of them.
pub fn all() -> Vec<Experiment> {
    ALL.iter().map(|(name, text)| read(name, text)).collect()
}

fn read(name: &str, text: &str) -> Experiment {
    // A text of the program's own; the test below reads all of them.
    Experiment::parse(name, text).unwrap_or_else(|fault| panic!("the experiment {name}, {fault}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Expect;

    #[test]
    fn each_is_right_and_says_what_it_expects() {
        let all = all();
        assert_eq!(all.len(), ALL.len());
        for experiment in all {
            assert!(!experiment.about.is_empty(), "{}", experiment.name);
            for server in &experiment.servers {
                // Of what others do in their own ways nothing is promised here.
                let is_ours = server.name == "baton" && server.absent.is_none();
                assert!(!is_ours || server.expect != Expect::Anything, "{}", experiment.name);
            }
        }
    }
}
