//! What keeps the daemon from being ready, by name: `journal`, `policies`, `fleet`, `leader`,
//! `clock`, `cluster:NAME`, `sink:NAME`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The state of everything that the daemon needs. Cheap to clone; clones agree.
#[derive(Clone, Debug, Default)]
pub struct Readiness {
    parts: Arc<Mutex<BTreeMap<String, Result<(), String>>>>,
}

impl Readiness {
    /// Sets the state of one part; the error says what is wrong and is shown as it is.
    pub fn set(&self, name: &str, state: Result<(), String>) {
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        match parts.get_mut(name) {
            Some(known) => *known = state,
            None => {
                parts.insert(name.to_owned(), state);
            }
        }
    }

    /// Forgets a part that is no longer needed.
    pub fn forget(&self, name: &str) {
        self.parts
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(name);
    }

    /// Every part with its state, by name.
    pub fn parts(&self) -> BTreeMap<String, Result<(), String>> {
        self.parts
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// True when nothing is wrong.
    pub fn is_ready(&self) -> bool {
        self.parts
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .values()
            .all(Result::is_ok)
    }
}
