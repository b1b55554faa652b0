//! What will happen, in order.

use sunward_core::time::Timestamp;

/// A queue by instant; of two at one instant the older comes first.
///
/// Kept sorted, the next one last: few things are on their way at once, and what is new is most
/// often due soon, so that little has to move; a heap moves more.
#[derive(Debug)]
pub(super) struct Queue<T>(Vec<(Timestamp, T)>);

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Queue(Vec::new())
    }
}

impl<T> Queue<T> {
    /// Puts it behind everything that is due at `at` or earlier.
    pub(super) fn push(&mut self, at: Timestamp, what: T) {
        let earlier = self.0.iter().rev().take_while(|(known, _)| *known <= at);
        let place = self.0.len() - earlier.count();
        self.0.insert(place, (at, what));
    }

    /// Takes out the next one.
    pub(super) fn pop(&mut self) -> Option<(Timestamp, T)> {
        self.0.pop()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_comes_first_and_of_equals_the_oldest() {
        let mut queue = Queue::default();
        for (at, name) in [(3, "d"), (1, "a"), (2, "b"), (1, "c"), (2, "e")] {
            queue.push(Timestamp::from_millis(at), name);
        }
        let mut names = Vec::new();
        while let Some((_, name)) = queue.pop() {
            names.push(name);
            if name == "a" {
                queue.push(Timestamp::from_millis(1), "f");
            }
        }
        assert_eq!(names, ["a", "c", "f", "b", "e", "d"]);
    }
}
