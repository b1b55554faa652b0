//! The readings of the group being built: which are new, and who waits for an answer.

use std::collections::BTreeMap;
use std::time::Instant;

use sunward_core::action::{Action, Effects, Reply};
use sunward_core::event::Event;
use sunward_core::protocol::group::Group;
use sunward_signal_adapters::intake::{DedupeKey, ItemResult, Submission};
use tokio::sync::oneshot;

use crate::journal::{self, DedupeEntry};
use crate::keyed_hash::{ByHash, KeyedHash};
use crate::writer::Writer;

/// A submission whose readings are in the group being built.
struct Pending {
    ticket: oneshot::Sender<Vec<ItemResult>>,
    results: Vec<ItemResult>,
    /// For each reading kept: its position in the request, in order.
    kept: Vec<usize>,
    /// Position in the group of the first reading kept.
    first: usize,
    arrived: Instant,
}

/// The submissions of one group.
#[derive(Default)]
pub(super) struct Submissions {
    keys: Vec<DedupeKey>,
    hash: KeyedHash,
    /// Position in `keys` by the hash of (source, id).
    named: ByHash<usize>,
    pending: Vec<Pending>,
}

impl Submissions {
    /// When the earliest of them had arrived.
    pub(super) fn arrived(&self) -> Option<Instant> {
        self.pending.iter().map(|pending| pending.arrived).min()
    }

    /// The ids to be remembered with the group.
    pub(super) fn dedupe(&self) -> Vec<DedupeEntry<'_>> {
        self.keys
            .iter()
            .map(|key| DedupeEntry {
                source: &key.source,
                id: &key.id,
                hash: key.hash,
            })
            .collect()
    }

    /// Forgets a group that was not kept: its senders are told 503, and try again.
    pub(super) fn drop_all(&mut self) {
        self.pending.clear();
        self.group_ended();
    }

    fn group_ended(&mut self) {
        self.keys.clear();
        self.named.clear();
    }

    /// Adds a submission to the group, without its duplicates and without what finds no room.
    pub(super) fn add(&mut self, submission: Submission, writer: &Writer, group: &mut Group) {
        let Submission {
            mut request,
            keys,
            arrived,
            ticket,
        } = submission;
        let asked: Vec<_> = keys
            .iter()
            .map(|key| journal::DedupeKey {
                source: &key.source,
                id: &key.id,
            })
            .collect();
        let Ok(seen) = writer.journal().seen(&asked) else {
            // Unanswered: the sender is told 503 and tries again.
            return;
        };
        let board = &writer.engine().state().board;
        let mut results = Vec::with_capacity(keys.len());
        let mut kept = Vec::with_capacity(keys.len());
        for (position, (key, seen)) in keys.into_iter().zip(seen).enumerate() {
            let name = self.hash.of(&key.source, &key.id);
            let here = self.named.get(&name).map(|position| &self.keys[*position]);
            let here = here.filter(|here| here.source == key.source && here.id == key.id);
            let known = seen.or(here.map(|here| here.hash));
            let result = match (known, request.events().get(position)) {
                (Some(hash), _) if hash == key.hash => ItemResult::Duplicate,
                (Some(_), _) => ItemResult::Conflict,
                // What is not kept must not be remembered as kept.
                (None, Some(Event::SignalAccepted(level))) if !board.admits(&level.stream) => {
                    ItemResult::BoardFull
                }
                (None, _) => ItemResult::Accepted,
            };
            if result == ItemResult::Accepted {
                kept.push(position);
                self.named.insert(name, self.keys.len());
                self.keys.push(key);
            }
            results.push(result);
        }
        request.retain(|position| results[position] == ItemResult::Accepted);
        let first = group.add(request);
        self.pending.push(Pending {
            ticket,
            results,
            kept,
            first,
            arrived,
        });
    }

    /// Answers the tickets of a group that was stepped, or that came out empty.
    pub(super) fn answer(&mut self, effects: Option<&Effects>) {
        if self.pending.is_empty() {
            return;
        }
        let replies: BTreeMap<usize, Reply> = effects
            .into_iter()
            .flat_map(|effects| &effects.actions)
            .filter_map(|action| match action {
                Action::Reply { position, reply } => Some((*position as usize, *reply)),
                _ => None,
            })
            .collect();
        for mut pending in self.pending.drain(..) {
            for (offset, position) in pending.kept.iter().enumerate() {
                match replies.get(&(pending.first + offset)) {
                    Some(Reply::Superseded) => pending.results[*position] = ItemResult::Superseded,
                    Some(Reply::BoardFull) => pending.results[*position] = ItemResult::BoardFull,
                    None => {}
                }
            }
            // The sender may have hung up; what it sent is durable all the same.
            let _ = pending.ticket.send(pending.results);
        }
        self.group_ended();
    }
}
