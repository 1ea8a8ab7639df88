//! The compiled rules of a whole configuration, and by what a reload knows those that stay as they are.

use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::net::Ipv4Addr;
use std::sync::{Arc, LazyLock};

use baton_model::{HttpErrors, Proxy, Role, StickTable, UserList};

use crate::acl::Acl;
use crate::outside::{BufferLimits, Files, KnownAcls, NameReference};
use crate::process_line::VariableLine;
use crate::reference::References;
use crate::rules::{ProxyRules, has_rules};

/// Proxies between two pauses: about 0.1 ms of work.
const PROXIES_PER_PAUSE: usize = 32;

/// Compiled rules by proxy.
#[derive(Clone, Debug, Default)]
pub struct CompiledRules {
    proxies: HashMap<(Role, Arc<str>), Arc<ProxyRules>>,
    references: Arc<References>,
    variables: Vec<VariableLine>,
    /// Rules may set variables of the process.
    sets_variables: bool,
}

impl CompiledRules {
    /// Adds those of a proxy.
    pub fn insert(&mut self, proxy: &Proxy, rules: ProxyRules) {
        self.sets_variables |= names_variables(proxy);
        self.proxies.insert((proxy.role, proxy.name.clone()), Arc::new(rules));
    }

    /// Whether rules may set variables of the process.
    pub fn sets_variables(&self) -> bool {
        self.sets_variables
    }

    /// Adds a line that sets a variable of the process.
    pub fn set_variable(&mut self, line: VariableLine) {
        self.variables.push(line);
    }

    /// The lines that set variables of the process, in their order.
    pub fn variables(&self) -> &[VariableLine] {
        &self.variables
    }

    /// Those of a proxy; the same empty ones for every proxy without rules. `None`: they were not compiled.
    pub fn of(&self, proxy: &Proxy) -> Option<Arc<ProxyRules>> {
        static NONE: LazyLock<Arc<ProxyRules>> = LazyLock::new(Arc::default);
        if !has_rules(proxy) {
            return Some(Arc::clone(&NONE));
        }
        self.proxies.get(&(proxy.role, proxy.name.clone())).cloned()
    }

    /// The pattern references of all of them: rules are compiled with them ([`Files::pattern_references`]).
    pub fn references(&self) -> &Arc<References> {
        &self.references
    }

    /// Takes over rules in use that were compiled from the same words and the same outside, and the contents of pattern references.
    ///
    /// `pause` is called after every 32 proxies: a thread that works in the background may yield its CPU there.
    pub fn share(&mut self, used: &CompiledRules, mut pause: impl FnMut()) {
        self.references.settle(Some(&used.references), &mut pause);
        for (count, (proxy, rules)) in self.proxies.iter_mut().enumerate() {
            if count % PROXIES_PER_PAUSE == PROXIES_PER_PAUSE - 1 {
                pause();
            }
            if let Some(before) = used.proxies.get(proxy)
                && before.compiled_from == rules.compiled_from
            {
                *rules = Arc::clone(before);
            }
        }
    }
}

/// Whether a rule names a variable of the process.
fn names_variables(proxy: &Proxy) -> bool {
    let is_named = |text: &str| memchr::memmem::find(text.as_bytes(), b"proc.").is_some();
    let rules = proxy.rules.values().flatten().flat_map(|rule| &rule.words);
    rules.map(String::as_str).any(is_named) || proxy.balance.algorithm.expression().is_some_and(|text| is_named(&text))
}

/// The outside, and a digest of what was read from it and of the words that are compiled.
pub(crate) struct Recorder<'a> {
    files: &'a dyn Files,
    digest: RefCell<DefaultHasher>,
    users: RefCell<Vec<Arc<UserList>>>,
    proxy: (&'a str, Role),
    references: RefCell<Vec<NameReference>>,
    /// Of a proxy that is compiled by itself.
    own: References,
    acls: RefCell<KnownAcls>,
}

impl<'a> Recorder<'a> {
    /// Begins with the words of a proxy.
    pub(crate) fn new(proxy: &'a Proxy, files: &'a dyn Files) -> Recorder<'a> {
        let mut digest = DefaultHasher::new();
        for (set, rules) in &proxy.rules {
            (set, rules.len()).hash(&mut digest);
            rules.iter().for_each(|rule| rule.words.hash(&mut digest));
        }
        if let Some(text) = proxy.balance.algorithm.expression() {
            text.hash(&mut digest);
        }
        let (digest, proxy) = (RefCell::new(digest), (&*proxy.name, proxy.role));
        Recorder {
            files,
            digest,
            users: RefCell::default(),
            proxy,
            references: RefCell::default(),
            own: References::default(),
            acls: RefCell::default(),
        }
    }

    /// Expressions may ask for these ACLs from now on.
    pub(crate) fn know_acls(&self, acls: &Arc<Vec<Acl>>) {
        *self.acls.borrow_mut() = KnownAcls(Arc::clone(acls));
    }

    /// The proxies and servers that were named since this was asked last.
    pub(crate) fn references(&self) -> Vec<NameReference> {
        self.references.take()
    }

    /// Joins the patterns of a proxy that is compiled by itself with their contents.
    pub(crate) fn settle_own(&self) {
        self.own.settle(None, || {});
    }

    /// The digest of all until now.
    pub(crate) fn digest(&self) -> u64 {
        self.digest.borrow().finish()
    }

    /// The lists of users that were asked for, each once, if they have hashes of passwords.
    pub(crate) fn hashed_users(&self) -> Vec<Arc<UserList>> {
        self.users.take()
    }

    fn note(&self, what: impl Hash) {
        what.hash(&mut *self.digest.borrow_mut());
    }
}

impl Files for Recorder<'_> {
    fn read(&self, path: &str) -> io::Result<Vec<u8>> {
        let content = self.files.read(path);
        self.note((path, content.as_ref().ok()));
        content
    }

    fn read_patterns(&self, path: &str) -> io::Result<Vec<u8>> {
        // Rules stay as they are when it changes.
        self.files.read_patterns(path)
    }

    fn pattern_references(&self) -> Option<&References> {
        Some(self.files.pattern_references().unwrap_or(&self.own))
    }

    fn environment(&self, name: &str) -> Option<String> {
        let value = self.files.environment(name);
        self.note((name, &value));
        value
    }

    fn resolve(&self, host: &str) -> Option<Ipv4Addr> {
        let address = self.files.resolve(host);
        self.note((host, &address));
        address
    }

    fn users(&self, list: &str) -> Option<Arc<UserList>> {
        let users = self.files.users(list);
        self.note((list, &users));
        if let Some(users) = users.as_ref().filter(|users| users.has_hashes()) {
            let mut known = self.users.borrow_mut();
            if !known.contains(users) {
                known.push(Arc::clone(users));
            }
        }
        users
    }

    fn http_errors(&self, section: &str) -> Option<Arc<HttpErrors>> {
        let errors = self.files.http_errors(section);
        self.note((section, &errors));
        errors
    }

    fn table(&self, name: &str) -> Option<Arc<StickTable>> {
        let table = self.files.table(name);
        // Its contents and its other settings are looked up when rules are evaluated.
        self.note((name, table.as_ref().map(|table| table.key)));
        table
    }

    fn acls(&self) -> KnownAcls {
        self.acls.borrow().clone()
    }

    fn stick_counters(&self) -> u8 {
        self.files.stick_counters()
    }

    fn buffer(&self) -> BufferLimits {
        self.files.buffer()
    }

    fn within(&self) -> Option<(&str, Role)> {
        Some(self.proxy)
    }

    fn refers(&self, reference: NameReference) {
        self.references.borrow_mut().push(reference);
    }

    fn hostname(&self) -> String {
        let name = self.files.hostname();
        self.note(&name);
        name
    }
}

#[cfg(test)]
mod tests {
    use baton_model::{Rule, Ruleset, Source};

    use super::*;
    use crate::compile;

    struct OneFile(&'static str);

    impl Files for OneFile {
        fn read(&self, _: &str) -> io::Result<Vec<u8>> {
            Ok(self.0.into())
        }

        fn environment(&self, _: &str) -> Option<String> {
            Some(self.0.into())
        }
    }

    /// Whether a proxy with this rule keeps its rules when it is read again.
    fn check(before: (&str, &'static str), after: (&str, &'static str), expect: bool) {
        let compiled = |(words, content): (&str, &'static str)| {
            let mut proxy = Proxy::new("web", Role::Frontend);
            let words = words.split(' ').map(str::to_owned).collect();
            let rule = Rule { ruleset: Ruleset::HttpRequest, words, source: Source::default() };
            proxy.rules.insert(Ruleset::HttpRequest, vec![rule]);
            let mut all = CompiledRules::default();
            all.insert(&proxy, compile(&proxy, &OneFile(content)).expect("it is well"));
            (proxy, all)
        };
        let ((_, used), (proxy, mut new)) = (compiled(before), compiled(after));
        new.share(&used, || {});
        let is_same = Arc::ptr_eq(&used.of(&proxy).unwrap(), &new.of(&proxy).unwrap());
        assert_eq!(is_same, expect, "{before:?} {after:?}");
    }

    #[test]
    fn rules_stay_as_long_as_words_and_what_they_read_are_the_same() {
        let (plain, patterns) = ("deny if { path /a }", "deny if { path -f paths }");
        check((plain, ""), (plain, "another file"), true);
        check((plain, ""), ("deny if { path /b }", ""), false);
        check((patterns, "/a"), (patterns, "/a"), true);
        check((patterns, "/a"), (patterns, "/b"), true);
        let variable = "set-header x %[env(X)]";
        check((variable, "1"), (variable, "1"), true);
        check((variable, "1"), (variable, "2"), false);
    }

    #[test]
    fn proxies_without_rules_share_none() {
        let (one, other) = (Proxy::new("a", Role::Backend), Proxy::new("b", Role::Frontend));
        let none = CompiledRules::default();
        assert!(Arc::ptr_eq(&none.of(&one).unwrap(), &none.of(&other).unwrap()));
    }
}
