//! The real servers.

mod cluster_api;
mod etcd;
mod kubernetes;
mod redis;

pub use self::etcd::{Move, Revision};
pub use self::kubernetes::{ClusterApi, Kubernetes, KubernetesOptions, api, apply, kind};
pub use self::redis::{Redis, RedisOptions};
