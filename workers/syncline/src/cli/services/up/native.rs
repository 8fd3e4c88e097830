//! The parts that are not ours: ONNX Runtime for the workers, and a Redis server of our own.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use tokio::{
    sync::{mpsc, watch},
    task::JoinHandle,
    time::sleep,
};

use syncline_engine::store::{RedisAddress, RedisStore, StoreError, redacted};
use syncline_kit::{Device, KitError, RedisOptions, RedisServer};
use syncline_workers::blocking;

use super::{
    super::redis_wait::while_redis_is_away,
    args::Plan,
    child::{Event, HowEnded},
    jobs_of_others::JobsOfOthers,
    process::Process,
    saved_redis::SavedRedis,
    say,
    state_dir::StateDir,
};
use crate::cli::{Exit, Failure, words_of_chain};

/// How often our Redis server is looked at.
const CHECK_INTERVAL: Duration = Duration::from_millis(300);
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// The longest pause between two tries to start it again.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// What was found and started.
pub(crate) struct Native {
    /// `libonnxruntime.so`; the build for GPUs, which computes on the CPU as well, if any worker has one.
    /// `None` where there are no workers.
    pub onnxruntime: Option<PathBuf>,
    /// Address of the Redis server, with password if one was named with it.
    pub redis_url: String,
    /// The same for people.
    pub redis: String,
    /// Where the password of our own server lies: it has another one after each start.
    pub redis_password_file: Option<PathBuf>,
    redis_supervisor: Option<RedisSupervisor>,
}

type RedisSupervisor = (watch::Sender<bool>, JoinHandle<()>);
type Events = mpsc::UnboundedSender<Event>;

impl Native {
    /// Finds both parts, fetching what is missing, and starts Redis unless one was named.
    pub(crate) async fn start(plan: &Plan, state_dir: &StateDir, events: Events) -> Result<Self, Failure> {
        let own = plan.given.redis.is_none();
        let device = runtime_device(&plan.devices);
        let find = move || -> Result<_, KitError> {
            // What else a GPU needs each worker finds again; here it is looked for so that nothing starts
            // without it.
            let find = |device| Ok(syncline_kit::for_device(device, &say)?.onnxruntime.path);
            let onnxruntime = device.map(find).transpose()?;
            Ok((onnxruntime, if own { Some(syncline_kit::redis_server(&say)?.path) } else { None }))
        };
        let (onnxruntime, program) = blocking(find).await?;
        let Some(program) = program else {
            let redis_url = plan.given.redis.clone().unwrap_or_default();
            let told = SavedRedis::of(plan.given.redis.as_deref());
            let of_others = look_into_redis(plan, state_dir, &told).await?;
            if let Some(of_others) = of_others.filter(|_| !plan.given.take_over) {
                return Err(of_others.refuse(&told));
            }
            let redis = redacted(&redis_url);
            return Ok(Self {
                onnxruntime,
                redis_url,
                redis,
                redis_password_file: None,
                redis_supervisor: None,
            });
        };
        let server = own_redis(&program, state_dir).await?;
        send(&events, started(&server));
        Ok(Self {
            onnxruntime,
            redis_url: server.address(),
            redis: server.address(),
            redis_password_file: Some(server.password_file()),
            redis_supervisor: Some(start_supervisor(program, server, events)),
        })
    }

    /// Stops our Redis server; it syncs its file first.
    pub(crate) async fn stop(self) {
        if let Some((stop, task)) = self.redis_supervisor {
            stop.send_replace(true);
            let _ = task.await;
        }
    }
}

/// What there is of other clusters in a server that was named, once that can be used: its machine may boot
/// later than this one.
async fn look_into_redis(
    plan: &Plan,
    state_dir: &StateDir,
    told: &SavedRedis,
) -> Result<Option<JobsOfOthers>, Failure> {
    let saved = state_dir.saved_addresses()?;
    let (url, wait) = (plan.given.redis.clone().unwrap_or_default(), plan.given.redis_wait);
    let attempt = async || {
        let store = RedisStore::connect(RedisAddress::from(url.clone())).await?;
        Ok(JobsOfOthers::find(&store, &saved, told).await?)
    };
    let tell = |error: &StoreError| match error {
        // It is there, and reads its files for as long as that takes.
        StoreError::Loading { .. } => say(&format!("waiting for the Redis server: {error}")),
        _ => say(&format!("waiting up to {} s for the Redis server: {error}", wait.as_secs())),
    };
    Ok(while_redis_is_away(wait, attempt, tell).await?)
}

/// The device whose ONNX Runtime serves all workers; `None` where there are none.
fn runtime_device(devices: &[Device]) -> Option<Device> {
    devices.iter().find(|device| **device != Device::Cpu).or(devices.first()).copied()
}

/// On the port that it had before, if that is free.
async fn own_redis(program: &Path, state_dir: &StateDir) -> Result<RedisServer, Failure> {
    let mut saved = state_dir.saved_addresses()?;
    let options = RedisOptions { port: saved.redis_port, ..RedisOptions::new(state_dir.dir().join("redis")) };
    let (start, file) = (options.clone(), program.to_owned());
    let first = blocking(move || RedisServer::start(&file, start)).await;
    let server = match first {
        Err(KitError::PortTaken { .. }) if saved.redis_port.is_some() => {
            let (start, file) = (RedisOptions { port: None, ..options }, program.to_owned());
            blocking(move || RedisServer::start(&file, start)).await?
        }
        first => first?,
    };
    saved.redis_port = Some(server.port());
    state_dir.save_addresses(&saved)?;
    Ok(server)
}

fn start_supervisor(program: PathBuf, server: RedisServer, events: Events) -> RedisSupervisor {
    let options = RedisOptions { port: Some(server.port()), ..RedisOptions::new(server.dir()) };
    let (stop, stopped) = watch::channel(false);
    (stop, tokio::spawn(supervise(program, options, server, events, stopped)))
}

/// Starts the server again whenever it ends, on the same port and files. Its new password lies where the one
/// before lay, and engines look there.
async fn supervise(
    program: PathBuf,
    options: RedisOptions,
    server: RedisServer,
    events: Events,
    mut stop: watch::Receiver<bool>,
) {
    let (mut server, mut failures) = (Some(server), Failures::default());
    loop {
        let pause = if server.is_some() { CHECK_INTERVAL } else { failures.pause };
        tokio::select! {
            () = sleep(pause) => {}
            () = stop_requested(&mut stop) => break,
        }
        if let Some(status) = server.as_mut().and_then(RedisServer::ended) {
            let (status, log) = (status.to_string(), options.dir.join("redis.log"));
            let how = HowEnded { status, exit: Exit::Redis, log, tail: String::new() };
            send(&events, Event::Ended { process: Process::Redis, how, again_in: RETRY_PAUSE });
            (server, failures) = (None, Failures::default());
            continue;
        }
        if server.is_none() {
            let (program, options) = (program.clone(), options.clone());
            match blocking(move || RedisServer::start(&program, options)).await {
                Ok(again) => {
                    send(&events, started(&again));
                    server = Some(again);
                }
                Err(error) => {
                    if let Some(text) = failures.note(why_not_started(&error)) {
                        say(text);
                    }
                }
            }
        }
    }
    // Dropping waits until it has ended.
    blocking(move || drop(server)).await;
}

fn why_not_started(error: &KitError) -> String {
    format!("redis does not start: {}", words_of_chain(error).join(": "))
}

/// Starts that failed one after the other.
struct Failures {
    /// Until the next try.
    pause: Duration,
    said: String,
}

impl Default for Failures {
    fn default() -> Self {
        Self { pause: RETRY_PAUSE, said: String::new() }
    }
}

impl Failures {
    /// What is to be said of one more: nothing where it is what the one before said.
    fn note(&mut self, text: String) -> Option<&str> {
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        // Lines of its log begin with a process number and a time.
        let words = |text: &str| text.replace(|character: char| character.is_ascii_digit(), "");
        let is_new = words(&self.said) != words(&text);
        self.said = text;
        is_new.then_some(&self.said)
    }
}

fn started(server: &RedisServer) -> Event {
    Event::Started { process: Process::Redis, pid: server.pid() }
}

fn send(events: &Events, event: Event) {
    // Nobody listens any more while everything is being stopped.
    let _ = events.send(event);
}

async fn stop_requested(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|s| *s).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn why_a_server_does_not_start_is_said_as_the_operating_system_has_it() {
        let source = std::io::Error::from_raw_os_error(5);
        let error = KitError::Io { doing: "lock", path: "redis.lock".into(), source };
        let words =
            "redis does not start: [E108] failed to lock `redis.lock`: Input/output error (os error 5)";
        assert_eq!(why_not_started(&error), words);
    }

    #[test]
    fn a_server_that_does_not_start_is_tried_ever_less_often_and_said_when_the_reason_changes() {
        let mut failures = Failures::default();
        let said = ["1:M 09:01 full", "2:M 09:05 full", "damaged", "full", "full", "full"]
            .map(|text| (failures.note(text.to_owned()).is_some(), failures.pause.as_secs()));
        assert_eq!(said, [(true, 2), (false, 4), (true, 8), (true, 16), (false, 30), (false, 30)]);
    }

    #[test]
    fn a_runtime_is_looked_for_only_where_something_computes_table() {
        use Device::{Cpu, Cuda};
        let cases = [(&[][..], None), (&[Cpu, Cpu], Some(Cpu)), (&[Cpu, Cuda(1), Cuda(0)], Some(Cuda(1)))];
        for (devices, want) in cases {
            assert_eq!(runtime_device(devices), want, "{devices:?}");
        }
    }
}
