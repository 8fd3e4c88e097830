//! Shards of two processes each.

use std::{path::PathBuf, process::Output};

use super::{BINARY, Cluster, Process, Relay, environment, setup::Setup, words};

/// One process of a shard.
pub struct ShardProcess {
    process: Process,
    /// Where it listens.
    address: String,
    index: u32,
    /// Name of its folder.
    folder: String,
}

/// Links of one half of a cluster to the other.
pub struct SplitLinks {
    /// From the process that serves the shard.
    pub second_engine: Relay,
    /// From everybody to the process that follows.
    pub standby: Relay,
}

fn port(address: &str) -> u16 {
    address.rsplit_once(':').unwrap().1.parse().unwrap()
}

/// A process that was stopped.
#[derive(Clone)]
pub struct StoppedShard {
    folder: String,
    index: u32,
}

impl StoppedShard {
    /// The same with a disk that has nothing on it.
    pub fn with_new_disk(self) -> Self {
        Self { folder: format!("{}-new", self.folder), ..self }
    }
}

impl Setup {
    /// One shard of two processes. The process that serves reaches the second engine, and everybody the
    /// process that follows, over links that can be cut, as the first engine reaches Redis.
    pub async fn start_split(self) -> (Cluster, SplitLinks) {
        let setup = self.relayed_leader();
        assert_eq!(setup.shards, 1, "there are links for one");
        let mut cluster = setup.start_without_shards().await;
        let engines = cluster.engines.clone();
        let (first, second) = engines.split_once(',').unwrap();
        let second_engine = Relay::to(port(second));
        cluster.engines = format!("{first},{}", second_engine.address());
        let serving = cluster.spawn_shard_process("shard-0".into(), 0);
        cluster.pairs.push(serving);
        cluster.engines = engines;
        let links = SplitLinks { second_engine, standby: cluster.push_relayed_shard_process("shard-1", 2) };
        setup.start_workers(&mut cluster);
        (cluster, links)
    }

    /// One shard of so many processes, each of which is reached over a link that can be cut.
    pub async fn start_behind_relays<const PROCESSES: usize>(self) -> (Cluster, [Relay; PROCESSES]) {
        assert_eq!(self.shards, 1, "there are links for one");
        let mut cluster = self.start_without_shards().await;
        let relays = std::array::from_fn(|process| {
            cluster.push_relayed_shard_process(&format!("shard-{process}"), PROCESSES as u32)
        });
        self.start_workers(&mut cluster);
        (cluster, relays)
    }
}

impl Cluster {
    /// Starts both processes of every shard.
    pub(super) fn start_shard_pairs(&mut self) {
        let shards = self.shard_count;
        for (folder, index) in (0..2 * shards).map(|n| (format!("shard-{n}"), n % shards)) {
            let process = self.spawn_shard_process(folder, index);
            self.pairs.push(process);
        }
    }

    fn push_relayed_shard_process(&mut self, folder: &str, replicas: u32) -> Relay {
        let relay = Relay::to(0);
        let mut args = self.shard_args(&self.dir.path().join(folder), 0, replicas);
        args.extend(words(&format!("--advertise {}", relay.address())));
        let (process, listens) = Process::spawn(&args, true);
        relay.point_to(port(&listens));
        let address = relay.address().to_string();
        self.pairs.push(ShardProcess { process, address, index: 0, folder: folder.into() });
        relay
    }

    fn spawn_shard_process(&self, folder: String, index: u32) -> ShardProcess {
        let dir = self.dir.path().join(&folder);
        let (process, address) = Process::spawn(&self.shard_args(&dir, index, 2), true);
        ShardProcess { process, address, index, folder }
    }

    fn at(&self, address: &str) -> Option<usize> {
        self.pairs.iter().position(|shard| shard.address == address)
    }

    /// The state directory of the process that listens there.
    pub fn shard_dir(&self, address: &str) -> PathBuf {
        self.dir.path().join(&self.pairs[self.at(address).unwrap()].folder)
    }

    /// Whether one of our processes listens there.
    pub fn is_running_shard(&self, address: &str) -> bool {
        self.at(address).is_some()
    }

    pub fn signal_shard(&self, address: &str, name: &str) {
        self.pairs[self.at(address).unwrap()].process.signal(name);
    }

    /// Kills the process that listens there, and starts it again on another port.
    pub fn kill_and_restart_shard(&mut self, address: &str) {
        let mut old = self.pairs.swap_remove(self.at(address).unwrap());
        old.process.kill();
        let again = self.spawn_shard_process(old.folder, old.index);
        self.pairs.push(again);
    }

    /// Kills the process that listens there; it can be started again with what is on its disk.
    pub fn kill_shard(&mut self, address: &str) -> StoppedShard {
        let mut shard = self.pairs.swap_remove(self.at(address).unwrap());
        shard.process.kill();
        StoppedShard { folder: shard.folder, index: shard.index }
    }

    /// Stops the process that listens there, cleanly; it can be started again with what it has saved.
    pub fn stop_shard(&mut self, address: &str) -> StoppedShard {
        let mut shard = self.pairs.swap_remove(self.at(address).unwrap());
        shard.process.signal("TERM");
        let ended = shard.process.0.wait().unwrap();
        assert!(ended.success(), "{ended}");
        StoppedShard { folder: shard.folder, index: shard.index }
    }

    /// Starts a process again that was stopped, on another port.
    pub fn start_stopped_shard(&mut self, stopped: StoppedShard) {
        let again = self.spawn_shard_process(stopped.folder, stopped.index);
        self.pairs.push(again);
    }

    /// Kills the process that listens there, and starts another one in its place with nothing on its disk.
    pub fn replace_machine(&mut self, address: &str) {
        let mut old = self.pairs.swap_remove(self.at(address).unwrap());
        old.process.kill();
        let another = self.spawn_shard_process(format!("{}-new", old.folder), old.index);
        self.pairs.push(another);
    }

    /// Stops the processes of all shards cleanly, and starts them again in the order that is made of theirs,
    /// those first that serve.
    pub fn stop_and_start_shards(&mut self, serving: &str, order: impl FnOnce(&mut Vec<ShardProcess>)) {
        let mut stopped = self.end_all_shards();
        stopped.sort_by_key(|shard| shard.address != serving);
        order(&mut stopped);
        for old in stopped {
            let again = self.spawn_shard_process(old.folder, old.index);
            self.pairs.push(again);
        }
    }

    /// Stops the processes of all shards cleanly.
    pub fn stop_all_shards(&mut self) -> Vec<StoppedShard> {
        let of = |shard: ShardProcess| StoppedShard { folder: shard.folder, index: shard.index };
        self.end_all_shards().into_iter().map(of).collect()
    }

    fn end_all_shards(&mut self) -> Vec<ShardProcess> {
        for shard in &self.pairs {
            shard.process.signal("TERM");
        }
        let mut stopped = std::mem::take(&mut self.pairs);
        for shard in &mut stopped {
            let ended = shard.process.0.wait().unwrap();
            assert!(ended.success(), "{ended}");
        }
        stopped
    }

    /// Starts a process of a shard that is served already, and waits for its end.
    pub fn run_second_shard_process(&self, index: u32, replicas: u32) -> Output {
        let args = self.shard_args(&self.dir.path().join("second"), index, replicas);
        environment::forget_ours(&mut std::process::Command::new(BINARY)).args(args).output().unwrap()
    }

    /// The arguments of a process of a shard.
    pub(super) fn shard_args(&self, dir: &std::path::Path, index: u32, replicas: u32) -> Vec<String> {
        words(&format!(
            "ps --engine {} --token-file {} --state-dir {} --shard {index}/{} --replicas {replicas}",
            self.engines,
            self.token_file().display(),
            dir.display(),
            self.shard_count,
        ))
    }
}
