//! A `server` line that says what operators set at run time: each override as the words that a file has for it.

use std::fmt;
use std::sync::Arc;

use baton_model::{AdminState, Setting};

use crate::dynamic_server::quoted;
use crate::keywords::server;
use crate::syntax::Line;

/// What stands behind a server's name, word by word, the address first.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ServerLine {
    words: Vec<String>,
}

impl ServerLine {
    /// The words of a line as it is written. Text that cannot be read as words is one word.
    pub fn read(text: &str) -> ServerLine {
        let words = match Line::cut(Arc::default(), text.to_owned()) {
            Ok(line) => (0..line.words.len()).map(|at| line.word(at).to_owned()).collect(),
            Err(_) => vec![text.to_owned()],
        };
        ServerLine { words }
    }

    /// Whether a keyword stands in it.
    pub fn has(&self, keyword: &str) -> bool {
        self.clone().take(keyword).is_some()
    }

    /// The line with what a setting says. False: the file says it by having no such line.
    pub fn set(&mut self, setting: &Setting) -> bool {
        match setting {
            Setting::State(state) => self.set_state(*state),
            Setting::Weight(weight) => self.put("weight", &[&weight.to_string()]),
            Setting::Line(Some(text)) => *self = ServerLine::read(text),
            Setting::Line(None) => return false,
            Setting::Health(true) => self.switch("check", "no-check"),
            Setting::Health(false) => self.switch("no-check", "check"),
            Setting::Maxconn(limit) => self.put("maxconn", &[&limit.to_string()]),
            Setting::Address(address) => {
                if let (Some(word), Some(address)) = (self.words.first_mut(), address) {
                    address.as_ref().clone_into(word);
                }
            }
            Setting::Fqdn(name) => {
                if let (Some(word), Some(name)) = (self.words.first_mut(), name) {
                    let port = word.rsplit_once(':').map_or(String::new(), |(_, port)| format!(":{port}"));
                    *word = format!("{name}{port}");
                }
            }
            Setting::CheckAddress(Some(address)) => self.put("addr", &[&address.to_string()]),
            Setting::CheckAddress(None) => _ = self.take("addr"),
            Setting::CheckPort(Some(port)) => self.put("port", &[&port.to_string()]),
            Setting::CheckPort(None) => _ = self.take("port"),
            Setting::Agent(true) => self.switch("agent-check", "no-agent-check"),
            Setting::Agent(false) => self.switch("no-agent-check", "agent-check"),
            Setting::AgentAddress(Some(address)) => self.put("agent-addr", &[&address.to_string()]),
            Setting::AgentAddress(None) => _ = self.take("agent-addr"),
            Setting::AgentPort(Some(port)) => self.put("agent-port", &[&port.to_string()]),
            Setting::AgentPort(None) => _ = self.take("agent-port"),
            Setting::AgentSend(text) if text.is_empty() => _ = self.take("agent-send"),
            Setting::AgentSend(text) => self.put("agent-send", &[text]),
            Setting::Tls(true) => self.switch("ssl", "no-ssl"),
            Setting::Tls(false) => self.switch("no-ssl", "ssl"),
            // No server has these.
            Setting::ConnectionRate(_) | Setting::SessionRate(_) | Setting::TlsRate(_) | Setting::Service(_) => {}
        }
        true
    }

    /// No word of the file drains a server, but one without weight gets what a draining one does: persistent clients alone.
    fn set_state(&mut self, state: AdminState) {
        match state.maintenance {
            true => self.switch("disabled", "enabled"),
            false => self.switch("enabled", "disabled"),
        }
        if state.drain {
            self.put("weight", &["0"]);
        }
    }

    /// Puts one of two opposite words into the line; one that undoes what the line does not say is needed for `default-server`.
    fn switch(&mut self, word: &str, opposite: &str) {
        self.take(opposite);
        self.put(word, &[]);
    }

    /// Puts a keyword with its arguments in the place where it stands, else at the end.
    fn put(&mut self, keyword: &str, arguments: &[&str]) {
        let at = self.take(keyword).unwrap_or(self.words.len());
        let words = std::iter::once(keyword).chain(arguments.iter().copied()).map(str::to_owned);
        self.words.splice(at..at, words);
    }

    /// Takes a keyword out with its arguments, wherever it stands; gives the first place where it stood.
    fn take(&mut self, keyword: &str) -> Option<usize> {
        let (mut first, mut at) = (None, 1);
        while at < self.words.len() {
            let next = (at + 1 + server::arguments(&self.words[at])).min(self.words.len());
            if self.words[at] == keyword {
                self.words.drain(at..next);
                first = first.or(Some(at));
            } else {
                at = next;
            }
        }
        first
    }
}

impl fmt::Display for ServerLine {
    /// As it is written in a file.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&quoted(self.words.iter().map(String::as_str)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, settings: &[Setting], expect: &str) {
        let mut line = ServerLine::read(line);
        settings.iter().for_each(|setting| assert!(line.set(setting)));
        assert_eq!(line.to_string(), expect);
    }

    fn state(maintenance: bool, drain: bool) -> Setting {
        Setting::State(AdminState { maintenance, drain })
    }

    #[test]
    fn an_override_becomes_the_words_of_a_line() {
        check("10.0.0.1:80 weight 3 check", &[Setting::Weight(7)], "10.0.0.1:80 weight 7 check");
        check("10.0.0.1:80 check", &[Setting::Weight(7)], "10.0.0.1:80 check weight 7");
        check("10.0.0.1:80", &[state(true, false)], "10.0.0.1:80 disabled");
        check("10.0.0.1:80 disabled check", &[state(false, false)], "10.0.0.1:80 check enabled");
        check("10.0.0.1:80 weight 5", &[Setting::Weight(7), state(false, true)], "10.0.0.1:80 weight 0 enabled");
        check("10.0.0.1:80 check", &[Setting::Health(false)], "10.0.0.1:80 no-check");
        check("10.0.0.1:80", &[Setting::Line(Some("10.0.0.2:80 maxconn 4".into()))], "10.0.0.2:80 maxconn 4");
        check("10.0.0.1:80 maxconn 4 check", &[Setting::Maxconn(7)], "10.0.0.1:80 maxconn 7 check");
        let moved = [Setting::Address(Some("[::1]:81".into())), Setting::CheckAddress(Some([10, 0, 0, 9].into()))];
        check("name:80 check addr 10.0.0.8 port 1", &moved, "[::1]:81 check addr 10.0.0.9 port 1");
        check("a.test:80 check", &[Setting::Fqdn(Some("b.test".into()))], "b.test:80 check");
        check("a.test", &[Setting::Fqdn(Some("b.test".into())), Setting::Fqdn(None)], "b.test");
        check("[::1]:80", &[Setting::Fqdn(Some("b.test".into()))], "b.test:80");
        let unset = [Setting::CheckAddress(None), Setting::CheckPort(None)];
        check("10.0.0.1:80 check addr 10.0.0.8 port 1", &unset, "10.0.0.1:80 check");
        check("10.0.0.1:80 check", &[Setting::CheckPort(Some(81))], "10.0.0.1:80 check port 81");
        let agent = [Setting::Agent(false), Setting::AgentSend("a\n".into()), Setting::AgentPort(Some(9))];
        check(
            "10.0.0.1:80 agent-check agent-port 8",
            &agent,
            "10.0.0.1:80 agent-port 9 no-agent-check agent-send a\\n",
        );
        assert!(!ServerLine::default().set(&Setting::Line(None)));
    }

    #[test]
    fn an_argument_is_no_keyword_and_words_are_quoted() {
        check("10.0.0.1:80 cookie weight", &[Setting::Weight(7)], "10.0.0.1:80 cookie weight weight 7");
        check("10.0.0.1:80 cookie 'a b' weight 1 weight 2", &[Setting::Weight(7)], "10.0.0.1:80 cookie 'a b' weight 7");
    }
}
