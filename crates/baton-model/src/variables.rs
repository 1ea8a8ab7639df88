//! Variables of the process that the file sets, and how much memory variables may take.

/// `tune.vars.*-max-size`: the most bytes of variables, by scope. Each includes the scopes that live shorter. `None`: no limit.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct VariableLimits {
    /// `global`: of the process.
    pub global: Option<usize>,
    /// `proc`: of the process, too; there are no variables outside of it.
    pub process: Option<usize>,
    /// `sess`: of a session.
    pub session: Option<usize>,
    /// `txn`: of a transaction.
    pub transaction: Option<usize>,
    /// `reqres`: of a request or a response.
    pub message: Option<usize>,
    /// `check`: of a health check.
    pub check: Option<usize>,
}

impl VariableLimits {
    /// Whether there is a limit.
    pub fn is_any(&self) -> bool {
        *self != VariableLimits::default()
    }

    /// The most bytes of all variables of the process.
    pub fn within_process(&self) -> usize {
        self.global.unwrap_or(usize::MAX).min(self.process.unwrap_or(usize::MAX))
    }
}
