//! What holds for every diagnostic of every text.

use sunward_policies::Diagnostic;

/// Each lies within the text, ends after it begins, and can be shown.
pub fn check(found: &[Diagnostic], text: &str) {
    // One beyond the last: what is missing is missing there.
    let lines = text.lines().count() as u32 + 1;
    for diagnostic in found {
        let place = diagnostic.range();
        assert!(place.line >= 1 && place.column >= 1, "{diagnostic:?}");
        assert!(
            place.line <= lines && place.end_line <= lines,
            "{diagnostic:?}"
        );
        let (start, end) = (
            (place.line, place.column),
            (place.end_line, place.end_column),
        );
        assert!(start <= end, "{diagnostic:?}");
        let shown = diagnostic.render(Some(text), false);
        let is_plain = |c: char| c == '\n' || !c.is_control();
        assert!(shown.chars().all(is_plain), "{shown:?}");
    }
}
