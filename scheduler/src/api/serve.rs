//! Serving connections: how many, how long a sender may take over its headers or stay idle, and a
//! stop that lets requests end. HTTP/1.1 only: its timer also covers a connection that is silent.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1::Builder;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

/// Connections at once; one more waits in the operating system's queue.
pub const CONNECTIONS_MAX: usize = 4_096;
/// How long a sender may take over the head of a request.
const HEADERS_MAX: Duration = Duration::from_secs(30);
/// Pause after a connection could not be accepted (no more file descriptors, say).
const ACCEPT_RETRY: Duration = Duration::from_millis(50);

/// Serves until `stop`; then takes no more connections and waits until requests have ended.
pub async fn serve(listener: TcpListener, router: Router, stop: CancellationToken) {
    let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut server = Builder::new();
    server
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS_MAX);
    let graceful = GracefulShutdown::new();
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            accepted = accept(&listener, &slots) => accepted,
        };
        let (stream, slot) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_RETRY).await;
                continue;
            }
        };
        let service = TowerToHyperService::new(router.clone());
        let connection = server.serve_connection(TokioIo::new(stream), service);
        let connection = graceful.watch(connection);
        tokio::spawn(async move {
            // A sender that hangs up or sends no HTTP is its own trouble.
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection ended badly");
            }
            drop(slot);
        });
    }
    graceful.shutdown().await;
}

async fn accept(
    listener: &TcpListener,
    slots: &Arc<Semaphore>,
) -> std::io::Result<(tokio::net::TcpStream, tokio::sync::OwnedSemaphorePermit)> {
    let slot = slots
        .clone()
        .acquire_owned()
        .await
        .map_err(std::io::Error::other)?;
    let (stream, _) = listener.accept().await?;
    // Answers are small and wanted at once.
    stream.set_nodelay(true)?;
    Ok((stream, slot))
}
