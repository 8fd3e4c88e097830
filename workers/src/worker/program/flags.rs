//! The flags of a user's worker.

use std::{env, ffi::OsString, path::PathBuf};

use syncline_kit::Device;
use syncline_ps::transport::TransportChoice;
use syncline_rpc::EngineAddresses;
use syncline_scheduler::tasks::MemorySize;

use crate::{
    client::{Cluster, FindError},
    worker::{Throttle, gpu_memory, label, offered_memory},
};

pub(super) const HELP: &str = "\
A worker for general tasks of Syncline.

Options:
  --engine ADDR,..    Address of the engine, HOST:PORT, or of all engines; without it the cluster of `syncline up` in the
                      state directory [env: SYNCLINE_ENGINE]
  --token-file FILE   File with the secret of the cluster [env: SYNCLINE_TOKEN_FILE]
  --state-dir DIR     Folder of the cluster's state [env: SYNCLINE_STATE_DIR]
                      [default: $XDG_STATE_HOME/syncline or ~/.local/state/syncline]
  --name NAME         Name for people [default: worker-PROCESS-RANDOM]
  --slots N           Tasks that run at the same time [default: the number of cores, or what the program says]
  --trainings N       Jobs that it trains for at the same time, where it has a --device; each takes one of the slots, as
                      long as there is one [default: 1, or what the program says]
  --memory SIZE       Memory that tasks may take together, such as 4GiB [default: that of the machine, or what its
                      control group allows]
  --label NAME=VALUE  Something that tasks may ask for; may be given several times
  --device DEVICE     Run ONNX models and take part in training, too, on cpu, or on cuda:N for an NVIDIA GPU
  --gpu-memory SIZE   Most that one model may take of the memory of the GPU, such as 8GiB; needs --device cuda:N
  --threads N         Threads on which it computes a model, where it has a --device [default: 1, or what the program says]
  --split-batch       Let each of the --threads train on its own part of a batch: often faster, and the same up to rounding
                      unless samples meet in the model, as in BatchNormalization; needs --device cpu
  --spin              Let idle threads spin: faster when this worker has its cores for itself, much slower when it has not
  --max-batch N       Most samples that fit into memory at once: no policy gives this worker a larger batch, and one
                      of a job with `micro_batch` comes in pieces of so many
  --transport NAME    How parameters travel to and from shards in training: shm, unix or tcp, or auto for the fastest
                      that works [default: auto] [env: SYNCLINE_TRANSPORT]
  --slowdown X        Train as if it were X times slower [default: 1]
  --step-ms N         Shortest duration of an iteration in training, times the slowdown [default: 0]
  --help              Print this";

/// What the command line says.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Flags {
    engine: Option<EngineAddresses>,
    token_file: Option<PathBuf>,
    state_dir: Option<PathBuf>,
    pub name: Option<String>,
    pub slots: Option<u32>,
    pub trainings: Option<u32>,
    pub labels: Vec<(String, String)>,
    pub memory: Option<MemorySize>,
    pub device: Option<Device>,
    pub gpu_memory: Option<MemorySize>,
    pub threads: Option<u32>,
    pub split_batch: bool,
    pub spin: bool,
    pub max_batch: Option<u32>,
    transport: Option<TransportChoice>,
    pub slowdown: Option<f64>,
    pub step_ms: Option<u64>,
    /// End when the pipe at stdin closes.
    pub exit_with_parent: bool,
    pub help: bool,
}

/// Reads a command line, without the program's name. `syncline up --worker-bin` says `worker` in front, as to
/// the command of that name. The error says what is wrong with it.
pub(super) fn parse(words: impl IntoIterator<Item = OsString>) -> Result<Flags, String> {
    let mut flags = Flags::default();
    let mut words = words.into_iter().peekable();
    words.next_if(|word| word == "worker");
    while let Some(word) = words.next() {
        let text = word.to_str().ok_or_else(|| format!("{} is no text", word.display()))?;
        let (flag, inline) = match text.split_once('=') {
            Some((flag, value)) => (flag, Some(OsString::from(value))),
            None => (text, None),
        };
        match flag {
            "--help" | "-h" if inline.is_none() => flags.help = true,
            "--exit-with-parent" if inline.is_none() => flags.exit_with_parent = true,
            "--split-batch" if inline.is_none() => flags.split_batch = true,
            "--spin" if inline.is_none() => flags.spin = true,
            "--engine" | "--token-file" | "--state-dir" | "--name" | "--slots" | "--trainings"
            | "--label" | "--memory" | "--device" | "--gpu-memory" | "--threads" | "--max-batch"
            | "--transport" | "--slowdown" | "--step-ms" => {
                let value = inline.or_else(|| words.next()).ok_or_else(|| format!("{flag} needs a value"))?;
                flags.set(flag, value)?;
            }
            _ => return Err(format!("{text} is not known; --help lists the options")),
        }
    }
    flags.check()?;
    Ok(flags)
}

impl Flags {
    /// Whether they go together.
    fn check(&self) -> Result<(), String> {
        let of_models = [
            ("--trainings", self.trainings.is_some()),
            ("--threads", self.threads.is_some()),
            ("--split-batch", self.split_batch),
            ("--spin", self.spin),
            ("--max-batch", self.max_batch.is_some()),
        ];
        if let Some((flag, _)) = of_models.iter().find(|(_, said)| *said && self.device.is_none()) {
            return Err(format!(
                "{flag} needs --device: a worker without one runs calls, and trains nothing"
            ));
        }
        if self.gpu_memory.is_some() && !self.device.is_some_and(|device| device != Device::Cpu) {
            return Err("--gpu-memory needs --device cuda:N".into());
        }
        let splits = self.device == Some(Device::Cpu) && self.threads.is_some_and(|threads| threads > 1);
        if self.split_batch && !splits {
            return Err("--split-batch needs --device cpu and --threads 2 or more".into());
        }
        Ok(())
    }

    fn set(&mut self, flag: &str, value: OsString) -> Result<(), String> {
        match flag {
            "--token-file" => self.token_file = Some(value.into()),
            "--state-dir" => self.state_dir = Some(value.into()),
            _ => {
                let text = value.into_string().map_err(|value| format!("{} is no text", value.display()))?;
                self.set_text(flag, text)?;
            }
        }
        Ok(())
    }

    fn set_text(&mut self, flag: &str, text: String) -> Result<(), String> {
        match flag {
            "--engine" => self.engine = Some(parsed(&text)?),
            "--device" => self.device = Some(parsed(&text)?),
            "--transport" => self.transport = Some(parsed(&text)?),
            "--memory" => self.memory = Some(offered_memory(&text)?),
            "--gpu-memory" => self.gpu_memory = Some(gpu_memory(&text)?),
            "--name" => self.name = Some(text),
            "--slots" => self.slots = Some(from_one(flag, &text)?),
            "--slowdown" => {
                let factor = text.parse().ok().filter(|factor| Throttle::takes(*factor));
                self.slowdown = Some(factor.ok_or_else(|| {
                    format!("--slowdown takes a positive number up to 1000000, not `{text}`")
                })?);
            }
            "--step-ms" => {
                let ms = text.parse().map_err(|_| format!("--step-ms takes milliseconds, not `{text}`"))?;
                self.step_ms = Some(ms);
            }
            "--trainings" => self.trainings = Some(from_one(flag, &text)?),
            "--threads" => self.threads = Some(from_one(flag, &text)?),
            "--max-batch" => self.max_batch = Some(from_one(flag, &text)?),
            _ => self.labels.push(label(&text)?),
        }
        Ok(())
    }

    /// How parameters travel, as they or the environment say.
    pub(super) fn transport(&self) -> Result<TransportChoice, String> {
        match (self.transport, env::var("SYNCLINE_TRANSPORT")) {
            (Some(choice), _) => Ok(choice),
            (None, Ok(text)) if !text.is_empty() => parsed(&text),
            (None, _) => Ok(TransportChoice::Auto),
        }
    }

    /// The cluster that they, the environment or the state directory name. Where `--state-dir` is typed
    /// without `--engine`, engine and token file of the environment, which may be those of another
    /// cluster, do not count.
    pub(super) fn cluster(&self) -> Result<Cluster, FindError> {
        let var = |name: &str| {
            let counts = self.state_dir.is_none() || self.engine.is_some();
            env::var_os(name).filter(|value| counts && !value.is_empty())
        };
        let path = |flag: &Option<PathBuf>, name| flag.clone().or_else(|| var(name).map(PathBuf::from));
        let engine = match (&self.engine, var("SYNCLINE_ENGINE")) {
            (Some(engine), _) => Some(engine.clone()),
            (None, Some(text)) => Some(text.to_string_lossy().parse()?),
            (None, None) => None,
        };
        let token_file = path(&self.token_file, "SYNCLINE_TOKEN_FILE");
        let state_dir = path(&self.state_dir, "SYNCLINE_STATE_DIR");
        Cluster::load(engine, token_file.as_deref(), state_dir.as_deref())
    }
}

fn from_one(flag: &str, text: &str) -> Result<u32, String> {
    let number = text.parse().ok().filter(|number| *number > 0);
    number.ok_or_else(|| format!("{flag} takes a number from 1, not `{text}`"))
}

fn parsed<T: std::str::FromStr<Err: ToString>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error: T::Err| error.to_string())
}

#[cfg(test)]
mod tests {
    use syncline_ps::transport::Transport;

    use super::*;

    fn flags(line: &str) -> Result<Flags, String> {
        parse(line.split_whitespace().map(OsString::from))
    }

    #[test]
    fn every_flag_is_read() {
        let line = "--engine 127.0.0.1:7,127.0.0.1:8 --token-file t --state-dir=s --name n --slots 3 --trainings 2 --label zone=a \
                    --label=b=c=d --memory 1.5GiB --device cpu --threads 4 --split-batch --spin --max-batch 64 --transport unix --slowdown 2.5 --step-ms 10 --exit-with-parent";
        let want = Flags {
            engine: Some("127.0.0.1:7,127.0.0.1:8".parse().unwrap()),
            token_file: Some("t".into()),
            state_dir: Some("s".into()),
            name: Some("n".into()),
            slots: Some(3),
            trainings: Some(2),
            labels: vec![("zone".into(), "a".into()), ("b".into(), "c=d".into())],
            memory: Some(MemorySize(3 << 29)),
            device: Some(Device::Cpu),
            gpu_memory: None,
            threads: Some(4),
            split_batch: true,
            spin: true,
            max_batch: Some(64),
            transport: Some(TransportChoice::Only(Transport::Unix)),
            slowdown: Some(2.5),
            step_ms: Some(10),
            exit_with_parent: true,
            help: false,
        };
        assert_eq!(flags(&format!("worker {line}")), flags(line), "as `syncline up` starts it");
        assert_eq!(flags(line), Ok(want));
        let memory = flags("--device cuda:1 --gpu-memory 8GiB").unwrap().gpu_memory;
        assert_eq!(memory, Some(MemorySize(8 << 30)));
        assert_eq!(flags(""), Ok(Flags::default()));
        assert!(flags("-h").unwrap().help);
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (line, want) in [
            ("--slots", "--slots needs a value"),
            ("--slots 0", "--slots takes a number from 1, not `0`"),
            ("--label zone", "--label takes NAME=VALUE, not `zone`"),
            ("--device gpu", "[E490] `gpu` is no device: expected cpu, or cuda:N with N from 0 to 255"),
            (
                "--memory 4",
                "[E061] `4` is not an amount of memory: expected a number and a unit (B, KB, MB, GB, TB, KiB, MiB, GiB or TiB), such as 4GiB",
            ),
            (
                "--memory 0B",
                "[E509] a worker cannot offer 0B: without --memory it offers what the machine has",
            ),
            ("--slowdown 0", "--slowdown takes a positive number up to 1000000, not `0`"),
            ("--slowdown 1e30", "--slowdown takes a positive number up to 1000000, not `1e30`"),
            ("--slots 1 worker", "worker is not known; --help lists the options"),
            ("work", "work is not known; --help lists the options"),
            ("--transport udp", "[E437] `udp` is no transport: auto, shm, unix or tcp"),
            (
                "--trainings 2",
                "--trainings needs --device: a worker without one runs calls, and trains nothing",
            ),
            ("--threads 2", "--threads needs --device: a worker without one runs calls, and trains nothing"),
            ("--split-batch --device cpu", "--split-batch needs --device cpu and --threads 2 or more"),
            (
                "--split-batch --device cuda:0 --threads 2",
                "--split-batch needs --device cpu and --threads 2 or more",
            ),
            ("--device cpu --gpu-memory 8GiB", "--gpu-memory needs --device cuda:N"),
            ("--device cuda:0 --gpu-memory 0B", "[E509] no model runs with 0B of a GPU's memory"),
            ("--spin=1 --device cpu", "--spin=1 is not known; --help lists the options"),
            ("--help=1", "--help=1 is not known; --help lists the options"),
        ] {
            assert_eq!(flags(line), Err(want.to_owned()), "{line}");
        }
        assert!(flags("--engine nowhere").is_err());
    }
}
