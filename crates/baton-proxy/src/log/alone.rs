//! What formats know of the process where there is no connection.

use std::time::SystemTime;

use baton_rules::{Context, DateSpelling, ExchangeCourse, Fact, LogSource, Tag};

use super::date::Dates;

/// The process at a moment, for variables that the file and operators set.
#[derive(Debug)]
pub struct ProcessFacts {
    now: SystemTime,
    dates: Dates,
}

impl ProcessFacts {
    /// At this moment.
    pub fn at(now: SystemTime) -> ProcessFacts {
        ProcessFacts { now, dates: Dates::default() }
    }
}

impl LogSource for ProcessFacts {
    fn fact(&self, tag: Tag) -> Fact {
        match tag {
            Tag::Date | Tag::GmtDate | Tag::LocalDate | Tag::Milliseconds | Tag::Timestamp => Fact::Time(self.now),
            Tag::Pid => Fact::Number(std::process::id().into()),
            Tag::Status => Fact::Number(-1),
            _ => Fact::Absent,
        }
    }

    fn date(&self, time: SystemTime, spelling: DateSpelling, out: &mut Vec<u8>) {
        self.dates.write(time, spelling, out);
    }

    fn write_line(&self, _: &Context<'_>) {}

    fn course(&self) -> ExchangeCourse {
        ExchangeCourse::default()
    }

    fn debug_line(&self, _: &str, _: &[u8]) {}
}
