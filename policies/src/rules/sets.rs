//! Which of a policy's signals and calendars something reads.

/// The most signals one policy may bind.
pub const SIGNALS_MAX: usize = 64;
/// The most calendars one policy may have.
pub const CALENDARS_MAX: usize = 64;

macro_rules! index_set {
    ($(#[$about:meta])* $name:ident below $max:ident) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub struct $name(u64);

        impl $name {
            /// Nothing.
            pub const EMPTY: $name = $name(0);

            /// The set of one index. An index that is not below the most does not exist and gives the empty set.
            pub const fn of(index: usize) -> Self {
                if index < $max {
                    $name(1 << index)
                } else {
                    $name(0)
                }
            }

            /// Whether it holds that index.
            pub const fn contains(self, index: usize) -> bool {
                index < $max && self.0 & (1 << index) != 0
            }

            /// Both sets together.
            #[must_use]
            pub const fn union(self, other: Self) -> Self {
                $name(self.0 | other.0)
            }

            /// Whether there is nothing in it.
            pub const fn is_empty(self) -> bool {
                self.0 == 0
            }

            /// The indexes, ascending.
            pub fn iter(self) -> impl Iterator<Item = usize> {
                let mut rest = self.0;
                std::iter::from_fn(move || {
                    if rest == 0 {
                        return None;
                    }
                    let index = rest.trailing_zeros() as usize;
                    rest &= rest - 1;
                    Some(index)
                })
            }
        }
    };
}

index_set! {
    /// Which of a policy's signal bindings something reads: indexes below [`SIGNALS_MAX`].
    SignalSet below SIGNALS_MAX
}

index_set! {
    /// Which of a policy's calendars something reads: indexes below [`CALENDARS_MAX`].
    CalendarSet below CALENDARS_MAX
}
