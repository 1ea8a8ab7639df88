//! What a peer may cost without a use for anybody.
//!
//! Two accounts are drawn on by what floods are made of, and filled again by what connections are for. There is no clock here: who has one
//! calls [`Budget::refill`] once in a while, so that a connection that is quiet for days, but for its pings, is kept.

use serde::{Deserialize, Serialize};

use crate::config::Config;
use crate::error::Violation;

/// Control frames that one useful frame allows.
const CONTROL_PER_USEFUL: u32 = 4;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Budget {
    resets: u32,
    control: u32,
    glitches: u32,
}

impl Budget {
    pub fn new(config: &Config) -> Budget {
        Budget { resets: config.resets_max, control: config.control_frames_max, glitches: 0 }
    }

    /// A stream was reset by the peer, or because of it, before it ended.
    pub fn reset(&mut self) -> Result<(), Violation> {
        self.resets = self.resets.checked_sub(1).ok_or(Violation::TooManyResets)?;
        Ok(())
    }

    /// A stream ended as it should.
    #[inline]
    pub fn ended(&mut self, config: &Config) {
        self.resets = (self.resets + 1).min(config.resets_max);
    }

    /// A frame arrived that carries nothing.
    #[inline]
    pub fn control(&mut self) -> Result<(), Violation> {
        self.control = self.control.checked_sub(1).ok_or(Violation::TooManyControlFrames)?;
        Ok(())
    }

    /// A frame arrived, or was sent, that is of use.
    #[inline]
    pub fn useful(&mut self, config: &Config) {
        self.control = self.control.saturating_add(CONTROL_PER_USEFUL).min(config.control_frames_max);
    }

    /// An oddity.
    pub fn glitch(&mut self, config: &Config) -> Result<(), Violation> {
        self.glitches = self.glitches.saturating_add(1);
        if config.glitches_max != 0 && self.glitches > config.glitches_max {
            return Err(Violation::TooManyGlitches);
        }
        Ok(())
    }

    pub fn glitches(&self) -> u32 {
        self.glitches
    }

    /// Time has passed: the accounts are as full as at the beginning, but a tenth of the resets at a time.
    pub fn refill(&mut self, config: &Config) {
        self.control = config.control_frames_max;
        self.resets = (self.resets + config.resets_max.div_ceil(10)).min(config.resets_max);
    }
}
