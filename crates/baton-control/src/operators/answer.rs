//! What a command answers, and how it is put on the wire.

use baton_model::SeverityOutput;

/// How serious a message is, as syslog numbers it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Severity {
    /// The command could not be done.
    Error,
    /// Something was changed that may need attention, or was not.
    Warning,
    /// Something was changed, in words.
    Notice,
    /// An answer in words.
    Info,
}

impl Severity {
    fn number(self) -> u8 {
        match self {
            Severity::Error => 3,
            Severity::Warning => 4,
            Severity::Notice => 5,
            Severity::Info => 6,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Severity::Error => "err",
            Severity::Warning => "warning",
            Severity::Notice => "notice",
            Severity::Info => "info",
        }
    }
}

/// The answer of one command.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum CommandResponse {
    /// Done; there is nothing to say.
    Done,
    /// Words for people, with their severity in front if the session wants that.
    Message(Severity, String),
    /// What was asked for, as it is. Ends with an end of line and has no empty line within.
    Data(String),
}

impl CommandResponse {
    /// A message that something cannot be done.
    pub fn error(text: impl Into<String>) -> CommandResponse {
        CommandResponse::Message(Severity::Error, text.into())
    }

    /// A message that something was changed, or was not, and that operators should see.
    pub fn warning(text: impl Into<String>) -> CommandResponse {
        CommandResponse::Message(Severity::Warning, text.into())
    }

    /// A message that something was changed.
    pub fn notice(text: impl Into<String>) -> CommandResponse {
        CommandResponse::Message(Severity::Notice, text.into())
    }

    /// A message that answers a question.
    pub fn info(text: impl Into<String>) -> CommandResponse {
        CommandResponse::Message(Severity::Info, text.into())
    }

    /// The bytes, with the empty line that ends every answer.
    pub fn render(self, severity: SeverityOutput) -> Vec<u8> {
        let mut out = match self {
            CommandResponse::Done => String::new(),
            CommandResponse::Data(text) => text,
            CommandResponse::Message(level, text) => {
                let mut out = match severity {
                    SeverityOutput::None => text,
                    SeverityOutput::Number => format!("[{}]: {text}", level.number()),
                    SeverityOutput::Word => format!("[{}]: {text}", level.word()),
                };
                if !out.ends_with('\n') {
                    out.push('\n');
                }
                out
            }
        };
        out.push('\n');
        out.into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_answer_ends_with_an_empty_line() {
        let check = |answer: CommandResponse, severity, expect: &str| {
            assert_eq!(String::from_utf8_lossy(&answer.render(severity)), expect);
        };
        check(CommandResponse::Done, SeverityOutput::Number, "\n");
        check(CommandResponse::Data("a\nb\n".into()), SeverityOutput::Number, "a\nb\n\n");
        check(CommandResponse::error("No."), SeverityOutput::None, "No.\n\n");
        check(CommandResponse::error("No."), SeverityOutput::Number, "[3]: No.\n\n");
        check(CommandResponse::info("Yes."), SeverityOutput::Word, "[info]: Yes.\n\n");
    }
}
