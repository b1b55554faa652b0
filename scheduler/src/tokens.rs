//! Who may push and ask: partners, their grants, and the hashes of their tokens.
//!
//! A token is `sw_NAME_` and 64 hexadecimal digits: 256 random bits. The file keeps only its
//! SHA-256: a secret of that length can't be guessed or looked up in a table, so no salt and no
//! slow hash is needed. A presented token is hashed before it is compared, and the comparison is
//! a lookup by hash: how long that takes may tell something about hashes, but nobody can choose a
//! token whose hash comes closer to one in the file.
//!
//! The daemon reads the file anew when it has changed: looked at once a second at most, and at
//! once when a token is unknown, so that a partner just added is served. A file that does not
//! parse never replaces the last good one; a file that is gone grants nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use ring::rand::SecureRandom as _;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use sunward_core::fleet::{Fleet, Site};
use sunward_core::signal::{Scope, StreamKey};
use sunward_core::time::Timestamp;
use sunward_core::units::Kind;

/// Most partners of a file.
pub const PARTNERS_MAX: usize = 10_000;
/// Most grants of a partner.
pub const GRANTS_MAX: usize = 1_000;
/// Longest tokens file, in bytes.
pub const TOKENS_TEXT_MAX: u64 = 16 * 1024 * 1024;
/// Longest token, in bytes.
pub const TOKEN_BYTES_MAX: usize = 160;
/// How often an unchanged file is looked at, at most.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Stands for every source, site or kind.
const EVERY: &str = "*";
const API_VERSION: &str = "sunward.dev/v1alpha1";
const KIND: &str = "Partners";

/// A token, shown once. `Debug` hides it; only [`Secret::reveal`] gives the text.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Takes a token as read from a file or a header.
    pub fn new(text: impl Into<String>) -> Secret {
        Secret(text.into())
    }

    /// The text itself: for the one who asked for the token, and for the header of a request.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(hidden)")
    }
}

/// What a partner may push: a source, at some sites, of some kinds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grant {
    /// The source's name, or `*`.
    pub source: String,
    /// Names of sites, or `*`; a site brings the zones that the fleet maps to it.
    pub sites: Vec<String>,
    /// Kinds of signal, or `*`.
    pub kinds: Vec<String>,
}

impl Grant {
    fn covers(&self, stream: &StreamKey, fleet: &Fleet) -> bool {
        let listed =
            |list: &[String], name: &str| list.iter().any(|have| have == EVERY || have == name);
        if !(self.source == EVERY || self.source == *stream.source)
            || !listed(&self.kinds, stream.kind.as_str())
        {
            return false;
        }
        match &stream.scope {
            Scope::Site(site) => listed(&self.sites, site),
            Scope::Zone { scheme, code } => self.sites.iter().any(|site| {
                site == EVERY
                    || fleet
                        .site(site)
                        .is_some_and(|site| site.zones.get(scheme) == Some(code))
            }),
        }
    }
}

/// Stands among the kinds of a grant for grid events: they are calls, not kinds of signal.
pub const GRID_EVENTS: &str = "grid_event";

impl Grant {
    fn covers_calls(&self, source: &str, site: &str) -> bool {
        let listed =
            |list: &[String], name: &str| list.iter().any(|have| have == EVERY || have == name);
        let sent_by = self.source == EVERY || self.source == source;
        sent_by && listed(&self.kinds, GRID_EVENTS) && listed(&self.sites, site)
    }
}

impl FromStr for Grant {
    type Err = String;

    /// Reads `source=A,sites=S1+S2,kinds=K1+K2`.
    fn from_str(text: &str) -> Result<Grant, String> {
        const FORM: &str = "write it like source=watttime,sites=caiso+berlin,kinds=carbon_intensity, with `*` for every";
        let mut parts = BTreeMap::new();
        for part in text.split(',') {
            let Some((key, value)) = part.split_once('=') else {
                return Err(format!("`{part}` is not KEY=VALUE: {FORM}"));
            };
            if !["source", "sites", "kinds"].contains(&key) {
                return Err(format!("`{key}` is not a key of a grant: {FORM}"));
            }
            if parts.insert(key, value).is_some() {
                return Err(format!(
                    "`{key}` stands there twice: join its values with `+`"
                ));
            }
        }
        let list = |key: &str| -> Result<Vec<String>, String> {
            let value = *parts
                .get(key)
                .ok_or_else(|| format!("`{key}` is missing: {FORM}"))?;
            if value.is_empty() || value.split('+').any(str::is_empty) {
                return Err(format!("`{key}` has an empty name: {FORM}"));
            }
            Ok(value.split('+').map(str::to_owned).collect())
        };
        let kinds = list("kinds")?;
        if let Some(unknown) = kinds
            .iter()
            .find(|kind| *kind != EVERY && *kind != GRID_EVENTS && Kind::parse(kind).is_none())
        {
            let known = Kind::ALL.map(Kind::as_str).join(", ");
            return Err(format!(
                "`{unknown}` is not a kind of signal: use * or some of {known}, {GRID_EVENTS}"
            ));
        }
        let source = parts.get("source").copied().unwrap_or_default();
        if source.is_empty() {
            return Err(format!("`source` is missing: {FORM}"));
        }
        Ok(Grant {
            source: source.to_owned(),
            sites: list("sites")?,
            kinds,
        })
    }
}

/// Someone with a token.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Partner {
    /// Unique in the file.
    pub name: String,
    /// May call the operator's routes.
    #[serde(default)]
    pub operator: bool,
    /// What it may push.
    #[serde(default)]
    pub grants: Vec<Grant>,
    /// Hexadecimal SHA-256 of the token.
    pub sha256: String,
    /// RFC 3339.
    pub created: String,
}

impl fmt::Debug for Partner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Partner")
            .field("name", &self.name)
            .field("operator", &self.operator)
            .field("grants", &self.grants)
            .field("created", &self.created)
            .finish_non_exhaustive()
    }
}

impl Partner {
    /// True when grants cover the grid events of a source for a place. A call for a zone acts on every site there
    /// at once, so all of them must be granted.
    pub fn may_call(&self, source: &str, scope: &Scope, fleet: &Fleet) -> bool {
        let covers = |site: &str| {
            self.grants
                .iter()
                .any(|grant| grant.covers_calls(source, site))
        };
        match scope {
            Scope::Site(site) => covers(site),
            Scope::Zone { scheme, code } => {
                let there = |site: &&Site| site.zones.get(scheme) == Some(code);
                let mut sites = fleet.sites().filter(there).peekable();
                // Whether the zone is one is the business of who may call everywhere.
                if sites.peek().is_none() {
                    return covers(EVERY);
                }
                sites.all(|site| covers(&site.name))
            }
        }
    }

    /// True when some grant covers the stream.
    pub fn may_push(&self, stream: &StreamKey, fleet: &Fleet) -> bool {
        self.grants.iter().any(|grant| grant.covers(stream, fleet))
    }
}

/// What can go wrong with tokens.
#[derive(Debug, thiserror::Error)]
pub enum TokensError {
    /// The file system says no.
    #[error("the tokens file {path} can't be {what}: {source}; check the path and its permissions")]
    File {
        /// The file.
        path: PathBuf,
        /// `read` or `written`.
        what: &'static str,
        /// Why.
        source: io::Error,
    },
    /// Not a tokens file.
    #[error("the tokens file {path} is not valid: {problem}")]
    Invalid {
        /// The file.
        path: PathBuf,
        /// What, where, and how to mend it.
        problem: String,
    },
    /// The name is taken.
    #[error("there is already a partner `{0}`: choose another name")]
    Taken(String),
    /// Not a name.
    #[error(
        "`{0}` is not a name for a partner: use 1 to 63 characters: a-z, 0-9 and `-`, beginning and ending with a letter or digit"
    )]
    Name(String),
    /// No room.
    #[error("there are {PARTNERS_MAX} partners, which is the most: remove one")]
    Full,
    /// Nothing would be allowed.
    #[error(
        "partner `{0}` would be allowed nothing: give --grant (for pushing) or --operator (for asking and steering)"
    )]
    Powerless(String),
    /// Too many grants.
    #[error(
        "partner `{0}` has more than {GRANTS_MAX} grants: use `*` or list several sites in one grant"
    )]
    Grants(String),
    /// The system gave no random bits.
    #[error("the operating system gave no random bits for a token; try again")]
    Random,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileDoc {
    #[serde(rename = "apiVersion")]
    api_version: String,
    kind: String,
    partners: Vec<Partner>,
}

/// The partners of one reading of the file.
#[derive(Clone, Debug, Default)]
struct Partners {
    by_hash: BTreeMap<[u8; 32], Arc<Partner>>,
}

impl Partners {
    fn new(path: &Path, partners: Vec<Partner>) -> Result<Partners, TokensError> {
        let invalid = |problem: String| TokensError::Invalid {
            path: path.to_owned(),
            problem,
        };
        if partners.len() > PARTNERS_MAX {
            return Err(invalid(format!(
                "{} partners; at most {PARTNERS_MAX} are allowed",
                partners.len()
            )));
        }
        let mut by_hash = BTreeMap::new();
        let mut names = BTreeSet::new();
        for partner in partners {
            if !is_name(&partner.name) || !names.insert(partner.name.clone()) {
                return Err(invalid(format!(
                    "partner `{}` is named twice, or not by a name",
                    partner.name
                )));
            }
            if partner.grants.len() > GRANTS_MAX {
                return Err(TokensError::Grants(partner.name));
            }
            let hash = unhex(&partner.sha256).ok_or_else(|| {
                invalid(format!(
                    "`sha256` of partner `{}` is not 64 hexadecimal digits",
                    partner.name
                ))
            })?;
            if by_hash.insert(hash, Arc::new(partner)).is_some() {
                return Err(invalid("two partners have the same token".into()));
            }
        }
        Ok(Partners { by_hash })
    }
}

/// What tells whether a file has changed.
type Mark = Option<(SystemTime, u64, u64)>;

#[derive(Debug)]
struct Loaded {
    partners: Partners,
    mark: Mark,
    looked: Instant,
    problem: Option<String>,
    /// The file could not even be looked at the last time.
    unseen: bool,
}

/// The tokens in force.
#[derive(Debug)]
pub struct Tokens {
    /// Absent for tokens that live only in this process.
    path: Option<PathBuf>,
    loaded: Mutex<Loaded>,
}

impl Tokens {
    /// Reads the file; a file that is not there grants nothing until it appears.
    pub fn open(path: &Path, now: Instant) -> Result<Tokens, TokensError> {
        let mark = mark(path)?;
        let partners = Partners::new(path, read(path)?)?;
        let loaded = Loaded {
            partners,
            mark,
            looked: now,
            problem: None,
            unseen: false,
        };
        Ok(Tokens {
            path: Some(path.to_owned()),
            loaded: Mutex::new(loaded),
        })
    }

    /// Tokens that no file holds: for the demonstration and for tests.
    pub fn fixed(partners: Vec<Partner>, now: Instant) -> Result<Tokens, TokensError> {
        let partners = Partners::new(Path::new("(none)"), partners)?;
        let loaded = Loaded {
            partners,
            mark: None,
            looked: now,
            problem: None,
            unseen: false,
        };
        Ok(Tokens {
            path: None,
            loaded: Mutex::new(loaded),
        })
    }

    /// The partner that a token belongs to.
    pub fn lookup(&self, token: &str, now: Instant) -> Option<Arc<Partner>> {
        if token.len() > TOKEN_BYTES_MAX {
            return None;
        }
        let hash: [u8; 32] = Sha256::digest(token).into();
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        let known = loaded.partners.by_hash.contains_key(&hash);
        if !known || now.saturating_duration_since(loaded.looked) >= LOOK_EVERY {
            loaded.looked = now;
            self.reload(&mut loaded);
        }
        loaded.partners.by_hash.get(&hash).cloned()
    }

    /// Why the file on disk is not the one in force, for readiness. Looks at the file, too: a
    /// daemon that is not ready may get no other request that would.
    pub fn problem(&self, now: Instant) -> Option<String> {
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        if now.saturating_duration_since(loaded.looked) >= LOOK_EVERY {
            loaded.looked = now;
            self.reload(&mut loaded);
        }
        loaded.problem.clone()
    }

    fn reload(&self, loaded: &mut Loaded) {
        let Some(path) = &self.path else { return };
        let seen = match mark(path) {
            Ok(seen) => seen,
            Err(error) => {
                loaded.unseen = true;
                return note(loaded, &error);
            }
        };
        if std::mem::take(&mut loaded.unseen) {
            // It could not be looked at; that is over, whatever stands in it.
            loaded.problem = None;
        }
        if seen == loaded.mark {
            return;
        }
        loaded.mark = seen;
        match read(path).and_then(|partners| Partners::new(path, partners)) {
            Ok(partners) => {
                tracing::info!(path = %path.display(), partners = partners.by_hash.len(), "tokens reloaded");
                loaded.partners = partners;
                loaded.problem = None;
            }
            Err(error) => note(loaded, &error),
        }
    }
}

/// Keeps a problem for readiness, and logs it once.
fn note(loaded: &mut Loaded, error: &TokensError) {
    let problem = error.to_string();
    if loaded.problem.as_ref() != Some(&problem) {
        tracing::error!(
            error = problem,
            "the tokens file can't be used; the last good one stays in force"
        );
    }
    loaded.problem = Some(problem);
}

/// A new partner and its token, which is not stored anywhere.
pub fn issue(
    name: &str,
    grants: Vec<Grant>,
    operator: bool,
    created: Timestamp,
) -> Result<(Partner, Secret), TokensError> {
    if !is_name(name) {
        return Err(TokensError::Name(name.to_owned()));
    }
    if grants.is_empty() && !operator {
        return Err(TokensError::Powerless(name.to_owned()));
    }
    if grants.len() > GRANTS_MAX {
        return Err(TokensError::Grants(name.to_owned()));
    }
    let mut bits = [0_u8; 32];
    ring::rand::SystemRandom::new()
        .fill(&mut bits)
        .map_err(|_| TokensError::Random)?;
    let secret = Secret(format!("sw_{name}_{}", hex(&bits)));
    let partner = Partner {
        name: name.to_owned(),
        operator,
        grants,
        sha256: hex(&Sha256::digest(secret.reveal())),
        created: created.to_string(),
    };
    Ok((partner, secret))
}

/// Adds a partner to the file, which is made where it is absent: mode 0600, replaced by a rename,
/// and locked against another `partner add` meanwhile.
pub fn add(path: &Path, partner: Partner) -> Result<(), TokensError> {
    let fail = |source| TokensError::File {
        path: path.to_owned(),
        what: "written",
        source,
    };
    if let Some(folder) = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
    {
        fs::create_dir_all(folder).map_err(fail)?;
    }
    let lock = private(&beside(path, ".lock"), false).map_err(fail)?;
    lock.lock().map_err(fail)?;
    let mut partners = read(path)?;
    if partners.iter().any(|known| known.name == partner.name) {
        return Err(TokensError::Taken(partner.name));
    }
    if partners.len() >= PARTNERS_MAX {
        return Err(TokensError::Full);
    }
    partners.push(partner);
    Partners::new(path, partners.clone())?;
    replace(path, partners).map_err(fail)
}

/// The partners of a file, in its order; none where it is absent.
pub fn read(path: &Path) -> Result<Vec<Partner>, TokensError> {
    let fail = |source| TokensError::File {
        path: path.to_owned(),
        what: "read",
        source,
    };
    let invalid = |problem| TokensError::Invalid {
        path: path.to_owned(),
        problem,
    };
    let text = match fs::metadata(path) {
        Ok(found) if found.len() > TOKENS_TEXT_MAX => {
            return Err(invalid(format!(
                "it has {} bytes; at most {TOKENS_TEXT_MAX} are allowed",
                found.len()
            )));
        }
        Ok(_) => fs::read_to_string(path).map_err(fail)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(fail(error)),
    };
    let doc: FileDoc = serde_saphyr::from_str(&text)
        .map_err(|error| invalid(format!("{error}; write it with `sunward partner add`")))?;
    if doc.api_version != API_VERSION || doc.kind != KIND {
        return Err(invalid(format!(
            "it is {} {}, not {API_VERSION} {KIND}",
            doc.api_version, doc.kind
        )));
    }
    Ok(doc.partners)
}

fn replace(path: &Path, partners: Vec<Partner>) -> io::Result<()> {
    let doc = FileDoc {
        api_version: API_VERSION.to_owned(),
        kind: KIND.to_owned(),
        partners,
    };
    // JSON is YAML too, and this way the file needs no second library to be written.
    let text = serde_json::to_vec_pretty(&doc).map_err(io::Error::other)?;
    let next = beside(path, ".next");
    let mut file = private(&next, true)?;
    file.write_all(&text)?;
    file.write_all(b"\n")?;
    file.sync_all()?;
    fs::rename(&next, path)?;
    // The rename is durable once its folder is.
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(suffix);
    path.with_file_name(name)
}

/// Opens a file that only its owner may read.
fn private(path: &Path, truncate: bool) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(truncate);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

fn mark(path: &Path) -> Result<Mark, TokensError> {
    match fs::metadata(path) {
        Ok(found) => {
            #[cfg(unix)]
            let inode = std::os::unix::fs::MetadataExt::ino(&found);
            #[cfg(not(unix))]
            let inode = 0;
            Ok(Some((
                found.modified().unwrap_or(SystemTime::UNIX_EPOCH),
                found.len(),
                inode,
            )))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(TokensError::File {
            path: path.to_owned(),
            what: "read",
            source,
        }),
    }
}

/// A name as Kubernetes takes it for a label (RFC 1123): it becomes part of tokens, logs and labels.
fn is_name(text: &str) -> bool {
    (1..=63).contains(&text.len())
        && text
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        && !text.starts_with('-')
        && !text.ends_with('-')
}

fn hex(bytes: &[u8]) -> String {
    use fmt::Write as _;
    bytes
        .iter()
        .fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
            write!(text, "{byte:02x}").expect("writing to a String does not fail");
            text
        })
}

fn unhex(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0_u8; 32];
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    for (position, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(position * 2..position * 2 + 2)?, 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
#[path = "tokens_tests.rs"]
mod tests;
