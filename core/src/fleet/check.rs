//! What is wrong with policies and fleet together.

use sunward_policies::diagnostic::{Diagnostic, Severity, TextRange};
use sunward_policies::policy::{BindingScope, Policy, PolicySet};

use super::{Fleet, Unit};

/// A finding about a whole file.
pub(super) fn whole_file(
    file: &str,
    code: &'static str,
    message: String,
    help: &str,
) -> Diagnostic {
    let start = TextRange {
        line: 1,
        column: 1,
        end_line: 1,
        end_column: 1,
    };
    finding(file, start, code, Severity::Error, message, help)
}

fn finding(
    file: &str,
    at: TextRange,
    code: &'static str,
    severity: Severity,
    message: String,
    help: &str,
) -> Diagnostic {
    Diagnostic {
        code,
        severity,
        file: file.to_owned(),
        line: at.line,
        column: at.column,
        end_line: at.end_line,
        end_column: at.end_column,
        message,
        help: Some(help.to_owned()),
    }
}

/// Every reason why `policies` can't govern `fleet`, and warnings about what governs nothing.
pub fn policies_on_fleet(policies: &PolicySet, fleet: &Fleet) -> Vec<Diagnostic> {
    policies
        .policies()
        .iter()
        .flat_map(|policy| policy_on_fleet(policy, fleet))
        .collect()
}

/// True when the policy's labels all match the pool's.
pub fn governs(policy: &Policy, pool: &super::Pool) -> bool {
    policy
        .selector
        .iter()
        .all(|(key, value)| pool.labels.get(key) == Some(value))
}

fn policy_on_fleet(policy: &Policy, fleet: &Fleet) -> Vec<Diagnostic> {
    let mut found = Vec::new();
    let pools: Vec<_> = fleet
        .pools()
        .iter()
        .filter(|pool| governs(policy, pool))
        .collect();
    if pools.is_empty() {
        found.push(finding(
            &policy.file,
            policy.pools_range,
            "SUN-F010",
            Severity::Warning,
            format!("policy `{}` governs no pool of the fleet", policy.name),
            "all labels must match; compare `pools` with the labels in fleet.yaml",
        ));
    }
    if let Some(range) = policy.ramp_range
        && let Some(pool) = pools.iter().find(|pool| pool.unit == Unit::Pool)
    {
        found.push(finding(
            &policy.file,
            range,
            "SUN-F011",
            Severity::Error,
            format!(
                "policy `{}` has a ramp, but pool `{}` is all or nothing",
                policy.name, pool.name
            ),
            "remove the ramp, or set `unit: worker` on the pool if its trainer is elastic",
        ));
    }
    for binding in &policy.signals {
        let BindingScope::Zone { scheme } = &binding.scope else {
            continue;
        };
        for pool in &pools {
            if fleet
                .site(&pool.site)
                .is_some_and(|site| site.zones.contains_key(scheme.as_str()))
            {
                continue;
            }
            found.push(finding(
                &policy.file,
                binding.range,
                "SUN-F012",
                Severity::Error,
                format!(
                    "signal `{}` reads the zone of scheme `{scheme}`, but site `{}` of pool `{}` has none",
                    binding.name, pool.site, pool.name
                ),
                "add the zone to the site in fleet.yaml, or narrow the policy's labels",
            ));
            break;
        }
    }
    found
}
