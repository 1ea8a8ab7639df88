//! The threads that ask real servers whether they have the virtual address, with the rights that this takes.

use std::sync::{Arc, Mutex, PoisonError};

use baton_direct::KernelError;
use baton_health::Prober;

use super::keeper::{raise_rights, spawn};

/// Threads that ask servers for the virtual address: so many are asked at once.
const PROBERS: usize = 8;

/// Begins the threads, which end with the last copy of what asks them.
pub(super) fn start() -> Result<Prober, KernelError> {
    let (prober, questions) = Prober::channel();
    let questions = Arc::new(Mutex::new(questions));
    for number in 0..PROBERS {
        let questions = questions.clone();
        spawn(&format!("baton/probe{number}"), move || {
            let mut is_raised = false;
            loop {
                let next = questions.lock().unwrap_or_else(PoisonError::into_inner).recv();
                let Ok(question) = next else { return };
                raise_rights(&mut is_raised);
                question.answer();
            }
        })?;
    }
    Ok(prober)
}
