//! The tables of a journal file, and how an entry is encoded: every value starts with a CRC32C over
//! its key and the rest of the value, so that an entry can neither be altered nor moved unnoticed.

use ::redb::{
    CommitError, DatabaseError, ReadableTable, StorageError, TableDefinition, TableError,
    TransactionError,
};

use crate::journal::{BodyHash, DedupeEntry, Snapshot};

/// Facts about the file itself.
pub(super) const META: TableDefinition<'static, &'static str, &'static [u8]> =
    TableDefinition::new("meta");
/// index -> at_ms, record.
pub(super) const RECORDS: TableDefinition<'static, u64, &'static [u8]> =
    TableDefinition::new("records");
/// index -> snapshot.
pub(super) const SNAPSHOTS: TableDefinition<'static, u64, &'static [u8]> =
    TableDefinition::new("snapshots");
/// name -> cursor.
pub(super) const CURSORS: TableDefinition<'static, &'static str, &'static [u8]> =
    TableDefinition::new("cursors");
/// index -> at_ms, and the ids of that append with the digests of their bodies.
pub(super) const DEDUPE: TableDefinition<'static, u64, &'static [u8]> =
    TableDefinition::new("dedupe");
/// (pool, at_ms, index, ordinal) -> decision.
pub(super) const DECISIONS: TableDefinition<'static, (&'static str, i64, u64, u32), &'static [u8]> =
    TableDefinition::new("decisions");

/// Key, in [`META`], of the stamp of the newest record that was truncated: the only trace of the
/// journal's time once every record is.
pub(super) const TRUNCATED_AT_KEY: &str = "truncated_at_ms";

/// Ends a text in what a checksum covers. No UTF-8 text contains this byte, so that two different
/// keys never look alike to the checksum.
const END: &[u8] = &[0xFF];
const CHECKSUM_BYTES: usize = 4;

/// What goes wrong below the journal's own rules.
#[derive(Debug)]
pub(super) enum Trouble {
    /// The operating system refused.
    Os(std::io::Error),
    /// Another handle has the file.
    Locked,
    /// What is stored can't be trusted: at this index, or, where none is known, after the last
    /// that was read.
    Broken { index: Option<u64>, detail: String },
}

impl Trouble {
    /// Damage that is not at a particular index.
    pub(super) fn broken(detail: impl Into<String>) -> Self {
        Self::Broken {
            index: None,
            detail: detail.into(),
        }
    }

    /// Damage at an index.
    pub(super) fn at(index: u64, detail: impl Into<String>) -> Self {
        Self::Broken {
            index: Some(index),
            detail: detail.into(),
        }
    }

    fn from_redb(error: ::redb::Error) -> Self {
        match error {
            // redb reports a foreign or truncated file as an I/O error of these kinds, without the
            // operating system having refused anything.
            ::redb::Error::Io(error) if is_os(&error) => Self::Os(error),
            ::redb::Error::PreviousIo => Self::Os(std::io::Error::other(
                "an earlier input or output operation failed",
            )),
            ::redb::Error::DatabaseAlreadyOpen | ::redb::Error::LockProtocolMismatch => {
                Self::Locked
            }
            other => Self::broken(other.to_string()),
        }
    }
}

fn is_os(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{InvalidData, UnexpectedEof};
    !matches!(error.kind(), InvalidData | UnexpectedEof)
}

macro_rules! trouble_from {
    ($($error:ty),+) => {$(
        impl From<$error> for Trouble {
            fn from(error: $error) -> Self {
                Self::from_redb(error.into())
            }
        }
    )+};
}
trouble_from!(
    StorageError,
    TableError,
    TransactionError,
    CommitError,
    DatabaseError
);

fn checksum(key: &[&[u8]], body: &[&[u8]]) -> u32 {
    let parts = key.iter().chain(body);
    parts.fold(0, |crc, part| crc32c::crc32c_append(crc, part))
}

/// A value: the checksum over key and body, then the body.
pub(super) fn seal(key: &[&[u8]], body: &[&[u8]]) -> Vec<u8> {
    let len = body.iter().map(|part| part.len()).sum::<usize>();
    let mut value = Vec::with_capacity(CHECKSUM_BYTES + len);
    value.extend_from_slice(&checksum(key, body).to_le_bytes());
    for part in body {
        value.extend_from_slice(part);
    }
    value
}

/// The body of a value, or `None` when its checksum is wrong.
pub(super) fn unseal<'v>(key: &[&[u8]], value: &'v [u8]) -> Option<&'v [u8]> {
    let (stored, body) = value.split_first_chunk::<CHECKSUM_BYTES>()?;
    (u32::from_le_bytes(*stored) == checksum(key, &[body])).then_some(body)
}

/// Seals the value of a table keyed by one text.
pub(super) fn seal_text(key: &str, body: &[u8]) -> Vec<u8> {
    seal(&[key.as_bytes(), END], &[body])
}

/// Unseals the value of a table keyed by one text.
pub(super) fn unseal_text<'v>(what: &str, key: &str, value: &'v [u8]) -> Result<&'v [u8], Trouble> {
    unseal(&[key.as_bytes(), END], value)
        .ok_or_else(|| Trouble::broken(format!("checksum of {what} {key:?} is wrong")))
}

/// Length of a stored record of `len` bytes.
pub(super) fn record_len(len: usize) -> usize {
    CHECKSUM_BYTES + size_of::<i64>() + len
}

/// Encodes a record in place: CRC32C over (index, at_ms, bytes), at_ms, bytes; integers are little
/// endian. `value` has [`record_len`] bytes.
pub(super) fn seal_record(index: u64, at_ms: i64, bytes: &[u8], value: &mut [u8]) {
    let at = at_ms.to_le_bytes();
    let crc = checksum(&[&index.to_le_bytes()], &[&at, bytes]).to_le_bytes();
    value[..CHECKSUM_BYTES].copy_from_slice(&crc);
    value[CHECKSUM_BYTES..CHECKSUM_BYTES + at.len()].copy_from_slice(&at);
    value[CHECKSUM_BYTES + at.len()..].copy_from_slice(bytes);
}

/// Decodes a record: (at_ms, bytes).
pub(super) fn unseal_record(index: u64, value: &[u8]) -> Result<(i64, &[u8]), Trouble> {
    unseal(&[&index.to_le_bytes()], value)
        .and_then(|body| body.split_first_chunk())
        .map(|(at, bytes)| (i64::from_le_bytes(*at), bytes))
        .ok_or_else(|| Trouble::at(index, "checksum of the record is wrong"))
}

/// Seals a decision.
pub(super) fn seal_decision(key: (&str, i64, u64, u32), bytes: &[u8]) -> Vec<u8> {
    let (pool, at_ms, index, ordinal) = key;
    let (at, of, nth) = (
        at_ms.to_le_bytes(),
        index.to_le_bytes(),
        ordinal.to_le_bytes(),
    );
    seal(&[pool.as_bytes(), END, &at, &of, &nth], &[bytes])
}

/// Decodes a decision.
pub(super) fn unseal_decision<'v>(
    key: (&str, i64, u64, u32),
    value: &'v [u8],
) -> Result<&'v [u8], Trouble> {
    let (pool, at_ms, index, ordinal) = key;
    let (at, of, nth) = (
        at_ms.to_le_bytes(),
        index.to_le_bytes(),
        ordinal.to_le_bytes(),
    );
    unseal(&[pool.as_bytes(), END, &at, &of, &nth], value).ok_or_else(|| {
        Trouble::broken(format!(
            "checksum of decision {ordinal} of pool {pool:?} at index {index} is wrong"
        ))
    })
}

/// Length of the entry of these ids in [`DEDUPE`].
pub(super) fn ids_len(ids: &[DedupeEntry<'_>]) -> usize {
    let texts = ids.iter().map(|id| id.source.len() + id.id.len());
    let each = 2 * size_of::<u16>() + size_of::<BodyHash>();
    CHECKSUM_BYTES + size_of::<i64>() + texts.sum::<usize>() + ids.len() * each
}

/// Encodes an entry of [`DEDUPE`] in place: CRC32C over (index, the rest), at_ms, then for each id
/// the length of its source and its own (u16 each), both texts, and the digest; integers are
/// little endian. `value` has [`ids_len`] bytes.
pub(super) fn seal_ids(index: u64, at_ms: i64, ids: &[DedupeEntry<'_>], value: &mut [u8]) {
    let (crc, body) = value.split_at_mut(CHECKSUM_BYTES);
    let mut rest = &mut *body;
    let mut put = |bytes: &[u8]| {
        let (here, after) = std::mem::take(&mut rest).split_at_mut(bytes.len());
        here.copy_from_slice(bytes);
        rest = after;
    };
    put(&at_ms.to_le_bytes());
    for id in ids {
        // Neither exceeds `NAME_BYTES_MAX`.
        put(&(id.source.len() as u16).to_le_bytes());
        put(&(id.id.len() as u16).to_le_bytes());
        put(id.source.as_bytes());
        put(id.id.as_bytes());
        put(&id.hash);
    }
    crc.copy_from_slice(&checksum(&[IDS, &index.to_le_bytes()], &[body]).to_le_bytes());
}

/// Tells the checksum of ids from that of a record at the same index.
const IDS: &[u8] = b"ids";

/// Decodes an entry of [`DEDUPE`]: at_ms, and its ids.
pub(super) fn unseal_ids(
    index: u64,
    value: &[u8],
) -> Result<(i64, impl Iterator<Item = Result<DedupeEntry<'_>, Trouble>>), Trouble> {
    let (at, mut rest) = unseal(&[IDS, &index.to_le_bytes()], value)
        .and_then(|body| body.split_first_chunk())
        .ok_or_else(|| Trouble::broken(format!("checksum of the ids of index {index} is wrong")))?;
    let ids = std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let id = split_id(&mut rest);
        if id.is_none() {
            rest = &[];
        }
        Some(id.ok_or_else(|| Trouble::broken(format!("the ids of index {index} are cut off"))))
    });
    Ok((i64::from_le_bytes(*at), ids))
}

fn split_id<'v>(rest: &mut &'v [u8]) -> Option<DedupeEntry<'v>> {
    let (source_len, after) = rest.split_first_chunk()?;
    let (id_len, mut after) = after.split_first_chunk()?;
    let source = after.split_off(..usize::from(u16::from_le_bytes(*source_len)))?;
    let id = after.split_off(..usize::from(u16::from_le_bytes(*id_len)))?;
    let (hash, after) = after.split_first_chunk()?;
    *rest = after;
    Some(DedupeEntry {
        source: std::str::from_utf8(source).ok()?,
        id: std::str::from_utf8(id).ok()?,
        hash: *hash,
    })
}

/// Decodes an integer sealed under a text key.
pub(super) fn unseal_number(what: &str, key: &str, value: &[u8]) -> Result<u64, Trouble> {
    let body = unseal_text(what, key, value)?;
    let bytes = body
        .try_into()
        .map_err(|_| Trouble::broken(format!("{what} {key:?} has the wrong length")))?;
    Ok(u64::from_le_bytes(bytes))
}

/// Seals a snapshot.
pub(super) fn seal_snapshot(index: u64, bytes: &[u8]) -> Vec<u8> {
    seal(&[&index.to_le_bytes()], &[bytes])
}

/// The newest snapshot whose checksum is right and after which no record is missing. An older one
/// than the newest is only good for a full replay from there, so the caller is told in the log.
pub(super) fn usable_snapshot(
    snapshots: &impl ReadableTable<u64, &'static [u8]>,
    first_index: u64,
) -> Result<Option<Snapshot>, Trouble> {
    let mut newest = None;
    for entry in snapshots.iter()?.rev() {
        let (index, value) = entry?;
        let index = index.value();
        let newest = *newest.get_or_insert(index);
        match unseal(&[&index.to_le_bytes()], value.value()) {
            Some(bytes) if first_index <= index + 1 => {
                if index != newest {
                    tracing::warn!(newest, used = index, "the newest snapshot can't be read");
                }
                let bytes = bytes.to_vec();
                return Ok(Some(Snapshot { index, bytes }));
            }
            Some(_) if index == newest => {
                return Err(Trouble::at(index + 1, "the record is missing"));
            }
            _ => {}
        }
    }
    newest.map_or(Ok(None), |index| {
        Err(Trouble::at(
            index,
            "the snapshot's checksum is wrong and the records since the one before it are not all stored",
        ))
    })
}
