//! Failures on purpose: what there is, and which request gets one.
//!
//! No I/O. Nothing here is left to chance: the same requests in the same order get the same failures, so that who counts
//! them at the other end can be held to it.

use std::{fmt, str::FromStr};

/// A failure on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum InjectedFault {
    /// The connection is reset instead of an answer.
    Reset,
    /// The connection is closed in order instead of an answer.
    Close,
    /// Half of the answer's head, then a close in order.
    HalfHead,
    /// The head and half of the body, then a close in order.
    HalfBody,
    /// The head and half of the body, then a reset.
    ResetBody,
    /// No answer at all; the connection stays open until the client closes.
    Silence,
    /// The head and half of the body, then silence.
    Stall,
    /// The whole answer, a byte every [`DRIP_EVERY`].
    Drip,
    /// A whole answer whose body is a byte shorter than asked for, with the length that it has.
    WrongLength,
    /// A whole answer with one wrong byte in the middle of its body.
    WrongBody,
    /// The right answer under status 500.
    WrongStatus,
    /// A byte more than the head says.
    TooLong,
    /// A line that is not HTTP, then a close.
    Malformed,
    /// The right answer, then a close that was not announced.
    CloseAfter,
    /// The right answer, then a reset of the idle connection.
    ResetAfter,
}

/// The time from one byte of [`InjectedFault::Drip`] to the next.
pub const DRIP_EVERY: std::time::Duration = std::time::Duration::from_millis(10);

impl InjectedFault {
    /// All of them, in the order in which lists print them.
    pub const ALL: [InjectedFault; 15] = [
        InjectedFault::Reset,
        InjectedFault::Close,
        InjectedFault::HalfHead,
        InjectedFault::HalfBody,
        InjectedFault::ResetBody,
        InjectedFault::Silence,
        InjectedFault::Stall,
        InjectedFault::Drip,
        InjectedFault::WrongLength,
        InjectedFault::WrongBody,
        InjectedFault::WrongStatus,
        InjectedFault::TooLong,
        InjectedFault::Malformed,
        InjectedFault::CloseAfter,
        InjectedFault::ResetAfter,
    ];

    /// The name in paths, options and JSON.
    pub fn name(self) -> &'static str {
        match self {
            InjectedFault::Reset => "reset",
            InjectedFault::Close => "close",
            InjectedFault::HalfHead => "half-head",
            InjectedFault::HalfBody => "half-body",
            InjectedFault::ResetBody => "reset-body",
            InjectedFault::Silence => "silence",
            InjectedFault::Stall => "stall",
            InjectedFault::Drip => "drip",
            InjectedFault::WrongLength => "wrong-length",
            InjectedFault::WrongBody => "wrong-body",
            InjectedFault::WrongStatus => "wrong-status",
            InjectedFault::TooLong => "too-long",
            InjectedFault::Malformed => "malformed",
            InjectedFault::CloseAfter => "close-after",
            InjectedFault::ResetAfter => "reset-after",
        }
    }

    /// The failure's place in [`InjectedFault::ALL`].
    pub(super) fn index(self) -> usize {
        self as usize
    }

    /// Whether an answer without a body can fail like this.
    pub(super) fn needs_body(self) -> bool {
        match self {
            InjectedFault::HalfBody
            | InjectedFault::ResetBody
            | InjectedFault::Stall
            | InjectedFault::WrongLength
            | InjectedFault::WrongBody => true,
            InjectedFault::Reset
            | InjectedFault::Close
            | InjectedFault::HalfHead
            | InjectedFault::Silence
            | InjectedFault::Drip
            | InjectedFault::WrongStatus
            | InjectedFault::TooLong
            | InjectedFault::Malformed
            | InjectedFault::CloseAfter
            | InjectedFault::ResetAfter => false,
        }
    }

    /// Whether nothing of the right answer is sent.
    pub(super) fn is_instead(self) -> bool {
        matches!(self, InjectedFault::Reset | InjectedFault::Close | InjectedFault::Silence | InjectedFault::Malformed)
    }
}

impl fmt::Display for InjectedFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for InjectedFault {
    type Err = String;

    fn from_str(text: &str) -> Result<InjectedFault, String> {
        InjectedFault::ALL.into_iter().find(|fault| fault.name() == text).ok_or_else(|| {
            let names: Vec<&str> = InjectedFault::ALL.into_iter().map(InjectedFault::name).collect();
            format!("unknown failure '{text}'; expected {}", names.join(", "))
        })
    }
}

/// A failure that one in so many requests gets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FaultRate {
    /// Which.
    pub fault: InjectedFault,
    /// The part of all requests, above 0 and at most 1. Of n requests, n times this (rounded down) get it.
    pub part: f64,
}

impl FromStr for FaultRate {
    type Err = String;

    /// `reset=1%`, `half-body=1/1000`, `silence=0.01`.
    fn from_str(text: &str) -> Result<FaultRate, String> {
        let (name, amount) = text.split_once('=').ok_or("a rate is missing: reset=1%")?;
        let fault = name.parse()?;
        let number = |text: &str| {
            text.parse::<f64>().map_err(|_| format!("'{amount}' is not a rate; examples: 1%, 1/100, 0.01"))
        };
        let part = match (amount.strip_suffix('%'), amount.split_once('/')) {
            (Some(percent), _) => number(percent)? / 100.0,
            (None, Some((some, of))) => number(some)? / number(of)?,
            (None, None) => number(amount)?,
        };
        if !(part > 0.0 && part <= 1.0) {
            return Err(format!("'{amount}' must be above 0% and at most 100%"));
        }
        Ok(FaultRate { fault, part })
    }
}

/// Which requests fail on purpose, besides those that ask for it in their path.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Faults {
    /// None.
    #[default]
    None,
    /// These parts of all requests, spread evenly. Where two are due at once, the second one comes with the next request.
    Rates(Vec<FaultRate>),
    /// Request number k, counted from 0 over all connections in the order in which requests were read whole, gets entry k;
    /// later ones get none.
    Script(Vec<Option<InjectedFault>>),
}

/// Deals the failures out.
#[derive(Debug)]
pub(super) struct Dealer {
    faults: Faults,
    /// How many each rate was given.
    given: Vec<u64>,
    /// Requests seen.
    seen: u64,
}

impl Dealer {
    pub(super) fn new(faults: Faults) -> Dealer {
        let rates = match &faults {
            Faults::Rates(rates) => rates.len(),
            Faults::None | Faults::Script(_) => 0,
        };
        Dealer { faults, given: vec![0; rates], seen: 0 }
    }

    /// What the next request gets. `can` says whether its answer can fail like that; a rate then waits for one that can.
    pub(super) fn deal(&mut self, can: impl Fn(InjectedFault) -> bool) -> Option<InjectedFault> {
        self.seen += 1;
        match &self.faults {
            Faults::None => None,
            Faults::Script(script) => {
                let entry = usize::try_from(self.seen - 1).ok().and_then(|place| script.get(place));
                entry.copied().flatten().filter(|fault| can(*fault))
            }
            Faults::Rates(rates) => {
                let place = rates.iter().zip(&self.given).position(|(rate, given)| {
                    // A hair of tolerance: 0.07 times a hundred is not quite 7.
                    self.seen as f64 * rate.part + 1e-9 >= (*given + 1) as f64 && can(rate.fault)
                })?;
                self.given[place] += 1;
                Some(rates[place].fault)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back_and_places_are_right() {
        for (place, fault) in InjectedFault::ALL.into_iter().enumerate() {
            assert_eq!((fault.name().parse(), fault.index()), (Ok(fault), place));
        }
        assert!("resett".parse::<InjectedFault>().expect_err("unknown").contains("half-head"));
    }

    #[test]
    fn rates_have_three_spellings() {
        let check = |text: &str, part: f64| {
            let rate: FaultRate = text.parse().expect(text);
            assert!(rate.fault == InjectedFault::Reset && (rate.part - part).abs() < 1e-12, "{text}: {rate:?}");
        };
        check("reset=1%", 0.01);
        check("reset=0.5%", 0.005);
        check("reset=1/8", 0.125);
        check("reset=0.25", 0.25);
        check("reset=100%", 1.0);
        for wrong in
            ["reset", "reset=", "reset=0", "reset=101%", "reset=-1%", "reset=1/0", "reset=0/0", "reset=x", "x=1%"]
        {
            assert!(wrong.parse::<FaultRate>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn rates_are_exact_and_spread() {
        let rates = ["reset=1%", "silence=1/100", "drip=0.07"].map(|text| text.parse().expect("a rate"));
        let mut dealer = Dealer::new(Faults::Rates(rates.to_vec()));
        let dealt: Vec<Option<InjectedFault>> = (0..1010).map(|_| dealer.deal(|_| true)).collect();
        let count = |fault| dealt.iter().filter(|one| **one == Some(fault)).count();
        assert_eq!(
            (count(InjectedFault::Reset), count(InjectedFault::Silence), count(InjectedFault::Drip)),
            (10, 10, 70)
        );
        assert_eq!(
            (dealt[99], dealt[100]),
            (Some(InjectedFault::Reset), Some(InjectedFault::Silence)),
            "one after the other"
        );
    }

    #[test]
    fn what_cannot_fail_so_passes_it_on() {
        let mut dealer = Dealer::new(Faults::Rates(vec![FaultRate { fault: InjectedFault::WrongBody, part: 0.5 }]));
        assert_eq!((dealer.deal(|_| true), dealer.deal(|_| false)), (None, None));
        assert_eq!(
            (dealer.deal(|_| true), dealer.deal(|_| true)),
            (Some(InjectedFault::WrongBody), Some(InjectedFault::WrongBody))
        );
    }

    #[test]
    fn a_script_is_followed_to_its_end() {
        let mut dealer =
            Dealer::new(Faults::Script(vec![None, Some(InjectedFault::Drip), Some(InjectedFault::WrongBody)]));
        assert_eq!([dealer.deal(|_| true), dealer.deal(|_| true)], [None, Some(InjectedFault::Drip)]);
        assert_eq!([dealer.deal(|_| false), dealer.deal(|_| true)], [None, None]);
    }
}
