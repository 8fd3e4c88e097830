//! HTTP for those who look on: few at a time, with small requests, and nobody forever.

use std::{convert::Infallible, pin::pin, sync::Arc, time::Duration};

use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::{TcpListener, TcpStream},
    time::{sleep, timeout},
};

use super::{
    connections::{Connections, Seat},
    site::Site,
};

/// Most bytes of what one asks for, its headers included.
const MOST_REQUEST_BYTES: usize = 16 << 10;
/// Time for the headers of a request, the pause before it included.
const REQUEST_WITHIN: Duration = Duration::from_secs(10);
/// A connection that is older is closed after the answer that it waits for; a browser opens the next one by
/// itself.
const CONNECTION_LIFETIME: Duration = Duration::from_secs(60);
/// Time for that answer.
const LAST_ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// Pause where the system gives us no further connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// Serves forever.
pub(super) async fn serve(listener: &TcpListener, site: Site) -> Infallible {
    let (site, connections) = (Arc::new(site), Arc::new(Connections::default()));
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let Some((seat, ended)) = connections.enter() else { continue };
                let site = Arc::clone(&site);
                tokio::spawn(async move {
                    tokio::select! {
                        () = connection(stream, &site, &seat) => {}
                        _ = ended => {}
                    }
                });
            }
            // Out of open files, mostly.
            Err(_) => sleep(ACCEPT_PAUSE).await,
        }
    }
}

/// One connection to its end. What breaks it concerns its other side alone.
async fn connection(stream: TcpStream, site: &Site, seat: &Seat) {
    let service =
        service_fn(|request| async move { Ok::<_, Infallible>(seat.answering(site.answer(&request)).await) });
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
