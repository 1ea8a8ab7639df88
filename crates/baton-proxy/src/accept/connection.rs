//! What happens once in the life of an accepted connection, before its first exchange, and who makes its exchanges.

use std::rc::Rc;

use baton_model::Mode;
use baton_rules::SESSIONS;

use crate::client::Client;
use crate::core::Core;
use crate::handshake;
use crate::http1::{Kept, Line};
use crate::http2;
use crate::record;
use crate::route::{self, NotAdmitted};
use crate::state::Counter;
use crate::tcp::{self, Served};

/// Serves an accepted connection to its end. What happens once in its life has a future in a box of its own: this future is held by
/// every idle connection.
pub async fn serve(line: Rc<Line>, mut client: Box<Client>) {
    // They see who connects, not whom that one speaks for.
    let expected = match route::admits_connection(&line.core, &mut client) {
        Ok(expected) => expected,
        Err(refusal) => {
            record::denied(&line.core, &client.connection, &client.session.view(), Counter::DeniedConnections);
            return refuse(&client, refusal);
        }
    };
    for by in expected.into_iter().flatten() {
        if let Err(fault) = Box::pin(client.introduce(&line.core, by)).await {
            return record::refused(&line.core, &client, &client.session.view(), by, fault);
        }
    }
    if let Some(acceptor) = client.connection.listener().tls.clone()
        && let Err(failed) = Box::pin(handshake::agree(&line.core, &mut client, &acceptor)).await
    {
        return record::disagreed(&line.core, &client, &client.session.view(), failed);
    }
    match admit(&line.core, &mut client) {
        Err(refusal) => refuse(&client, refusal),
        // Nobody listens for it, and a connection may have begun before its frontend changed its mode.
        Ok(Mode::Direct) => client.connection.stream.reset_on_close(),
        Ok(Mode::Tcp) => match Box::pin(tcp::serve(&line.core, &mut client)).await {
            Served::ToItsEnd => {}
            Served::IsHttp => Kept::new(line, client).await,
        },
        Ok(Mode::Http) if http2::is_agreed(&client) => Box::pin(http2::serve(line.streams.clone(), client)).await,
        Ok(Mode::Http) => Kept::new(line, client).await,
    }
}

/// Closes a connection that is not wanted.
fn refuse(client: &Client, refusal: NotAdmitted) {
    match refusal {
        NotAdmitted::Rejected => client.connection.stream.reset_on_close(),
        NotAdmitted::Forgotten => {}
    }
}

/// Rules about sessions, and the line of one. The frontend's mode if the connection is to be served.
fn admit(core: &Core, client: &mut Client) -> Result<Mode, NotAdmitted> {
    let view = client.session.view();
    if let Err(refusal) = route::admits_session(core, client, &view) {
        record::denied(core, &client.connection, &view, Counter::DeniedSessions);
        return Err(refusal);
    }
    client.session.count(core, SESSIONS, 1);
    record::connected(core, &client.connection, &view);
    Ok(view.plan.proxy.mode)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of each of the two parts of an idle connection that are ours.
    const IDLE_MAX: usize = 256;
    /// What the runtime needs of a task, and the rounding of its size.
    const TASK: usize = 128;

    fn size<F>(_: impl FnOnce(Rc<Line>, Box<Client>) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn an_idle_connection_is_small() {
        assert!(size_of::<Client>() <= IDLE_MAX, "{}", size_of::<Client>());
        assert!(size(serve) <= IDLE_MAX - TASK, "{}", size(serve));
    }
}
