//! What can go wrong with a journal, in words that say what to do about it.

use std::io;
use std::path::PathBuf;

/// Why a journal refused a call. Every variant but [`Error::Full`], [`Error::Io`] and
/// [`Error::NeedsReopen`] leaves the journal as usable as it was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The compare-and-set of an append failed: somebody else appended, or the caller is behind.
    #[error(
        "journal: expected the last index to be {expected}, but it is {last}: another writer appended, \
         or this one has not read to the end; read from {expected} on before appending again"
    )]
    Conflict {
        /// The caller's belief.
        expected: u64,
        /// The truth.
        last: u64,
    },

    /// Something can't be read whole. Nothing of it is used.
    #[error(
        "journal {}: damaged, index {first_unreadable_index} is the first that can't be read whole ({detail}). \
         Nothing of it is used. To go on, put a copy of the closed journal file (a backup) in its place, \
         or move the file away and start with an empty journal (what that loses and what is rebuilt from the \
         fleet is described under \"Starting with an empty journal\" in the documentation)",
        path.display()
    )]
    Damaged {
        /// The journal file.
        path: PathBuf,
        /// The first index that can't be read; all stored ones below can. One more than the last
        /// record when the records are whole and something beside them is damaged.
        first_unreadable_index: u64,
        /// What exactly was found.
        detail: String,
    },

    /// The file is empty, or something else.
    #[error(
        "journal {}: not a journal file ({detail}). If a journal was here, put a copy of it in its place; \
         else name another file, or move this one away to start with an empty journal",
        path.display()
    )]
    NotAJournal {
        /// The file.
        path: PathBuf,
        /// What it is instead.
        detail: String,
    },

    /// There is no such file, and creating one was not asked for.
    #[error("journal {}: no such file; check the path", path.display())]
    NotFound {
        /// The file.
        path: PathBuf,
    },

    /// Another process has the file open.
    #[error(
        "journal {}: in use by another process. One journal has one writer: stop the other daemon, \
         or give this one a journal of its own",
        path.display()
    )]
    InUse {
        /// The file.
        path: PathBuf,
    },

    /// Written by a later version of this program.
    #[error(
        "journal {}: has format version {found}, this program reads up to {supported}. Start the version of \
         sunward that wrote it or a later one, or a copy of the journal from before the upgrade",
        path.display()
    )]
    NewerFormat {
        /// The file.
        path: PathBuf,
        /// The file's version.
        found: u32,
        /// The newest version that this program reads.
        supported: u32,
    },

    /// No space left. What was being written counts as not written.
    #[error(
        "journal {}: no space left while {doing} ({source}). Free space on that volume or enlarge it; \
         the journal is reopened by itself once there is room",
        path.display()
    )]
    Full {
        /// The journal file.
        path: PathBuf,
        /// What was being done.
        doing: &'static str,
        /// The operating system's answer.
        source: io::Error,
    },

    /// The storage failed. What was being written counts as not written.
    #[error(
        "journal {}: input or output failed while {doing} ({source}). Check the volume and the kernel log; \
         after a failed write the journal must be reopened before it is used again",
        path.display()
    )]
    Io {
        /// The journal file.
        path: PathBuf,
        /// What was being done.
        doing: &'static str,
        /// The operating system's answer.
        source: io::Error,
    },

    /// An earlier write failed, and what became of it is not settled yet.
    #[error(
        "journal {}: closed after a failed write; reopen it to learn whether that write landed",
        path.display()
    )]
    NeedsReopen {
        /// The journal file.
        path: PathBuf,
    },

    /// The journal was opened for reading only.
    #[error("journal {}: opened for reading only", path.display())]
    ReadOnly {
        /// The journal file.
        path: PathBuf,
    },

    /// Something exceeds its named bound.
    #[error("journal: {what} of {size} exceeds the bound of {max}; split it")]
    TooLarge {
        /// What it is.
        what: &'static str,
        /// Its size (bytes, or entries where `what` is a number).
        size: usize,
        /// The bound.
        max: usize,
    },

    /// An append is stamped earlier than the one before it.
    #[error(
        "journal: stamp {at_ms} ms lies before the last record's, {last_at_ms} ms; journal time never goes back"
    )]
    Backwards {
        /// The refused stamp.
        at_ms: i64,
        /// The newest stored stamp.
        last_at_ms: i64,
    },

    /// A read of what was truncated.
    #[error("journal: index {index} was truncated; the lowest stored index is {first_index}")]
    Truncated {
        /// The index asked for.
        index: u64,
        /// The lowest stored index.
        first_index: u64,
    },

    /// A truncation of records that no snapshot covers.
    #[error(
        "journal: can't truncate before {index}: snapshots cover the records below {covered_before} only; \
         save a snapshot first"
    )]
    NotCovered {
        /// The index asked for.
        index: u64,
        /// The highest index that may be asked for.
        covered_before: u64,
    },

    /// A snapshot of a state that the log does not have, or that is older than the newest.
    #[error("journal: a snapshot at {index} is out of order: {lowest} to {last} are possible")]
    SnapshotIndex {
        /// The refused index.
        index: u64,
        /// The lowest possible one.
        lowest: u64,
        /// The highest possible one.
        last: u64,
    },
}

/// The kinds of [`Error`], for labels and for deciding what to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// Somebody else appended.
    Conflict,
    /// Something stored can't be trusted, or the file is none of ours.
    Damaged,
    /// The file can't be had: absent, in use, too new, read-only.
    Unavailable,
    /// No space left.
    Full,
    /// The storage failed.
    Io,
    /// Reopen first.
    NeedsReopen,
    /// The caller asked for what is not allowed: a bug, or a bound.
    Refused,
}

impl ErrorKind {
    /// The kind as a metric label.
    pub fn label(self) -> &'static str {
        match self {
            Self::Conflict => "conflict",
            Self::Damaged => "damaged",
            Self::Unavailable => "unavailable",
            Self::Full => "full",
            Self::Io => "io",
            Self::NeedsReopen => "needs_reopen",
            Self::Refused => "refused",
        }
    }
}

impl Error {
    /// Which kind of trouble this is.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Conflict { .. } => ErrorKind::Conflict,
            Self::Damaged { .. } | Self::NotAJournal { .. } => ErrorKind::Damaged,
            Self::NotFound { .. }
            | Self::InUse { .. }
            | Self::NewerFormat { .. }
            | Self::ReadOnly { .. } => ErrorKind::Unavailable,
            Self::Full { .. } => ErrorKind::Full,
            Self::Io { .. } => ErrorKind::Io,
            Self::NeedsReopen { .. } => ErrorKind::NeedsReopen,
            Self::TooLarge { .. }
            | Self::Backwards { .. }
            | Self::Truncated { .. }
            | Self::NotCovered { .. }
            | Self::SnapshotIndex { .. } => ErrorKind::Refused,
        }
    }
}
