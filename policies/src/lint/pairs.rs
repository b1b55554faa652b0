//! Policies that govern the same pools: one that never has its way, and two that fight.

use super::parts::Study;
use super::warning;
use crate::codes;
use crate::diagnostic::Diagnostic;
use crate::policy::{Mode, Policy};

/// What two policies share.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shared {
    /// Pools that both govern, in words; `None`: no pool.
    pub pools: Option<String>,
    /// Whether the first governs every pool that the second does.
    pub covers: bool,
}

/// What two policies share by their labels alone: certain only where the labels of one are among the other's.
pub fn share_by_labels(a: &Policy, b: &Policy) -> Shared {
    let within = |few: &Policy, many: &Policy| {
        let mut labels = few.selector.iter();
        labels.all(|(key, value)| many.selector.get(key) == Some(value))
    };
    let (covers, covered) = (within(a, b), within(b, a));
    let narrow = if covers { b } else { a };
    let labels: Vec<String> = narrow
        .selector
        .iter()
        .map(|(key, value)| format!("{key}: {value}"))
        .collect();
    Shared {
        pools: (covers || covered).then(|| format!("pools with {}", labels.join(", "))),
        covers,
    }
}

/// What every two enforcing policies show together; `share` says what they share.
pub fn pairs(studies: &[Study<'_>], share: &dyn Fn(&Policy, &Policy) -> Shared) -> Vec<Diagnostic> {
    let mut found = Vec::new();
    let enforcing: Vec<&Study<'_>> = studies
        .iter()
        .filter(|study| study.policy.mode == Mode::Enforce)
        .collect();
    for (index, a) in enforcing.iter().enumerate() {
        for b in &enforcing[index + 1..] {
            let (a, b) = if a.policy.priority >= b.policy.priority {
                (a, b)
            } else {
                (b, a)
            };
            let shared = share(a.policy, b.policy);
            let Some(pools) = &shared.pools else {
                continue;
            };
            if a.policy.priority > b.policy.priority {
                shadowed(a, b, &shared, pools, &mut found);
            } else {
                fight(a, b, pools, &mut found);
            }
        }
    }
    found
}

/// A rule has a verdict at every instant, so a lower priority never has its turn.
fn shadowed(
    high: &Study<'_>,
    low: &Study<'_>,
    shared: &Shared,
    pools: &str,
    found: &mut Vec<Diagnostic>,
) {
    let policy = low.policy;
    // Budgets, floors and deadlines act whoever wins.
    let acts_otherwise =
        !(policy.budgets.is_empty() && policy.floors.is_empty() && policy.deadlines.is_empty());
    if !shared.covers || high.rules.is_empty() || low.rules.is_empty() || acts_otherwise {
        return;
    }
    let message = format!(
        "no rule of policy `{}` is ever reached: policy `{}` governs all its pools ({pools}) with priority {} over {}, \
         and always has a verdict",
        policy.name, high.policy.name, high.policy.priority, policy.priority
    );
    let help = "narrow the labels of one, give both the same priority (then the more careful verdict wins), or set \
                `mode: observe` on this one";
    found.push(warning(
        low,
        codes::SHADOWED,
        policy.pools_range,
        message,
        help,
    ));
}

fn fight(a: &Study<'_>, b: &Study<'_>, pools: &str, found: &mut Vec<Diagnostic>) {
    let (Some(a_on), Some(b_on)) = (a.activated(), b.activated()) else {
        return;
    };
    let (first, second) = (&a.policy.name, &b.policy.name);
    if a_on.and(&b_on).is_never() && !a_on.is_never() && !b_on.is_never() {
        let message = format!(
            "policies `{first}` and `{second}` have the same priority over {pools}, and never both ask to run: release \
             wins, so nothing ever starts"
        );
        let help = "give them labels of their own or different priorities, or join their conditions in one policy";
        found.push(warning(
            b,
            codes::FIGHT,
            b.policy.pools_range,
            message,
            help,
        ));
        return;
    }
    for (one, on, other) in [(a, &a_on, b), (b, &b_on, a)] {
        let fought = other
            .released()
            .iter()
            .any(|release| on.meets_on_common_ground(release) && on.certainly_meets(release));
        if fought {
            let message = format!(
                "policies `{}` and `{}` have the same priority over {pools}, and the one asks to run where the other \
                 asks to release: release wins there",
                one.policy.name, other.policy.name
            );
            let help =
                "give them different priorities, labels of their own, or thresholds that agree";
            found.push(warning(
                b,
                codes::FIGHT,
                b.policy.pools_range,
                message,
                help,
            ));
            return;
        }
    }
}
