//! The change line: reload, health, drain, statistics; everything that touches live state.
