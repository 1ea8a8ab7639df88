//! By two ipsets that change places: the rules of iptables, one for each instance, look into a set each, and the port that clients
//! dial is in one of the two sets. A swap is one message to the kernel, for IPv4 and IPv6 alike, and no rule is touched.

use baton_kernel::ipset::{Ipsets, PortSet, Refusal};

use super::method::{Kind, Method, Observed, Step};
use super::rules::{Rules, sends};
use super::{Colour, Name, Setting};
use crate::Fault;

/// What the names of our sets begin with; what they end with is the colour.
const PREFIX: &str = "baton-";
/// The name under which it is tried whether this kernel has such sets.
const TRIAL: &str = "trial-of-baton";

/// See the head of this module.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ipset;

const RULES: Rules = Rules { prefix: "SWAP-" };

fn set(name: &str, colour: Colour) -> String {
    format!("{PREFIX}{name}-{colour}")
}

fn rules(setting: &Setting, v4: bool, name: &str) -> Vec<String> {
    let rule = |colour| sends(setting, v4, colour, &format!("-m set --match-set {} dst ", set(name, colour)));
    Colour::BOTH.into_iter().filter_map(rule).collect()
}

fn fault(refusal: Refusal) -> Fault {
    let remedy = refusal.remedy().unwrap_or_default();
    Fault::new(refusal.what, refusal.fault.to_string(), remedy)
}

fn destroy(name: &str) -> Result<(), Fault> {
    let mut sets = Ipsets::open().map_err(fault)?;
    for colour in Colour::BOTH {
        let name = set(name, colour);
        if sets.list(&name).map_err(fault)?.iter().any(|found| found.name == name) {
            sets.destroy(&name).map_err(fault)?;
        }
    }
    Ok(())
}

fn create(name: &str, port: u16, active: Colour) -> Result<(), Fault> {
    let mut sets = Ipsets::open().map_err(fault)?;
    for colour in Colour::BOTH {
        sets.create(&set(name, colour), port).map_err(fault)?;
    }
    sets.add(&set(name, active), port).map_err(fault)
}

impl Method for Ipset {
    fn kind(&self) -> Kind {
        Kind::Ipset
    }

    fn check(&self, setting: &Setting) -> Result<(), Fault> {
        destroy(TRIAL)?;
        let tried = create(TRIAL, setting.listen.port, Colour::Blue)
            .and_then(|()| RULES.check(setting, |v4| rules(setting, v4, TRIAL)));
        tried.and(destroy(TRIAL))
    }

    fn observe(&self, setting: &Setting) -> Result<Observed, Fault> {
        let name = setting.name.as_str();
        let found = Ipsets::open().and_then(|mut sets| sets.list(&format!("{PREFIX}{name}-"))).map_err(fault)?;
        let is_there = |colour| found.iter().any(|one| one.name == set(name, colour));
        let is_in = |colour| found.contains(&PortSet { name: set(name, colour), ports: vec![setting.listen.port] });
        if !Colour::BOTH.into_iter().any(is_there) && !RULES.is_there(&setting.name)? {
            return Ok(Observed::Absent);
        }
        for v4 in setting.served() {
            if RULES.found(setting, v4)?.map(|rules| rules.len()) != Some(Colour::BOTH.len()) {
                return Ok(Observed::Broken("the rules of iptables are not all there".into()));
            }
        }
        Ok(match (is_in(Colour::Blue), is_in(Colour::Green)) {
            (true, false) => Observed::Active(Colour::Blue),
            (false, true) => Observed::Active(Colour::Green),
            (true, true) | (false, false) => Observed::Broken("the port is not in one of the two ipsets".into()),
        })
    }

    fn install(&self, setting: &Setting, active: Colour) -> Result<(), Fault> {
        let name = setting.name.as_str();
        self.remove(&setting.name)?;
        let made = create(name, setting.listen.port, active)
            .and_then(|()| RULES.install(setting, |v4| rules(setting, v4, name)));
        made.inspect_err(|_| {
            // The first fault is the one to tell.
            let _ = self.remove(&setting.name);
        })
    }

    fn switch(&self, setting: &Setting, _: Colour) -> Result<(), Fault> {
        let name = setting.name.as_str();
        let mut sets = Ipsets::open().map_err(fault)?;
        sets.swap(&set(name, Colour::Blue), &set(name, Colour::Green)).map_err(fault)
    }

    fn remove(&self, name: &Name) -> Result<(), Fault> {
        RULES.remove(name)?;
        destroy(name.as_str())
    }

    fn names(&self) -> Result<Vec<Name>, Fault> {
        let mut names = RULES.names().unwrap_or_default();
        let sets = Ipsets::open().and_then(|mut sets| sets.list(PREFIX)).map_err(fault)?;
        for found in sets {
            let ends = Colour::BOTH.map(|colour| format!("-{colour}"));
            let name =
                ends.iter().find_map(|end| found.name.strip_prefix(PREFIX)?.strip_suffix(end.as_str())?.parse().ok());
            names.extend(name.filter(|name| !names.contains(name)));
        }
        Ok(names)
    }

    fn plan(&self, setting: &Setting, step: Step) -> Vec<String> {
        let name = setting.name.as_str();
        let port = setting.listen.port;
        let [blue, green] = Colour::BOTH.map(|colour| set(name, colour));
        match step {
            Step::Install(active) => {
                let mut lines: Vec<String> =
                    [&blue, &green].map(|set| format!("ipset create {set} bitmap:port range {port}-{port}")).into();
                lines.push(format!("ipset add {} {port}", set(name, active)));
                lines.extend(RULES.plan_install(setting, |v4| rules(setting, v4, name)));
                lines
            }
            Step::Switch(_) => vec![format!("ipset swap {blue} {green}")],
            Step::Remove => {
                let mut lines = vec![RULES.plan_remove(setting)];
                lines.extend([blue, green].map(|set| format!("ipset destroy {set}")));
                lines
            }
        }
    }
}
