//! Short CRDs of the k0smotron kinds, enough for Cluster API's contract and for the fields that sunward reads.
//!
//! k0smotron cannot be had as a Go module. Field names follow its v2.1.0 (storage and served version v1beta2); compare them
//! with its repository at a change of version. What is not read here is kept as it comes.

use serde_json::{Value, json};

/// The group of hosts and pools.
pub const INFRASTRUCTURE: &str = "infrastructure.cluster.x-k8s.io";
/// The group of join data.
pub const BOOTSTRAP: &str = "bootstrap.cluster.x-k8s.io";
/// The group of control planes.
pub const CONTROL_PLANE: &str = "controlplane.cluster.x-k8s.io";

/// All of them.
pub fn all() -> Vec<Value> {
    let anything = || json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let template = |spec: Value| {
        object(json!({"template": object(json!({"metadata": anything(), "spec": spec}))}))
    };
    vec![
        crd(
            INFRASTRUCTURE,
            "RemoteCluster",
            anything(),
            initialization("provisioned"),
        ),
        crd(
            INFRASTRUCTURE,
            "RemoteMachine",
            remote_machine(),
            remote_machine_status(),
        ),
        crd(
            INFRASTRUCTURE,
            "RemoteMachineTemplate",
            template(remote_machine()),
            anything(),
        ),
        crd(
            INFRASTRUCTURE,
            "PooledRemoteMachine",
            pooled_remote_machine(),
            pooled_remote_machine_status(),
        ),
        crd(BOOTSTRAP, "K0sWorkerConfig", anything(), bootstrap_status()),
        crd(
            BOOTSTRAP,
            "K0sWorkerConfigTemplate",
            template(anything()),
            anything(),
        ),
        crd(
            CONTROL_PLANE,
            "K0smotronControlPlane",
            control_plane(),
            control_plane_status(),
        ),
    ]
}

fn crd(group: &str, kind: &str, spec: Value, status: Value) -> Value {
    let singular = kind.to_lowercase();
    let plural = format!("{singular}s");
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        // Cluster API looks for the version that keeps its contract in this label.
        "metadata": {
            "name": format!("{plural}.{group}"),
            "labels": {"cluster.x-k8s.io/provider": "k0smotron", "cluster.x-k8s.io/v1beta2": "v1beta2"},
        },
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": {"kind": kind, "listKind": format!("{kind}List"), "plural": plural, "singular": singular},
            "versions": [{
                "name": "v1beta2", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"},
                    "spec": spec, "status": status,
                }}},
            }],
        },
    })
}

/// An object with these fields; others are kept.
fn object(properties: Value) -> Value {
    json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": properties})
}

fn initialization(field: &str) -> Value {
    object(
        json!({"initialization": object(json!({field: {"type": "boolean"}})), "conditions": conditions()}),
    )
}

fn conditions() -> Value {
    let mut condition = object(json!({
        "type": {"type": "string"}, "status": {"type": "string"}, "reason": {"type": "string"},
        "message": {"type": "string"}, "lastTransitionTime": {"type": "string", "format": "date-time"},
    }));
    condition["required"] = json!(["type", "status"]);
    json!({"type": "array", "items": condition, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]})
}

fn remote_machine() -> Value {
    object(json!({
        "pool": {"type": "string"}, "providerID": {"type": "string"}, "address": {"type": "string"},
        "port": {"type": "integer"}, "user": {"type": "string"}, "useSudo": {"type": "boolean"},
        "sshKeyRef": object(json!({"name": {"type": "string"}})),
        "provisionJob": object(json!({})),
    }))
}

fn remote_machine_status() -> Value {
    let address = object(json!({"type": {"type": "string"}, "address": {"type": "string"}}));
    object(json!({
        "initialization": object(json!({"provisioned": {"type": "boolean"}})),
        "addresses": {"type": "array", "items": address},
        "conditions": conditions(),
        "deprecated": object(json!({})),
    }))
}

fn pooled_remote_machine() -> Value {
    let machine = object(
        json!({"address": {"type": "string"}, "sshKeyRef": object(json!({"name": {"type": "string"}}))}),
    );
    let mut spec = object(json!({"pool": {"type": "string"}, "machine": machine}));
    spec["required"] = json!(["pool"]);
    spec
}

fn pooled_remote_machine_status() -> Value {
    let reference = object(json!({"name": {"type": "string"}, "namespace": {"type": "string"}}));
    let mut status = object(json!({"reserved": {"type": "boolean"}, "machineRef": reference}));
    status["required"] = json!(["reserved", "machineRef"]);
    status
}

fn bootstrap_status() -> Value {
    object(json!({
        "initialization": object(json!({"dataSecretCreated": {"type": "boolean"}})),
        "dataSecretName": {"type": "string"},
        "conditions": conditions(),
    }))
}

fn control_plane() -> Value {
    object(json!({"version": {"type": "string"}, "replicas": {"type": "integer"}}))
}

fn control_plane_status() -> Value {
    let count = || json!({"type": "integer"});
    object(json!({
        "initialization": object(json!({"controlPlaneInitialized": {"type": "boolean"}})),
        "externalManagedControlPlane": {"type": "boolean"}, "version": {"type": "string"},
        "replicas": count(), "readyReplicas": count(), "availableReplicas": count(), "upToDateReplicas": count(),
        "conditions": conditions(),
    }))
}
