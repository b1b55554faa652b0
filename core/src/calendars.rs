//! Where every calendar of the policies in force stands now.
//!
//! A calendar is worked out once per change and shared by all pools; judging only looks it up.

use sunward_policies::facts::CalendarFact;
use sunward_policies::policy::PolicySet;
use sunward_policies::time::Timestamp;

/// The calendars of a policy set at one instant. Derived: the same at any instant, however it was arrived at.
#[derive(Debug, Default)]
pub(crate) struct Calendars {
    /// By policy, then by calendar.
    facts: Vec<Vec<CalendarFact>>,
    /// The first instant at which one of them changes.
    next: Option<Timestamp>,
}

impl Calendars {
    /// Takes over another set.
    pub(crate) fn rewire(&mut self, policies: &PolicySet, now: Timestamp) {
        self.facts.clear();
        for policy in policies.policies() {
            let facts = policy.calendars.iter().map(|known| known.calendar.at(now));
            self.facts.push(facts.collect());
        }
        self.note_next();
    }

    /// Brings those up to date that have changed by `now`. A window that began while nobody looked is open.
    pub(crate) fn advance(&mut self, policies: &PolicySet, now: Timestamp) {
        if self.next.is_none_or(|next| now < next) {
            return;
        }
        for (policy, facts) in policies.policies().iter().zip(&mut self.facts) {
            for (binding, fact) in policy.calendars.iter().zip(facts) {
                if fact.until.is_some_and(|until| until <= now) {
                    *fact = binding.calendar.at(now);
                }
            }
        }
        self.note_next();
    }

    fn note_next(&mut self) {
        self.next = self
            .facts
            .iter()
            .flatten()
            .filter_map(|fact| fact.until)
            .min();
    }

    /// The calendars of a policy, in its order.
    pub(crate) fn of(&self, policy: usize) -> &[CalendarFact] {
        self.facts.get(policy).map_or(&[], Vec::as_slice)
    }
}
