//! What the two methods by iptables have in common: a chain of our own in the table `nat`, the words of its rules, and the guard in
//! the table `raw`.
//!
//! Nothing is changed here: what is to be changed comes out as [`KernelChange`]s, from what `iptables-save` prints at the moment.

use crate::KernelError;
use crate::hold::target::Target;
use crate::iptables::{Chain, Change, Family, Iptables, JumpPosition, PREFIX};

use super::act::KernelChange;
use super::{Colour, Name, Setting};

/// Where connections are sent elsewhere, and where the guard stands.
const NAT: &str = "nat";
const RAW: &str = "raw";
/// The chains of the host from which ours is entered: connections from elsewhere, and from this machine.
const FROM: [&str; 2] = ["PREROUTING", "OUTPUT"];
/// What may enter ours there.
const ENTERS: &str = "-p tcp";
/// What the guard drops, in the words and the order of `iptables-save`.
const GUARDED: [&str; 2] = ["-d 127.0.0.0/8 ! -i lo -j DROP", "-s 127.0.0.0/8 ! -i lo -j DROP"];
/// The chain in which it is tried whether the rules are understood. No flip has this name.
const TRIAL: &str = ".trial";

/// The rules of a method: for a family and an instance, what else a connection must be, if this instance has a rule at the moment.
pub(super) struct Rules {
    /// What our chains are called, before the name of the flip.
    pub prefix: &'static str,
}

/// Our chain in one table, as it is.
#[derive(Debug, PartialEq, Eq)]
struct OwnChain {
    is_there: bool,
    /// Its rules, each as it follows the chain's name.
    rules: Vec<String>,
    /// How often it is entered from each of the host's chains, as we would have it.
    jumps: Vec<(&'static str, usize)>,
}

impl OwnChain {
    fn of(saved: &str, table: &str, chain: &Chain) -> OwnChain {
        let (from, matching): (&[_], _) = if table == RAW { (&FROM[..1], "") } else { (&FROM, ENTERS) };
        let head = format!(":{} ", chain.name());
        let own = format!("-A {} ", chain.name());
        let count = |from: &'static str| {
            let space = if matching.is_empty() { "" } else { " " };
            let jump = format!("-A {from} {matching}{space}-j {}", chain.name());
            (from, of_table(saved, table).filter(|line| *line == jump).count())
        };
        OwnChain {
            is_there: of_table(saved, table).any(|line| line.starts_with(&head)),
            rules: of_table(saved, table).filter_map(|line| line.strip_prefix(&own)).map(str::to_owned).collect(),
            jumps: from.iter().copied().map(count).collect(),
        }
    }

    fn is_entered(&self) -> bool {
        self.is_there && self.jumps.iter().all(|(_, count)| *count == 1)
    }

    fn is_guard(&self) -> bool {
        self.is_entered() && self.rules == GUARDED
    }

    /// What makes the chain have these rules, entered once from each side; and what makes it as it is.
    fn fill(&self, table: &'static str, chain: &Chain, rules: &[String]) -> (Vec<Change>, Vec<Change>) {
        let matching = if table == RAW { "" } else { ENTERS };
        let hook =
            |from| Change::Hook { from, matching: matching.into(), to: chain.clone(), place: JumpPosition::First };
        let unhook = |from| Change::Unhook { from, matching: matching.into(), to: chain.clone() };
        let (mut changes, mut undo) = (filled(chain, rules), Vec::new());
        if self.is_there {
            undo = filled(chain, &self.rules);
        }
        for (from, count) in &self.jumps {
            if *count == 0 {
                changes.push(hook(from));
                undo.push(unhook(from));
            }
            for _ in 1..*count {
                changes.push(unhook(from));
                undo.push(hook(from));
            }
        }
        if !self.is_there {
            undo.push(Change::Remove(chain.clone()));
        }
        (changes, undo)
    }
}

/// The chain with these rules and no others.
fn filled(chain: &Chain, rules: &[String]) -> Vec<Change> {
    let rules = rules.iter().map(|rule| Change::Append(chain.clone(), rule.clone()));
    std::iter::once(Change::Empty(chain.clone())).chain(rules).collect()
}

fn act(
    iptables: &Iptables,
    table: &str,
    (changes, undo): (Vec<Change>, Vec<Change>),
) -> Result<KernelChange, KernelError> {
    Ok(KernelChange::Rules {
        iptables: iptables.clone(),
        table: table.to_owned(),
        script: Iptables::script(table, &changes)?,
        undo: Iptables::script(table, &undo)?,
    })
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
    fn chain(&self, name: &str) -> Result<Chain, KernelError> {
        Ok(Chain::new(&format!("{}{name}", self.prefix))?)
    }

    /// Tries whether iptables understands such rules, in a chain that nobody enters.
    pub fn check(&self, setting: &Setting, rules: impl Fn(bool) -> Vec<String>) -> Result<(), KernelError> {
        let chain = self.chain(TRIAL)?;
        for v4 in setting.served() {
            let mut changes = filled(&chain, &rules(v4));
            changes.push(Change::Remove(chain.clone()));
            Iptables::find(family(v4))?.apply(NAT, &changes)?;
        }
        Ok(())
    }

    /// Makes the guard, where it is not there as it should be.
    pub fn guard(&self, setting: &Setting) -> Result<Vec<KernelChange>, KernelError> {
        let chain = self.chain(setting.name.as_str())?;
        let iptables = Iptables::find(Family::Ipv4)?;
        let there = OwnChain::of(&iptables.save()?, RAW, &chain);
        let rules = GUARDED.map(str::to_owned);
        Ok(if there.is_guard() { Vec::new() } else { vec![act(&iptables, RAW, there.fill(RAW, &chain, &rules))?] })
    }

    /// Whether anything of the guard is there. What cannot be read has nothing of it, or is told by who changes it.
    pub fn has_guard(&self, name: &Name) -> Result<bool, KernelError> {
        let chain = self.chain(name.as_str())?;
        let saved = Iptables::find(Family::Ipv4).and_then(|iptables| iptables.save()).unwrap_or_default();
        let there = OwnChain::of(&saved, RAW, &chain);
        Ok(there.is_there || there.jumps.iter().any(|(_, count)| *count > 0))
    }

    /// Makes the chains have these rules, whatever they have now, each table at one moment. The guard stays as it is.
    pub fn install(
        &self,
        setting: &Setting,
        rules: impl Fn(bool) -> Vec<String>,
    ) -> Result<Vec<KernelChange>, KernelError> {
        let chain = self.chain(setting.name.as_str())?;
        let served = setting.served();
        let mut acts = Vec::new();
        for v4 in [true, false] {
            let is_served = served.contains(&v4);
            let (iptables, saved) = match Iptables::find(family(v4)).and_then(|found| Ok((found.save()?, found))) {
                Ok((saved, iptables)) => (iptables, saved),
                Err(error) if is_served => return Err(error.into()),
                // What cannot be had has nothing of it.
                Err(_) => continue,
            };
            let there = OwnChain::of(&saved, NAT, &chain);
            if is_served {
                acts.push(act(&iptables, NAT, there.fill(NAT, &chain, &rules(v4)))?);
            } else if there.is_there {
                let (mut gone, mut back) = (Vec::new(), filled(&chain, &there.rules));
                for (from, count) in &there.jumps {
                    let (matching, to) = (ENTERS.to_owned(), chain.clone());
                    let unhook = Change::Unhook { from, matching: matching.clone(), to: to.clone() };
                    gone.extend(std::iter::repeat_n(unhook, *count));
                    let hook = Change::Hook { from, matching, to, place: JumpPosition::First };
                    back.extend(std::iter::repeat_n(hook, *count));
                }
                gone.push(Change::Remove(chain.clone()));
                acts.push(act(&iptables, NAT, (gone, back))?);
            }
        }
        Ok(acts)
    }

    /// Other rules for chains that are there and entered, which have these `old` ones; without a moment between.
    pub fn refill(
        &self,
        setting: &Setting,
        old: impl Fn(bool) -> Vec<String>,
        new: impl Fn(bool) -> Vec<String>,
    ) -> Result<Vec<KernelChange>, KernelError> {
        let chain = self.chain(setting.name.as_str())?;
        let refill = |v4| {
            let changes = (filled(&chain, &new(v4)), filled(&chain, &old(v4)));
            act(&Iptables::find(family(v4))?, NAT, changes)
        };
        setting.served().into_iter().map(refill).collect()
    }

    /// Removes our chains and the jumps to them; the guard's alone, when no more is asked for.
    pub fn remove(&self, name: &Name, is_guard_alone: bool) -> Result<Vec<KernelChange>, KernelError> {
        let chain = self.chain(name.as_str())?;
        let mut acts = Vec::new();
        for family in [Family::Ipv4, Family::Ipv6] {
            // Without the program, there is nothing of it.
            let Ok(iptables) = Iptables::find(family) else { continue };
            for (table, script) in iptables.removal(&chain)? {
                if table == RAW || !is_guard_alone {
                    acts.push(KernelChange::Rules { iptables: iptables.clone(), table, script, undo: String::new() });
                }
            }
        }
        // What leads somewhere goes before what guards it.
        acts.sort_by_key(|act| matches!(act, KernelChange::Rules { table, .. } if table == RAW));
        Ok(acts)
    }

    /// The names of flips that have a chain.
    ///
    /// # Errors
    /// Without the right to look. Where the rules cannot be read for another reason, there are none.
    pub fn names(&self) -> Result<Vec<Name>, KernelError> {
        let prefix = format!("{PREFIX}{}", self.prefix);
        let mut names = Vec::new();
        for family in [Family::Ipv4, Family::Ipv6] {
            let chains = match Iptables::find(family).and_then(|iptables| iptables.ours(self.prefix)) {
                Err(error) if error.is_no_right() => return Err(error.into()),
                other => other.unwrap_or_default(),
            };
            for chain in chains {
                let name = chain.name().strip_prefix(&prefix).and_then(|name| name.parse().ok());
                names.extend(name.filter(|name| !names.contains(name)));
            }
        }
        Ok(names)
    }

    /// The rules of our chain, in their order, each as it follows the chain's name; `None` when it is not entered once from each
    /// side, or its guard is not there as it was made.
    pub fn found(&self, setting: &Setting, v4: bool) -> Result<Option<Vec<String>>, KernelError> {
        let chain = self.chain(setting.name.as_str())?;
        let saved = Iptables::find(family(v4))?.save()?;
        if v4 && setting.needs_localnet() && !OwnChain::of(&saved, RAW, &chain).is_guard() {
            return Ok(None);
        }
        let there = OwnChain::of(&saved, NAT, &chain);
        Ok(Some(there).filter(OwnChain::is_entered).map(|there| there.rules))
    }

    /// Whether our chain is there that leads somewhere, of one family at least.
    pub fn leads(&self, name: &Name) -> Result<bool, KernelError> {
        let chain = self.chain(name.as_str())?;
        let found = [Family::Ipv4, Family::Ipv6].map(Iptables::find).into_iter().flatten();
        // What cannot be read has nothing of it, or is told by who changes it.
        let mut saved = found.filter_map(|iptables| iptables.save().ok());
        Ok(saved.any(|saved| OwnChain::of(&saved, NAT, &chain).is_there))
    }

    /// Whether anything of a flip is there.
    pub fn is_there(&self, name: &Name) -> Result<bool, KernelError> {
        Ok(self.names()?.contains(name))
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
        let chain = Chain::new("FLIP-web").unwrap();
        let saved =
            "*nat\n:BATON-FLIP-web - [0:0]\n-A PREROUTING -p tcp -j BATON-FLIP-web\n-A BATON-FLIP-web X\nCOMMIT\n";
        let made = OwnChain::of(saved, NAT, &chain);
        assert_eq!((made.is_there, made.rules.len(), made.is_entered()), (true, 1, false), "not from OUTPUT");
        let (changes, undo) = made.fill(NAT, &chain, &["Y".into()]);
        let script = |changes: &[Change]| Iptables::script(NAT, changes).unwrap();
        let with = ":BATON-FLIP-web - [0:0]\n-A BATON-FLIP-web";
        assert_eq!(script(&changes), format!("*nat\n{with} Y\n-I OUTPUT -p tcp -j BATON-FLIP-web\nCOMMIT\n"));
        assert_eq!(script(&undo), format!("*nat\n{with} X\n-D OUTPUT -p tcp -j BATON-FLIP-web\nCOMMIT\n"));
        let words = sends(&setting, true, Colour::Blue, "").unwrap();
        assert_eq!(words, "-p tcp --syn --dport 80 -d 10.0.0.1 -j REDIRECT --to-ports 8000");
    }
}
