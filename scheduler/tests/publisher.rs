//! The driver of event sinks, with the real engine and sinks inside the process.
#![allow(clippy::unwrap_used, missing_docs)]

mod publish_support;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use publish_support::stand_in::{StandIn, TURN, quick};
use publish_support::until;
use sunward::publish::memory::MemorySink;
use sunward::publish::publisher::{BATCH_MAX, Pace, stream_object};
use sunward::publish::{EventSink, SinkError, SiteNow};
use sunward_core::action::{Cause, Envelope, EventKind};
use sunward_core::event::StreamEnd;
use sunward_core::protocol::leader::Leadership;
use sunward_core::rounds::{OUTBOX_MAX, Presence};
use sunward_core::time::Timestamp;

/// What goes wrong with a call, in front of a memory sink.
#[derive(Clone, Copy, PartialEq)]
enum Fault {
    /// The call does not arrive.
    Unreachable,
    /// The call takes effect, and its answer is lost.
    AnswerLost,
}

#[derive(Default)]
struct Flaky {
    kept: MemorySink,
    /// For the next calls of publish.
    publishes: Mutex<VecDeque<Fault>>,
    /// While true, nothing answers.
    away: Mutex<bool>,
}

impl Flaky {
    fn reach(&self) -> Result<(), SinkError> {
        if *self.away.lock().unwrap() {
            return Err(SinkError::Unavailable("away for a test".into()));
        }
        Ok(())
    }

    fn set_away(&self, away: bool) {
        *self.away.lock().unwrap() = away;
    }
}

#[async_trait]
impl EventSink for Flaky {
    fn name(&self) -> &'static str {
        "flaky"
    }

    async fn ends(&self, federations: &[Arc<str>]) -> Result<Vec<StreamEnd>, SinkError> {
        self.reach()?;
        self.kept.ends(federations).await
    }

    async fn restate(
        &self,
        federation: &Arc<str>,
        sites: &[(Arc<str>, SiteNow)],
    ) -> Result<(), SinkError> {
        self.reach()?;
        self.kept.restate(federation, sites).await
    }

    async fn publish(&self, envelopes: &[Envelope]) -> Result<(), SinkError> {
        self.reach()?;
        let fault = self.publishes.lock().unwrap().pop_front();
        if fault == Some(Fault::Unreachable) {
            return Err(SinkError::Unavailable("no route for a test".into()));
        }
        self.kept.publish(envelopes).await?;
        match fault {
            Some(_) => Err(SinkError::Unavailable("answer lost for a test".into())),
            None => Ok(()),
        }
    }
}

/// An envelope of another daemon.
fn foreign(term: u64, sequence: u64) -> Envelope {
    Envelope {
        id: format!("{term}-{sequence}").into(),
        term,
        sequence,
        federation: "job".into(),
        kind: EventKind::SiteReady,
        site: "elsewhere".into(),
        time: Timestamp::from_millis(1),
        deadline: None,
        power_percent: None,
        cause: Cause {
            index: 1,
            by: "other".into(),
            why: "another daemon".into(),
        },
    }
}

async fn until_equal(world: &StandIn, sink: &MemorySink, federation: &str) -> Vec<Envelope> {
    until("the sink to hold the outbox", || async {
        let outbox = world.outbox(federation).await;
        (sink.envelopes(federation) == outbox).then_some(outbox)
    })
    .await
}

#[tokio::test]
async fn what_was_there_and_what_comes_is_published_once_and_in_order() {
    let world = StandIn::new(1);
    world.turns("job", "caiso", 300).await;
    let sink = Arc::new(MemorySink::new());
    let running = world.publish_to(sink.clone(), quick());
    let outbox = until_equal(&world, &sink, "job").await;
    assert_eq!(outbox.len(), 300 * TURN);
    // A federation that was unknown at the greeting.
    world.turns("night", "ercot", 1).await;
    world.turns("job", "caiso", BATCH_MAX).await;
    until_equal(&world, &sink, "night").await;
    let outbox = until_equal(&world, &sink, "job").await;
    let sequences: Vec<u64> = outbox.iter().map(|envelope| envelope.sequence).collect();
    assert_eq!(
        sequences,
        (1..=(300 + BATCH_MAX as u64) * TURN as u64).collect::<Vec<_>>()
    );
    until("the cursor", || async {
        let cursor = world.cursors.lock().unwrap().get("job").copied()?;
        (cursor.sequence == sequences.len() as u64).then_some(())
    })
    .await;
    let state = sink.restated("job", "caiso").unwrap();
    assert_eq!(state.state.presence, Presence::Away);
    assert_eq!(state.power_percent, 100);
    assert_eq!(world.readiness.lock().unwrap().clone(), [Ok(())]);
    assert_eq!(world.told().1, 0);
    assert!(world.state().await.sinks_up.contains("memory"));
    running.stop().await;
}

#[tokio::test]
async fn an_outage_is_told_once_and_what_came_meanwhile_follows_in_order() {
    let world = StandIn::new(1);
    let sink = Arc::new(Flaky::default());
    sink.set_away(true);
    let running = world.publish_to(sink.clone(), quick());
    let reason = world.until_ready(false).await.unwrap_err();
    assert_eq!(reason, "away for a test");
    world.turns("job", "caiso", 3).await;
    sink.set_away(false);
    world.until_ready(true).await.unwrap();
    until_equal(&world, &sink.kept, "job").await;
    assert_eq!(world.told().1, 1, "the first outage");
    sink.set_away(true);
    world.until_ready(false).await.unwrap_err();
    world.turns("job", "caiso", 3).await;
    // Several attempts fail meanwhile; the engine hears of one outage.
    until("three attempts", || async {
        let said = world.readiness.lock().unwrap();
        let failed = said.iter().rev().take_while(|ready| ready.is_err()).count();
        (failed >= 3).then_some(())
    })
    .await;
    assert!(!world.state().await.sinks_up.contains("flaky"));
    sink.set_away(false);
    world.until_ready(true).await.unwrap();
    assert_eq!(until_equal(&world, &sink.kept, "job").await.len(), 6 * TURN);
    assert_eq!(world.told().1, 2);
    running.stop().await;
}

#[tokio::test]
async fn an_emptied_sink_is_made_whole_with_the_same_ids_though_nothing_new_happens() {
    let world = StandIn::new(1);
    let sink = Arc::new(MemorySink::new());
    let running = world.publish_to(sink.clone(), quick());
    world.turns("job", "caiso", 2).await;
    let before = until_equal(&world, &sink, "job").await;
    sink.clear();
    assert_eq!(until_equal(&world, &sink, "job").await, before);
    running.stop().await;
}

#[tokio::test]
async fn a_lost_answer_publishes_nothing_twice_and_a_lost_call_leaves_no_gap() {
    let world = StandIn::new(1);
    let sink = Arc::new(Flaky::default());
    let running = world.publish_to(sink.clone(), quick());
    for fault in [Fault::AnswerLost, Fault::Unreachable, Fault::AnswerLost] {
        sink.publishes.lock().unwrap().push_back(fault);
        world.turns("job", "caiso", 5).await;
        until("the fault", || async {
            sink.publishes.lock().unwrap().is_empty().then_some(())
        })
        .await;
    }
    until_equal(&world, &sink.kept, "job").await;
    assert_eq!(sink.kept.taken(), 15 * TURN as u64);
    running.stop().await;
}

#[tokio::test]
async fn a_higher_term_on_an_unwritten_stream_is_gone_above_and_the_rest_issued_anew() {
    let world = StandIn::new(1);
    let sink = Arc::new(MemorySink::new());
    // Another journal's envelopes stand on the stream: all of ours go behind them.
    sink.publish(&[foreign(9, 1), foreign(9, 2)]).await.unwrap();
    world.turns("job", "caiso", 1).await;
    let running = world.publish_to(sink.clone(), quick());
    let stream = until("the rest", || async {
        let stream = sink.envelopes("job");
        (stream.len() == 2 + TURN).then_some(stream)
    })
    .await;
    let ids: Vec<_> = stream
        .iter()
        .map(|envelope| (envelope.term, envelope.sequence, envelope.id.to_string()))
        .collect();
    assert_eq!(ids[2], (10, 3, "1-1".into()));
    assert_eq!(ids[5], (10, 6, "1-4".into()));
    assert!(world.handle.gate.lock().unwrap().is_open());
    assert_eq!(world.state().await.term, 10);
    assert!(world.state().await.sinks_up.contains("memory"));
    running.stop().await;
}

#[tokio::test]
async fn a_term_raised_elsewhere_greets_the_sink_again() {
    let world = StandIn::new(1);
    let sink = Arc::new(MemorySink::new());
    let running = world.publish_to(sink.clone(), quick());
    world.turns("job", "caiso", 1).await;
    until_equal(&world, &sink, "job").await;
    world.raise(1);
    until("the sink to be up in the new term", || async {
        let state = world.state().await;
        (state.term == 2 && state.sinks_up.contains("memory")).then_some(())
    })
    .await;
    world.turns("job", "caiso", 1).await;
    let outbox = until_equal(&world, &sink, "job").await;
    let last = outbox.last().unwrap();
    assert_eq!((last.term, last.sequence), (2, 8));
    assert_eq!(world.told().1, 0, "nothing was lost");
    running.stop().await;
}

#[tokio::test]
async fn a_former_leader_resigns_and_writes_nothing_more() {
    let world = StandIn::new(3);
    let sink = Arc::new(MemorySink::new());
    let running = world.publish_to(sink.clone(), quick());
    world.turns("job", "caiso", 1).await;
    until_equal(&world, &sink, "job").await;
    sink.publish(&[foreign(4, 5)]).await.unwrap();
    world.turns("job", "caiso", 1).await;
    let why = world.until_ready(false).await.unwrap_err();
    assert_eq!(why, "resigned: stream:job carries the higher term 4");
    let leadership = world.handle.gate.lock().unwrap().leadership().clone();
    assert_eq!(
        leadership,
        Leadership::Resigned {
            object: stream_object("job").to_string(),
            term: 4
        }
    );
    world.turns("job", "caiso", 1).await;
    // Stopping flushes nothing either.
    running.stop().await;
    assert_eq!(sink.envelopes("job").len(), TURN + 1);
}

#[tokio::test]
async fn what_is_pending_at_shutdown_is_published_first() {
    let world = StandIn::new(1);
    let sink = Arc::new(MemorySink::new());
    // So slow a look that what follows is still pending when it is told to stop.
    let pace = Pace {
        look_spacing: Duration::from_secs(1),
        ..Pace::default()
    };
    let running = world.publish_to(sink.clone(), pace);
    world.turns("job", "caiso", 1).await;
    until_equal(&world, &sink, "job").await;
    world.turns("job", "caiso", 200).await;
    running.stop().await;
    assert_eq!(sink.envelopes("job"), world.outbox("job").await);
    assert_eq!(sink.envelopes("job").len(), 201 * TURN);
}

#[tokio::test]
async fn a_sink_that_stays_away_does_not_hold_up_the_shutdown() {
    let world = StandIn::new(1);
    let sink = Arc::new(Flaky::default());
    sink.set_away(true);
    let running = world.publish_to(sink.clone(), quick());
    world.turns("job", "caiso", 1).await;
    world.until_ready(false).await.unwrap_err();
    tokio::time::timeout(Duration::from_secs(20), running.stop())
        .await
        .expect("an absent sink ends the flush at once");
    assert_eq!(sink.kept.taken(), 0);
}

#[tokio::test]
async fn more_than_the_outbox_holds_loses_the_oldest_and_goes_on() {
    let world = StandIn::new(1);
    let sink = Arc::new(Flaky::default());
    let running = world.publish_to(sink.clone(), quick());
    world.turns("job", "caiso", 1).await;
    until_equal(&world, &sink.kept, "job").await;
    sink.set_away(true);
    world.until_ready(false).await.unwrap_err();
    world.turns("job", "caiso", OUTBOX_MAX / TURN + 10).await;
    sink.set_away(false);
    world.until_ready(true).await.unwrap();
    until("the newest", || async {
        let last = world.outbox("job").await.last().cloned();
        (sink.kept.envelopes("job").last().cloned() == last).then_some(())
    })
    .await;
    assert_eq!(sink.kept.taken(), (TURN + OUTBOX_MAX) as u64);
    running.stop().await;
}
