//! The command line of each child.

use std::{
    ffi::OsString,
    net::{IpAddr, SocketAddr, TcpListener},
    path::{Path, PathBuf},
    time::Duration,
};

use syncline_kit::Device;
use syncline_rpc::EngineAddresses;
use syncline_workers::worker::machine_memory_bytes;

use super::{
    args::Plan,
    child::{Program, STOP_TIMEOUT},
    native::Native,
    process::{FIRST_ENGINE, Process, SECOND_ENGINE, ShardProcess},
    state_dir::{SavedAddresses, StateDir},
};

/// A shard writes down the jobs that it holds before it ends, and reads them at the next start; large ones on
/// a slow disk take a while.
pub(super) const SAVE_TIMEOUT: Duration = Duration::from_secs(600);

/// Makes the command line of each kind of child.
pub(super) struct ChildPrograms<'a> {
    pub plan: &'a Plan,
    pub state_dir: &'a StateDir,
    pub shards: u32,
    pub replicas: u32,
    pub token_file: &'a Path,
    pub bin: &'a Path,
}

impl ChildPrograms<'_> {
    fn program(&self, process: Process, bin: &Path, args: Vec<OsString>) -> Program {
        let log = self.state_dir.log_file(process);
        Program {
            process,
            bin: bin.to_owned(),
            is_own: bin == self.bin,
            args,
            env: Vec::new(),
            log,
            listen: None,
            failed_starts: 0,
            stop_timeout: STOP_TIMEOUT,
            longest_pause: self.plan.longest_pause,
            saves_state: false,
            reports: true,
        }
    }

    fn args(&self, command: &str, rest: &[(&str, String)]) -> Vec<OsString> {
        let mut args: Vec<OsString> = vec![command.into(), "--token-file".into(), self.token_file.into()];
        args.extend(rest.iter().flat_map(|(flag, value)| [OsString::from(flag), OsString::from(value)]));
        args
    }

    pub(super) fn engine(&self, native: &Native, saved: &SavedAddresses, listen: SocketAddr) -> Program {
        self.engine_process(FIRST_ENGINE, &saved.instance, native, listen)
    }

    /// Where it listened before, if that is free.
    pub(super) fn second_engine(
        &self,
        native: &Native,
        saved: &SavedAddresses,
        first: SocketAddr,
    ) -> Program {
        let listen = again_or_any(saved.second_engine, first.ip());
        self.engine_process(SECOND_ENGINE, &saved.second_instance(), native, listen)
    }

    fn engine_process(
        &self,
        process: Process,
        instance: &str,
        native: &Native,
        listen: SocketAddr,
    ) -> Program {
        let args = engine_options(self.plan, instance, self.shards);
        let mut program = self.program(process, self.bin, self.args("engine", &args));
        // Not as an argument: everybody on this machine can read those, and the address may hold a password.
        program.env.push(("SYNCLINE_REDIS", native.redis_url.clone().into()));
        if let Some(file) = &native.redis_password_file {
            program.env.push(("SYNCLINE_REDIS_PASSWORD_FILE", file.into()));
        }
        program.listen = Some(listen);
        program
    }

    pub(super) fn shard(
        &self,
        saved: &SavedAddresses,
        engines: &EngineAddresses,
        ip: IpAddr,
        shard: ShardProcess,
    ) -> Program {
        let process = Process::Shard(shard);
        let before = saved.shards.get(&process.to_string()).copied();
        let position = format!("{}/{}", shard.index, self.shards);
        let replicas = self.replicas.to_string();
        let named = [("--engine", engines.to_string()), ("--shard", position), ("--replicas", replicas)];
        let mut args = self.args("ps", &named);
        args.extend(["--state-dir".into(), self.state_dir.shard_dir(shard).into()]);
        let mut program = self.program(process, self.bin, args);
        program.listen = Some(again_or_any(before, ip));
        program.stop_timeout = SAVE_TIMEOUT;
        program.saves_state = true;
        program
    }

    pub(super) fn worker(
        &self,
        native: &Native,
        engines: &EngineAddresses,
        index: u32,
        slowdown: f64,
        device: Device,
    ) -> Program {
        let (process, plan) = (Process::Worker(index), self.plan);
        // They share the machine.
        let memory_bytes = machine_memory_bytes() / plan.slowdowns.len().max(1) as u64;
        let mut args = self.args(
            "worker",
            &[
                ("--engine", engines.to_string()),
                ("--name", process.to_string()),
                ("--device", device.to_string()),
                ("--threads", plan.threads.to_string()),
                ("--slowdown", slowdown.to_string()),
                ("--step-ms", plan.step_ms.to_string()),
                ("--trainings", plan.given.trainings.to_string()),
                ("--transport", plan.given.transport.to_string()),
            ],
        );
        if let Some(memory) = plan.given.gpu_memory.filter(|_| device != Device::Cpu) {
            args.extend(["--gpu-memory".into(), format!("{}B", memory.0).into()]);
        }
        if let Some(slots) = plan.given.slots {
            args.extend(["--slots".into(), slots.to_string().into()]);
        }
        // Where nobody can say what there is, none is offered.
        if memory_bytes > 0 {
            args.extend(["--memory".into(), format!("{memory_bytes}B").into()]);
        }
        let bin: PathBuf = plan.given.worker_bin.clone().unwrap_or_else(|| self.bin.to_owned());
        let mut program = self.program(process, &bin, args);
        if let Some(library) = &native.onnxruntime {
            program.env.push(("ORT_DYLIB_PATH", library.into()));
        }
        program.reports = false;
        program
    }
}

/// What an engine is told beside where everything is.
pub(super) fn engine_options(plan: &Plan, instance: &str, shards: u32) -> Vec<(&'static str, String)> {
    let mut options = vec![("--instance", instance.to_owned()), ("--shards", shards.to_string())];
    let silence = plan.given.shard_silence.map(|silence| silence.as_millis().to_string());
    options.extend(silence.map(|silence_ms| ("--shard-silence", silence_ms)));
    options
}

pub(super) fn is_free(address: SocketAddr) -> bool {
    TcpListener::bind(address).is_ok()
}

/// The address where a process listened before, if it is one of `ip` and free; else any port there.
fn again_or_any(before: Option<SocketAddr>, ip: IpAddr) -> SocketAddr {
    before.filter(|address| address.ip() == ip && is_free(*address)).unwrap_or(SocketAddr::new(ip, 0))
}
