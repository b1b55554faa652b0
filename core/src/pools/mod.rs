//! One pool through the pipeline: judge, plan, carry out; and the wiring that says which pools a
//! stream touches.
//!
//! - [`PoolState::judge`] asks the rules and leaves an [`Ask`] in the state: all that planning needs.
//! - [`PoolState::plan`] makes a target of it, for this pool alone; pools that share something are
//!   planned together, from the asks of all of them.
//! - [`PoolState::carry_out`] takes the target over: ledger, decision record, the next command.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;
use sunward_policies::arbitrate::{Candidate, arbitrate};
use sunward_policies::facts::{Facts, PoolFacts};
use sunward_policies::policy::PolicySet;
use sunward_policies::rules::{Intent, Memory};
use sunward_policies::time::{Span, Timestamp};

use self::calm::Calm;
use self::decider::{Decider, HOLDING, lacks_data};
use self::earliest::{Earliest, earlier};
use self::explain::decision;
use self::outlook::BoardOutlook;
use self::readings::Readings;
use crate::action::{Action, Cause, Effects, Scale};
use crate::board::Board;
use crate::calendars::Calendars;
use crate::coordination::{Accounts, Coordination, Why};
use crate::derived::Derived;
use crate::draw::DrawHistory;
use crate::event::PoolObservation;
use crate::fleet::Pool;
use crate::grid_event::KnownGridEvent;
use crate::ledger::{Claim, Ledger, Next};
use crate::orders::Order;
use crate::overrides::Override;
use crate::planner::{Bent, Course, Plan, plan};

mod all;
mod ask;
mod calm;
mod decider;
mod earliest;
mod explain;
mod outlook;
mod readings;
mod wiring;

pub use self::all::Pools;
pub use self::ask::{Ask, Pin};
pub use self::explain::policy_inputs;
pub(crate) use self::outlook::score_at;
pub use self::wiring::{Governing, Wiring, stream_key};

/// A call is answered within this time, if only by its deadline.
pub const ANSWER_MAX: Span = Span::from_secs(15);

/// A rule's memory of one pool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Remembered {
    /// The policy's name.
    pub policy: Arc<str>,
    /// The rule's name.
    pub rule: Arc<str>,
    /// The rule's hash; another hash means another rule, which starts anew.
    pub hash: [u8; 32],
    /// `None` until the pool was first judged.
    pub memory: Option<Memory>,
}

/// What decided last, for noticing a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    /// The policy; empty where none governs.
    pub policy: String,
    /// The rule.
    pub rule: String,
    /// A stable word for the verdict's reason.
    pub reason: String,
    /// A stable word for what bent the plan.
    pub bent: String,
}

/// What the engine keeps of one pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PoolState {
    /// Desired, in flight, unknown, confirmed.
    pub ledger: Ledger,
    /// Starts, stops and steps.
    pub course: Course,
    /// What was asked of it when it was last judged.
    pub ask: Ask,
    /// One per rule that governs the pool, in the wiring's order.
    pub memories: Vec<Remembered>,
    /// What decided last.
    pub standing: Option<Standing>,
    /// The pending timer.
    pub wake_at: Option<Timestamp>,
    /// Where its workers live; another target is another pool.
    pub target: String,
    /// Wanted and ready workers as they were last summed up for the site.
    pub told: Option<(u32, u32)>,
    /// How it stood when its group was last planned.
    pub planned: Option<Planned>,
    /// What the last settling was based on, if it changed nothing.
    #[serde(skip)]
    calm: Derived<Option<Calm>>,
}

/// A pool as its group was last planned: as long as nothing of this changes for any of them, nor what they ask for, the
/// plan of the group is the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Planned {
    /// What it would have been told alone.
    pub solo: u32,
    /// Workers wanted.
    pub wanted: Option<u32>,
    /// Workers that can train.
    pub ready: u32,
    /// Why it was told otherwise.
    pub why: Option<Why>,
}

impl Planned {
    /// True where the group's plan finds the pool the same.
    pub fn is(&self, other: &Planned) -> bool {
        (self.solo, self.wanted, self.ready) == (other.solo, other.wanted, other.ready)
    }
}

/// What settling a pool asks of the engine.
#[derive(Debug, Default, PartialEq)]
pub struct Settled {
    /// Wake the pool then.
    pub wake_at: Option<Timestamp>,
    /// The same, for all but what the streams say.
    own_wake_at: Option<Timestamp>,
    /// The site's sums may have changed.
    pub site_touched: bool,
    /// Why, where a decision was taken.
    pub cause: Option<Cause>,
    /// A scale write, to be sent after the site's events.
    pub scale: Option<Action>,
}

/// What judging and planning look at, besides the pool.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// The group's journal index.
    pub index: u64,
    /// The current term.
    pub term: u64,
    /// The group's stamp.
    pub now: Timestamp,
    /// No growth while true.
    pub clock_stepped: bool,
    /// What is known.
    pub board: &'a Board,
    /// The policies in force.
    pub policies: &'a PolicySet,
    /// Where their calendars stand.
    pub(crate) calendars: &'a Calendars,
    /// What our workers drew, at the sites where a policy adds it back.
    pub draws: &'a BTreeMap<Arc<str>, DrawHistory>,
    /// Every override.
    pub overrides: &'a BTreeMap<Arc<str>, Override>,
    /// Every grid event.
    pub grid_events: &'a BTreeMap<(Arc<str>, Arc<str>), KnownGridEvent>,
    /// What acts on the pool besides its policies.
    pub(crate) order: Option<&'a Order>,
    /// The most workers that an emergency or a limit leaves it.
    pub most: Option<u32>,
    /// Who is planned with whom.
    pub coordination: &'a Coordination,
    /// What pools spent and did together.
    pub accounts: &'a Accounts,
    /// When time alone may change the plan of the pool's group.
    pub group_next: Option<Timestamp>,
    /// A planted bug.
    #[cfg(feature = "plant")]
    pub plant: Option<crate::plant::Plant>,
}

/// The judgement of all rules of one pool.
#[derive(Debug)]
pub struct Judged<'a> {
    candidates: SmallVec<[Candidate<'a>; 4]>,
    /// The policy of each candidate, by its index in the set.
    policies: SmallVec<[u32; 4]>,
    /// Policies with a score that is known.
    scores: SmallVec<[(u32, f64); 2]>,
    winner: Option<usize>,
    next: Earliest,
}

impl<'a> Judged<'a> {
    fn winner(&self) -> Option<&Candidate<'a>> {
        self.winner.and_then(|index| self.candidates.get(index))
    }

    /// What the winner asks for.
    fn ask(&self) -> Ask {
        let verdict = self.winner().and_then(|winner| winner.verdict);
        let policy = self
            .winner
            .and_then(|index| self.policies.get(index).copied());
        let score = self.scores.iter().find(|(of, _)| Some(*of) == policy);
        Ask {
            intent: verdict.map(|verdict| verdict.intent),
            workers: verdict.and_then(|verdict| verdict.workers),
            missing: verdict.is_some_and(|verdict| lacks_data(verdict.reason)),
            score: score.map(|(_, score)| *score),
            policy,
            pin: Pin::None,
            most: None,
        }
    }
}

impl PoolState {
    /// A new term began at `at`.
    pub fn restart(&mut self, at: Timestamp) {
        self.ledger.restart();
        for remembered in &mut self.memories {
            if let Some(memory) = &mut remembered.memory {
                memory.restarted(at);
            }
        }
    }

    /// The fleet was loaded; a pool that now lives elsewhere starts from nothing.
    pub fn retarget(&mut self, pool: &Pool, now: Timestamp) {
        if self.target == *pool.home {
            return;
        }
        // An answer that is still on its way is the old home's: it must not pass for the new one's.
        let outstanding = self.ledger.claim == Claim::InFlight || self.ledger.in_flight.is_some();
        *self = PoolState {
            target: pool.home.to_string(),
            ..PoolState::default()
        };
        self.ledger.retry_at = outstanding.then(|| now + ANSWER_MAX);
    }

    /// Carries memories over to a new wiring: a rule that is unchanged remembers.
    pub fn keep_memories(&mut self, policies: &PolicySet, governing: &[Governing]) {
        self.calm = Derived(None);
        let old = std::mem::take(&mut self.memories);
        for policy in governing
            .iter()
            .filter_map(|governing| policies.policies().get(governing.policy))
        {
            for rule in &policy.rules {
                let known = old.iter().find(|known| {
                    known.policy.as_ref() == policy.name
                        && known.rule.as_ref() == rule.name
                        && known.hash == rule.hash
                });
                self.memories.push(Remembered {
                    policy: policy.name.as_str().into(),
                    rule: rule.name.as_str().into(),
                    hash: rule.hash,
                    memory: known.and_then(|known| known.memory.clone()),
                });
            }
        }
    }

    /// The claim's answer: a pool never seen before is taken over as it stands.
    pub fn adopt(&mut self, seen: &PoolObservation, now: Timestamp, min_workers: u32) {
        if self.ledger.desired.is_none() {
            self.ledger.desire(seen.wanted);
            self.course = Course::adopted(seen.wanted > min_workers, seen.changed_at, now);
        }
    }

    /// Judges, plans and carries out: the whole way of a pool that is planned alone.
    pub fn settle(
        &mut self,
        pool: &Arc<Pool>,
        governing: &[Governing],
        context: &Context<'_>,
        out: &mut Effects,
    ) -> Settled {
        self.calm = Derived(None);
        if self.ledger.desired.is_none() {
            return self.command(pool, context, Settled::default(), out);
        }
        let judged = self.judge(pool, governing, context);
        let plan = self.plan(pool, context);
        let actions = out.actions.len();
        let settled = self.carry_out(pool, governing, context, &judged, &plan, out);
        let ordered = settled.scale.is_some() || out.actions.len() > actions;
        if settled.cause.is_none() && !ordered {
            self.calm_down(pool, governing, context, settled.own_wake_at);
        }
        settled
    }

    /// The rest of the way of a pool that is planned with others: to `target`, or, where nothing changed, to what stands.
    pub fn settle_as(
        &mut self,
        pool: &Arc<Pool>,
        governing: &[Governing],
        context: &Context<'_>,
        target: Option<u32>,
        why: Option<Why>,
        out: &mut Effects,
    ) -> Settled {
        let Some(current) = self.ledger.desired else {
            return self.command(pool, context, Settled::default(), out);
        };
        let judged = self.judge(pool, governing, context);
        let solo = self.plan(pool, context);
        let target = target.unwrap_or(current);
        let plan = match why {
            Some(why) => Plan {
                target,
                bent: Bent::Together(why),
                ..solo
            },
            None => Plan { target, ..solo },
        };
        self.carry_out(pool, governing, context, &judged, &plan, out)
    }

    /// The pool as it stands now, for its group's plan.
    pub fn planned_as(&self, solo: u32) -> Planned {
        Planned {
            solo,
            wanted: self.ledger.desired,
            ready: self.ledger.confirmed.map_or(0, |known| known.ready),
            why: None,
        }
    }

    /// The target of a pool that is planned alone, from its ask.
    pub fn plan(&self, pool: &Pool, context: &Context<'_>) -> Plan {
        self.plan_with(pool, self.ask.intent, context)
    }

    /// The same, if its policy wanted something else.
    pub fn plan_with(&self, pool: &Pool, intent: Option<Intent>, context: &Context<'_>) -> Plan {
        let workers = self.ask.workers.filter(|_| intent == self.ask.intent);
        let ask = Ask {
            intent,
            workers,
            ..self.ask
        };
        plan(
            pool,
            self.ledger.desired.unwrap_or(0),
            &ask,
            &self.ask.limits(context.policies),
            &self.course,
            context.clock_stepped,
            context.now,
        )
    }

    /// Takes a planned target over and says what to do for it. `judged` must be this instant's; judging once more
    /// at the same instant says the same.
    pub fn carry_out(
        &mut self,
        pool: &Arc<Pool>,
        governing: &[Governing],
        context: &Context<'_>,
        judged: &Judged<'_>,
        plan: &Plan,
        out: &mut Effects,
    ) -> Settled {
        let mut wake = Earliest::after(context.now);
        wake.join(judged.next);
        wake.add(plan.next_change_at);
        let next = wake.at.into_iter().chain(context.group_next).min();
        let cause = self.decide(pool, governing, context, judged, plan, next, out);
        let ready = self.ledger.confirmed.map_or(0, |known| known.ready);
        let now_so = self.ledger.desired.map(|wanted| (wanted, ready));
        let settled = Settled {
            wake_at: wake.at,
            own_wake_at: wake.own,
            site_touched: self.told != now_so,
            cause,
            scale: None,
        };
        self.told = now_so;
        self.command(pool, context, settled, out)
    }

    /// What the ledger wants done next.
    fn command(
        &mut self,
        pool: &Arc<Pool>,
        context: &Context<'_>,
        mut settled: Settled,
        out: &mut Effects,
    ) -> Settled {
        let stuck = planted!(context.plant, StuckDelete)
            && self.ledger.confirmed.is_some_and(|known| {
                known.stopping > 0 && self.ledger.desired.is_some_and(|n| n > known.wanted)
            });
        if stuck {
            return settled;
        }
        match self.ledger.next(context.now) {
            Next::Nothing => {}
            Next::Wait(at) => {
                let mut wake = Earliest::after(context.now);
                wake.add(Some(at));
                settled.wake_at = earlier(settled.wake_at, wake.at);
                settled.own_wake_at = earlier(settled.own_wake_at, wake.own);
            }
            Next::Claim => out.actions.push(Action::Claim {
                pool: pool.name.clone(),
                term: context.term,
                cause: Cause {
                    index: context.index,
                    by: "daemon".into(),
                    why: "a pool is written only once it is claimed".into(),
                },
            }),
            Next::Scale {
                generation,
                replicas,
                from,
            } => {
                let cause = settled
                    .cause
                    .clone()
                    .unwrap_or_else(|| self.standing_cause(context));
                settled.scale = Some(Action::Scale(Scale {
                    pool: pool.name.clone(),
                    term: context.term,
                    generation,
                    replicas,
                    from,
                    decided_at: context.now,
                    cause,
                }));
            }
        }
        settled
    }

    /// The cause of a write that no new decision led to: a retry, or an answer to a foreign change.
    fn standing_cause(&self, context: &Context<'_>) -> Cause {
        let by = self.standing.as_ref().map_or_else(
            || "daemon".to_owned(),
            |standing| format!("{}/{}", standing.policy, standing.rule),
        );
        Cause {
            index: context.index,
            by: by.into(),
            why: "the pool is not yet as decided".into(),
        }
    }

    /// Records why, where that has changed, and sets the wanted workers.
    #[expect(clippy::too_many_arguments, reason = "the pipeline's stages meet here")]
    fn decide(
        &mut self,
        pool: &Arc<Pool>,
        governing: &[Governing],
        context: &Context<'_>,
        judged: &Judged<'_>,
        plan: &Plan,
        next: Option<Timestamp>,
        out: &mut Effects,
    ) -> Option<Cause> {
        let before = self.ledger.desired?;
        let decider = Decider::of(&self.ask, judged, plan, context);
        if plan.target == before && self.stands(&decider, plan) {
            return None;
        }
        let decision = decision(
            pool, governing, context, judged, &decider, plan, before, next,
        );
        let cause = Cause {
            index: context.index,
            by: decision.rule.clone(),
            why: decision.reason.as_str().into(),
        };
        self.standing = Some(Standing {
            policy: decider.policy.to_owned(),
            rule: decider.rule.to_owned(),
            reason: decider.word.to_owned(),
            bent: plan.bent.word().to_owned(),
        });
        out.decisions.push(decision);
        if plan.target != before {
            self.course
                .stepped(before, plan.target, pool.min_workers, context.now);
            self.ledger.desire(plan.target);
        }
        Some(cause)
    }

    /// True when what decides now is what decided before. Allocates nothing.
    fn stands(&self, decider: &Decider<'_>, plan: &Plan) -> bool {
        let Some(standing) = &self.standing else {
            return false;
        };
        if decider.word == HOLDING {
            // A reading that comes a little after its interval began leaves a gap every time; what
            // stands goes on standing until the hold ends: only then is it another decision.
            return true;
        }
        let same_rule = standing.policy == decider.policy && standing.rule == decider.rule;
        same_rule && standing.reason == decider.word && standing.bent == plan.bent.word()
    }

    /// What rules may know of the pool itself.
    fn facts(&self, pool: &Pool) -> PoolFacts {
        PoolFacts {
            wanted: self.ledger.desired.unwrap_or(0),
            ready: self.ledger.confirmed.map_or(0, |known| known.ready),
            min: pool.min_workers,
            max: pool.max_workers,
            training_kw: pool.training_kw,
            ready_after: pool.ready_after,
            site_power_limit_kw: pool.site_power_limit_kw,
        }
    }

    /// Asks every rule that governs the pool, and keeps what the winner asks for. Judging again at the same instant
    /// changes nothing.
    pub fn judge<'a>(
        &mut self,
        pool: &Pool,
        governing: &[Governing],
        context: &Context<'a>,
    ) -> Judged<'a> {
        let facts = self.facts(pool);
        let running = facts.wanted > pool.min_workers;
        let mut judged = Judged {
            candidates: SmallVec::new(),
            policies: SmallVec::new(),
            scores: SmallVec::new(),
            winner: None,
            next: Earliest::after(context.now),
        };
        let mut memories = self.memories.iter_mut();
        let mut readings = Readings::default();
        for governing in governing {
            let Some(policy) = context.policies.policies().get(governing.policy) else {
                continue;
            };
            readings.read(policy, &governing.streams, pool, context, &mut judged.next);
            let calendars = context.calendars.of(governing.policy);
            for calendar in calendars {
                judged.next.add(calendar.until);
            }
            let facts = Facts {
                now: context.now,
                readings: readings.as_slice(),
                samples: readings.samples(),
                calendars,
                outlook: &BoardOutlook {
                    policy,
                    streams: &governing.streams,
                    context,
                },
                pool: facts,
            };
            if let Some(score) = &policy.score {
                let score = score.evaluate(&facts);
                judged
                    .scores
                    .extend(score.map(|score| (governing.policy as u32, score)));
            }
            for (index, rule) in policy.rules.iter().enumerate() {
                let Some(remembered) = memories.next() else {
                    continue;
                };
                let memory = remembered
                    .memory
                    .get_or_insert_with(|| Memory::new(running));
                if planted!(context.plant, HoldThatResets) {
                    memory.restarted(context.now);
                }
                let judgement = rule.rule.judge(&facts, memory);
                judged.next.add(judgement.next_change_at);
                judged.policies.push(governing.policy as u32);
                judged.candidates.push(Candidate {
                    policy,
                    rule: index,
                    verdict: judgement.verdict,
                });
            }
        }
        judged.winner = arbitrate(&judged.candidates);
        self.ask = judged.ask();
        self.ask.most = context.most;
        if let Some(order) = context.order {
            self.ask.pin = order.pin_with(self.ask.policy(context.policies));
        }
        judged
    }

    /// True when the pool may be written and nothing is outstanding.
    pub fn is_settled(&self) -> bool {
        self.ledger.claim == Claim::Held && self.ledger.satisfied()
    }
}
