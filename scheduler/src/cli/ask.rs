//! Asking the daemon: what every command that does so shares, exit codes included.

use std::process::ExitCode;

use axum::http::Method;
use bytes::Bytes;

use super::{FOUND, UNREACHABLE, WRONG_USE, output};
use crate::client::{ClientError, Reply, ServerArgs};

/// Sends one request. What is no success is said on standard error, and is the command's exit code: 3 where the
/// daemon can't be reached or answers nothing now, 1 where it refused what was asked for, 2 else.
pub(crate) async fn ask(
    server: &ServerArgs,
    method: Method,
    path: &str,
    body: Bytes,
) -> anyhow::Result<Result<Reply, ExitCode>> {
    let client = server.client()?;
    let reply = match client.send(method, path, body).await {
        Ok(reply) => reply,
        Err(error @ ClientError::Unreachable { .. }) => {
            output::error(&error.into());
            return Ok(Err(ExitCode::from(UNREACHABLE)));
        }
        Err(error) => return Err(error.into()),
    };
    if (200..300).contains(&reply.status) {
        return Ok(Ok(reply));
    }
    output::error(&anyhow::anyhow!("{}", reply.problem_text()));
    Ok(Err(ExitCode::from(exit_code(reply.status))))
}

/// `GET path`.
pub(crate) async fn get(
    server: &ServerArgs,
    path: &str,
) -> anyhow::Result<Result<Reply, ExitCode>> {
    ask(server, Method::GET, path, Bytes::new()).await
}

fn exit_code(status: u16) -> u8 {
    match status {
        404 | 409 | 422 => FOUND,
        408 | 429 | 500.. => UNREACHABLE,
        _ => WRONG_USE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_daemon_refuses_is_not_what_it_can_not_do() {
        let codes = [400, 401, 403, 404, 409, 413, 422, 429, 500, 503].map(exit_code);
        assert_eq!(codes, [2, 2, 2, 1, 1, 2, 1, 3, 3, 3]);
    }
}
