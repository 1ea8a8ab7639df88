//! The rows of `show stat` in pieces, so that a table of thousands of servers takes little memory and little time at once.

use std::sync::Arc;
use std::time::Instant;

use baton_proxy::Generation;

use super::{StatFilter, StatRow, backend, frontend, header, print};
use crate::control::Control;
use crate::runtime::field::{Form, Format};

/// Text of one piece; the last row may go beyond it.
const PIECE_BYTES: usize = 32 * 1024;
/// Servers that are looked at together.
pub(super) const SERVERS_TOGETHER: usize = 32;

/// The whole table of the configuration that was in use when it began: proxies in the order of the files, and in each its frontend, sockets,
/// servers, backend. A server that is deleted while it is printed is missing, one that is added is not in it.
#[derive(Debug)]
pub(crate) struct StatTable {
    source: Option<Source>,
    filter: StatFilter,
    format: Format,
    at: Position,
    /// Whether something was printed.
    is_begun: bool,
    has_rows: bool,
    is_over: bool,
}

/// A configuration, and where the sockets of its frontends are.
#[derive(Debug)]
struct Source {
    generation: Arc<Generation>,
    sockets: frontend::Sockets,
}

impl Source {
    /// The configuration in use.
    fn current(control: &Control) -> Option<Source> {
        let generation = control.line.generation()?.clone();
        let sockets = frontend::sockets(&generation);
        Some(Source { generation, sockets })
    }
}

/// How far it is: the proxy, and the first of its servers that is not done.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Position {
    proxy: usize,
    server: usize,
}

impl StatTable {
    /// The table of the configuration in use.
    pub(crate) fn new(control: &Control, filter: StatFilter, format: Format) -> StatTable {
        let source = Source::current(control);
        StatTable { source, filter, format, at: Position::default(), is_begun: false, has_rows: false, is_over: false }
    }

    /// Appends the next piece; false, and nothing, after the last one.
    pub(crate) fn piece(&mut self, control: &Control, out: &mut String) -> bool {
        if self.is_over {
            return false;
        }
        if !std::mem::replace(&mut self.is_begun, true) && self.format.form == Form::Plain {
            header(out);
        }
        let end = out.len() + PIECE_BYTES;
        let mut rows = Vec::new();
        while out.len() < end {
            let source = self.source.as_ref();
            if !source.is_some_and(|source| self.at.rows(control, source, &self.filter, &mut rows)) {
                if self.format.form == Form::Json {
                    out.push_str(if self.has_rows { "]\n" } else { "[]\n" });
                }
                self.is_over = true;
                return true;
            }
            for row in rows.drain(..) {
                if self.format.form == Form::Json {
                    out.push(if self.has_rows { ',' } else { '[' });
                }
                self.has_rows = true;
                print(out, &row, self.format);
            }
        }
        true
    }
}

impl Position {
    /// Whether everything is still to come.
    pub(crate) fn is_start(&self) -> bool {
        self.proxy == 0 && self.server == 0
    }

    /// The next rows of the configuration in use; false when there are no more.
    pub(crate) fn next(&mut self, control: &Control, filter: &StatFilter, out: &mut Vec<StatRow>) -> bool {
        Source::current(control).is_some_and(|source| self.rows(control, &source, filter, out))
    }

    fn rows(&mut self, control: &Control, source: &Source, filter: &StatFilter, out: &mut Vec<StatRow>) -> bool {
        let Source { generation, sockets } = source;
        let Some(proxy) = generation.model.proxies.get(self.proxy) else { return false };
        let mut next = None;
        if !proxy.disabled && filter.takes_proxy(proxy) {
            let now = Instant::now();
            if proxy.role.is_frontend() && self.server == 0 {
                frontend::lines((control, generation, sockets), filter, proxy, now, out);
            }
            if proxy.role.is_backend() {
                next = backend::lines((control, generation), filter, proxy, (self.server, now), out);
            }
        }
        *self = match next {
            Some(server) => Position { server, ..*self },
            None => Position { proxy: self.proxy + 1, server: 0 },
        };
        true
    }
}
