#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use proptest::prelude::*;
use sunward_core::action::Cause;
use sunward_core::fleet::{Fleet, GpuVendor, Unit};
use sunward_core::protocol::leader::LeaderGate;
use tokio::sync::{mpsc, watch};

use super::*;
use crate::engine_handle::Message;

const START: Span = Span::from_secs(250);
const STOP: Span = Span::from_secs(36);

fn pool(target: Target) -> Arc<Pool> {
    Arc::new(Pool {
        name: "a".into(),
        site: "s".into(),
        federation: None,
        labels: BTreeMap::new(),
        unit: Unit::Worker,
        min_workers: 0,
        max_workers: 8,
        training_kw: 2.0,
        idle_kw: 0.5,
        gpus_per_worker: 4,
        gpu_vendor: GpuVendor::Nvidia,
        gpu_model: "A100".to_owned(),
        ready_after: START,
        target,
        home: "memory".into(),
        site_power_limit_kw: None,
    })
}

fn simulated() -> Arc<Pool> {
    pool(Target::Memory {
        start: START,
        stop: STOP,
    })
}

fn scale(term: u64, from: u32, replicas: u32) -> Command {
    Command::Scale {
        pool: simulated(),
        scale: Scale {
            pool: "a".into(),
            term,
            generation: 1,
            replicas,
            from,
            decided_at: Timestamp::default(),
            cause: Cause {
                index: 1,
                by: "test".into(),
                why: "test".into(),
            },
        },
    }
}

fn claim(term: u64) -> Command {
    Command::Claim {
        pool: simulated(),
        term,
    }
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::default() + Span::from_secs(seconds)
}

/// (wanted, ready, stopping) of the one pool.
fn counts(seen: &PoolObservation) -> (u32, u32, u32) {
    (seen.wanted, seen.ready, seen.stopping)
}

fn accepted(outcome: Outcome) -> PoolObservation {
    match outcome {
        Outcome::Accepted(seen) => seen,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_worker_is_ready_after_the_start_delay_and_gone_after_the_stop_delay() {
    let mut pools = MemoryPools::new(BTreeMap::new());
    assert_eq!(counts(&accepted(pools.apply(&claim(1), at(0)))), (0, 0, 0));
    assert_eq!(pools.next_due(), None);
    assert_eq!(
        counts(&accepted(pools.apply(&scale(1, 0, 2), at(10)))),
        (2, 0, 0)
    );
    let told = |pools: &mut MemoryPools, now| {
        let seen = pools.observe_due(now);
        seen.iter().map(counts).collect::<Vec<_>>()
    };
    // The accepted scale itself is reported, once.
    assert_eq!(pools.next_due(), Some(at(10)));
    assert_eq!(told(&mut pools, at(10)), [(2, 0, 0)]);
    assert_eq!(told(&mut pools, at(10)), []);
    assert_eq!(pools.next_due(), Some(at(260)));
    assert_eq!(told(&mut pools, at(259)), []);
    assert_eq!(told(&mut pools, at(260)), [(2, 2, 0)]);
    assert_eq!(pools.next_due(), None);
    assert_eq!(
        counts(&accepted(pools.apply(&scale(1, 2, 0), at(300)))),
        (0, 0, 2)
    );
    assert_eq!(told(&mut pools, at(300)), [(0, 0, 2)]);
    assert_eq!(told(&mut pools, at(336)), [(0, 0, 0)]);
    assert_eq!(pools.next_due(), None);
}

#[test]
fn a_release_takes_those_that_still_start_before_those_that_train() {
    let mut pools = MemoryPools::new(BTreeMap::from([("a".into(), 2)]));
    assert_eq!(counts(&accepted(pools.apply(&claim(1), at(0)))), (2, 2, 0));
    pools.apply(&scale(1, 2, 4), at(0));
    pools.apply(&scale(1, 4, 5), at(100));
    let seen = accepted(pools.apply(&scale(1, 5, 3), at(200)));
    assert_eq!(counts(&seen), (3, 2, 2));
    // The one of the two that were asked for first is still coming at its own time.
    let seen = pools.observe_due(at(250));
    assert_eq!(seen.iter().map(counts).collect::<Vec<_>>(), [(3, 3, 0)]);
}

#[test]
fn a_delay_that_ended_unseen_is_still_reported_after_a_claim() {
    let mut pools = MemoryPools::new(BTreeMap::new());
    pools.apply(&scale(1, 0, 1), at(0));
    pools.observe_due(at(0));
    assert_eq!(
        counts(&accepted(pools.apply(&claim(1), at(400)))),
        (1, 1, 0)
    );
    let seen = pools.observe_due(at(400));
    assert_eq!(seen.iter().map(counts).collect::<Vec<_>>(), [(1, 1, 0)]);
}

#[test]
fn terms_fence_and_a_stale_from_is_a_conflict() {
    let mut pools = MemoryPools::new(BTreeMap::new());
    let first = accepted(pools.apply(&claim(3), at(0)));
    assert_eq!(first.term, Some(3));
    let again = accepted(pools.apply(&claim(3), at(1)));
    assert_eq!(again.version, first.version, "nothing changed");
    let higher = accepted(pools.apply(&claim(4), at(2)));
    assert!(higher.version > first.version);
    let fenced = Outcome::HigherTerm { term: 4 };
    assert_eq!(pools.apply(&claim(3), at(3)), fenced);
    assert_eq!(pools.apply(&scale(3, 0, 1), at(3)), fenced);
    assert_eq!(pools.apply(&scale(4, 1, 2), at(3)), Outcome::Conflict);
    let scaled = accepted(pools.apply(&scale(4, 0, 1), at(3)));
    assert!(scaled.version > higher.version);
    assert_eq!(scaled.changed_at, Some(at(3)));
}

#[test]
fn a_pool_of_another_actuator_is_refused() {
    let mut pools = MemoryPools::new(BTreeMap::new());
    let pool = pool(Target::K0smotron {
        namespace: "gpu".into(),
        machine_deployment: "a".into(),
    });
    let outcome = pools.apply(&Command::Claim { pool, term: 1 }, at(0));
    assert!(matches!(outcome, Outcome::Refused { reason } if reason.contains("`a`")));
}

proptest! {
    /// Under any sequence of scales no worker is lost or doubled, what is ready never exceeds
    /// what is wanted, versions grow, and everything comes to rest as wanted.
    #[test]
    fn workers_are_conserved(
        initial in 0_u32..4,
        steps in prop::collection::vec((0_i64..400, 0_u32..9), 1..60),
    ) {
        let mut pools = MemoryPools::new(BTreeMap::from([("a".into(), initial)]));
        let (mut now, mut released, mut gone) = (0, 0_u32, 0_u32);
        let mut last = accepted(pools.apply(&claim(1), at(0)));
        let mut rest = Vec::new();
        for (pause, replicas) in steps.into_iter().map(Some).chain([None]).map(Option::unzip) {
            now += pause.unwrap_or(0);
            let mut seen = pools.observe_due(at(now));
            if let Some(replicas) = replicas {
                released += last.wanted.saturating_sub(replicas);
                seen.push(accepted(pools.apply(&scale(1, last.wanted, replicas), at(now))));
            } else {
                while let Some(due) = pools.next_due() {
                    rest.extend(pools.observe_due(due));
                    prop_assert!(rest.len() < 1_000, "observations never end");
                }
                seen.append(&mut rest);
            }
            for next in seen {
                prop_assert!(next.ready <= next.wanted);
                prop_assert!(next.version >= last.version);
                prop_assert!(next.version > last.version || counts(&next) == counts(&last));
                last = next;
            }
            let workers = &pools.pools["a"];
            prop_assert_eq!(workers.wanted, workers.ready + workers.starting.values().sum::<u32>());
            prop_assert!(last.stopping <= released);
            // Whoever is gone stays gone, and only who was released can be.
            prop_assert!(released - last.stopping >= gone);
            gone = released - last.stopping;
        }
        prop_assert_eq!((last.ready, last.stopping), (last.wanted, 0));
        prop_assert_eq!(gone, released);
    }
}

#[test]
fn the_instants_at_which_workers_leave_are_bounded() {
    let mut pools = MemoryPools::new(BTreeMap::new());
    for ms in 0..2 * STOPPING_INSTANTS_MAX as i64 {
        let now = Timestamp::from_millis(ms);
        accepted(pools.apply(&scale(1, 0, 1), now));
        accepted(pools.apply(&scale(1, 1, 0), now));
    }
    let workers = &pools.pools["a"];
    assert_eq!(workers.stopping.len(), STOPPING_INSTANTS_MAX);
    let all: u32 = workers.stopping.values().sum();
    assert_eq!(all, 2 * STOPPING_INSTANTS_MAX as u32);
}

#[tokio::test]
async fn the_observer_reports_scales_and_the_end_of_delays() {
    let (messages, mut inbox) = mpsc::channel(16);
    let (_index, index) = watch::channel(0);
    let engine = EngineHandle::new(
        messages,
        Arc::new(ArcSwap::from_pointee(Fleet::default())),
        Arc::new(Mutex::new(LeaderGate::new(1))),
        index,
    );
    // 250 s of the series pass in 25 ms.
    let clock = Clock::series(at(0), 10_000.0);
    let actuator = Arc::new(MemoryActuator::new(BTreeMap::new(), clock));
    let shutdown = CancellationToken::new();
    let observer = tokio::spawn({
        let (actuator, shutdown) = (actuator.clone(), shutdown.clone());
        async move { actuator.observe(engine, shutdown).await }
    });
    // A busy machine may see a delay end before the scale was reported: then both come at once.
    let mut reported_until = async |end: (u32, u32, u32)| {
        let mut seen = Vec::new();
        while seen.last() != Some(&end) {
            let message = tokio::time::timeout(Duration::from_secs(30), inbox.recv()).await;
            let Some(Message::Tell { events, .. }) = message.unwrap() else {
                panic!("not an observation")
            };
            let [Event::PoolObserved(observation)] = events.as_slice() else {
                panic!("{events:?}")
            };
            seen.push(counts(observation));
        }
        seen
    };
    accepted(actuator.apply(&claim(1)).await);
    accepted(actuator.apply(&scale(1, 0, 1)).await);
    let up = reported_until((1, 1, 0)).await;
    assert!(up.len() <= 2 && up[0].0 == 1, "{up:?}");
    accepted(actuator.apply(&scale(1, 1, 0)).await);
    let down = reported_until((0, 0, 0)).await;
    assert!(down.len() <= 2, "{down:?}");
    shutdown.cancel();
    tokio::time::timeout(Duration::from_secs(30), observer)
        .await
        .unwrap()
        .unwrap();
}
