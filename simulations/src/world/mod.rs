//! The world: discrete events in one queue, simulated time, one seed.
//!
//! It drives the production core as the daemon does: [`Engine::step`] and the protocol modules
//! (group commit, leader gate, slots, outbox cursor) are the shipped ones. What they talk to are
//! stand-ins: API servers (`cluster`), Redis (`streams`), the journal (`log`), partners
//! (`signals`). Participants of the training job come with a later issue; they will be events
//! of this queue like everyone else.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::Arc;

use sunward_core::action::Effects;
use sunward_core::engine::{Digest, Engine, State};
use sunward_core::protocol::commit::Commit;
use sunward_core::protocol::leader::LeaderGate;
use sunward_core::time::{Span, Timestamp};

use crate::accounting::Figures;
use crate::check::{Checks, Violation};
use crate::draw::Draws;
use crate::fault::{Counts, Fault};
use crate::scenario::Scenario;

mod account;
mod calls;
mod cluster;
mod daemon;
mod disturb;
mod lives;
mod log;
mod operators;
mod publisher;
mod queue;
mod settle;
mod signals;
mod streams;

use self::account::Accounts;
use self::calls::{Answer, Flight, Order};
use self::cluster::{Clusters, Seen};
use self::daemon::{Forming, Replica};
use self::disturb::Ending;
use self::log::Log;
use self::operators::Desk;
use self::queue::Queue;
use self::signals::{Batch, Reading, Source};
use self::streams::Streams;

/// Steps of the world after which a run is given up: a fault of ours, or a far too long one.
const HAPPENINGS_MAX: u64 = 2_000_000_000;

/// Where the world gets its core from. The default is the production core; tests plant bugs.
#[derive(Clone)]
pub struct Core {
    /// An engine of a state.
    pub engine: Arc<dyn Fn(State) -> Engine + Send + Sync>,
    /// The gate of a leader in a term.
    pub gate: Arc<dyn Fn(u64) -> LeaderGate + Send + Sync>,
    /// The phases of a group.
    pub commit: Arc<dyn Fn() -> Commit + Send + Sync>,
}

impl Default for Core {
    fn default() -> Core {
        Core {
            engine: Arc::new(Engine::restore),
            gate: Arc::new(LeaderGate::new),
            commit: Arc::new(Commit::new),
        }
    }
}

/// How a run is made.
#[derive(Clone, Default)]
pub struct Options {
    /// Determines everything that is drawn.
    pub seed: u64,
    /// Off: no checker looks, and nothing is kept for them.
    pub unchecked: bool,
    /// Compare digests at every index, which takes most of the time then.
    pub every_digest: bool,
    /// Write down what happens, line by line.
    pub transcript: bool,
    /// The API server of this cluster is away from that instant on, and calls to it hang.
    pub broken: Option<(Arc<str>, Timestamp)>,
    /// The core under test.
    pub core: Core,
}

/// What a run came to.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Digest of the journal's last state.
    pub digest: Digest,
    /// Index of the journal's last group.
    pub index: u64,
    /// What did not hold.
    pub violations: Vec<Violation>,
    /// What went wrong in the world.
    pub faults: Counts,
    /// Each site's account, by name.
    pub sites: Vec<(Arc<str>, Figures)>,
    /// Simulated time.
    pub length: Span,
    /// From the first step until the work was done, where there was work to do and it was.
    pub work_done_after: Option<Span>,
    /// Training done, in site-hours.
    pub work_hours: f64,
    /// What happened, where it was asked for.
    pub transcript: String,
    /// Pools that the oracle judges; the others' targets are not compared.
    pub judged_pools: usize,
}

/// A replica, and which of its lives.
type Life = (usize, u32);

/// Something that happens.
enum Happening {
    /// Some source's next reading is due.
    Emit,
    /// A reading arrives at the service.
    Deliver(Box<Reading>),
    /// The engine loop looks around.
    Kick(Life),
    /// A group is durable, if nobody else was faster.
    Durable(Life, Box<Forming>),
    /// A follower reads on.
    Tail(Life),
    /// A call leaves the daemon.
    Send(Life, Box<Order>),
    /// A write arrives at the API server.
    Land(Box<Flight>),
    /// A call's answer, or its deadline.
    Answer(Life, Box<Answer>),
    /// A watch delivers.
    Watch(Life, Box<Seen>),
    /// A worker's delay is over.
    Worker { pool: usize, worker: u64 },
    /// The note after a scale write is written on the object.
    Note {
        pool: usize,
        term: u64,
        at: Timestamp,
    },
    /// The publisher goes on.
    Sink(Life),
    /// A fault of this kind is due.
    Strike(Fault),
    /// A lasting fault ends.
    Ends(Ending),
    /// The lease has run out.
    Lease,
    /// A power cap begins or ends.
    Caps,
    /// The API server that is to be away for good goes.
    Break,
    /// A look from outside, once a minute.
    Look,
}

impl Happening {
    /// The life that it happens to, where it does.
    fn life(&self) -> Option<Life> {
        match self {
            Happening::Kick(life)
            | Happening::Durable(life, _)
            | Happening::Tail(life)
            | Happening::Send(life, _)
            | Happening::Answer(life, _)
            | Happening::Watch(life, _)
            | Happening::Sink(life) => Some(*life),
            _ => None,
        }
    }
}

/// Draws by purpose.
struct Dice {
    network: Draws,
    disk: Draws,
    hosts: Draws,
    partners: Draws,
    faults: Draws,
    lease: Draws,
    operators: Draws,
}

/// A run in progress.
struct World<'a> {
    scenario: &'a Scenario,
    options: &'a Options,
    now: Timestamp,
    queue: Queue<Happening>,
    dice: Dice,
    log: Log,
    replicas: Vec<Replica>,
    /// Who holds the lease.
    holder: Option<usize>,
    clusters: Clusters,
    streams: Streams,
    sources: Vec<Source>,
    batch: Batch,
    /// The id of a reading that nobody tells from another.
    blank: Arc<str>,
    /// Faults of calls, hosts and readings that wait for one to strike.
    armed_calls: VecDeque<Fault>,
    armed_hosts: VecDeque<Fault>,
    armed_signals: VecDeque<Fault>,
    armed_answers: u32,
    armed_publishes: u32,
    armed_kills: u32,
    faults: Counts,
    accounts: Accounts,
    checks: Option<Checks>,
    transcript: Option<String>,
    effects: Effects,
    progress: settle::Progress,
    desk: Desk,
}

/// A run that has not begun: its series are generated, nothing has happened.
pub struct Prepared<'a>(World<'a>);

/// Prepares a run of a scenario.
pub fn prepare<'a>(scenario: &'a Scenario, options: &'a Options) -> Prepared<'a> {
    Prepared(World::new(scenario, options))
}

impl<'a> Prepared<'a> {
    /// Plays it to its end.
    pub fn play(self) -> Played<'a> {
        let mut world = self.0;
        world.begin();
        let mut happenings = 0_u64;
        while let Some((at, happening)) = world.queue.pop() {
            if at >= world.scenario.end {
                break;
            }
            happenings += 1;
            if happenings > HAPPENINGS_MAX || world.checks.as_ref().is_some_and(Checks::is_full) {
                break;
            }
            world.now = at;
            world.happens(happening);
        }
        Played(world)
    }
}

/// A run that is over, and has not been looked at yet.
pub struct Played<'a>(World<'a>);

impl Played<'_> {
    /// The last checks, the digest and the accounts.
    pub fn outcome(self) -> Outcome {
        self.0.finish()
    }
}

/// Runs a scenario to its end.
pub fn run(scenario: &Scenario, options: &Options) -> Outcome {
    prepare(scenario, options).play().outcome()
}

impl<'a> World<'a> {
    fn new(scenario: &'a Scenario, options: &'a Options) -> World<'a> {
        let seed = options.seed;
        let draws = |name| Draws::new(seed, name);
        let mut clusters = Clusters::new(scenario);
        clusters.adopt_delays(&mut draws("delays"));
        let pools = clusters.homes.len();
        let replicas = (0..scenario.replicas)
            .map(|r| Replica::new(&options.core, r, scenario.replicas == 1, pools, seed))
            .collect();
        let quiet = options.unchecked && scenario.replicas == 1 && scenario.faults.is_empty();
        World {
            scenario,
            options,
            now: scenario.start,
            queue: Queue::default(),
            dice: Dice {
                network: draws("network"),
                disk: draws("disk"),
                hosts: draws("hosts"),
                partners: draws("partners"),
                faults: draws("faults"),
                lease: draws("lease"),
                operators: draws("operators"),
            },
            log: Log::new(!quiet),
            replicas,
            holder: None,
            clusters,
            streams: Streams::new(),
            sources: signals::sources(scenario, seed),
            batch: Batch::default(),
            blank: "".into(),
            armed_calls: VecDeque::new(),
            armed_hosts: VecDeque::new(),
            armed_signals: VecDeque::new(),
            armed_answers: 0,
            armed_publishes: 0,
            armed_kills: 0,
            faults: Counts::default(),
            accounts: Accounts::new(scenario),
            checks: (!options.unchecked).then(|| Checks::new(scenario, options.every_digest)),
            transcript: options.transcript.then(String::new),
            effects: Effects::default(),
            progress: settle::Progress::new(pools, scenario.start),
            desk: Desk::default(),
        }
    }

    fn begin(&mut self) {
        self.plan_emit();
        self.plan_faults();
        for cap in &self.scenario.caps {
            self.push(cap.from, Happening::Caps);
            self.push(cap.to, Happening::Caps);
        }
        if self.checks.is_some() {
            self.after(Span::from_mins(1), Happening::Look);
        }
        if let Some((_, at)) = &self.options.broken {
            self.push(*at, Happening::Break);
        }
        self.take_lease(0);
    }

    /// Equal instants keep the order in which they were pushed.
    fn push(&mut self, at: Timestamp, happening: Happening) {
        self.queue.push(at.max(self.now), happening);
    }

    fn after(&mut self, wait: Span, happening: Happening) {
        self.push(self.now + wait, happening);
    }

    fn happens(&mut self, happening: Happening) {
        if let Some((replica, life)) = happening.life() {
            let known = &self.replicas[replica];
            if known.life != life || !known.alive {
                return self.lost(happening);
            }
            if known.frozen_until > self.now {
                let thaw = known.frozen_until;
                return self.push(thaw, happening);
            }
        }
        match happening {
            Happening::Emit => self.emit(),
            Happening::Deliver(reading) => self.deliver(*reading),
            Happening::Kick((r, _)) => self.kick(r),
            Happening::Durable((r, _), forming) => self.durable(r, *forming),
            Happening::Tail((r, _)) => self.tail(r),
            Happening::Send((r, _), order) => self.send(r, *order),
            Happening::Land(flight) => self.land(*flight),
            Happening::Answer((r, _), answer) => self.answered(r, *answer),
            Happening::Watch((r, _), seen) => self.watched(r, *seen),
            Happening::Worker { pool, worker } => self.worker_due(pool, worker),
            Happening::Note { pool, term, at } => self.note(pool, term, at),
            Happening::Sink((r, _)) => self.publish_turn(r),
            Happening::Strike(fault) => self.strike(fault),
            Happening::Ends(ending) => self.ends(ending),
            Happening::Lease => self.lease_due(),
            Happening::Caps => self.accounts.settle(self.now),
            Happening::Break => self.break_cluster(),
            Happening::Look => self.look(),
        }
    }

    /// It was for a life that is over: whoever waits for an answer waits in vain.
    fn lost(&mut self, happening: Happening) {
        if let Happening::Durable(_, forming) = happening {
            self.send_again(forming.tickets);
        }
    }

    fn count(&mut self, fault: Fault) {
        self.progress.disturbed = self.now;
        self.note_fault(fault);
    }

    /// Counts what delays no call.
    fn note_fault(&mut self, fault: Fault) {
        self.faults.count(fault);
        if self.transcript.is_some() {
            self.write_down(&format!("fault {}", fault.as_str()));
        }
    }

    fn write_down(&mut self, line: &str) {
        if let Some(transcript) = &mut self.transcript {
            // Writing to a String can't fail.
            let _ = writeln!(transcript, "{} {line}", self.now);
        }
    }

    fn life(&self, replica: usize) -> Life {
        (replica, self.replicas[replica].life)
    }
}
