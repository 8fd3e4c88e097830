//! HTTP for those who look on: few at a time, with small requests, and nobody for ever.

use std::{convert::Infallible, pin::pin, sync::Arc, time::Duration};

use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    time::{sleep, timeout},
};

use super::site::Site;

/// Most connections at a time; a browser opens up to six.
const MOST_CONNECTIONS: usize = 64;
/// Most bytes of what one asks for, its headers included.
const MOST_REQUEST_BYTES: usize = 16 << 10;
/// Time for the headers of a request, the pause before it included.
const REQUEST_WITHIN: Duration = Duration::from_secs(10);
/// A connection that is older is closed after the answer that it waits for; a browser opens the next one by itself.
const CONNECTION_LIFETIME: Duration = Duration::from_secs(60);
/// Time for that answer.
const LAST_ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// Pause where the system gives us no further connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// Serves for ever.
pub(super) async fn serve(listener: &TcpListener, site: Site) -> Infallible {
    let (site, free) = (Arc::new(site), Arc::new(Semaphore::new(MOST_CONNECTIONS)));
    loop {
        let permit = Arc::clone(&free).acquire_owned().await;
        match listener.accept().await {
            Ok((stream, _)) => {
                let site = Arc::clone(&site);
                tokio::spawn(async move {
                    let _permit = permit;
                    connection(stream, &site).await;
                });
            }
            // Out of open files, mostly.
            Err(_) => sleep(ACCEPT_PAUSE).await,
        }
    }
}

/// One connection to its end. What breaks it concerns its other side alone.
async fn connection(stream: TcpStream, site: &Site) {
    let service = service_fn(|request| async move { Ok::<_, Infallible>(site.answer(&request).await) });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(REQUEST_WITHIN)
        .max_buf_size(MOST_REQUEST_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    if timeout(CONNECTION_LIFETIME, connection.as_mut()).await.is_err() {
        connection.as_mut().graceful_shutdown();
        let _ = timeout(LAST_ANSWER_WITHIN, connection).await;
    }
}
