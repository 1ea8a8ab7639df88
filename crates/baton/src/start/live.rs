//! The process from here on: the change path runs until it is told to stop.

use std::rc::Rc;

use baton_config::Severity;
use baton_control::control::Begun;
use baton_control::control_socket::ControlSocket;
use baton_control::handover::taker::Taken;
use baton_control::reload::Open;
use baton_control::{ChangeLine, Control, Messages, Settings};
use baton_kernel::output::{self, WriteMode};
use baton_model::Level;

use super::Stop;

/// What this process is, and where it is reached.
#[derive(Debug)]
pub(super) struct LiveProcess {
    pub(super) settings: Settings,
    pub(super) socket: ControlSocket,
}

/// Starts the cores and serves; gives the exit code. `announce` is called once we do serve.
pub(super) fn live(
    process: LiveProcess,
    line: ChangeLine,
    open: Open,
    begun: Option<Begun>,
    taken: Option<Taken>,
    messages: &Rc<Messages>,
    announce: impl FnOnce(),
) -> Result<u8, Stop> {
    // No fork follows, and rights were given up: from here on nothing waits for whoever reads our output.
    output::set_mode(WriteMode::Queue);
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().thread_name("baton/files").build();
    let runtime = runtime.map_err(|error| format!("cannot start: {error}"))?;
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let control = Control::start(process.settings, process.socket, line, open, messages.clone()).await?;
        let control = match begun {
            Some(begun) => control.under(begun),
            None => control,
        };
        let control = match taken {
            Some(taken) => control.taking_over(taken),
            None => control,
        };
        Ok(control.run(announce).await.map_err(|error| error.to_string())?)
    })
}

fn mail_level(severity: baton_health::Severity) -> Level {
    match severity {
        baton_health::Severity::Emergency => Level(0),
        baton_health::Severity::Alert => Level(1),
        baton_health::Severity::Notice => Level(5),
        baton_health::Severity::Info => Level(6),
    }
}

/// Health checks speak to standard error and to the log of their backend.
pub(super) fn say_health(messages: Rc<Messages>) -> impl Fn(baton_health::Event) {
    move |event| {
        let (severity, level) = match event.severity {
            baton_health::Severity::Emergency => (Severity::Alert, Level(0)),
            baton_health::Severity::Alert => (Severity::Warning, Level(1)),
            baton_health::Severity::Notice | baton_health::Severity::Info => (Severity::Warning, Level(5)),
        };
        messages.event_for(&event.backend, severity, level, &event.text);
        if let Some(mail) = event.mail {
            messages.mail().alert(&event.backend, mail_level(mail), &event.text);
        }
    }
}
