//! The first page of a journal file, before redb's: what the file is, and the highest index that was
//! acknowledged.
//!
//! Why the index: after a crash redb takes the newest commit if its checksums are right, and the one
//! before it if not, as that is what an interrupted commit looks like. A bit that flipped in the
//! last commit looks the same, and an acknowledged record would be gone without a word. So each
//! acknowledgement is noted here, after its commit is durable. The note costs one small write and no
//! sync of its own (the next commit's sync takes it along): it survives the death of the process
//! at once, a loss of power from the next commit on. It never runs ahead of what is durable, so
//! a note above the last record always means damage.
//!
//! Layout, integers little endian: at 0 the magic, then the format version (u32) and a CRC32C over
//! both; at 512 and at 1,024 one note each, written in turn so that a torn one leaves the other:
//! index (u64), CRC32C over it.

use std::io;

use ::redb::StorageBackend;

/// Bytes of the file before redb's first page: one page, so that redb's pages stay aligned.
pub(in crate::journal) const HEADER_BYTES: u64 = 4096;
const MAGIC: [u8; 8] = *b"sunwardJ";
const IDENTITY_BYTES: usize = MAGIC.len() + 8;
const NOTE_BYTES: usize = 12;
const NOTE_OFFSETS: [u64; 2] = [512, 1_024];

/// What the first page says.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Header {
    /// It is a journal.
    Journal {
        format_version: u32,
        /// The highest index known to have been acknowledged; `None` when neither note is whole.
        acknowledged: Option<u64>,
    },
    /// It is none of ours.
    Foreign,
}

/// The first page of an empty journal.
pub(in crate::journal) fn first_page(format_version: u32) -> Vec<u8> {
    let mut page = vec![0; HEADER_BYTES as usize];
    page[..MAGIC.len()].copy_from_slice(&MAGIC);
    page[MAGIC.len()..MAGIC.len() + 4].copy_from_slice(&format_version.to_le_bytes());
    let crc = crc32c::crc32c(&page[..MAGIC.len() + 4]).to_le_bytes();
    page[MAGIC.len() + 4..IDENTITY_BYTES].copy_from_slice(&crc);
    for offset in NOTE_OFFSETS {
        let offset = offset as usize;
        page[offset..offset + NOTE_BYTES].copy_from_slice(&note(0));
    }
    page
}

/// Reads the first page.
pub(super) fn read(raw: &dyn StorageBackend) -> io::Result<Header> {
    if raw.len()? < HEADER_BYTES {
        return Ok(Header::Foreign);
    }
    let mut page = vec![0; HEADER_BYTES as usize];
    raw.read(0, &mut page)?;
    let (identity, crc) = page[..IDENTITY_BYTES].split_at(MAGIC.len() + 4);
    if identity[..MAGIC.len()] != MAGIC || crc32c::crc32c(identity).to_le_bytes() != crc {
        return Ok(Header::Foreign);
    }
    let mut version = [0; 4];
    version.copy_from_slice(&identity[MAGIC.len()..]);
    let notes = NOTE_OFFSETS.into_iter().filter_map(|offset| {
        let offset = offset as usize;
        let index = page[offset..offset + 8].try_into().map(u64::from_le_bytes);
        let index = index.ok()?;
        (page[offset..offset + NOTE_BYTES] == note(index)).then_some(index)
    });
    Ok(Header::Journal {
        format_version: u32::from_le_bytes(version),
        acknowledged: notes.max(),
    })
}

/// Notes that `index` is acknowledged; its commit must be durable.
pub(super) fn acknowledge(raw: &dyn StorageBackend, index: u64) -> io::Result<()> {
    raw.write(NOTE_OFFSETS[(index % 2) as usize], &note(index))
}

fn note(index: u64) -> [u8; NOTE_BYTES] {
    let mut note = [0; NOTE_BYTES];
    note[..8].copy_from_slice(&index.to_le_bytes());
    let crc = crc32c::crc32c(&note[..8]).to_le_bytes();
    note[8..].copy_from_slice(&crc);
    note
}
