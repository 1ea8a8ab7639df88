//! TLS on the change path: certificates, authorities and keys of tickets are read before the commit, where it may fail; the
//! commit only puts them in use.
//!
//! What did not change is not read again. Reading may take a while, so it belongs on a thread of its own: health checks and the
//! runtime API go on meanwhile, and connections do not notice. Directories are watched before they are read, so that nothing is
//! missed between the two.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use baton_config::Severity;
use baton_model::{Bind, BindTls, Model, Source};
use baton_proxy::Refused;
use baton_proxy::generation::OpenListener;
use baton_tls::store::{CertificateProblem, Files, Index, Note, Store, Wanted};
use baton_tls::tickets::{self, TicketKey, TicketVault, UpcomingTickets};
use baton_tls::{Acceptor, AcceptorProblem, Acceptors, Connectors, PreparedAcceptors, store};

use crate::certificates::Upcoming;
use crate::environment::Outside;

/// What handshakes share, for who reads what a configuration names: nothing in use changes by it. Cheap to clone.
#[derive(Clone, Debug)]
pub struct TlsShared {
    /// Certificates.
    store: Arc<Store>,
    /// Authorities and sessions.
    acceptors: Arc<Acceptors>,
    /// Keys of session tickets.
    tickets: Arc<TicketVault>,
}

/// All that a configuration needs for TLS, read and judged. Dropped, it leaves no trace.
#[derive(Debug)]
pub struct PreparedTls {
    store: store::Prepared,
    acceptors: PreparedAcceptors,
    tickets: UpcomingTickets,
    by_place: ByPlace,
    watched: Upcoming,
    /// Certificates that were there before, and whose files hold others now.
    pub replaced: Vec<PathBuf>,
    /// What is left out, and that reading took long.
    pub notes: Vec<(Severity, String)>,
}

/// Reading that takes so long is told.
const LONG: Duration = Duration::from_secs(2);

/// Acceptors by the name of a frontend and the place of its address.
type ByPlace = HashMap<(Arc<str>, String), Arc<Acceptor>>;

impl TlsShared {
    /// Of what is in use.
    pub(crate) fn new(store: Arc<Store>, acceptors: Arc<Acceptors>, tickets: Arc<TicketVault>) -> TlsShared {
        TlsShared { store, acceptors, tickets }
    }

    /// Reads what a model names.
    ///
    /// # Errors
    /// All that cannot be used, each with the line that names it.
    pub fn prepare(&self, model: &Model, outside: &Outside) -> Result<PreparedTls, Vec<Refused>> {
        let begin = Instant::now();
        let watched = Upcoming::begin(model, outside, begin);
        let tickets = self.tickets(model, outside);
        let (store, problems) = self.store.prepare_usable(&Wanted::of(model), outside);
        let indexes = store.indexes();
        let mut refused: Vec<_> = problems.iter().map(|problem| certificate(problem, model)).collect();
        let tickets = tickets.unwrap_or_else(|more| {
            refused.extend(more);
            UpcomingTickets::default()
        });
        if refused.is_empty() {
            refused = without_certificates(model, &indexes);
        }
        // Who replaces a worker that died serves what can be served: files may be half-written just now.
        if !refused.is_empty() && !outside.recalls() {
            return Err(refused);
        }
        let keys = |bind: &BindTls| {
            let of_file = bind.ticket_keys.as_deref().and_then(|path| tickets.keys(path));
            of_file.unwrap_or_else(|| self.tickets.own()).clone()
        };
        let acceptors = self.acceptors.prepare(model, &indexes, &keys, outside);
        let acceptors =
            acceptors.map_err(|problems| problems.iter().map(|problem| bind(problem, model)).collect::<Vec<_>>())?;
        let places = encrypted(model).map(|(name, bind, _)| (name.clone(), bind.place()));
        let by_place = places.zip(acceptors.acceptors().iter().cloned()).collect();
        let replaced = store.replaced();
        let mut notes: Vec<_> = store.notes().iter().map(|found| (Severity::Warning, note(found))).collect();
        let left_out = |refused: &Refused| format!("{refused}. It is not used until the next reload.");
        notes.extend(refused.iter().map(|refused| (Severity::Warning, left_out(refused))));
        if begin.elapsed() >= LONG {
            let text = format!("Certificates were read in {:.1} s.", begin.elapsed().as_secs_f64());
            notes.push((Severity::Notice, text));
        }
        Ok(PreparedTls { store, acceptors, tickets, by_place, watched, replaced, notes })
    }

    /// Reads the files of `tls-ticket-keys`.
    fn tickets(&self, model: &Model, outside: &Outside) -> Result<UpcomingTickets, Vec<Refused>> {
        let mut files: Vec<(PathBuf, Vec<Arc<TicketKey>>)> = Vec::new();
        let (mut refused, mut read) = (Vec::new(), HashSet::new());
        for (_, at, tls) in encrypted(model) {
            let Some(path) = tls.ticket_keys.as_deref().filter(|path| !read.contains(path)) else { continue };
            match ticket_keys(path, outside) {
                Ok(keys) => {
                    read.insert(path);
                    files.push((path.into(), keys));
                }
                Err(fault) => refused.push(Refused {
                    object: format!("bind {}", at.place()),
                    reason: format!("tls-ticket-keys '{}': {fault}", path.display()),
                    source: at.source.clone(),
                }),
            }
        }
        if refused.is_empty() { Ok(self.tickets.prepare(files)) } else { Err(refused) }
    }
}

impl PreparedTls {
    /// Puts it in use. It cannot fail. What is watched for it has to be listened to from now on.
    pub(crate) fn commit(self, acceptors: &Acceptors, tickets: &TicketVault) -> Upcoming {
        self.store.commit();
        acceptors.commit(self.acceptors);
        tickets.commit(self.tickets);
        self.watched
    }

    /// Makes what servers need, of the files that were read.
    pub fn connectors(&self) -> Connectors<'_> {
        Connectors::new(self.acceptors.authorities(), &self.store)
    }

    /// What answers clients at an address of a frontend or a `peers` section.
    pub fn acceptor(&self, owner: &Arc<str>, bind: &Bind) -> Option<Arc<Acceptor>> {
        self.by_place.get(&(owner.clone(), bind.place())).cloned()
    }

    /// Gives an address its acceptor.
    pub fn arm(&self, open: &mut OpenListener) {
        open.tls = self.by_place.get(&(open.frontend.clone(), open.bind.place())).cloned();
    }
}

/// What `-c` says of the files that a model names for TLS: what is left out.
///
/// # Errors
/// All that cannot be used.
pub fn judge(model: &Model, outside: &Outside) -> Result<Vec<(Severity, String)>, Vec<Refused>> {
    let vault = TicketVault::new(crate::tickets::wall_seconds()).map_err(|fault| {
        let reason = format!("cannot create a session ticket key: {fault}");
        vec![Refused { object: "global".into(), reason, source: Source::default() }]
    })?;
    let encryption = TlsShared::new(Store::new(), Arc::default(), Arc::new(vault));
    encryption.prepare(model, outside).map(|prepared| prepared.notes)
}

/// Addresses with TLS, in the order of the model.
fn encrypted(model: &Model) -> impl Iterator<Item = (&Arc<str>, &Bind, &Arc<BindTls>)> {
    let binds = model.with_peers().flat_map(|proxy| proxy.binds.iter().map(move |bind| (&proxy.name, bind)));
    binds.filter_map(|(name, bind)| Some((name, bind, bind.options.tls.as_ref()?)))
}

fn ticket_keys(path: &Path, outside: &Outside) -> Result<Vec<Arc<TicketKey>>, String> {
    let mut content = zeroize::Zeroizing::new(Vec::new());
    outside.read(path, &mut content).map_err(|error| format!("{} ({error})", tickets::TicketFileError::Unreadable))?;
    tickets::read_file(&content).map_err(|fault| fault.to_string())
}

/// Addresses for which no certificate was found, say because a directory is empty.
fn without_certificates(model: &Model, indexes: &[Arc<Index>]) -> Vec<Refused> {
    let without = encrypted(model).zip(indexes).filter(|((.., tls), index)| index.is_empty() && !tls.strict_sni);
    without
        .map(|((_, bind, _), _)| Refused {
            object: format!("bind {}", bind.place()),
            reason: "no SSL certificate was found at 'crt' (with 'strict-sni' it would start without)".into(),
            source: bind.source.clone(),
        })
        .collect()
}

/// A certificate that cannot be used, with the object whose line names it.
fn certificate(problem: &CertificateProblem, model: &Model) -> Refused {
    let source = problem.source.clone().unwrap_or_default();
    Refused { object: object(&source, model), reason: format!("{problem}: {}", problem.remedy()), source }
}

fn note(note: &Note) -> String {
    match &note.source {
        Some(source) => format!("[{source}] {note}."),
        None => format!("{note}."),
    }
}

fn bind(problem: &AcceptorProblem, model: &Model) -> Refused {
    let source = problem.source.clone();
    Refused { object: object(&source, model), reason: problem.message.clone(), source }
}

/// The address or the server on a line, or what else can name certificates.
fn object(source: &Source, model: &Model) -> String {
    let is_here = |other: &Source| other.line == source.line && other.file == source.file;
    if let Some((_, bind, _)) = encrypted(model).find(|(_, bind, _)| is_here(&bind.source)) {
        return format!("bind {}", bind.place());
    }
    let mut servers = model.with_peers().flat_map(|proxy| proxy.servers.iter().map(move |server| (proxy, server)));
    if let Some((proxy, server)) = servers.find(|(_, server)| is_here(&server.line)) {
        return format!("server {}/{}", proxy.name, server.name);
    }
    let name_server = model.with_name_servers().find(|server| is_here(&server.line));
    name_server.map_or_else(|| "TLS".into(), |server| format!("nameserver {}", server.name))
}
