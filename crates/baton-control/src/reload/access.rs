//! What the rest of the process asks of the change path, and what it may do between two changes. Live state itself changes by a
//! [`Change`](super::Change) alone: certificates, authorities and keys of tickets are shown by views that can change nothing.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use baton_health::Checker;
use baton_model::{Discovered, Field, Model, Object};
use baton_proxy::{Generation, ListenerId, Registry};
use baton_tls::authorities::AuthorityFile;
use baton_tls::store::StoreView;
use tokio::sync::oneshot;

use super::ChangeLine;
use crate::certificates::Upcoming;
use crate::direct::{self, Direct, Foresight};
use crate::discovery::NameResolver;
use crate::listeners::{Gift, Granted, Listeners, Place};
use crate::messages::Said;
use crate::operators::{Runtime, figures};
use crate::peers::Peers;
use crate::protocol::ChangeRecord;
use crate::tickets::TicketView;

/// What is in use.
impl ChangeLine {
    /// What was asked.
    pub fn model(&self) -> &Arc<Model> {
        &self.model
    }

    /// What the files say, without what operators set.
    pub fn asked(&self) -> &Arc<Model> {
        &self.asked
    }

    /// The configuration in use as the cores see it; `None` before the first commit.
    pub fn generation(&self) -> Option<&Arc<Generation>> {
        self.generation.as_ref()
    }

    /// What outlives configurations.
    pub fn registry(&self) -> &Arc<Registry> {
        &self.registry
    }

    /// What DNS says of servers.
    pub fn discovered(&self) -> Arc<Discovered> {
        Arc::clone(&self.discovered)
    }

    /// Listening addresses.
    pub fn listeners(&self) -> &Listeners {
        &self.listeners
    }

    /// Health checks.
    pub fn checker(&self) -> &Checker {
        &self.checker
    }

    /// The sockets of operators.
    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// What the kernel balances.
    pub fn direct(&self) -> &Direct {
        &self.direct
    }

    /// Certificates.
    pub fn store(&self) -> StoreView {
        self.store.view()
    }

    /// The files of authorities and of revocations, by name.
    pub(crate) fn authority_files(&self) -> Vec<Arc<AuthorityFile>> {
        self.acceptors.authorities().list()
    }

    /// The file of authorities or revocations of this name.
    pub(crate) fn authority_file(&self, path: &Path) -> Option<Arc<AuthorityFile>> {
        self.acceptors.authorities().find(path)
    }

    /// How often a session that a client wants to resume was looked for among those that are remembered, and not found.
    pub(crate) fn session_lookups(&self) -> (u64, u64) {
        self.acceptors.sessions().lookups()
    }

    /// Keys of session tickets.
    pub fn tickets(&self) -> TicketView<'_> {
        TicketView::of(&self.tickets)
    }

    /// Reloads that were refused.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Why the last reload was refused, if it was.
    pub fn last_refused(&self) -> Option<&str> {
        self.last_refused.as_deref()
    }

    /// A view of what the kernel would be made.
    pub fn foresight(&self) -> Foresight {
        self.direct.foresight(&self.registry)
    }
}

/// Listening addresses between two changes.
impl ChangeLine {
    /// Opens addresses beside processes that let us; see [`Listeners::beside_others`].
    pub fn open_beside_others(&mut self, is_beside: bool) {
        self.listeners.beside_others(is_beside);
    }

    /// The next change uses these sockets, which the master has bound for it.
    pub(crate) fn grant(&mut self, granted: Granted) {
        self.listeners.grant(granted);
    }

    /// What was granted for a change that is over is closed.
    pub(crate) fn drop_granted(&mut self) {
        self.listeners.drop_granted();
    }

    /// Closes sockets that were given to us and that the configuration does not ask for.
    pub(crate) fn drop_left(&mut self) {
        self.listeners.drop_left();
    }

    /// Keeps new clients from every address: a soft stop.
    pub(crate) fn stop_accepting(&mut self, now: Instant) {
        self.listeners.retire_all(now);
    }

    /// Gives TCP addresses up for now; whether there is anything to give up.
    pub(crate) fn pause(&mut self, now: Instant) -> bool {
        self.listeners.pause(now)
    }

    /// Paused addresses that are silent by now.
    pub(crate) fn fall_silent(&mut self, now: Instant) -> Vec<ListenerId> {
        self.listeners.fall_silent(now)
    }

    /// Listens again at addresses that were given up.
    ///
    /// # Errors
    /// Those at which somebody else listens.
    pub(crate) fn unpause(&mut self) -> Result<(), Vec<String>> {
        self.listeners.unpause()
    }

    /// A process that wanted to take over did not: sockets have their options again.
    pub(crate) fn take_sockets_back(&mut self) {
        self.listeners.apply_again();
    }

    /// Addresses on their way out that a process that takes over may want again.
    pub(crate) fn offer_again(&mut self) -> Vec<(Place, Arc<[OwnedFd]>)> {
        self.listeners.offer_again()
    }

    /// What was offered again and not taken goes on its way out.
    pub(crate) fn keep_offered(&mut self) {
        self.listeners.keep_offered();
    }

    /// Another process serves this address by now.
    pub(crate) fn handed_over(&mut self, place: &Place) {
        self.listeners.handed_over(place, true);
    }

    /// One socket of each address, for a process that asks in HAProxy's way. It is noted who has them.
    pub(crate) fn lend_sockets(&mut self, is_visible: bool, now: Instant) -> std::io::Result<Vec<Gift>> {
        let gifts = self.listeners.gifts()?;
        let places: Vec<Place> = gifts.iter().map(|gift| gift.place.clone()).collect();
        self.listeners.lent(&places, is_visible, now);
        Ok(gifts)
    }
}

/// `mode direct` between two changes.
impl ChangeLine {
    /// We serve: the kernel is made what the configuration in use asks for. Gives what there is to say.
    pub(crate) async fn begin_direct(&mut self) -> Vec<Said> {
        let Some(generation) = self.generation.clone() else { return Vec::new() };
        let words = self.direct.begin(&self.model, &generation, &self.registry).await;
        self.checker.probe_by(self.direct.prober());
        words
    }

    /// Follows the states of servers.
    pub(crate) fn step_direct(&mut self, answer: Option<direct::KeeperReply>, now: Instant) -> Vec<Said> {
        let words = self.direct.step(answer, &self.model, self.generation.as_deref(), &self.registry, now);
        self.checker.probe_by(self.direct.prober());
        words
    }

    /// The kernel responded after another process took over.
    pub(crate) fn let_direct_pass(&mut self) {
        self.direct.let_pass();
    }

    /// Another process follows the states of servers from now on.
    pub(crate) fn rest_direct(&mut self) {
        self.direct.rest();
    }

    /// A soft stop takes nothing new from now on.
    pub(crate) fn end_direct_softly(&mut self) -> Vec<Said> {
        self.direct.end_softly(&self.model)
    }

    /// The end: `on-exit` is done.
    pub(crate) fn leave_direct(&mut self) -> Vec<Said> {
        self.direct.leave(&self.model, &self.registry)
    }

    /// What `mode direct` had to say of the last commit.
    pub(crate) fn take_direct_said(&mut self) -> Vec<Said> {
        std::mem::take(&mut self.direct_said)
    }
}

/// What waits between two changes.
impl ChangeLine {
    /// Where questions of operators, responses of the kernel and those of name servers come from.
    pub(crate) fn sources(&mut self) -> (&mut Runtime, &mut Direct, &mut NameResolver) {
        (&mut self.runtime, &mut self.direct, &mut self.names)
    }

    /// The sockets of operators, whose postponed questions and rates are theirs alone.
    pub(crate) fn operators(&mut self) -> &mut Runtime {
        &mut self.runtime
    }

    /// Reads the counters for rates if that is due. Gives whether it is time to measure the event loops, too: they are while there is an exporter.
    pub(crate) fn read_rates(&mut self, now: Instant) -> bool {
        let Some(generation) = &self.generation else { return false };
        if self.runtime.due().is_none_or(|due| due > now) {
            return false;
        }
        self.runtime.read_rates(now, figures::all(generation, &self.registry));
        if generation.measures {
            generation.measure(&self.registry, now);
        }
        self.runtime.has_service()
    }

    /// What is watched for the configuration that came into use, once.
    pub(crate) fn take_watched(&mut self) -> Option<Upcoming> {
        self.watched.take()
    }

    /// The last changes of processes before this one, once.
    pub(crate) fn take_history_before(&mut self) -> Vec<ChangeRecord> {
        std::mem::take(&mut self.history_before)
    }

    /// Overrides that changed since the last time, for the master to know.
    pub(crate) fn take_untold(&mut self) -> Vec<(Object, Field)> {
        std::mem::take(&mut self.untold)
    }

    /// The lines of `show peers`, as [`Peers::show`] gives them.
    pub(crate) fn shown_peers(&self, section: &str, with_texts: bool) -> oneshot::Receiver<Option<String>> {
        self.peers.show(section, with_texts)
    }

    /// Peers with a connection, and those with a session.
    pub(crate) fn peer_sessions(&self) -> (usize, usize) {
        self.peers.sessions()
    }

    /// Other processes with which stick tables are shared.
    pub(crate) fn peers(&mut self) -> &mut Peers {
        &mut self.peers
    }

    /// Whether a process that we took over from has not ended yet: it may still hold an address.
    pub(crate) fn expect_end_of_others(&mut self, is_somebody_ending: bool) {
        self.is_somebody_ending = is_somebody_ending;
    }
}
