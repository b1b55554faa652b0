//! The protobuf wire types of sunward's gRPC services, generated without a system protoc.
//!
//! Wire types end at the edge: each service converts them, and none of them enters the core. The
//! services themselves come with the partner endpoint and the coordinator.

/// Version 1 of the wire.
pub mod v1 {
    #![allow(
        missing_docs,
        unreachable_pub,
        clippy::pedantic,
        reason = "generated code"
    )]
    tonic::include_proto!("sunward.v1");
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::v1::{Reading, Zone, reading::Scope};

    /// A reading with everything set reads back as it was written, and absence stays absence: the
    /// bytes of "no value" and of "value 0" differ.
    #[test]
    fn absence_and_zero_are_told_apart_on_the_wire() {
        let reading = Reading {
            id: "a-1".into(),
            source: "watttime".into(),
            kind: "carbon_intensity".into(),
            basis: "marginal".into(),
            scope: Some(Scope::Zone(Zone {
                scheme: "wt".into(),
                code: "CAISO_NORTH".into(),
            })),
            valid_from_ms: 1_767_225_600_000,
            valid_to_ms: 1_767_225_900_000,
            value: Some(0.0),
            unit: "g/kWh".into(),
            quality: "measured".into(),
            issued_at_ms: None,
            sequence: Some(0),
        };
        let bytes = reading.encode_to_vec();
        assert_eq!(Reading::decode(bytes.as_slice()), Ok(reading.clone()));
        let missing = Reading {
            value: None,
            quality: "missing".into(),
            ..reading
        };
        assert_ne!(missing.encode_to_vec(), bytes);
        assert_eq!(
            Reading::decode(missing.encode_to_vec().as_slice()).map(|r| r.value),
            Ok(None)
        );
    }
}
