//! `sunward policy schema`: the JSON schema of policy files.

use std::process::ExitCode;

use sunward_policies::schema::policy_schema;

use crate::cli::output;

pub(super) const EXAMPLES: &str = "\
The schema is generated from the types that read the files. An editor that knows it completes and checks keys and \
words while one writes; expressions, units and names are checked by `sunward policy validate`.

Examples:
  sunward policy schema > policy.schema.json
  # first line of a policy, for editors with the YAML language server:
  # yaml-language-server: $schema=policy.schema.json";

pub(super) fn run() -> anyhow::Result<ExitCode> {
    output::line(policy_schema().trim_end())
}
