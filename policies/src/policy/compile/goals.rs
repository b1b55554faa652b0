//! The `floors` and `deadlines` of a policy, and what its lists have in common.

use super::Compiler;
use crate::codes;
use crate::document::{DEADLINES_MAX, DeadlineDocument, FLOORS_MAX, FloorDocument};
use crate::policy::{Deadline, Floor};
use crate::time::Timestamp;
use crate::words::FLOOR_ON_MISSING;
use crate::yaml::Spanned;

impl Compiler<'_> {
    /// A list of named entries, in the order of the file.
    pub(super) fn list<D, T>(
        &mut self,
        list: Option<&Spanned<Vec<Spanned<D>>>>,
        (what, most): (&str, usize),
        name: impl Fn(&D) -> &Spanned<String>,
        mut compile: impl FnMut(&mut Self, &Spanned<D>) -> Option<T>,
    ) -> Option<Vec<T>> {
        let entries = list.map_or(&[][..], |list| &list.value);
        if let Some(entry) = entries.get(most) {
            let message = format!("{} {what}s; {most} are allowed", entries.len());
            self.error_at(
                codes::TOO_LARGE,
                name(&entry.value),
                message,
                "split the policy",
            );
            return None;
        }
        let mut compiled: Vec<Option<T>> = Vec::with_capacity(entries.len());
        for (index, entry) in entries.iter().enumerate() {
            let own = name(&entry.value);
            let earlier = entries[..index]
                .iter()
                .map(|earlier| name(&earlier.value))
                .find(|earlier| earlier.value == own.value);
            if let Some(earlier) = earlier {
                let line = self.source.range_of(earlier).line;
                let message = format!("a second {what} of this policy is called `{}`", own.value);
                let help = format!(
                    "the first is at line {line}; what is known of it is kept under its name"
                );
                self.error_at(codes::DUPLICATE_NAME, own, message, help);
            }
            compiled.push(compile(self, entry));
        }
        compiled.into_iter().collect()
    }

    pub(super) fn floors(
        &mut self,
        floors: Option<&Spanned<Vec<Spanned<FloorDocument>>>>,
    ) -> Option<Vec<Floor>> {
        self.list(
            floors,
            ("floor", FLOORS_MAX),
            |floor| &floor.name,
            |compiler, floor| compiler.floor(&floor.value),
        )
    }

    fn floor(&mut self, floor: &FloorDocument) -> Option<Floor> {
        let name = self.name(&floor.name, "floor");
        let federation = self.federation(floor.federation.as_ref());
        let sites = self.count(
            &floor.sites,
            "a floor of 0 sites keeps nothing",
            "write 1 or more, or remove the floor",
        );
        let run_on_missing = match &floor.on_missing {
            None => Some(false),
            Some(word) => self.word(word, "on_missing", FLOOR_ON_MISSING),
        };
        Some(Floor {
            name: name?,
            federation,
            sites: sites?,
            run_on_missing: run_on_missing?,
            range: self.source.range_of(&floor.name),
        })
    }

    pub(super) fn deadlines(
        &mut self,
        deadlines: Option<&Spanned<Vec<Spanned<DeadlineDocument>>>>,
    ) -> Option<Vec<Deadline>> {
        self.list(
            deadlines,
            ("deadline", DEADLINES_MAX),
            |deadline| &deadline.name,
            |compiler, deadline| compiler.deadline(&deadline.value),
        )
    }

    fn deadline(&mut self, deadline: &DeadlineDocument) -> Option<Deadline> {
        let name = self.name(&deadline.name, "deadline");
        let federation = self.federation(deadline.federation.as_ref());
        let text = &deadline.finish_by;
        let finish_by = Timestamp::parse_rfc3339(&text.value)
            .map_err(|error| self.time_error(codes::BAD_INSTANT, text, &error))
            .ok();
        let work = self.work(&deadline.work);
        let margin = self.optional_duration(deadline.margin.as_ref());
        Some(Deadline {
            name: name?,
            federation,
            finish_by: finish_by?,
            work: work?,
            margin: margin?,
            range: self.source.range_of(&deadline.name),
        })
    }

    /// `None` where there is none, and where it is wrong: then the policy is refused as a whole. Whether the fleet has
    /// it is not known here.
    fn federation(&mut self, name: Option<&Spanned<String>>) -> Option<String> {
        self.name(name?, "federation")
    }
}
