//! Which frames a socket receives: conditions that all have to hold, as a program for the kernel (classic BPF).

use socket2::SockFilter;

/// Conditions at most: jumps of such a program reach 255 steps, and each condition takes three.
const CONDITIONS_MAX: usize = 64;
/// "Whether the frame had a VLAN's tag, which was taken off" (`SKF_AD_OFF + SKF_AD_VLAN_TAG_PRESENT`).
const TAGGED: u32 = (libc::SKF_AD_OFF + libc::SKF_AD_VLAN_TAG_PRESENT) as u32;
/// "Keep the whole frame", as a filter's result.
const KEEP: u32 = u32::MAX;

const LOAD: u16 = (libc::BPF_LD | libc::BPF_ABS) as u16;
const BYTE: u16 = libc::BPF_B as u16;
const HALF: u16 = libc::BPF_H as u16;
const WORD: u16 = libc::BPF_W as u16;
const AND: u16 = (libc::BPF_ALU | libc::BPF_AND | libc::BPF_K) as u16;
const IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;

/// Conditions on the bytes of a frame, from its Ethernet header on; all have to hold. A frame that is too short for one does not
/// fulfil it. Frames of another VLAN than the interface's own are never kept.
#[derive(Clone, Debug, Default)]
pub struct Filter(Vec<Condition>);

#[derive(Clone, Copy, Debug)]
struct Condition {
    at: u32,
    width: u16,
    mask: u32,
    value: u32,
}

impl Filter {
    /// Keeps all.
    pub fn new() -> Filter {
        Filter::default()
    }

    /// The byte there has this value.
    #[must_use]
    pub fn byte(self, at: u32, value: u8) -> Filter {
        self.with(Condition { at, width: BYTE, mask: u32::MAX, value: value.into() })
    }

    /// The byte there has this value in the bits of a mask.
    #[must_use]
    pub fn bits(self, at: u32, mask: u8, value: u8) -> Filter {
        self.with(Condition { at, width: BYTE, mask: mask.into(), value: value.into() })
    }

    /// The two bytes there are this number in the network's order.
    #[must_use]
    pub fn half(self, at: u32, value: u16) -> Filter {
        self.with(Condition { at, width: HALF, mask: u32::MAX, value: value.into() })
    }

    /// The bytes there are these: an address.
    ///
    /// # Panics
    /// For a number of bytes that is no multiple of four.
    #[must_use]
    pub fn bytes(self, at: u32, value: &[u8]) -> Filter {
        let (words, rest) = value.as_chunks::<4>();
        assert!(rest.is_empty(), "addresses are whole words");
        words.iter().zip((at..).step_by(4)).fold(self, |filter, (word, at)| {
            filter.with(Condition { at, width: WORD, mask: u32::MAX, value: u32::from_be_bytes(*word) })
        })
    }

    fn with(mut self, condition: Condition) -> Filter {
        assert!(self.0.len() < CONDITIONS_MAX, "filters are short");
        self.0.push(condition);
        self
    }

    /// For the kernel. The last step but one keeps, the last one drops.
    pub(super) fn program(&self) -> Vec<SockFilter> {
        let mut steps = vec![(LOAD | BYTE, TAGGED), (IF_EQUAL, 0)];
        for condition in &self.0 {
            steps.push((LOAD | condition.width, condition.at));
            if condition.mask != u32::MAX {
                steps.push((AND, condition.mask));
            }
            steps.push((IF_EQUAL, condition.value));
        }
        let drop_at = steps.len() + 1;
        let aimed = steps.iter().enumerate().map(|(at, (code, value))| {
            let otherwise = if *code == IF_EQUAL { (drop_at - at - 1) as u8 } else { 0 };
            SockFilter::new(*code, 0, otherwise, *value)
        });
        aimed.chain([SockFilter::new(RETURN, 0, 0, KEEP), SockFilter::new(RETURN, 0, 0, 0)]).collect()
    }
}
