//! Paths on the command line become the texts of policy files.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use sunward_core::fleet::FLEET_TEXT_MAX;
use sunward_policies::codes;
use sunward_policies::diagnostic::{Diagnostic, TextRange};
use sunward_policies::document::{POLICY_TEXT_MAX, SourceFile};

use crate::files::policy_paths;

/// What was read.
#[derive(Debug, Default)]
pub(super) struct Sources {
    /// The files that hold text.
    pub(super) files: Vec<SourceFile>,
    /// What is wrong with the others.
    pub(super) found: Vec<Diagnostic>,
}

impl Sources {
    /// The policy files that `paths` name: a file itself, of a folder what the daemon would load from it. A path that
    /// can't be opened is wrong use.
    pub(super) fn policies(paths: &[PathBuf]) -> anyhow::Result<Sources> {
        let mut all: Vec<PathBuf> = Vec::new();
        for path in paths {
            let named = if path.is_dir() {
                let found = policy_paths(path).with_context(|| unopened(path))?;
                anyhow::ensure!(
                    !found.is_empty(),
                    "{} holds no policy: its files end in .yaml or .yml, and those in .test.yaml are tests of policies",
                    path.display()
                );
                found
            } else {
                vec![path.clone()]
            };
            // A file that was named twice is one file.
            let new: Vec<PathBuf> = named.into_iter().filter(|p| !all.contains(p)).collect();
            all.extend(new);
        }
        let mut sources = Sources::default();
        for path in &all {
            sources.read(path, POLICY_TEXT_MAX)?;
        }
        Ok(sources)
    }

    /// The fleet file.
    pub(super) fn fleet(path: &Path) -> anyhow::Result<Sources> {
        let mut sources = Sources::default();
        sources.read(path, FLEET_TEXT_MAX)?;
        Ok(sources)
    }

    /// Reads one file, of at most one byte more than a text of its kind may have: the reader of that kind then says so.
    pub(super) fn read(&mut self, path: &Path, most: usize) -> anyhow::Result<()> {
        let mut bytes = Vec::new();
        std::fs::File::open(path)
            .and_then(|file| file.take(most as u64 + 1).read_to_end(&mut bytes))
            .with_context(|| unopened(path))?;
        let name = path.display().to_string();
        #[expect(clippy::single_match_else, reason = "two ways of one weight")]
        match text(bytes, most) {
            Some(text) => self.files.push(SourceFile { path: name, text }),
            None => {
                let message = "the file is not text in UTF-8";
                let found = Diagnostic::error(codes::YAML_SYNTAX, &name, TextRange::START, message);
                self.found.push(found.with_help("save it as UTF-8"));
            }
        }
        Ok(())
    }

    /// The text of a file that was read.
    pub(super) fn text_of(&self, file: &str) -> Option<&str> {
        let known = self.files.iter().find(|known| known.path == file);
        known.map(|known| known.text.as_str())
    }
}

/// The bytes as text; where the reading ended in the middle of a character, without it.
fn text(bytes: Vec<u8>, most: usize) -> Option<String> {
    let cut = bytes.len() > most;
    match String::from_utf8(bytes) {
        Ok(text) => Some(text),
        Err(error) if cut && error.utf8_error().error_len().is_none() => {
            // Still longer than allowed, which is what will be said about it.
            let valid = error.utf8_error().valid_up_to();
            let mut text = String::from_utf8_lossy(&error.as_bytes()[..valid]).into_owned();
            text.push_str("\n\n\n\n");
            Some(text)
        }
        Err(_) => None,
    }
}

fn unopened(path: &Path) -> String {
    format!(
        "{} can't be read: check the path and its permissions",
        path.display()
    )
}

#[cfg(test)]
mod tests {
    use super::text;

    #[test]
    fn bytes_are_text_or_are_told_apart() {
        assert_eq!(text(b"abc".to_vec(), 3).as_deref(), Some("abc"));
        assert_eq!(text(vec![b'a', 0xff], 9), None);
        // Cut within a character: too long, and not "not UTF-8".
        let cut = text(vec![b'a', 0xc3], 1);
        assert!(cut.is_some_and(|text| text.len() > 1));
        assert_eq!(text(vec![b'a', 0xc3], 2), None);
    }
}
