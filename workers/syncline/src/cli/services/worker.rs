//! `syncline worker`: one worker process.

use std::time::Duration;

use syncline_ps::transport::TransportChoice;
use syncline_runtime::{Device, ExecOptions};
use syncline_scheduler::tasks::MemorySize;
use syncline_workers::blocking;
use syncline_workers::worker::{
    Throttle, WorkerOptions, gpu_memory, label, load_runtime, offered_memory, run as work, threads_each,
};

use crate::cli::{
    ConnectionArgs, Exit, Failure, block_on_one_thread, end_at_once, finish, listen_for_stop, log_as_service,
    number, say,
};

#[derive(Debug, clap::Args)]
pub struct WorkerArgs {
    #[command(flatten)]
    connection: ConnectionArgs,
    /// Name for people, in tables and in Redis [default: worker-PROCESS-RANDOM]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Emulate a machine that is so many times slower, by sleeping
    #[arg(long, value_name = "F", default_value_t = 1.0, value_parser = number::<f64>("a factor, such as 2.5"))]
    slowdown: f64,
    /// Shortest duration of an iteration on a whole batch, times the slowdown; one on fewer samples is
    /// shorter in proportion. 0: each lasts as long as it computes, times the slowdown
    #[arg(long, value_name = "MS", default_value_t = 0, value_parser = number::<u64>("whole milliseconds, such as 10"))]
    step_ms: u64,
    /// Most samples that fit into this machine's memory at once: no policy gives it a larger batch, and one
    /// of a job with `micro_batch` comes in pieces of so many
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_batch: Option<u32>,
    /// What to compute on: cpu, or cuda:N for an NVIDIA GPU, counted from 0
    #[arg(long, value_name = "DEVICE", default_value_t)]
    device: Device,
    /// Most memory of the GPU that each model may take for parameters, values and scratch space, such as
    /// 8GiB: a training, its evaluation and the ONNX models of general tasks each [default: all there
    /// is]
    #[arg(long, value_name = "SIZE", value_parser = gpu_memory)]
    gpu_memory: Option<MemorySize>,
    /// Threads on which it computes, inside one operator [default: the cores of this machine]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    threads: Option<u32>,
    /// ONNX models that general tasks run at the same time, each on --threads of its own
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    slots: u32,
    /// Jobs that it trains for at the same time, each on --threads of its own; each takes one of the
    /// --slots, as long as there is one
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    trainings: u32,
    /// Memory that general tasks may take together, such as 4GiB [default: that of the machine, or what its
    /// control group allows]
    #[arg(long, value_name = "SIZE", value_parser = offered_memory)]
    memory: Option<MemorySize>,
    /// Something that general tasks may ask for; may be given several times
    #[arg(long, value_name = "NAME=VALUE", value_parser = label)]
    label: Vec<(String, String)>,
    /// Let each of the --threads train on its own part of a batch: often faster, and the same up to rounding
    /// unless samples meet in the model, as in BatchNormalization, which then has the statistics of each
    /// part; needs a CPU and 2 threads or more
    #[arg(long)]
    split_batch: bool,
    /// Let idle threads spin: faster when this worker has its cores for itself, much slower when it has not
    #[arg(long)]
    spin: bool,
    /// How parameters and gradients travel to and from the shards: shm for shared memory, unix or tcp; auto
    /// takes the fastest that works
    #[arg(long, value_name = "NAME", env = "SYNCLINE_TRANSPORT", default_value_t)]
    transport: TransportChoice,
    /// End when the pipe at stdin closes
    #[arg(long, hide = true)]
    exit_with_parent: bool,
}

pub(crate) fn run(args: WorkerArgs) -> Result<(), Failure> {
    log_as_service();
    if !Throttle::takes(args.slowdown) {
        let text = format!("[E509] a worker cannot be {} times slower", args.slowdown);
        return Err(Failure::new(Exit::Usage, text, "--slowdown takes a positive number up to 1000000"));
    }
    let threads = args.threads.map_or_else(|| threads_each(1), |threads| threads as usize);
    if args.split_batch && (threads < 2 || args.device != Device::Cpu) {
        let text = format!("[E509] {threads} thread(s) on {} cannot split a batch", args.device);
        return Err(Failure::new(
            Exit::Usage,
            text,
            "--split-batch needs --device cpu and --threads 2 or more",
        ));
    }
    if args.gpu_memory.is_some() && args.device == Device::Cpu {
        let text = "[E509] a worker on the CPU takes no memory of a GPU".to_owned();
        return Err(Failure::new(Exit::Usage, text, "--gpu-memory needs --device cuda:N"));
    }
    let cluster = args.connection.find()?;
    if args.threads.is_none() {
        say(&format!("computes on {threads} threads, the cores of this machine; --threads says on how many"));
    }
    let ended = block_on_one_thread(async move {
        let mut stop = listen_for_stop(args.exit_with_parent)?;
        let runtime = tokio::select! {
            loaded = blocking(move || load_runtime(args.device, &say)) => loaded?,
            () = stop.requested() => return Ok(()),
        };
        let mut options = WorkerOptions::new(cluster, runtime);
        options.exec = ExecOptions {
            intra_threads: threads,
            spin: args.spin,
            device: args.device,
            device_memory: args.gpu_memory.map(|memory| memory.0),
            ..ExecOptions::default()
        };
        options.name = args.name.unwrap_or(options.name);
        options.split_batch = args.split_batch;
        options.throttle = Throttle { step: Duration::from_millis(args.step_ms), slowdown: args.slowdown };
        options.max_batch = args.max_batch;
        options.slots = args.slots;
        options.trainings = args.trainings;
        options.labels.extend(args.label);
        options.memory_bytes = args.memory.map_or(options.memory_bytes, |memory| memory.0);
        options.transport = args.transport;
        Ok(work(options, stop.flag()).await?)
    });
    // Whatever it was told to end in, a thread may still be in ONNX Runtime.
    end_at_once(finish(ended, false) as i32)
}
