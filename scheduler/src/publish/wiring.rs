//! A publisher as the daemon runs it: its cursors, readiness and terms.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use metrics::gauge;
use sunward_core::protocol::leader::TERM_MAX;
use sunward_core::protocol::outbox::Cursor;

use super::EventSink;
use super::publisher::{Hooks, Publisher};
use crate::engine_handle::EngineHandle;
use crate::metric_definitions as names;
use crate::readiness::Readiness;
use crate::writer::Writer;

/// The publisher of one sink.
pub fn publisher(
    sink: Arc<dyn EventSink>,
    engine: &EngineHandle,
    readiness: &Readiness,
    seed: u64,
) -> Publisher {
    let (cursors, terms) = (engine.clone(), engine.clone());
    let runtime = tokio::runtime::Handle::current();
    let readiness = readiness.clone();
    let name = sink.name();
    let spawner = runtime.clone();
    let hooks = Hooks {
        save_cursor: Arc::new(move |federation, cursor| {
            let cursors = cursors.clone();
            let key = cursor_key(name, federation);
            let bytes = rmp_serde::to_vec_named(&cursor).expect("a cursor is two integers");
            spawner.spawn(async move { cursors.save_cursor(key, bytes).await });
        }),
        readiness: Arc::new(move |sink, state| {
            gauge!(names::DEPENDENCY_UP, "kind" => "sink", "name" => sink.to_owned())
                .set(f64::from(u8::from(state.is_ok())));
            readiness.set(&format!("sink:{sink}"), state);
        }),
        higher_term: Arc::new(move |object, term| {
            let terms = terms.clone();
            runtime.spawn(async move { terms.higher_term(object, term).await });
        }),
    };
    Publisher::new(sink, engine.clone(), hooks, seed)
}

/// The key of a cursor beside the journal.
fn cursor_key(sink: &str, federation: &str) -> String {
    format!("{sink}/{federation}")
}

/// How far a sink had come when its cursors were last saved; one that is lost or unreadable only
/// means that something is published again, under the same id.
pub fn saved_cursors(writer: &Writer, sink: &str) -> BTreeMap<Arc<str>, Cursor> {
    let federations = writer.engine().state().federations.keys();
    let saved = federations.filter_map(|federation| {
        let bytes = writer
            .journal()
            .cursor(&cursor_key(sink, federation))
            .ok()??;
        Some((federation.clone(), rmp_serde::from_slice(&bytes).ok()?))
    });
    saved.collect()
}

/// The highest term that can be read within 2 s on the sinks' streams; clusters tell theirs when
/// their pools are claimed.
pub async fn highest_term(sinks: &[Arc<dyn EventSink>], federations: &[Arc<str>]) -> u64 {
    let mut highest = 0;
    for sink in sinks {
        let ends = tokio::time::timeout(Duration::from_secs(2), sink.ends(federations)).await;
        match ends {
            Ok(Ok(ends)) => {
                highest = ends
                    .iter()
                    .map(|end| end.term)
                    .filter(|term| *term <= TERM_MAX)
                    .fold(highest, u64::max);
            }
            Ok(Err(error)) => {
                tracing::warn!(sink = sink.name(), %error, "its terms are read later");
            }
            Err(_) => tracing::warn!(
                sink = sink.name(),
                "no answer within 2 s; its terms are read later"
            ),
        }
    }
    highest
}
