//! Carries the engine's outbox to one event sink, whichever it is.
//!
//! A publisher connects, tells the engine where the streams end, rewrites the sites' states and
//! publishes what the streams do not have; then it follows the outbox. When the sink is lost it
//! starts again from the connect. The sink never decides and never retries; this driver does,
//! and only while the leader gate is open. It must never publish an envelope whose predecessor
//! was not published, and it keeps no envelope of its own: the engine's outbox is the queue.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use metrics::{counter, gauge};
use sunward_core::action::Envelope;
use sunward_core::event::{Event, StreamEnd};
use sunward_core::protocol::leader::{LeaderGate, Leadership, TermSeen};
use sunward_core::protocol::outbox::Cursor;
use sunward_core::rng::{Purpose, unit_draw};
use tokio::time::{Instant, MissedTickBehavior, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use self::survey::{Pending, known_federations, lags, sites_of, survey, unanswered};
use super::{EventSink, SinkError};
use crate::engine_handle::{EngineHandle, Stopped};
use crate::metric_definitions::{DEPENDENCY_UP, EVENTS_PUBLISHED, OUTBOX_LAG, OUTBOX_OVERFLOWS};

mod survey;

/// Envelopes of one federation that are handed to the sink at once.
pub const BATCH_MAX: usize = 256;
/// Envelopes that are copied out of the engine at once, over all federations.
pub const SURVEY_MAX: usize = 4_096;
/// Federations whose ends one `sink up` carries, and one probe reads.
pub const GREETING_MAX: usize = 256;
/// While a raised term is waited for, the leader gate is looked at this often.
const RAISE_LOOK_EVERY: Duration = Duration::from_millis(20);

/// Keeps a sink's cursor: (federation, last envelope that the sink holds).
pub type SaveCursor = Arc<dyn Fn(&Arc<str>, Cursor) + Send + Sync>;
/// Told whenever the sink becomes usable or unusable: (sink, what is wrong).
pub type Readiness = Arc<dyn Fn(&str, Result<(), String>) + Send + Sync>;
/// Asks the engine loop to append `started` with a term above the given one, which was read on
/// the object (`stream:FEDERATION`). May return before that is done; may be called again.
pub type HigherTerm = Arc<dyn Fn(Arc<str>, u64) + Send + Sync>;

/// What a publisher tells the rest of the daemon.
#[derive(Clone)]
pub struct Hooks {
    /// Keeps the cursor.
    pub save_cursor: SaveCursor,
    /// Hears of readiness.
    pub readiness: Readiness,
    /// Raises the term.
    pub higher_term: HigherTerm,
}

/// How fast a publisher does what.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// An idle sink is asked this often whether it still holds what it was given.
    pub probe_every: Duration,
    /// Two looks at the outbox are at least this far apart, so that a storm of readings that
    /// publish nothing costs the engine loop little.
    pub look_spacing: Duration,
    /// First wait after a loss; it doubles with each that follows.
    pub backoff_min: Duration,
    /// Longest wait after a loss.
    pub backoff_max: Duration,
    /// At shutdown, what is pending is published for at most so long.
    pub flush_max: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Pace {
            probe_every: Duration::from_secs(1),
            look_spacing: Duration::from_millis(2),
            backoff_min: Duration::from_millis(100),
            backoff_max: Duration::from_secs(5),
            flush_max: Duration::from_secs(3),
        }
    }
}

/// Why following the outbox came to an end.
enum Ended {
    /// The daemon stops.
    Shutdown,
    /// The sink does not do what it should.
    Lost(String),
    /// The term changed: greet anew, nothing is wrong.
    Again,
    /// The leader gate is closed.
    Closed,
}

impl From<Stopped> for Ended {
    fn from(_: Stopped) -> Self {
        Ended::Shutdown
    }
}

/// The driver of one event sink.
pub struct Publisher {
    sink: Arc<dyn EventSink>,
    name: Arc<str>,
    engine: EngineHandle,
    hooks: Hooks,
    pace: Pace,
    seed: u64,
    /// Where each stream ends, as far as this publisher read or wrote it.
    positions: Arc<BTreeMap<Arc<str>, Cursor>>,
    /// The engine's term when the sink was greeted.
    greeted_in: u64,
    /// True after a greeting, until the sink is lost.
    connected: bool,
    /// The engine knows that the sink is lost.
    told_down: bool,
    /// Losses since the sink last answered a probe.
    losses: u32,
}

impl Publisher {
    /// A publisher of `engine`'s outbox to `sink`. `seed` spreads the waits after a loss.
    pub fn new(
        sink: Arc<dyn EventSink>,
        engine: EngineHandle,
        hooks: Hooks,
        seed: u64,
    ) -> Publisher {
        Publisher {
            name: sink.name().into(),
            sink,
            engine,
            hooks,
            pace: Pace::default(),
            seed,
            positions: Arc::default(),
            greeted_in: 0,
            connected: false,
            told_down: false,
            losses: 0,
        }
    }

    /// The same at another pace.
    #[must_use]
    pub fn with_pace(mut self, pace: Pace) -> Publisher {
        self.pace = pace;
        self
    }

    /// The same, going on from the cursors that were saved before.
    #[must_use]
    pub fn with_cursors(mut self, cursors: BTreeMap<Arc<str>, Cursor>) -> Publisher {
        self.positions = Arc::new(cursors);
        self
    }

    /// Publishes until `shutdown`, then what is pending, for at most `flush_max`. The engine
    /// loop must outlive it: cancel and await this before the loop is stopped.
    pub async fn run(mut self, shutdown: CancellationToken) {
        while !shutdown.is_cancelled() {
            let Err(ended) = self.follow(&shutdown).await;
            match ended {
                Ended::Shutdown => break,
                Ended::Again => {}
                Ended::Closed => self.wait_for_leadership(&shutdown).await,
                Ended::Lost(reason) => {
                    if self.lost(reason).await.is_err() {
                        break;
                    }
                    let wait = self.backoff();
                    tokio::select! {
                        () = shutdown.cancelled() => {}
                        () = sleep(wait) => {}
                    }
                }
            }
        }
        let flush_max = self.pace.flush_max;
        if timeout(flush_max, self.flush(&shutdown)).await != Ok(true) {
            tracing::warn!(
                sink = %self.name,
                "stopping with events that the sink does not have; the next start publishes them"
            );
        }
    }

    /// Greets the sink and follows the outbox until something ends it.
    async fn follow(&mut self, shutdown: &CancellationToken) -> Result<Infallible, Ended> {
        self.greet_all(shutdown).await?;
        self.found();
        let mut index = self.engine.index.clone();
        let mut probe = tokio::time::interval(self.pace.probe_every);
        probe.set_missed_tick_behavior(MissedTickBehavior::Delay);
        probe.reset();
        let mut probed: Option<Arc<str>> = None;
        loop {
            index.borrow_and_update();
            let next_look = Instant::now() + self.pace.look_spacing;
            self.publish_pending(shutdown).await?;
            // The probe stands before the index: readings never keep it waiting.
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return Err(Ended::Shutdown),
                _ = probe.tick() => probed = self.probe(probed, shutdown).await?,
                changed = index.changed() => changed.map_err(|_| Ended::Shutdown)?,
            }
            sleep_until(next_look).await;
        }
    }

    /// Reads where every stream ends, and brings engine and sink to the same view.
    async fn greet_all(&mut self, shutdown: &CancellationToken) -> Result<(), Ended> {
        if !self.gate().is_open() {
            return Err(Ended::Closed);
        }
        let (term, federations) = self.engine.ask(known_federations).await?;
        self.greeted_in = term;
        for some in federations.chunks(GREETING_MAX) {
            self.greet(some, shutdown).await?;
        }
        Ok(())
    }

    async fn greet(
        &mut self,
        federations: &[Arc<str>],
        shutdown: &CancellationToken,
    ) -> Result<(), Ended> {
        let ends = match self.sink.ends(federations).await {
            Ok(ends) => ends,
            Err(error) => return Err(self.refused(error, shutdown).await),
        };
        // The highest first, so that one raise is above them all.
        if let Some(highest) = ends.iter().max_by_key(|end| end.term) {
            self.check_term(highest, shutdown).await?;
        }
        self.count_unanswered(&ends).await?;
        self.engine
            .tell_and_wait(Event::SinkUp {
                sink: self.name.clone(),
                ends: ends.clone(),
                taken: self.taken(federations),
            })
            .await?;
        for federation in federations {
            let end = ends.iter().find(|end| end.federation == *federation);
            self.moved(federation, end.map_or_else(Cursor::default, position));
        }
        let names = federations.to_vec();
        let sites = self
            .engine
            .ask(move |engine| sites_of(engine, names))
            .await?;
        for (federation, sites) in &sites {
            if let Err(error) = self.sink.restate(federation, sites).await {
                return Err(self.refused(error, shutdown).await);
            }
        }
        Ok(())
    }

    /// Before the engine hears where the streams end: counts what was published although the
    /// answer was lost, and what left the outbox before it was published.
    async fn count_unanswered(&self, ends: &[StreamEnd]) -> Result<(), Ended> {
        let ends = ends.to_vec();
        let positions = self.positions.clone();
        let (published, overflowed) = self
            .engine
            .ask(move |engine| unanswered(engine, &ends, &positions))
            .await?;
        self.count(&published);
        for (federation, overflowed) in overflowed {
            self.report_overflow(&federation, overflowed);
        }
        Ok(())
    }

    /// Publishes until the sink has everything.
    async fn publish_pending(&mut self, shutdown: &CancellationToken) -> Result<(), Ended> {
        loop {
            if !self.gate().is_open() {
                return Err(Ended::Closed);
            }
            let positions = self.positions.clone();
            let survey = self
                .engine
                .ask(move |engine| survey(engine, &positions))
                .await?;
            if survey.term != self.greeted_in {
                return Err(Ended::Again);
            }
            if !survey.strangers.is_empty() {
                self.greet(&survey.strangers, shutdown).await?;
                continue;
            }
            if survey.pending.is_empty() {
                return Ok(());
            }
            for pending in survey.pending {
                self.publish(pending, shutdown).await?;
            }
        }
    }

    async fn publish(
        &mut self,
        pending: Pending,
        shutdown: &CancellationToken,
    ) -> Result<(), Ended> {
        let federation = pending.federation;
        if pending.overflowed > 0 {
            self.report_overflow(&federation, pending.overflowed);
        }
        self.set_lag(&federation, pending.lag);
        if let Err(error) = self.sink.publish(&pending.envelopes).await {
            return Err(self.refused(error, shutdown).await);
        }
        self.gate().wrote(&stream_object(&federation));
        self.count(&pending.envelopes);
        if let Some(last) = pending.envelopes.last() {
            self.moved(&federation, Cursor::of(last));
        }
        self.set_lag(&federation, pending.lag - pending.envelopes.len());
        Ok(())
    }

    /// Asks the sink whether some of the streams still end where they were left, going on after
    /// `last`. Every call is a sign of life as well.
    async fn probe(
        &mut self,
        last: Option<Arc<str>>,
        shutdown: &CancellationToken,
    ) -> Result<Option<Arc<str>>, Ended> {
        let after = last.as_ref();
        let some: Vec<_> = self
            .positions
            .keys()
            .filter(|federation| after.is_none_or(|after| *federation > after))
            .take(GREETING_MAX)
            .cloned()
            .collect();
        let ends = match self.sink.ends(&some).await {
            Ok(ends) => ends,
            Err(error) => return Err(self.refused(error, shutdown).await),
        };
        for federation in &some {
            let left_at = self.positions.get(federation).copied().unwrap_or_default();
            let end = ends.iter().find(|end| end.federation == *federation);
            if let Some(end) = end {
                self.check_term(end, shutdown).await?;
            }
            let found = end.map_or_else(Cursor::default, position);
            if found != left_at {
                return Err(Ended::Lost(format!(
                    "{}: the stream of federation {federation} ends at {}-{}, and was left at \
                     {}-{}: the server lost data, or something else writes there",
                    self.name, found.term, found.sequence, left_at.term, left_at.sequence
                )));
            }
        }
        self.losses = 0;
        Ok(some.last().filter(|_| some.len() == GREETING_MAX).cloned())
    }

    /// What a refusal by the sink means.
    async fn refused(&self, error: SinkError, shutdown: &CancellationToken) -> Ended {
        match error {
            SinkError::Unavailable(reason) => Ended::Lost(reason),
            SinkError::Fenced(end) => match self.check_term(&end, shutdown).await {
                Err(ended) => ended,
                // Not above our term: the view of the stream was wrong, so read it again.
                Ok(()) => Ended::Lost(format!("{}: {}", self.name, SinkError::Fenced(end))),
            },
        }
    }

    /// Passes a term that was read on a stream through the leader gate.
    async fn check_term(&self, end: &StreamEnd, shutdown: &CancellationToken) -> Result<(), Ended> {
        let object = stream_object(&end.federation);
        let seen = self.gate().saw(&object, end.term);
        match seen {
            TermSeen::Ours => Ok(()),
            TermSeen::Resign => {
                // The gate is closed already; the engine loop says so everywhere else.
                (self.hooks.higher_term)(object, end.term);
                Err(Ended::Closed)
            }
            TermSeen::Absurd => Err(Ended::Lost(format!(
                "{}: the stream of federation {} ends at {}-{}, a term that no daemon counts to: \
                 delete that entry",
                self.name, end.federation, end.term, end.sequence
            ))),
            TermSeen::Raise { above } => {
                tracing::info!(object = %object, term = above, "a higher term was read; going above it");
                (self.hooks.higher_term)(object, above);
                Err(self.wait_above(above, shutdown).await)
            }
        }
    }

    /// Waits until engine and gate are above `term`.
    async fn wait_above(&self, term: u64, shutdown: &CancellationToken) -> Ended {
        loop {
            match self.engine.ask(|engine| engine.state().term).await {
                Err(Stopped) => return Ended::Shutdown,
                Ok(now) if now > term && self.gate().term() > term => return Ended::Again,
                Ok(_) if !self.gate().is_open() => return Ended::Closed,
                Ok(_) => {}
            }
            tokio::select! {
                () = shutdown.cancelled() => return Ended::Shutdown,
                () = sleep(RAISE_LOOK_EVERY) => {}
            }
        }
    }

    /// The gate is closed: nothing is written any more, unless it opens again.
    async fn wait_for_leadership(&mut self, shutdown: &CancellationToken) {
        self.connected = false;
        let why = match self.gate().leadership() {
            Leadership::Resigned { object, term } => {
                format!("resigned: {object} carries the higher term {term}")
            }
            Leadership::Leading => return,
        };
        tracing::warn!(sink = %self.name, "{why}; nothing more is published");
        (self.hooks.readiness)(&self.name, Err(why));
        while !self.gate().is_open() {
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = sleep(self.pace.probe_every) => {}
            }
        }
    }

    /// At shutdown: true when the sink has everything, or may not have it from us.
    async fn flush(&mut self, shutdown: &CancellationToken) -> bool {
        if !self.connected {
            match self.greet_all(shutdown).await {
                Ok(()) => {}
                Err(ended) => return matches!(ended, Ended::Closed),
            }
        }
        match self.publish_pending(shutdown).await {
            Ok(()) => true,
            Err(ended) => matches!(ended, Ended::Closed),
        }
    }

    fn found(&mut self) {
        self.connected = true;
        self.told_down = false;
        tracing::info!(sink = %self.name, "connected");
        self.set_up(true);
        (self.hooks.readiness)(&self.name, Ok(()));
    }

    async fn lost(&mut self, reason: String) -> Result<(), Stopped> {
        self.connected = false;
        self.losses = self.losses.saturating_add(1);
        self.set_up(false);
        (self.hooks.readiness)(&self.name, Err(reason.clone()));
        if !self.told_down {
            self.told_down = true;
            tracing::warn!(sink = %self.name, "lost: {reason}");
            self.engine
                .tell(Event::SinkDown {
                    sink: self.name.clone(),
                    reason,
                })
                .await?;
        }
        let positions = self.positions.clone();
        let survey = self
            .engine
            .ask(move |engine| lags(engine, &positions))
            .await?;
        for (federation, lag) in survey {
            self.set_lag(&federation, lag);
        }
        Ok(())
    }

    /// Half of the wait is drawn, so that many daemons do not come back in step.
    fn backoff(&self) -> Duration {
        let doubled = 2_u32.saturating_pow(self.losses.saturating_sub(1));
        let whole = self
            .pace
            .backoff_min
            .saturating_mul(doubled)
            .min(self.pace.backoff_max);
        let draw = unit_draw(
            self.seed,
            Purpose::RetryJitter,
            &self.name,
            u64::from(self.losses),
        );
        whole.mul_f64(0.5 + draw / 2.0)
    }

    /// How far the sink is known to have come.
    fn taken(&self, federations: &[Arc<str>]) -> Vec<StreamEnd> {
        self.positions
            .iter()
            .filter(|(federation, _)| federations.contains(federation))
            .map(|(federation, cursor)| StreamEnd {
                federation: federation.clone(),
                term: cursor.term,
                sequence: cursor.sequence,
            })
            .collect()
    }

    fn moved(&mut self, federation: &Arc<str>, to: Cursor) {
        Arc::make_mut(&mut self.positions).insert(federation.clone(), to);
        if to != Cursor::default() {
            (self.hooks.save_cursor)(federation, to);
        }
    }

    /// No update of the gate can be half done, so a poisoned lock is as good as any.
    fn gate(&self) -> MutexGuard<'_, LeaderGate> {
        self.engine
            .gate
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn set_up(&self, up: bool) {
        let gauge = gauge!(DEPENDENCY_UP, "kind" => "sink", "name" => self.name.to_string());
        gauge.set(if up { 1.0 } else { 0.0 });
    }

    fn set_lag(&self, federation: &Arc<str>, lag: usize) {
        gauge!(
            OUTBOX_LAG,
            "sink" => self.name.to_string(),
            "federation" => federation.to_string()
        )
        .set(lag as f64);
    }

    fn count(&self, published: &[Envelope]) {
        for envelope in published {
            counter!(
                EVENTS_PUBLISHED,
                "sink" => self.name.to_string(),
                "kind" => envelope.kind.as_str()
            )
            .increment(1);
        }
    }

    fn report_overflow(&self, federation: &Arc<str>, envelopes: u64) {
        tracing::error!(
            sink = %self.name,
            federation = %federation,
            envelopes,
            "events left the outbox before the sink took them: members have a gap and must read the site hashes"
        );
        counter!(
            OUTBOX_OVERFLOWS,
            "sink" => self.name.to_string(),
            "federation" => federation.to_string()
        )
        .increment(envelopes);
    }
}

/// The name under which the leader gate knows a federation's stream.
pub fn stream_object(federation: &str) -> Arc<str> {
    format!("stream:{federation}").into()
}

fn position(end: &StreamEnd) -> Cursor {
    Cursor {
        term: end.term,
        sequence: end.sequence,
    }
}
