//! The generated table T1 against the rebuilt trace, where that file lies beside the workspace.
#![allow(clippy::unwrap_used)]

use std::path::Path;

use sunward_core::time::{Span, Timestamp};
use sunward_simulations::generate::t1;

#[test]
fn the_generator_gives_every_value_of_the_rebuilt_trace() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/traces/t1_rebuilt.csv");
    let Ok(text) = std::fs::read_to_string(&path) else {
        // The trace is not part of the repository; the generator's own tests stand without it.
        let mut stderr = std::io::stderr();
        let _ = std::io::Write::write_fmt(
            &mut stderr,
            format_args!("skipped: {} is absent\n", path.display()),
        );
        return;
    };
    let mut lines = text.lines();
    let zones: Vec<_> = lines
        .next()
        .unwrap()
        .split(',')
        .skip(1)
        .map(|code| *t1::ZONES.iter().find(|zone| zone.zone == code).unwrap())
        .collect();
    assert_eq!(zones.len(), t1::ZONES.len());
    let mut rows = 0;
    for (step, line) in lines.enumerate() {
        let mut fields = line.split(',');
        let at = Timestamp::parse_rfc3339(fields.next().unwrap()).unwrap();
        assert_eq!(at, t1::START + Span::from_secs(300 * step as i64));
        for (zone, field) in zones.iter().zip(fields) {
            let value: f64 = field.parse().unwrap();
            assert_eq!(zone.value_at(at), value, "{} at {at}", zone.zone);
            if at < t1::START + t1::LENGTH {
                let row = zone.rows(t1::LENGTH).nth(step).unwrap();
                assert_eq!((row.from, row.value), (at, value), "{}", zone.zone);
            }
        }
        rows += 1;
    }
    // 18 h in steps of 5 min, both ends included.
    assert_eq!(rows, 217);
}
