//! The protobuf wire types of sunward's gRPC services, generated without a system protoc.
