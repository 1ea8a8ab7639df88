//! What a flip is about: an address that clients dial, and two instances of a server.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::FlipMethodKind;
use crate::hold::target::Target;

/// Bytes of a name at most: an ipset's has 31, and ours have words around it.
pub const NAME_MAX: usize = 16;
/// Addresses of one instance at most: one for each family.
const PLACES_MAX: usize = 2;

/// One of the two instances.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Colour {
    /// The first.
    Blue,
    /// The second.
    Green,
}

impl Colour {
    /// Both.
    pub const BOTH: [Colour; 2] = [Colour::Blue, Colour::Green];

    /// The one that this is not.
    #[must_use]
    pub fn other(self) -> Colour {
        match self {
            Colour::Blue => Colour::Green,
            Colour::Green => Colour::Blue,
        }
    }

    /// As an operator calls it.
    pub fn word(self) -> &'static str {
        match self {
            Colour::Blue => "blue",
            Colour::Green => "green",
        }
    }
}

impl fmt::Display for Colour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for Colour {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Colour::BOTH
            .into_iter()
            .find(|colour| colour.word() == text)
            .ok_or_else(|| format!("'{text}' is not a colour; expected blue or green"))
    }
}

/// The name of a flip: letters, digits, `-` and `_`, at most [`NAME_MAX`], so that it can be part of every kernel object's name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Name(String);

impl Name {
    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Name {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        match !text.is_empty() && text.len() <= NAME_MAX && text.bytes().all(fits) {
            true => Ok(Name(text.to_owned())),
            false => Err(format!("'{text}' is not a valid name: at most {NAME_MAX} letters, digits, '-' and '_'")),
        }
    }
}

impl TryFrom<String> for Name {
    type Error = String;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Name> for String {
    fn from(name: Name) -> String {
        name.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// How it is called.
    pub name: Name,
    /// What clients dial. Without an address: every address of this machine, and no other.
    pub listen: Target,
    /// Where the blue instance listens: one address, or one of each family; or a port alone, of every address.
    pub blue: Vec<Target>,
    /// Address of the green instance.
    pub green: Vec<Target>,
}

impl Setting {
    /// Checks that the three fit together.
    ///
    /// # Errors
    /// What does not fit, and what would.
    pub fn new(name: Name, listen: Target, blue: Vec<Target>, green: Vec<Target>) -> Result<Setting, String> {
        let setting = Setting { name, listen, blue, green };
        for place in [&setting.listen].into_iter().chain(&setting.blue).chain(&setting.green) {
            if place.address.is_some_and(is_of_many) {
                return Err(format!("{place}: this is a multicast or broadcast address"));
            }
        }
        for colour in Colour::BOTH {
            setting.check_instance(colour)?;
        }
        let families = |colour| [true, false].map(|v4| setting.place_for(colour, v4).is_some());
        if families(Colour::Blue) != families(Colour::Green) {
            return Err("blue and green must be reachable by the same kinds of addresses: IPv4, IPv6, or both; \
                        an instance may be given twice, as in --blue 127.0.0.1:8000 --blue '[::1]:8000'"
                .into());
        }
        if setting.served().is_empty() {
            let (own, wanted) = match listen.address {
                Some(IpAddr::V6(_)) => ("IPv6", "[::1]:8000"),
                Some(IpAddr::V4(_)) | None => ("IPv4", "127.0.0.1:8000"),
            };
            return Err(format!(
                "{listen} and the instances have different address families; let the instances listen on {own} too, as in \
                 --blue '{wanted}', or on every address, as in --blue :8000"
            ));
        }
        for blue in &setting.blue {
            if let Some(green) = setting.green.iter().find(|green| green.overlaps(blue)) {
                return Err(format!("blue ({blue}) and green ({green}) are the same address"));
            }
        }
        Ok(setting)
    }

    fn check_instance(&self, colour: Colour) -> Result<(), String> {
        let places = self.instance(colour);
        if places.is_empty() || places.len() > PLACES_MAX {
            return Err(format!("{colour} has {} addresses; expected one, or one of each family", places.len()));
        }
        if let [one, other] = places
            && (one.address.map(|address| address.is_ipv4()) == other.address.map(|address| address.is_ipv4())
                || one.address.is_none()
                || other.address.is_none())
        {
            return Err(format!("{colour} has two addresses, {one} and {other}, that are not IPv4 and IPv6"));
        }
        match places.iter().find(|place| place.overlaps(&self.listen)) {
            Some(place) => Err(format!(
                "{colour} ({place}) is the address that clients connect to ({}): the instances need their own ports or addresses",
                self.listen
            )),
            None => Ok(()),
        }
    }

    /// Where this instance listens.
    pub fn instance(&self, colour: Colour) -> &[Target] {
        match colour {
            Colour::Blue => &self.blue,
            Colour::Green => &self.green,
        }
    }

    /// Where this instance takes connections of IPv4 (or IPv6), if it does.
    pub fn place_for(&self, colour: Colour, v4: bool) -> Option<Target> {
        self.instance(colour).iter().copied().find(|place| place.address.is_none_or(|address| address.is_ipv4() == v4))
    }

    /// The families that clients can dial: `true` is IPv4, `false` IPv6.
    pub fn served(&self) -> Vec<bool> {
        [true, false]
            .into_iter()
            .filter(|v4| self.listen.address.is_none_or(|address| address.is_ipv4() == *v4))
            .filter(|v4| self.place_for(Colour::Blue, *v4).is_some())
            .collect()
    }

    /// Whether some connection is dialled that both would send elsewhere.
    pub fn hides(&self, other: &Setting) -> bool {
        self.listen.overlaps(&other.listen) && self.served().iter().any(|v4| other.served().contains(v4))
    }

    /// Where to knock to see whether this instance serves: on this machine's loopback, when it listens at every address.
    pub fn doors(&self, colour: Colour) -> Vec<SocketAddr> {
        let loopback = |v4| if v4 { IpAddr::V4(Ipv4Addr::LOCALHOST) } else { IpAddr::V6(Ipv6Addr::LOCALHOST) };
        let place = |v4| {
            let place = self.place_for(colour, v4)?;
            Some(SocketAddr::new(place.address.unwrap_or_else(|| loopback(v4)), place.port))
        };
        let mut doors: Vec<SocketAddr> = self.served().into_iter().filter_map(place).collect();
        // "Every address" says nothing about IPv6, which a machine may be without.
        if self.instance(colour).iter().any(|place| place.address.is_none()) {
            doors.truncate(1);
        }
        doors
    }

    /// Whether clients from elsewhere are to reach an instance that listens at the loopback alone (IPv4): the kernel
    /// refuses that unless it is told not to.
    pub fn needs_localnet(&self) -> bool {
        let from_elsewhere = self.listen.address.is_none_or(|address| !address.is_loopback());
        let is_loopback = |place: &Target| matches!(place.address, Some(IpAddr::V4(address)) if address.is_loopback());
        from_elsewhere && self.blue.iter().chain(&self.green).any(is_loopback)
    }

    /// What an operator should know of a setting that is right in itself.
    pub fn remarks(&self, kind: FlipMethodKind) -> Vec<String> {
        let mut remarks = Vec::new();
        if self.listen.address.is_none() && self.served() == [true] {
            remarks.push(format!("IPv4 only: IPv6 connections to {} are not changed", self.listen));
        }
        if self.listen.address.is_none() && self.served() == [false] {
            remarks.push(format!("IPv6 only: IPv4 connections to {} are not changed", self.listen));
        }
        let is_loopback = |place: &Target| matches!(place.address, Some(IpAddr::V6(address)) if address.is_loopback());
        if kind.translates()
            && self.listen.address.is_none_or(|address| !address.is_loopback())
            && self.blue.iter().chain(&self.green).any(is_loopback)
        {
            remarks.push(
                "remote connections cannot reach ::1: with IPv6 only local clients are served; let the instances listen on \
                 every address, or on one outside the loopback"
                    .into(),
            );
        }
        remarks
    }
}

/// Whether this address is not one machine's: multicast, or the broadcast of every network.
fn is_of_many(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(four) => four.is_multicast() || four.is_broadcast(),
        IpAddr::V6(six) => six.is_multicast(),
    }
}

/// Reads an address of a flip, as an operator writes it.
///
/// # Errors
/// What is wrong, and what would be right. Among it is `0.0.0.0:80`: a flip has no word for every address of one family.
pub fn place(text: &str) -> Result<Target, String> {
    let host = text.rsplit_once(':').map_or(text, |(host, _)| host);
    let inside = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    if inside.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_unspecified()) {
        let port = &text[host.len()..];
        return Err(format!(
            "'{text}': write {port} for every address; the address families are those on which both instances listen"
        ));
    }
    text.parse()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setting(listen: &str, blue: &[&str], green: &[&str]) -> Result<Setting, String> {
        let targets = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
        Setting::new("web".parse().unwrap(), listen.parse().unwrap(), targets(blue), targets(green))
    }

    #[test]
    fn a_setting_that_cannot_work_is_refused_with_what_would() {
        for (listen, blue, green, expected) in [
            (":80", &[":80"][..], &[":8001"][..], "blue (:80) is the address that clients connect to"),
            (":80", &[":8000"], &[":8000"], "the same address"),
            (":80", &["127.0.0.1:8000"], &["[::1]:8001"], "same kinds of addresses"),
            (":80", &["127.0.0.1:8000", "127.0.0.2:8000"], &[":8001"], "not IPv4 and IPv6"),
            (
                "10.0.0.1:80",
                &["[::1]:8000"],
                &["[::1]:8001"],
                "different address families; let the instances listen on IPv4",
            ),
            (":80", &[], &[":8001"], "blue has 0 addresses"),
            ("224.0.0.1:80", &[":8000"], &[":8001"], "a multicast or broadcast address"),
            (":80", &["255.255.255.255:8000"], &["127.0.0.1:8001"], "a multicast or broadcast address"),
            ("[ff02::1]:80", &[":8000"], &[":8001"], "a multicast or broadcast address"),
        ] {
            let said = setting(listen, blue, green).unwrap_err();
            assert!(said.contains(expected), "{said}");
        }
        assert!(setting(":80", &["10.0.0.1:80"], &["127.0.0.1:8001"]).is_err());
        assert!(setting("10.0.0.1:80", &["127.0.0.1:80"], &["127.0.0.1:8001"]).is_ok());
    }

    #[test]
    fn families_follow_from_addresses() {
        let both = setting(":80", &["127.0.0.1:8000", "[::1]:8000"], &[":8001"]).unwrap();
        assert_eq!(both.served(), [true, false]);
        assert_eq!(both.doors(Colour::Blue), ["127.0.0.1:8000".parse().unwrap(), "[::1]:8000".parse().unwrap()]);
        assert_eq!(both.doors(Colour::Green), ["127.0.0.1:8001".parse().unwrap()]);
        assert!(both.needs_localnet());
        assert!(both.remarks(FlipMethodKind::Nft)[0].contains("::1"), "{:?}", both.remarks(FlipMethodKind::Nft));
        assert!(both.remarks(FlipMethodKind::SkLookup).is_empty(), "to which it does not matter");
        let one = setting(":80", &["10.0.0.1:8000"], &["10.0.0.1:8001"]).unwrap();
        assert_eq!(one.served(), [true]);
        assert!(!one.needs_localnet());
        assert!(one.remarks(FlipMethodKind::Nft)[0].contains("IPv4 only"));
        assert!(!setting("127.0.0.1:80", &["127.0.0.1:8000"], &["127.0.0.1:8001"]).unwrap().needs_localnet());
    }

    #[test]
    fn every_address_is_written_in_one_way() {
        assert_eq!(place(":80"), ":80".parse());
        assert_eq!(place("[::1]:80"), "[::1]:80".parse());
        for text in ["0.0.0.0:80", "[::]:80", "[::ffff:0.0.0.0]:80"] {
            assert!(place(text).unwrap_err().contains("write :80 for every address"), "{text}");
        }
        assert!(place("80").is_err());
    }

    #[test]
    fn flips_that_would_hide_each_other_are_told() {
        let check = |one: (&str, &str), other: (&str, &str), expect: bool| {
            let [one, other] = [one, other]
                .map(|(listen, at)| setting(listen, &[&format!("{at}:8000")], &[&format!("{at}:8001")]).unwrap());
            assert_eq!((one.hides(&other), other.hides(&one)), (expect, expect), "{} {}", one.listen, other.listen);
        };
        check((":80", ""), ("10.0.0.1:80", ""), true);
        check((":80", ""), (":81", ""), false);
        check(("10.0.0.1:80", ""), ("10.0.0.2:80", ""), false);
        check((":80", "127.0.0.1"), ("[2001:db8::1]:80", ""), false);
        check((":80", "127.0.0.1"), (":80", "[::1]"), false);
    }

    #[test]
    fn names_fit_every_object() {
        assert!("web-1_B".parse::<Name>().is_ok());
        for wrong in ["", "a b", "a.b", "seventeen-letters", "ä"] {
            assert!(wrong.parse::<Name>().is_err(), "{wrong}");
        }
        let read: Setting = serde_json::from_str(
            r#"{"name":"web","listen":":80","blue":["127.0.0.1:8000"],"green":["127.0.0.1:8001"]}"#,
        )
        .unwrap();
        assert_eq!(read, setting(":80", &["127.0.0.1:8000"], &["127.0.0.1:8001"]).unwrap());
    }
}
