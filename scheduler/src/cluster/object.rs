//! A MachineDeployment as far as we read it, and what is kept of it.
//!
//! v1beta1 and v1beta2 agree on the few fields read here, so one type serves both; every other
//! field is ignored.

use std::borrow::Cow;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::{ApiResource, DynamicResourceScope, GroupVersionKind};
use serde::Deserialize;
use sunward_core::event::PoolObservation;
use sunward_core::time::Timestamp;

/// The API group of Cluster API.
pub const GROUP: &str = "cluster.x-k8s.io";
/// The resource's name in paths and in RBAC rules.
pub const PLURAL: &str = "machinedeployments";
/// The term of the daemon that claimed the object.
pub const TERM_ANNOTATION: &str = "sunward.dev/term";
/// `<term>.<n>`, another one at each claim: a claim must change the object, or a write prepared
/// before it would still be accepted, and a patch that changes nothing is not a write.
pub const CLAIM_ANNOTATION: &str = "sunward.dev/claim";
/// `<term>.<generation>` of the last scale write; informative.
pub const COMMAND_ANNOTATION: &str = "sunward.dev/command";
/// When the last scale write was decided, RFC 3339.
pub const CHANGED_AT_ANNOTATION: &str = "sunward.dev/changed-at";

/// The version of Cluster API's resources that is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApiVersion {
    /// Cluster API 1.11 and later.
    V1Beta2,
    /// Cluster API up to 1.15.
    V1Beta1,
}

impl ApiVersion {
    /// The version's name in paths.
    pub fn as_str(self) -> &'static str {
        match self {
            ApiVersion::V1Beta2 => "v1beta2",
            ApiVersion::V1Beta1 => "v1beta1",
        }
    }

    /// MachineDeployments in this version.
    pub(super) fn resource(self) -> ApiResource {
        let kind = GroupVersionKind::gvk(GROUP, self.as_str(), "MachineDeployment");
        ApiResource::from_gvk_with_plural(&kind, PLURAL)
    }
}

/// The fields that are read; everything else is ignored.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct MachineDeployment {
    #[serde(default)]
    metadata: ObjectMeta,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct Spec {
    replicas: Option<i64>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    replicas: Option<i64>,
    ready_replicas: Option<i64>,
}

impl kube::Resource for MachineDeployment {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn group(kind: &ApiResource) -> Cow<'_, str> {
        kind.group.as_str().into()
    }

    fn version(kind: &ApiResource) -> Cow<'_, str> {
        kind.version.as_str().into()
    }

    fn kind(kind: &ApiResource) -> Cow<'_, str> {
        kind.kind.as_str().into()
    }

    fn plural(kind: &ApiResource) -> Cow<'_, str> {
        kind.plural.as_str().into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

impl MachineDeployment {
    /// Namespace and name.
    pub(crate) fn key(&self) -> (&str, &str) {
        (
            self.metadata.namespace.as_deref().unwrap_or_default(),
            self.metadata.name.as_deref().unwrap_or_default(),
        )
    }
}

/// What is kept of a MachineDeployment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// `metadata.resourceVersion`. Kubernetes promises since 1.35 that it is a decimal number
    /// that orders the versions of an object; every API server on etcd kept to it before.
    pub version: u64,
    /// `spec.replicas`; absent counts as 0, as the scale subresource has it.
    pub replicas: u32,
    /// `status.replicas`: Machines that exist, those being deleted included.
    pub existing: u32,
    /// `status.readyReplicas`; absent (v1beta2: unknown) counts as 0.
    pub ready: u32,
    /// The term in [`TERM_ANNOTATION`].
    pub term: Option<u64>,
    /// The text in [`CLAIM_ANNOTATION`].
    pub claim: Option<String>,
    /// The text in [`COMMAND_ANNOTATION`].
    pub command: Option<String>,
    /// The instant in [`CHANGED_AT_ANNOTATION`].
    pub changed_at: Option<Timestamp>,
}

/// An object whose `metadata.resourceVersion` is not a number above 0.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "MachineDeployment {object} has the resourceVersion {version:?}, which is not a decimal number: \
     this API server can't be fenced against; connect to one that is backed by etcd"
)]
pub struct NotComparable {
    object: String,
    version: String,
}

/// Reads a resource version.
pub(crate) fn parse_version(text: &str) -> Option<u64> {
    let canonical = !text.starts_with('0') && text.bytes().all(|byte| byte.is_ascii_digit());
    canonical.then(|| text.parse().ok()).flatten()
}

impl Snapshot {
    /// What is kept of `object`. An annotation of ours that can't be read counts as absent: the
    /// next claim overwrites it.
    pub(crate) fn of(object: &MachineDeployment) -> Result<Snapshot, NotComparable> {
        let version = object.metadata.resource_version.as_deref();
        let version = version.unwrap_or_default();
        let annotation = |name: &str| object.metadata.annotations.as_ref()?.get(name);
        Ok(Snapshot {
            version: parse_version(version).ok_or_else(|| {
                let (namespace, name) = object.key();
                NotComparable {
                    object: format!("{namespace}/{name}"),
                    version: version.to_owned(),
                }
            })?,
            replicas: count(object.spec.replicas),
            existing: count(object.status.replicas),
            ready: count(object.status.ready_replicas),
            term: annotation(TERM_ANNOTATION).and_then(|text| text.parse().ok()),
            claim: annotation(CLAIM_ANNOTATION).cloned(),
            command: annotation(COMMAND_ANNOTATION).cloned(),
            changed_at: annotation(CHANGED_AT_ANNOTATION)
                .and_then(|text| Timestamp::parse_rfc3339(text).ok()),
        })
    }

    /// The object after a scale write that was prepared from this one and accepted: the answer
    /// has the version, `replicas` and `existing` Machines; the rest is as it was.
    pub(crate) fn scaled(
        self,
        version: u64,
        replicas: u32,
        existing: u32,
        decided_at: Timestamp,
    ) -> Snapshot {
        Snapshot {
            version,
            replicas,
            existing,
            changed_at: Some(decided_at),
            ..self
        }
    }

    /// Machines on their way out: those that exist beyond the wanted ones.
    pub fn stopping(&self) -> u32 {
        self.existing.saturating_sub(self.replicas)
    }

    /// The observation that this is of `pool`.
    pub fn observation(&self, pool: &Arc<str>) -> PoolObservation {
        PoolObservation {
            pool: pool.clone(),
            wanted: self.replicas,
            ready: self.ready,
            stopping: self.stopping(),
            version: self.version,
            term: self.term,
            changed_at: self.changed_at,
        }
    }

    /// The text of the next claim under `term`: never the one that the object carries.
    pub(crate) fn next_claim(&self, term: u64) -> String {
        let number = self
            .claim
            .as_deref()
            .and_then(|claim| claim.split_once('.'))
            .filter(|(of, _)| of.parse() == Ok(term))
            .and_then(|(_, number)| number.parse::<u64>().ok())
            .unwrap_or(0);
        format!("{term}.{}", number.wrapping_add(1))
    }
}

/// A number of Machines from the wire.
pub(crate) fn count(wire: Option<i64>) -> u32 {
    let wire = wire.unwrap_or(0).max(0);
    u32::try_from(wire).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    fn snapshot(object: serde_json::Value) -> Result<Snapshot, NotComparable> {
        Snapshot::of(&serde_json::from_value(object).unwrap())
    }

    #[test]
    fn both_versions_of_the_object_are_read_alike() {
        let expected = Snapshot {
            version: 812,
            replicas: 1,
            existing: 3,
            ready: 2,
            term: Some(7),
            claim: Some("7.2".into()),
            command: Some("7.12".into()),
            changed_at: Some(Timestamp::from_millis(1_700_000_000_000)),
        };
        let metadata = json!({"namespace": "gpu", "name": "a", "resourceVersion": "812", "annotations": {
            "sunward.dev/term": "7", "sunward.dev/claim": "7.2", "sunward.dev/command": "7.12",
            "sunward.dev/changed-at": "2023-11-14T22:13:20Z", "other": "x",
        }});
        let old = json!({"apiVersion": "cluster.x-k8s.io/v1beta1", "kind": "MachineDeployment", "metadata": metadata,
            "spec": {"replicas": 1, "strategy": {"type": "RollingUpdate"}},
            "status": {"replicas": 3, "readyReplicas": 2, "unavailableReplicas": 1, "phase": "ScalingDown"}});
        let new = json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineDeployment", "metadata": metadata,
            "spec": {"replicas": 1, "rollout": {"strategy": {}}},
            "status": {"replicas": 3, "readyReplicas": 2, "deprecated": {"v1beta1": {"readyReplicas": 9}}}});
        assert_eq!(snapshot(old).unwrap(), expected);
        assert_eq!(snapshot(new).unwrap(), expected);
        assert_eq!(expected.stopping(), 2);
    }

    #[test]
    fn what_is_absent_or_unreadable_counts_as_nothing() {
        let bare = json!({"metadata": {"name": "a", "resourceVersion": "5", "annotations": {
            "sunward.dev/term": "seven", "sunward.dev/changed-at": "yesterday",
        }}, "spec": {}});
        let expected = Snapshot {
            version: 5,
            replicas: 0,
            existing: 0,
            ready: 0,
            term: None,
            claim: None,
            command: None,
            changed_at: None,
        };
        assert_eq!(snapshot(bare).unwrap(), expected);
        let odd = json!({"metadata": {"name": "a", "resourceVersion": "5"}, "spec": {"replicas": -2},
            "status": {"replicas": null}});
        assert_eq!(snapshot(odd).unwrap(), expected);
    }

    #[test]
    fn a_version_is_a_canonical_decimal_number() {
        assert_eq!(parse_version("18446744073709551615"), Some(u64::MAX));
        for bad in [
            "",
            "0",
            "007",
            "+7",
            "-7",
            "7a",
            "18446744073709551616",
            "7.0",
        ] {
            assert_eq!(parse_version(bad), None, "{bad}");
        }
        let object =
            json!({"metadata": {"namespace": "gpu", "name": "a", "resourceVersion": "x1"}});
        let error = snapshot(object).unwrap_err().to_string();
        assert!(
            error.contains("gpu/a") && error.contains("\"x1\""),
            "{error}"
        );
    }

    #[test]
    fn a_claim_always_changes_the_object() {
        let mut seen =
            snapshot(json!({"metadata": {"name": "a", "resourceVersion": "5"}})).unwrap();
        assert_eq!(seen.next_claim(7), "7.1");
        for (carried, next) in [("7.1", "7.2"), ("6.4", "7.1"), ("7.x", "7.1"), ("x", "7.1")] {
            seen.claim = Some(carried.into());
            assert_eq!(seen.next_claim(7), next, "after {carried}");
        }
    }
}
