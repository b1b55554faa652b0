//! The fleet of a test that names none: small, and such that the policies under test govern it.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use sunward_policies::document::SourceFile;
use sunward_policies::lint::studies;
use sunward_policies::policy::{BindingScope, Policy, PolicySet};

/// How diagnostics name it.
pub(super) const BUILT_IN: &str = "built-in fleet";

/// The federation, where no floor or deadline names another.
const FEDERATION: &str = "job";

/// One site and pool for each set of labels that a policy selects: three workers of 2 kW, ready after 250 s, all or
/// nothing. Under a policy with a ramp or a number of workers the pool may run any number of them. Every zone has the
/// code `ZONE`, every site the power tiers of the specification.
pub(super) fn built_in(policies: &PolicySet, files: &[SourceFile]) -> SourceFile {
    let sized: Vec<&str> = studies(policies, files)
        .iter()
        .filter(|study| study.sizes_pools)
        .map(|study| study.policy.name.as_str())
        .collect();
    let mut groups: Vec<Vec<&Policy>> = Vec::new();
    for policy in policies.policies() {
        match groups
            .iter_mut()
            .find(|of| of[0].selector == policy.selector)
        {
            Some(group) => group.push(policy),
            None => groups.push(vec![policy]),
        }
    }
    let schemes: BTreeSet<&str> = policies
        .policies()
        .iter()
        .flat_map(|policy| &policy.signals)
        .filter_map(|signal| match &signal.scope {
            BindingScope::Zone { scheme } => Some(scheme.as_str()),
            BindingScope::Site => None,
        })
        .collect();
    let zones: Vec<String> = schemes
        .iter()
        .map(|scheme| format!("{{scheme: {scheme}, code: ZONE}}"))
        .collect();
    let (mut sites, mut pools, mut names) = (String::new(), String::new(), Vec::new());
    for (index, group) in groups.iter().enumerate() {
        let (site, pool) = if groups.len() == 1 {
            ("site".to_owned(), "pool".to_owned())
        } else {
            (format!("site-{}", index + 1), format!("pool-{}", index + 1))
        };
        let stepwise = group
            .iter()
            .any(|policy| policy.ramp_range.is_some() || sized.contains(&policy.name.as_str()));
        let unit = if stepwise { "worker" } else { "pool" };
        let labels: Vec<String> = group[0]
            .selector
            .iter()
            .map(|(key, value)| format!("{}: {}", quoted(key), quoted(value)))
            .collect();
        // Writing to a String can't fail.
        let _ = writeln!(
            sites,
            "  - {{name: {site}, time_zone: UTC, power_limit_kw: 100, power_tiers: [100, 90, 75, 50], zones: [{}]}}",
            zones.join(", ")
        );
        let _ = writeln!(
            pools,
            "  - {{name: {pool}, site: {site}, labels: {{{}}}, unit: {unit}, max_workers: 3, training_kw: 2.0, \
             idle_kw: 0.5, gpus_per_worker: 4, gpu_vendor: nvidia, gpu_model: A100, ready_after: 250s, actuator: \
             {{memory: {{start: 250s, stop: 60s}}}}}}",
            labels.join(", ")
        );
        names.push(pool);
    }
    let federations = policies.policies().iter().flat_map(|policy| {
        let floors = policy
            .floors
            .iter()
            .filter_map(|floor| floor.federation.as_deref());
        let deadlines = policy.deadlines.iter();
        floors.chain(deadlines.filter_map(|deadline| deadline.federation.as_deref()))
    });
    let federation = federations.into_iter().next().unwrap_or(FEDERATION);
    let text = format!(
        "apiVersion: sunward.dev/v1alpha1\nkind: Fleet\nmetadata: {{name: test}}\nspec:\n  sites:\n{sites}  pools:\n\
         {pools}  federations:\n  - {{name: {federation}, pools: [{}]}}\n",
        names.join(", ")
    );
    SourceFile {
        path: BUILT_IN.to_owned(),
        text,
    }
}

/// A YAML text in double quotes; labels have no control characters that would need more.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}
