//! Where every calendar of the policies in force stands now.
//!
//! A calendar is worked out once per change and shared by all pools; judging only looks it up.

use sunward_policies::facts::CalendarFact;
use sunward_policies::policy::{CalendarBinding, PolicySet};
use sunward_policies::time::Timestamp;

/// The calendars of a policy set at one instant. Derived: the same at any instant, however it was arrived at.
#[derive(Debug, Default)]
pub(crate) struct Calendars {
    /// By policy, then by calendar.
    facts: Vec<Vec<CalendarFact>>,
    /// The first instant at which one of them changes.
    next: Option<Timestamp>,
    #[cfg(feature = "plant")]
    pub(crate) plant: Option<crate::plant::Plant>,
}

impl Calendars {
    /// Takes over another set.
    pub(crate) fn rewire(&mut self, policies: &PolicySet, now: Timestamp) {
        self.facts.clear();
        for policy in policies.policies() {
            let calendars = policy.calendars.iter();
            let facts = calendars.map(|binding| self.look(binding, now)).collect();
            self.facts.push(facts);
        }
        self.note_next();
    }

    /// Brings those up to date that have changed by `now`. A window that began while nobody looked is open.
    pub(crate) fn advance(&mut self, policies: &PolicySet, now: Timestamp) {
        if self.next.is_none_or(|next| now < next) {
            return;
        }
        let mut all = std::mem::take(&mut self.facts);
        for (policy, facts) in policies.policies().iter().zip(&mut all) {
            for (binding, fact) in policy.calendars.iter().zip(facts) {
                if fact.until.is_some_and(|until| until <= now) {
                    *fact = self.look(binding, now);
                }
            }
        }
        self.facts = all;
        self.note_next();
    }

    #[cfg_attr(
        not(feature = "plant"),
        expect(clippy::unused_self, reason = "the planted bug is asked for")
    )]
    fn look(&self, binding: &CalendarBinding, now: Timestamp) -> CalendarFact {
        let fact = binding.calendar.at(now);
        #[cfg(feature = "plant")]
        if self.plant == Some(crate::plant::Plant::MissedCalendarMinute) {
            let minute = sunward_policies::time::Span::from_mins(1);
            let began = binding.calendar.window(now).map(|(from, _)| from);
            let open = fact.open && began.is_some_and(|from| now < from + minute);
            return CalendarFact { open, ..fact };
        }
        fact
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
