//! What the two methods by iptables have in common: a chain of our own in the table `nat`, the words of its rules, and the guard in
//! the table `raw`.

use crate::Fault;
use crate::hold::target::Target;
use crate::iptables::{Chain, Change, Family, Iptables, Place};

use super::{Colour, Name, Setting};

/// Where connections are sent elsewhere, and where the guard stands.
const NAT: &str = "nat";
const RAW: &str = "raw";
/// The chains of the host from which ours is entered: connections from elsewhere, and from this machine.
const FROM: [&str; 2] = ["PREROUTING", "OUTPUT"];
/// What the guard drops.
const GUARDED: [&str; 2] = ["! -i lo -d 127.0.0.0/8 -j DROP", "! -i lo -s 127.0.0.0/8 -j DROP"];
/// The chain in which it is tried whether the rules are understood.
const TRIAL: &str = "trial";

/// The rules of a method: for a family and an instance, what else a connection must be, if this instance has a rule at the moment.
pub(super) struct Rules {
    /// What our chains are called, before the name of the flip.
    pub prefix: &'static str,
}

fn family(v4: bool) -> Family {
    if v4 { Family::Ipv4 } else { Family::Ipv6 }
}

/// The rule that sends connections to an instance, as it follows the name of its chain.
pub(super) fn sends(setting: &Setting, v4: bool, colour: Colour, also: &str) -> Option<String> {
    let place = setting.place_for(colour, v4)?;
    let dialled = match setting.listen.address {
        Some(address) => format!("-d {address}"),
        None => "-m addrtype --dst-type LOCAL".into(),
    };
    let port = setting.listen.port;
    Some(format!("-p tcp --syn --dport {port} {dialled} {also}{}", leads_to(&place)))
}

fn leads_to(place: &Target) -> String {
    match place.address {
        Some(_) => format!("-j DNAT --to-destination {place}"),
        None => format!("-j REDIRECT --to-ports {}", place.port),
    }
}

impl Rules {
    fn chain(&self, name: &str) -> Result<Chain, Fault> {
        Ok(Chain::new(&format!("{}{name}", self.prefix))?)
    }

    /// The changes that make our chain with these rules.
    fn changes(&self, name: &str, rules: &[String]) -> Result<Vec<Change>, Fault> {
        let chain = self.chain(name)?;
        let mut changes = vec![Change::Empty(chain.clone())];
        changes.extend(rules.iter().map(|rule| Change::Append(chain.clone(), rule.clone())));
        changes.extend(FROM.map(|from| Change::Hook {
            from,
            matching: "-p tcp".into(),
            to: chain.clone(),
            place: Place::First,
        }));
        Ok(changes)
    }

    fn guard(&self, name: &str) -> Result<Vec<Change>, Fault> {
        let chain = self.chain(name)?;
        let mut changes = vec![Change::Empty(chain.clone())];
        changes.extend(GUARDED.map(|rule| Change::Append(chain.clone(), rule.into())));
        changes.push(Change::Hook { from: FROM[0], matching: String::new(), to: chain, place: Place::First });
        Ok(changes)
    }

    /// Tries whether iptables understands such rules, in a chain that nobody enters.
    pub fn check(&self, setting: &Setting, rules: impl Fn(bool) -> Vec<String>) -> Result<(), Fault> {
        let chain = self.chain(TRIAL)?;
        for v4 in setting.served() {
            let mut changes = vec![Change::Empty(chain.clone())];
            changes.extend(rules(v4).into_iter().map(|rule| Change::Append(chain.clone(), rule)));
            changes.push(Change::Remove(chain.clone()));
            Iptables::find(family(v4))?.apply(NAT, &changes)?;
        }
        Ok(())
    }

    /// Makes the chains with these rules and the jumps to them; what is there of them is removed first.
    pub fn install(&self, setting: &Setting, rules: impl Fn(bool) -> Vec<String>) -> Result<(), Fault> {
        let name = setting.name.as_str();
        self.remove(&setting.name)?;
        let make = || {
            for v4 in setting.served() {
                let iptables = Iptables::find(family(v4))?;
                if v4 && setting.needs_localnet() {
                    iptables.apply(RAW, &self.guard(name)?)?;
                }
                iptables.apply(NAT, &self.changes(name, &rules(v4))?)?;
            }
            Ok(())
        };
        make().inspect_err(|_: &Fault| {
            // The first fault is the one to tell.
            let _ = self.remove(&setting.name);
        })
    }

    /// Removes our chains and the jumps to them.
    pub fn remove(&self, name: &Name) -> Result<(), Fault> {
        let chain = self.chain(name.as_str())?;
        for family in [Family::Ipv4, Family::Ipv6] {
            // Without the program, there is nothing of it.
            if let Ok(iptables) = Iptables::find(family) {
                iptables.remove(&chain)?;
            }
        }
        Ok(())
    }

    /// The names of flips that have a chain.
    pub fn names(&self) -> Result<Vec<Name>, Fault> {
        let mut names = Vec::new();
        for family in [Family::Ipv4, Family::Ipv6] {
            let Ok(iptables) = Iptables::find(family) else { continue };
            for chain in iptables.ours(self.prefix)? {
                let name = chain.name().rsplit_once(self.prefix).and_then(|(_, name)| name.parse().ok());
                names.extend(name.filter(|name| !names.contains(name)));
            }
        }
        Ok(names)
    }

    /// The rules of our chain, in their order, each as it follows the chain's name; `None` when it is not entered from both sides,
    /// or its guard is not there.
    pub fn found(&self, setting: &Setting, v4: bool) -> Result<Option<Vec<String>>, Fault> {
        let chain = self.chain(setting.name.as_str())?;
        let saved = Iptables::find(family(v4))?.save()?;
        let jump = format!("-j {}", chain.name());
        let jumps = |table| of_table(&saved, table).filter(|line| line.ends_with(&jump)).count();
        if jumps(NAT) != FROM.len() || (v4 && setting.needs_localnet() && jumps(RAW) != 1) {
            return Ok(None);
        }
        let own = format!("-A {} ", chain.name());
        Ok(Some(of_table(&saved, NAT).filter_map(|line| line.strip_prefix(&own)).map(str::to_owned).collect()))
    }

    /// Whether anything of a flip is there.
    pub fn is_there(&self, name: &Name) -> Result<bool, Fault> {
        Ok(self.names()?.contains(name))
    }

    /// Changes rules of our chain.
    pub fn change(&self, setting: &Setting, v4: bool, change: impl Fn(Chain) -> Change) -> Result<(), Fault> {
        let chain = self.chain(setting.name.as_str())?;
        Ok(Iptables::find(family(v4))?.apply(NAT, &[change(chain)])?)
    }

    /// As an operator would type it.
    pub fn plan_install(&self, setting: &Setting, rules: impl Fn(bool) -> Vec<String>) -> Vec<String> {
        let mut lines = Vec::new();
        for v4 in setting.served() {
            let program = if v4 { "iptables" } else { "ip6tables" };
            let mut add = |table: &str, changes: Result<Vec<Change>, Fault>| {
                for change in changes.unwrap_or_default() {
                    lines.push(match change {
                        Change::Empty(chain) => format!("{program} -t {table} -N {}", chain.name()),
                        other => format!("{program} -t {table} {other}"),
                    });
                }
            };
            if v4 && setting.needs_localnet() {
                add(RAW, self.guard(setting.name.as_str()));
            }
            add(NAT, self.changes(setting.name.as_str(), &rules(v4)));
        }
        lines
    }

    /// As an operator would type it.
    pub fn plan_change(&self, setting: &Setting, v4: bool, change: impl Fn(Chain) -> Change) -> Option<String> {
        let program = if v4 { "iptables" } else { "ip6tables" };
        Some(format!("{program} -t {NAT} {}", change(self.chain(setting.name.as_str()).ok()?)))
    }

    /// As a sentence.
    pub fn plan_remove(&self, setting: &Setting) -> String {
        format!("the chains BATON-{}{} of {NAT} and {RAW} and the jumps to them are removed", self.prefix, setting.name)
    }
}

/// To which instance a rule as `iptables-save` prints it leads.
pub(super) fn colour_of(setting: &Setting, v4: bool, rule: &str) -> Option<Colour> {
    Colour::BOTH
        .into_iter()
        .find(|colour| setting.place_for(*colour, v4).is_some_and(|place| rule.ends_with(&leads_to(&place))))
}

/// The lines of a table, of what `iptables-save` prints.
fn of_table<'a>(saved: &'a str, table: &str) -> impl Iterator<Item = &'a str> {
    let head = format!("*{table}");
    let lines = saved.lines().skip_while(move |line| line.trim_end() != head).skip(1);
    lines.take_while(|line| *line != "COMMIT")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_and_instances_are_told_apart() {
        let saved = "*raw\n-A X 1\nCOMMIT\n*nat\n-A Y 2\n-A Y 3\nCOMMIT\n*filter\n-A Z 4\nCOMMIT\n";
        assert_eq!(of_table(saved, "nat").collect::<Vec<_>>(), ["-A Y 2", "-A Y 3"]);
        assert_eq!(of_table(saved, "mangle").count(), 0);
        let target = |text: &str| vec![text.parse::<Target>().unwrap()];
        let name = "web".parse().unwrap();
        let setting = Setting::new(name, ":80".parse().unwrap(), target("127.0.0.1:800"), target(":8001")).ok();
        assert!(setting.is_none(), "blue is reached by IPv4 alone, green by both");
        let name = "web".parse().unwrap();
        let setting = Setting::new(name, "10.0.0.1:80".parse().unwrap(), target(":8000"), target(":8001")).unwrap();
        let colour = |rule| colour_of(&setting, true, rule);
        assert_eq!(colour("-d 10.0.0.1/32 -p tcp -j REDIRECT --to-ports 8000"), Some(Colour::Blue));
        assert_eq!(colour("-j REDIRECT --to-ports 8001"), Some(Colour::Green));
        assert_eq!(colour("-j REDIRECT --to-ports 18001"), None);
        let words = sends(&setting, true, Colour::Blue, "").unwrap();
        assert_eq!(words, "-p tcp --syn --dport 80 -d 10.0.0.1 -j REDIRECT --to-ports 8000");
    }
}
