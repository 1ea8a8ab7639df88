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

/// Conditions on the bytes of a frame, from its Ethernet header on; all have to hold, or all of another list ([`or`](FrameFilter::or)). A frame
/// that is too short for a condition is not kept. Frames of another VLAN than the interface's own never are.
#[derive(Clone, Debug, Default)]
pub struct FrameFilter {
    conditions: Vec<Condition>,
    /// Lists that are finished.
    others: Vec<Vec<Condition>>,
}

#[derive(Clone, Copy, Debug)]
struct Condition {
    at: u32,
    width: u16,
    mask: u32,
    value: u32,
}

impl FrameFilter {
    /// Keeps all.
    pub fn new() -> FrameFilter {
        FrameFilter::default()
    }

    /// The byte there has this value.
    #[must_use]
    pub fn byte(self, at: u32, value: u8) -> FrameFilter {
        self.with(Condition { at, width: BYTE, mask: u32::MAX, value: value.into() })
    }

    /// The byte there has this value in the bits of a mask.
    #[must_use]
    pub fn bits(self, at: u32, mask: u8, value: u8) -> FrameFilter {
        self.with(Condition { at, width: BYTE, mask: mask.into(), value: value.into() })
    }

    /// The two bytes there are this number in the network's order.
    #[must_use]
    pub fn half(self, at: u32, value: u16) -> FrameFilter {
        self.with(Condition { at, width: HALF, mask: u32::MAX, value: value.into() })
    }

    /// The bytes there are these: an address.
    ///
    /// # Panics
    /// For a number of bytes that is no multiple of four.
    #[must_use]
    pub fn bytes(self, at: u32, value: &[u8]) -> FrameFilter {
        let (words, rest) = value.as_chunks::<4>();
        assert!(rest.is_empty(), "addresses are whole words");
        words.iter().zip((at..).step_by(4)).fold(self, |filter, (word, at)| {
            filter.with(Condition { at, width: WORD, mask: u32::MAX, value: u32::from_be_bytes(*word) })
        })
    }

    /// What the conditions so far keep, or else what those keep that follow.
    #[must_use]
    pub fn or(mut self) -> FrameFilter {
        self.others.push(std::mem::take(&mut self.conditions));
        self
    }

    fn with(mut self, condition: Condition) -> FrameFilter {
        let count = self.conditions.len() + self.others.iter().map(Vec::len).sum::<usize>();
        assert!(count < CONDITIONS_MAX, "filters are short");
        self.conditions.push(condition);
        self
    }

    /// For the kernel. Each list ends with "keep", which a condition that does not hold jumps over; the last step drops.
    pub(super) fn program(&self) -> Vec<SockFilter> {
        let lists = self.others.iter().chain([&self.conditions]).map(|conditions| list(conditions));
        let lists: Vec<SockFilter> = lists.flatten().collect();
        let mut program = vec![SockFilter::new(LOAD | BYTE, 0, 0, TAGGED)];
        program.push(SockFilter::new(IF_EQUAL, 0, lists.len() as u8, 0));
        program.extend(lists);
        program.push(SockFilter::new(RETURN, 0, 0, 0));
        program
    }
}

fn list(conditions: &[Condition]) -> Vec<SockFilter> {
    let mut steps = Vec::new();
    for condition in conditions {
        steps.push((LOAD | condition.width, condition.at));
        if condition.mask != u32::MAX {
            steps.push((AND, condition.mask));
        }
        steps.push((IF_EQUAL, condition.value));
    }
    steps.push((RETURN, KEEP));
    let after = steps.len();
    let aimed = steps.into_iter().enumerate().map(|(at, (code, value))| {
        let otherwise = if code == IF_EQUAL { (after - at - 1) as u8 } else { 0 };
        SockFilter::new(code, 0, otherwise, value)
    });
    aimed.collect()
}
