//! 100 MB pushed and applied, by each transport: ours against the leanest loop that does the same work over TCP.
//!
//! The lean loop is a socket, a 256 KiB buffer and the fused update, without headers, locks or books. Machines
//! differ from minute to minute, so all run in turn and the ratio is printed first; criterion's own figures follow.

use std::{
    hint::black_box,
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    thread,
    time::{Duration, Instant},
};

use criterion::{Criterion, Throughput};
use socket2::SockRef;
use syncline_engine::rpc::{OpenJob, ShardClient, ShardRequest, ShardResponse, Token, connect, hello::Role};
use syncline_ps::{
    client::{BlobClient, Canceller, ClientOptions, PushHeader, ReadCondition, ShardSet, gradient_norm},
    optim::{self, OptimizerState},
    server::{Handle, Options, Server},
    shard::CHUNK_ELEMENTS,
    transport::{Choice, Transport},
    wire::SessionKey,
};
use syncline_scheduler::{
    ids::{EngineEpoch, Generation, Incarnation, ShardIndex},
    spec::{Layout, Optimizer, Parameter},
    sync::PushMode,
};
use tarpc::{client, context};

const ELEMENTS: usize = 25_000_000;
const BYTES: u64 = ELEMENTS as u64 * 4;
const ROUNDS: usize = 21;
/// Parameters of a small perceptron.
const SMALL: usize = 4810;
const TRANSPORTS: [Transport; 3] = [Transport::Tcp, Transport::Unix, Transport::Shm];
const HEADER: PushHeader = PushHeader {
    learning_rate: 1e-3,
    weight: 1.0,
    scale: 1.0,
    skip: false,
    mode: PushMode::Apply,
    covers: 1,
};

fn sgd() -> Optimizer {
    Optimizer::Sgd { weight_decay: 0.0 }
}

/// Sends everything, gets one byte back.
struct Lean(TcpStream);

impl Lean {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        SockRef::from(&listener).set_recv_buffer_size(4 << 20).expect("a buffer");
        let address = listener.local_addr().expect("an address");
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a caller");
            let mut values = vec![0.0f32; ELEMENTS];
            let mut buffer = vec![0.0f32; CHUNK_ELEMENTS];
            let (rule, mut state) = (sgd(), OptimizerState::new(&sgd(), 0));
            loop {
                for chunk in values.chunks_mut(CHUNK_ELEMENTS) {
                    let gradient = &mut buffer[..chunk.len()];
                    if stream.read_exact(bytemuck::cast_slice_mut(gradient)).is_err() {
                        return;
                    }
                    optim::step(&rule, chunk, &mut state, gradient, HEADER.learning_rate, HEADER.scale);
                }
                stream.write_all(&[1]).expect("the caller waits");
            }
        });
        let stream = TcpStream::connect(address).expect("our listener");
        stream.set_nodelay(true).expect("a TCP socket");
        SockRef::from(&stream).set_send_buffer_size(4 << 20).expect("a buffer");
        Self(stream)
    }

    fn push(&mut self, gradient: &[f32]) {
        self.0.write_all(bytemuck::cast_slice(gradient)).expect("the server reads");
        self.0.read_exact(&mut [0]).expect("the server answers");
    }
}

/// A real shard with one open job, and a worker connected to it.
struct Ours {
    worker: ShardSet,
    seq: u64,
    _server: Handle,
    _dir: tempfile::TempDir,
}

impl Ours {
    fn start(elements: usize, transport: Transport) -> Self {
        let (token, dir) = (Token::generate(), tempfile::tempdir().expect("a directory"));
        let server = Server::start(Options {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            token: token.clone(),
            state_dir: dir.path().into(),
            index: 0,
            count: 1,
            engine: None,
            advertise: None,
        })
        .expect("a shard");
        let address = server.address().to_string();
        let initial = BlobClient::new(token.clone()).put(&address, &vec![0; elements * 4]).expect("a blob");
        let order = OpenJob {
            job: "bench".parse().expect("a name"),
            generation: Generation(1),
            shard: ShardIndex(0),
            shards: vec![address.clone()],
            layout: Layout(vec![Parameter::trained("w", vec![elements as u64])]),
            optimizer: sgd(),
            clip_norm: None,
            initial,
            checkpoint: None,
        };
        let job = order.job.clone();
        tokio::runtime::Runtime::new().expect("a runtime").block_on(async {
            let transport = connect::<ShardRequest, ShardResponse>(&address, Role::Control, &token)
                .await
                .expect("control");
            let control = ShardClient::new(client::Config::default(), transport).spawn();
            control
                .open(context::current(), EngineEpoch(1), order)
                .await
                .expect("an answer")
                .expect("an open job");
        });
        let session = SessionKey { job, generation: Generation(1), incarnation: Incarnation(1) };
        let options = ClientOptions { transport: Choice::Only(transport), ..ClientOptions::default() };
        let (addresses, canceller) = ([address].as_slice().into(), Canceller::default());
        let worker = ShardSet::connect_with(&addresses, token, session, elements as u64, options, canceller)
            .expect("a worker");
        Self { worker, seq: 0, _server: server, _dir: dir }
    }

    fn push(&mut self, gradient: &[f32]) {
        self.seq += 1;
        self.worker.push(self.seq, HEADER, &[gradient]).expect("a push");
    }
}

fn median(mut times: Vec<Duration>) -> f64 {
    times.sort();
    times[times.len() / 2].as_secs_f64()
}

fn timed(work: impl FnOnce()) -> Duration {
    let started = Instant::now();
    work();
    started.elapsed()
}

/// Everybody in turn, and the medians of each round's own ratio.
fn compare(lean: &mut Lean, ours: &mut [(Transport, Ours)], gradient: &[f32]) {
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS + 3 {
        let lean = timed(|| lean.push(gradient));
        let each: Vec<Duration> = ours.iter_mut().map(|(_, ours)| timed(|| ours.push(gradient))).collect();
        rounds.push((lean, each));
    }
    // The first ones touch memory that nobody has touched.
    rounds.drain(..3);
    let rate = |times: Vec<Duration>| BYTES as f64 / median(times) / 1e9;
    let lean: Vec<Duration> = rounds.iter().map(|(lean, _)| *lean).collect();
    println!("push + apply 100 MB, in turn: lean {:.2} GB/s", rate(lean));
    for (index, (transport, _)) in ours.iter().enumerate() {
        let ratio = |(lean, each): &(Duration, Vec<Duration>)| lean.div_duration_f64(each[index]);
        let ratios = rounds.iter().map(|round| Duration::from_secs_f64(ratio(round))).collect();
        let times = rounds.iter().map(|(_, each)| each[index]).collect();
        println!("  {transport}: {:.2} GB/s, {:.1} % of the lean loop", rate(times), 100.0 * median(ratios));
    }
}

fn main() {
    let gradient = vec![1e-3f32; ELEMENTS];
    if !std::env::args().any(|arg| arg == "--bench") {
        // `cargo test --all-targets` only wants to know that this compiles.
        return;
    }
    let mut lean = Lean::start();
    let mut ours = TRANSPORTS.map(|transport| (transport, Ours::start(ELEMENTS, transport)));
    compare(&mut lean, &mut ours, &gradient);

    let mut criterion =
        Criterion::default().sample_size(20).measurement_time(Duration::from_secs(3)).configure_from_args();
    let mut group = criterion.benchmark_group("100 MB");
    group.throughput(Throughput::Bytes(BYTES));
    group.bench_function("push lean", |b| b.iter(|| lean.push(&gradient)));
    for (transport, ours) in &mut ours {
        group.bench_function(format!("push {transport}"), |b| b.iter(|| ours.push(&gradient)));
    }
    let mut values = vec![0.0f32; ELEMENTS];
    for (transport, ours) in &mut ours {
        group.bench_function(format!("pull {transport}"), |b| {
            b.iter(|| ours.worker.pull(ReadCondition::version(0), &mut values).expect("a pull"))
        });
    }
    group.bench_function("gradient norm", |b| b.iter(|| gradient_norm(black_box(&[&gradient]))));
    let rules = [
        ("step sgd", sgd()),
        ("step momentum", Optimizer::Momentum { momentum: 0.9, nesterov: false, weight_decay: 0.0 }),
        (
            "step adam",
            Optimizer::Adam { beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weight_decay: 0.0, decoupled: false },
        ),
    ];
    for (name, rule) in rules {
        let mut state = OptimizerState::new(&rule, ELEMENTS);
        group.bench_function(name, |b| {
            b.iter(|| optim::step(&rule, &mut values, &mut state, &gradient, 1e-3, 1.0))
        });
    }
    group.finish();

    // What a small model feels: round trips, not bandwidth.
    let (few, mut values) = (vec![1e-3f32; SMALL], vec![0.0f32; SMALL]);
    for transport in TRANSPORTS {
        let mut small = Ours::start(SMALL, transport);
        criterion.bench_function(&format!("20 kB/push and pull {transport}"), |b| {
            b.iter(|| {
                small.push(&few);
                small.worker.pull(ReadCondition::version(0), &mut values).expect("a pull")
            });
        });
    }
}
