//! Generates the wire types with a protobuf compiler in Rust: no protoc on the machine.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=sunward");
    let files = protox::compile(["sunward/v1/signal.proto"], ["."])?;
    tonic_prost_build::configure().compile_fds(files)?;
    Ok(())
}
