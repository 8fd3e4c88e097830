//! Which transport a connection takes, and what is said when it is not the wanted one.

use std::{
    fs,
    io::{self, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    os::unix::fs::PermissionsExt,
    path::Path,
    thread,
    time::Duration,
};

use syncline_ps::{
    PsError,
    client::{CancelToken, ClientOptions, ShardSet, connect, try_path},
    server::{self, Handle, Options},
    transport::{Channel, Transport, TransportChoice},
    wire::{Reply, Request, SessionKey},
};
use syncline_rpc::Token;
use syncline_scheduler::ids::{ContentDigest, Generation, Incarnation, RunId};

struct Shard {
    server: Handle,
    token: Token,
    dir: tempfile::TempDir,
}

impl Shard {
    fn start() -> Self {
        let (token, dir) = (Token::generate(), tempfile::tempdir().unwrap());
        let options = Options {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            token: token.clone(),
            state_dir: dir.path().into(),
            index: 0,
            count: 1,
            engine: None,
            advertise: None,
            replicas: 1,
        };
        Self { server: server::start(options).unwrap(), token, dir }
    }

    fn channel(&self, choice: TransportChoice) -> Result<Channel, PsError> {
        let address = self.server.address().to_string();
        connect(&address, None, &self.token, Duration::from_secs(5), choice, 1 << 20)
    }

    /// The file of its unix socket.
    fn local_socket(&self) -> String {
        let mut tcp = self.channel(TransportChoice::Only(Transport::Tcp)).unwrap();
        match ask(&mut tcp, &Request::LocalSocket) {
            Reply::LocalSocket { path: Some(path) } => path,
            other => panic!("{other:?}"),
        }
    }
}

fn ask(channel: &mut Channel, request: &Request) -> Reply {
    let mut out = Vec::new();
    request.encode(0, &mut out);
    channel.write_all(&out).unwrap();
    Reply::read(channel, &mut out).unwrap().0
}

const STAT: Request = Request::StatBlob { digest: ContentDigest::LOWEST };

#[test]
fn a_worker_on_the_shards_machine_shares_memory_without_being_told() {
    let shard = Shard::start();
    let session = SessionKey {
        run: RunId { job: "digits".parse().unwrap(), generation: Generation(1) },
        incarnation: Incarnation(1),
    };
    let addresses = [shard.server.address().to_string()].as_slice().into();
    let options = ClientOptions::default();
    let worker = ShardSet::connect_with(
        &addresses,
        shard.token.clone(),
        session,
        100,
        options,
        CancelToken::default(),
    );
    assert_eq!(worker.unwrap().transports(), [Transport::Shm]);
}

#[test]
fn a_named_transport_is_taken_and_serves() {
    let shard = Shard::start();
    for transport in [Transport::Tcp, Transport::Unix, Transport::Shm] {
        let mut channel = shard.channel(TransportChoice::Only(transport)).unwrap();
        assert_eq!(channel.transport(), transport);
        assert_eq!(ask(&mut channel, &STAT), Reply::BlobStat { bytes: None });
    }
}

#[test]
fn without_the_unix_socket_it_is_tcp_and_a_named_transport_is_an_error() {
    let shard = Shard::start();
    fs::remove_file(shard.local_socket()).unwrap();
    assert_eq!(shard.channel(TransportChoice::Auto).unwrap().transport(), Transport::Tcp);
    for named in [Transport::Unix, Transport::Shm] {
        let error = shard.channel(TransportChoice::Only(named)).err().unwrap();
        assert!(matches!(&error, PsError::NoTransport { wanted, .. } if *wanted == named), "{error}");
        assert!(error.to_string().contains("is not on this machine"), "{error}");
    }
}

#[test]
fn the_socket_is_its_owners_alone_and_goes_with_the_shard() {
    let shard = Shard::start();
    let path = shard.local_socket();
    let folder = Path::new(&path).parent().unwrap();
    assert_eq!(fs::metadata(folder).unwrap().permissions().mode() & 0o777, 0o700);
    assert!(!shard.dir.path().starts_with(folder));
    shard.server.stop();
    assert!(!Path::new(&path).exists());
}

#[test]
fn memory_is_shared_over_a_unix_socket_only_and_once() {
    let shard = Shard::start();
    for transport in [Transport::Tcp, Transport::Shm] {
        let mut channel = shard.channel(TransportChoice::Only(transport)).unwrap();
        let answer = ask(&mut channel, &Request::ShareMemory { bytes: u64::MAX });
        assert!(matches!(answer, Reply::Fault(_)), "{answer:?}");
        assert_eq!(ask(&mut channel, &STAT), Reply::BlobStat { bytes: None }, "the connection goes on");
    }
}

#[test]
fn another_token_is_refused_on_every_transport() {
    let shard = Shard::start();
    let stranger = Shard { token: Token::generate(), ..Shard::start() };
    for choice in ["auto", "shm", "unix", "tcp"] {
        let address = shard.server.address().to_string();
        let limit = Duration::from_secs(5);
        let error =
            connect(&address, None, &stranger.token, limit, choice.parse().unwrap(), 0).err().unwrap();
        assert_eq!(error.code(), "E411", "{choice}: {error}");
    }
}

/// A path to the shard on which what comes behind the first `carried` bytes of a caller is lost without a
/// word.
fn lossy_path(shard: SocketAddr, carried: u64) -> String {
    let front = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = front.local_addr().unwrap().to_string();
    thread::spawn(move || {
        let mut caller = front.accept().unwrap().0;
        let server = TcpStream::connect(shard).unwrap();
        let (mut back, mut from) = (caller.try_clone().unwrap(), server.try_clone().unwrap());
        thread::spawn(move || io::copy(&mut from, &mut back));
        io::copy(&mut Read::take(&mut caller, carried), &mut &server).unwrap();
        io::copy(&mut caller, &mut io::sink()).unwrap();
    });
    address
}

#[test]
fn a_path_that_carries_small_messages_alone_is_told_from_one_that_carries_all() {
    let shard = Shard::start();
    let position = "0/1".parse().unwrap();
    let tried = |address: &str, limit_s| {
        let limit = Duration::from_secs(limit_s);
        try_path(address, position, &shard.token, limit, TransportChoice::Only(Transport::Tcp))
    };
    let direct = shard.server.address();
    assert_eq!(tried(&direct.to_string(), 60).unwrap(), Transport::Tcp);
    let lossy = lossy_path(direct, 4096);
    // The greeting has to come within it, too.
    let error = tried(&lossy, 2).unwrap_err().to_string();
    let cause = "65536 bytes do not pass there and back: no answer in 2 s";
    assert_eq!(error, format!("[E594] shard {lossy} answers small messages, and {cause}"));
}
