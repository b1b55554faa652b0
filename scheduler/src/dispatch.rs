//! The only caller of actuators: behind the leader gate, one call per pool at a time, newest
//! order first, each with a deadline. It never retries and never decides.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use futures::FutureExt as _;
use metrics::{counter, gauge, histogram};
use sunward_core::action::Scale;
use sunward_core::event::{Call, Event, Outcome, Settled};
use sunward_core::fleet::{POOLS_MAX, Pool, Target};
use sunward_core::protocol::slot::{Placed, Slot};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::actuators::{Actuator, Command};
use crate::engine_handle::EngineHandle;
use crate::metric_definitions as names;

/// Orders that wait for the dispatcher at most. The engine has one order per pool outstanding,
/// and one more when a term begins, so this is never reached.
pub const ORDERS_MAX: usize = 2 * POOLS_MAX;
/// How long one call may take; then its fate is unknown.
pub const CALL_DEADLINE: Duration = Duration::from_secs(10);

/// An action on its way to an actuator.
#[derive(Clone, Debug)]
pub struct Order {
    /// The pool.
    pub pool: Arc<str>,
    /// Which call.
    pub call: Call,
    /// The content of a scale call.
    pub scale: Option<Scale>,
    /// Of a new decision: when the reading that led to it had arrived, or the hold that it waited for had ended.
    pub began: Option<Instant>,
}

/// Where the engine loop puts orders. Cheap to clone, never blocks.
#[derive(Clone, Debug)]
pub struct Dispatcher {
    orders: mpsc::Sender<Order>,
}

impl Dispatcher {
    /// A dispatcher and the end that [`run`] reads.
    pub fn channel() -> (Dispatcher, mpsc::Receiver<Order>) {
        let (orders, outlet) = mpsc::channel(ORDERS_MAX);
        (Dispatcher { orders }, outlet)
    }

    /// Hands an order over.
    pub fn place(&self, order: Order) {
        if let Err(error) = self.orders.try_send(order) {
            // Only after the dispatcher has ended: the pool is claimed anew after the restart.
            tracing::warn!(%error, "an order was not dispatched");
        }
    }
}

/// The actuators by kind of target.
#[derive(Clone)]
pub struct Actuators {
    /// For MachineDeployments.
    pub k0smotron: Arc<dyn Actuator>,
    /// For simulated workers.
    pub memory: Arc<dyn Actuator>,
}

impl Actuators {
    fn of(&self, pool: &Pool) -> &Arc<dyn Actuator> {
        match pool.target {
            Target::K0smotron { .. } => &self.k0smotron,
            Target::Memory { .. } => &self.memory,
        }
    }
}

/// Carries out orders until `shutdown`; calls under way then have until the tracker is closed.
pub async fn run(
    mut orders: mpsc::Receiver<Order>,
    actuators: Actuators,
    engine: EngineHandle,
    calls: TaskTracker,
    shutdown: CancellationToken,
) {
    let (finished_tx, mut finished) = mpsc::channel::<Arc<str>>(ORDERS_MAX);
    let mut slots: BTreeMap<Arc<str>, Slot<Order>> = BTreeMap::new();
    let start = |order: Order| {
        let call = CallUnderWay {
            actuators: actuators.clone(),
            engine: engine.clone(),
            order,
        };
        let finished = finished_tx.clone();
        calls.spawn(async move {
            let pool = call.order.pool.clone();
            call.run().await;
            // The dispatcher may have ended meanwhile.
            let _ = finished.send(pool).await;
        });
    };
    loop {
        tokio::select! {
            biased;
            () = shutdown.cancelled() => return,
            Some(pool) = finished.recv() => {
                if let Some(next) = slots.get_mut(&pool).and_then(Slot::finished) {
                    start(next);
                }
            }
            order = orders.recv() => {
                let Some(order) = order else { return };
                gauge!(names::QUEUE_DEPTH, "queue" => "dispatch").set(orders.len() as f64);
                match slots.entry(order.pool.clone()).or_default().place(order) {
                    Placed::Go(order) => start(order),
                    Placed::Waiting { replaced: None } => {}
                    Placed::Waiting { replaced: Some(previous) } => {
                        tracing::info!(pool = %previous.pool, "an order that waited was replaced by a newer one");
                    }
                }
            }
        }
    }
}

struct CallUnderWay {
    actuators: Actuators,
    engine: EngineHandle,
    order: Order,
}

impl CallUnderWay {
    async fn run(self) {
        if !self
            .engine
            .gate
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .is_open()
        {
            tracing::warn!(pool = %self.order.pool, "not carried out: this daemon has resigned");
            return;
        }
        let fleet = self.engine.fleet.load_full();
        let outcome = match fleet.pool(&self.order.pool) {
            Some(pool) => self.call(pool).await,
            None => Outcome::Refused {
                reason: "the pool left the fleet".to_owned(),
            },
        };
        let action = match self.order.call {
            Call::Claim { .. } => "claim",
            Call::Scale { .. } => "scale",
        };
        counter!(names::ACTIONS, "action" => action, "outcome" => outcome.as_str()).increment(1);
        tracing::info!(pool = %self.order.pool, action, outcome = ?outcome, "settled");
        let accepted = matches!(outcome, Outcome::Accepted(_));
        if accepted && let Call::Claim { term } = self.order.call {
            let mut gate = self
                .engine
                .gate
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            if gate.term() == term {
                gate.wrote(&format!("pool:{}", self.order.pool).into());
            }
        }
        let settled = Settled {
            pool: self.order.pool,
            call: self.order.call,
            outcome,
        };
        // After the loop has stopped the outcome is unknown, as after a crash.
        let _ = self.engine.tell(Event::ActionSettled(settled)).await;
    }

    async fn call(&self, pool: &Arc<Pool>) -> Outcome {
        let actuator = self.actuators.of(pool);
        let command = match (&self.order.scale, self.order.call) {
            (Some(scale), _) => Command::Scale {
                pool: pool.clone(),
                scale: scale.clone(),
            },
            (None, Call::Claim { term } | Call::Scale { term, .. }) => Command::Claim {
                pool: pool.clone(),
                term,
            },
        };
        if let (Some(began), Some(_)) = (self.order.began, &self.order.scale) {
            histogram!(names::SIGNAL_TO_ACTION).record(began.elapsed().as_secs_f64());
        }
        // A panic is a fault of ours; it must not leave the pool waiting for ever.
        let call = AssertUnwindSafe(actuator.apply(&command)).catch_unwind();
        match tokio::time::timeout(CALL_DEADLINE, call).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(_)) => Outcome::Unknown {
                reason: "the actuator panicked; please report it".to_owned(),
            },
            Err(_) => Outcome::Unknown {
                reason: format!("no answer within {} s", CALL_DEADLINE.as_secs()),
            },
        }
    }
}
