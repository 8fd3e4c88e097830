//! Opening and accepting connections: greeting first, then tarpc over postcard frames.

use std::{
    future::Future,
    io,
    net::{SocketAddr, ToSocketAddrs},
    sync::Arc,
    time::Duration,
};

use futures::{Stream, StreamExt, stream::FuturesUnordered};
use serde::{Serialize, de::DeserializeOwned};
use socket2::{SockRef, TcpKeepalive};
use tarpc::{
    ClientMessage, Response,
    server::{BaseChannel, Channel, limits::requests_per_channel::MaxRequests},
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{Semaphore, oneshot},
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_util::codec::Framed;
use tracing::debug;

use super::{
    codec::{Postcard, framing},
    greeters::Greeters,
    hello::{self, HelloError, Role},
    open_files::NoDescriptor,
    refusals::Refusals,
    shard_position::ShardPosition,
    threads,
    token::Token,
};

/// Limit of a greeting: an unknown peer that sends nothing must not use up a connection.
pub const GREETING_TIMEOUT: Duration = Duration::from_secs(5);
/// What was sent may be unacknowledged for so long, or the other end take nothing.
#[cfg(target_os = "linux")]
const VANISHED_TIMEOUT: Duration = Duration::from_secs(25);
/// An address that has not answered for so long is not waited for alone: RFC 8305.
const NEXT_ADDRESS_AFTER: Duration = Duration::from_millis(250);
/// Connections one listener serves at the same time. Those that have not greeted are bounded by [`Greeters`].
const MAX_CONNECTIONS: usize = 65_536;
/// Calls that one connection has open at the same time. Whoever calls keeps to it and lets further calls
/// wait; one that does not is refused what goes far beyond that.
pub(super) const MAX_OPEN_CALLS: usize = 1_000;

/// A connection that carries `In` to us and `Out` to the peer.
pub type Transport<In, Out> = tarpc::serde_transport::Transport<TcpStream, In, Out, Postcard<In, Out>>;
type ClientTransport<Req, Resp> = Transport<Response<Resp>, ClientMessage<Req>>;
/// The serving end of one connection.
pub type ServerChannel<Req, Resp> = MaxRequests<BaseChannel<Req, Resp, ServerTransport<Req, Resp>>>;
type ServerTransport<Req, Resp> = Transport<ClientMessage<Req>, Response<Resp>>;

/// Small messages leave at once, and a peer that vanished is noticed within half a minute: by probes, and
/// where something was sent to it, of which the system sends none then, by what it does not acknowledge, or
/// take.
fn tune(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let probes = TcpKeepalive::new()
        .with_time(Duration::from_secs(10))
        .with_interval(Duration::from_secs(5))
        .with_retries(3);
    let socket = SockRef::from(stream);
    socket.set_tcp_keepalive(&probes)?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(VANISHED_TIMEOUT))?;
    Ok(())
}

/// Connects to an engine and greets.
pub async fn connect<Req: Serialize, Resp: DeserializeOwned>(
    address: &str,
    role: Role,
    token: &Token,
) -> Result<ClientTransport<Req, Resp>, HelloError> {
    open(address, role, None, token).await
}

/// Connects to a process of one shard, to give it orders, and greets; E613 if another shard has the address
/// by now.
pub async fn connect_to_shard<Req: Serialize, Resp: DeserializeOwned>(
    address: &str,
    shard: ShardPosition,
    token: &Token,
) -> Result<ClientTransport<Req, Resp>, HelloError> {
    open(address, Role::Control, Some(shard), token).await
}

async fn open<Req: Serialize, Resp: DeserializeOwned>(
    address: &str,
    role: Role,
    shard: Option<ShardPosition>,
    token: &Token,
) -> Result<ClientTransport<Req, Resp>, HelloError> {
    let open = async {
        let connected = connect_first(&resolve(address).await?).await;
        let mut stream = connected.map_err(NoDescriptor::explain)?;
        refuse_ourselves(&stream)?;
        tune(&stream)?;
        hello::greet(&mut stream, role, shard, token).await?;
        Ok::<_, HelloError>(stream)
    };
    let stream = timeout(GREETING_TIMEOUT, open).await.map_err(|_| {
        io::Error::new(io::ErrorKind::TimedOut, format!("no greeting from {address} in time"))
    })??;
    Ok(tarpc::serde_transport::new(Framed::new(stream, framing()), Postcard::default()))
}

/// Connects to whichever of these answers first. The next one is tried when one has failed, or has not
/// answered for a moment: a name may stand for an address that swallows whatever is sent to it.
async fn connect_first(addresses: &[SocketAddr]) -> io::Result<TcpStream> {
    let (mut untried, mut attempts) = (addresses.iter(), FuturesUnordered::new());
    let mut failure = io::Error::new(io::ErrorKind::NotFound, "the name stands for no address");
    loop {
        attempts.extend(untried.next().map(TcpStream::connect));
        tokio::select! {
            attempt = attempts.next() => match attempt {
                Some(Ok(stream)) => return Ok(stream),
                Some(Err(error)) => failure = error,
                None => return Err(failure),
            },
            () = sleep(NEXT_ADDRESS_AFTER), if untried.len() > 0 => {}
        }
    }
}

/// Who connects to a port of this machine on which nobody listens may be given that very port to connect
/// from, and is its own peer then: the system takes it for a connection that both ends open at once. It would
/// keep the port from whoever is about to listen there.
///
/// # Errors
/// As of a port on which nobody listens.
pub fn refuse_ourselves<'a>(connected: impl Into<SockRef<'a>>) -> io::Result<()> {
    let socket = connected.into();
    if socket.local_addr()? != socket.peer_addr()? {
        return Ok(());
    }
    // Without this the port would be taken for another minute.
    socket.set_linger(Some(Duration::ZERO))?;
    Err(io::ErrorKind::ConnectionRefused.into())
}

/// What an address stands for. A name is looked up on a thread of its own: Tokio, which has threads for that,
/// panics where the system gives it none.
async fn resolve(address: &str) -> io::Result<Vec<SocketAddr>> {
    if let Ok(known) = address.parse() {
        return Ok(vec![known]);
    }
    let (tell, told) = oneshot::channel();
    let name = address.to_owned();
    threads::spawn("looking up a name", move || drop(tell.send(name.to_socket_addrs())))?;
    Ok(told.await.map_err(io::Error::other)??.collect())
}

/// A tarpc channel over a stream whose greeting is over, for the serving end. Drive it with [`answer_calls`]:
/// `answer_calls(channel(stream).execute(Guarded(service.serve())))`.
pub fn channel<Req, Resp>(stream: TcpStream) -> ServerChannel<Req, Resp>
where
    Req: DeserializeOwned,
    Resp: Serialize,
{
    let transport: ServerTransport<Req, Resp> =
        tarpc::serde_transport::new(Framed::new(stream, framing()), Postcard::default());
    BaseChannel::with_defaults(transport).max_concurrent_requests(2 * MAX_OPEN_CALLS)
}

/// Answers the calls of one connection, each in its own task, until the connection closes.
pub async fn answer_calls(calls: impl Stream<Item = impl Future<Output = ()> + Send + 'static>) {
    let mut calls = std::pin::pin!(calls);
    while let Some(call) = calls.next().await {
        tokio::spawn(call);
    }
}

/// Accepts connections until the task is aborted, and passes each to `serve` after its greeting. All end with
/// it.
pub async fn accept<F>(
    listener: TcpListener,
    token: Token,
    served: &'static [Role],
    serve: impl Fn(Role, TcpStream) -> F + Clone + Send + 'static,
) where
    F: Future<Output = ()> + Send + 'static,
{
    accept_noting(listener, token, served, serve, || ()).await;
}

/// The same, telling `of_foreign_shard` of every shard that calls and speaks another version. Whoever says so
/// has proved nothing.
pub async fn accept_noting<F>(
    listener: TcpListener,
    token: Token,
    served: &'static [Role],
    serve: impl Fn(Role, TcpStream) -> F + Clone + Send + 'static,
    of_foreign_shard: impl Fn() + Clone + Send + Sync + 'static,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let (greeters, refusals) = (Arc::new(Greeters::default()), Arc::new(Refusals::default()));
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let Ok(permit) = permits.clone().acquire_owned().await else { return };
        let (mut stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of descriptors, most likely: wait for some connection to end.
                refusals.log_accept(&error);
                sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let mut place = greeters.enter();
        let (token, serve, refusals) = (token.clone(), serve.clone(), refusals.clone());
        let of_foreign_shard = of_foreign_shard.clone();
        connections.spawn(async move {
            let _permit = permit;
            let _ = tune(&stream);
            let greeting = timeout(
                GREETING_TIMEOUT,
                hello::receive(&mut stream, &token, served, |role| {
                    if role == Role::Shard as u8 {
                        of_foreign_shard();
                    }
                }),
            );
            let greeted = place.hold(greeting).await;
            drop(place);
            match greeted {
                Some(Ok(Ok(role))) => serve(role, stream).await,
                Some(Ok(Err(error))) => refusals.log(peer, &error),
                Some(Err(_)) => debug!(%peer, "no greeting in time"),
                None => refusals.log_crowd(peer),
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[tokio::test]
    async fn a_connection_that_met_itself_is_one_to_a_port_on_which_nobody_listens() {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).unwrap();
        let own = socket.local_addr().unwrap();
        socket.connect(&own).unwrap();
        assert_eq!(refuse_ourselves(&socket).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
        drop(socket);
        let listener = TcpListener::bind(own.as_socket().unwrap()).await.expect("the port is free at once");
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        refuse_ourselves(&stream).unwrap();
    }

    #[tokio::test]
    async fn what_is_known_by_its_name_is_reached_and_a_name_that_means_nothing_is_an_error() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, token) = (listener.local_addr().unwrap(), Token::generate());
        let serve = |_, stream| async move { drop(stream) };
        let accepting = tokio::spawn(accept(listener, token.clone(), &[Role::Client], serve));
        let name = format!("localhost:{}", address.port());
        connect::<(), ()>(&name, Role::Client, &token).await.unwrap();
        let nothing = connect::<(), ()>("localhost:nothing", Role::Client, &token).await;
        assert!(matches!(nothing, Err(HelloError::Io(_))));
        accepting.abort();
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn an_address_that_swallows_everything_does_not_keep_a_caller_from_the_next_one() {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).unwrap();
        socket.listen(0).unwrap();
        let dead = socket.local_addr().unwrap().as_socket().unwrap();
        // Once its queue is full nobody is answered any more.
        let mut queue = Vec::new();
        while let Ok(connected) = timeout(Duration::from_millis(200), TcpStream::connect(dead)).await {
            queue.push(connected.unwrap());
        }
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (alive, refusing) = (listener.local_addr().unwrap(), SocketAddr::from((Ipv4Addr::LOCALHOST, 1)));
        for addresses in [vec![dead, alive], vec![refusing, dead, alive], vec![alive, dead]] {
            assert_eq!(connect_first(&addresses).await.unwrap().peer_addr().unwrap(), alive);
        }
        assert!(connect_first(&[refusing]).await.is_err() && connect_first(&[]).await.is_err());
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn both_ends_give_up_what_is_sent_and_not_acknowledged() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, token) = (listener.local_addr().unwrap().to_string(), Token::generate());
        let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
        let limit = |stream: &TcpStream| SockRef::from(stream).tcp_user_timeout().unwrap();
        let serve = move |_, stream| {
            let _ = tell.send(limit(&stream));
            async move { drop(stream) }
        };
        let accepting = tokio::spawn(accept(listener, token.clone(), &[Role::Client], serve));
        let transport = connect::<(), ()>(&address, Role::Client, &token).await.unwrap();
        assert_eq!(limit(transport.get_ref()), Some(VANISHED_TIMEOUT));
        assert_eq!(told.recv().await.unwrap(), Some(VANISHED_TIMEOUT));
        accepting.abort();
    }

    #[tokio::test]
    async fn who_accepts_no_more_has_no_connection_any_more() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, token) = (listener.local_addr().unwrap().to_string(), Token::generate());
        let serve = |_, stream| async move {
            let _open: TcpStream = stream;
            std::future::pending().await
        };
        let accepting = tokio::spawn(accept(listener, token.clone(), &[Role::Client], serve));
        let mut transport = connect::<(), ()>(&address, Role::Client, &token).await.unwrap();
        accepting.abort();
        assert!(transport.next().await.is_none_or(|answer| answer.is_err()), "it was closed");
    }

    #[tokio::test]
    async fn strangers_who_say_nothing_keep_nobody_out() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, token) = (listener.local_addr().unwrap().to_string(), Token::generate());
        let serve = |_, stream| async move { drop(stream) };
        let accepting = tokio::spawn(accept(listener, token.clone(), &[Role::Client], serve));
        let mut strangers = Vec::new();
        for _ in 0..100 {
            strangers.push(TcpStream::connect(&address).await.unwrap());
        }
        connect::<(), ()>(&address, Role::Client, &token).await.unwrap();
        // All have a place.
        for stranger in strangers {
            assert_eq!(stranger.try_read(&mut [0]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        }
        accepting.abort();
    }
}
