//! What a reload touches, from the text on: counted, and seen by which plans are new ones.

use baton_config::{FixedEnvironment, load};
use baton_proxy::BackendPlan;
use baton_rules::NoFiles;
use baton_tls::Connectors;

use super::*;

const FRONT: &str = "frontend web\n bind 127.0.0.1:80\n use_backend b if { path /b }\n default_backend a\n";
const A: &str = "backend a\n server s1 127.0.0.1:1\n server s2 127.0.0.1:2\n";
const B: &str = "backend b\n http-request deny if { path -f paths }\n server s1 127.0.0.1:3 weight 1\n";

struct Reloads {
    registry: Registry,
    used: Configuration,
    generation: Option<Arc<Generation>>,
}

impl Reloads {
    fn begin(text: &str) -> Reloads {
        let (used, registry) = (Configuration::default(), Registry::new(1, Instant::now()));
        let mut reloads = Reloads { registry, used, generation: None };
        reloads.reload(text, "/x");
        reloads
    }

    /// Puts a text in use; `paths` is the file of patterns. Which backends have their plans of before, and how many balancers were
    /// touched.
    fn reload(&mut self, text: &str, paths: &str) -> (Vec<Arc<str>>, usize) {
        let text = format!("defaults\n mode http\n timeout client 1s\n timeout server 1s\n timeout connect 1s\n{text}");
        let mut environment = FixedEnvironment::with_file("a.cfg", text);
        environment.files.insert("paths".into(), paths.into());
        let mut loaded = load(&Options::file("a.cfg"), &environment);
        loaded.rules.share(&self.used.rules);
        let mut model = loaded.model.unwrap_or_else(|| panic!("{:?}", loaded.diagnostics));
        model.share(&self.used.model);
        let configuration = Configuration { model: Arc::new(model), rules: Arc::new(loaded.rules) };
        // Nothing is read again: there are no files.
        let (files, now) = ((&NoFiles as &dyn Files, Connectors::default()), Instant::now());
        let asked = (configuration.model.clone(), &*configuration.rules);
        let before = self.generation.take();
        let new = Generation::prepare(before.as_deref(), asked, 1000, &self.registry, files, now).unwrap();
        let new = new.commit(before.as_deref(), &self.registry, now);
        let is_kept = |name: &&Arc<str>| new.has_same_backend(before.as_deref(), name);
        let mut kept: Vec<Arc<str>> = new.backends.keys().filter(is_kept).cloned().collect();
        kept.sort();
        let reconfigured = new.reconfigured;
        (self.used, self.generation) = (configuration, Some(new));
        (kept, reconfigured)
    }

    fn backend(&self, name: &str) -> Arc<BackendPlan> {
        self.generation.as_ref().unwrap().backends[name].clone()
    }
}

fn check(text: &str, paths: &str, kept: &[&str], reconfigured: usize) {
    let mut reloads = Reloads::begin(&[FRONT, A, B].concat());
    let (found, count) = reloads.reload(text, paths);
    let found: Vec<&str> = found.iter().map(|name| &**name).collect();
    assert_eq!((&*found, count), (kept, reconfigured), "{text}");
}

#[test]
fn a_reload_touches_the_backends_that_it_changes() {
    check(&[FRONT, A, B].concat(), "/x", &["a", "b"], 0);
    check(&[FRONT, A, &B.replace("weight 1", "weight 2")].concat(), "/x", &["a"], 1);
    check(&[FRONT, A, &B.replace("deny", "deny status 404")].concat(), "/x", &["a"], 1);
    check(&[FRONT, A, "backend c\n server s1 127.0.0.1:4\n", B].concat(), "/x", &["a"], 1);
    // Another number, and lines further down: requests see it, the balancer has nothing to learn.
    check(&[FRONT, "backend c\n server s1 127.0.0.1:4\n", A, B].concat(), "/x", &[], 1);
    check(&["# a remark\n", FRONT, A, B].concat(), "/x", &["a", "b"], 0);
}

#[test]
fn a_file_of_patterns_that_changed_makes_the_rules_that_use_it_new() {
    let text = [FRONT, A, B].concat();
    let mut reloads = Reloads::begin(&text);
    let before = (reloads.backend("a"), reloads.backend("b"));
    assert_eq!(reloads.reload(&text, "/y"), (vec!["a".into()], 0));
    let after = (reloads.backend("a"), reloads.backend("b"));
    assert!(Arc::ptr_eq(&before.0.rules, &after.0.rules) && !Arc::ptr_eq(&before.1.rules, &after.1.rules));
    assert!(Arc::ptr_eq(&before.1.proxy, &after.1.proxy), "its words are the same");
    assert_eq!(reloads.reload(&text, "/y"), (vec!["a".into(), "b".into()], 0));
}

#[test]
fn a_server_that_stays_is_the_same_one_in_a_backend_that_changes() {
    let mut reloads = Reloads::begin(&[FRONT, A, B].concat());
    let before = reloads.backend("a");
    reloads.reload(&[FRONT, &A.replace("127.0.0.1:2", "127.0.0.1:9"), B].concat(), "/x");
    let after = reloads.backend("a");
    let same: Vec<bool> =
        before.proxy.servers.iter().zip(&after.proxy.servers).map(|(a, b)| Arc::ptr_eq(a, b)).collect();
    assert_eq!(same, [true, false]);
    assert!(Arc::ptr_eq(&before.state, &after.state));
}
