//! From flags and a TOML file to the workers of a simulation.

use serde::Deserialize;
use syncline_rpc::input;
use syncline_scheduler::{
    sim::{Burst, WorkerModel},
    spec::PolicySpec,
};

use super::{SimulateArgs, SimulateError};

const DEFAULT_INTERVALS: [&str; 2] = ["100x3", "200"];
/// A scenario is written by hand.
const MAX_SCENARIO_BYTES: u64 = 4 << 20;
/// Most workers that one `x` may stand for; the simulation has a bound of its own.
const MAX_COUNT: usize = 100_000;

/// A scenario file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    policy: Option<PolicySpec>,
    batch: Option<u32>,
    duration_s: Option<f64>,
    seed: Option<u64>,
    #[serde(default)]
    workers: Vec<Group>,
}

/// Workers that are alike.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Group {
    #[serde(default = "one")]
    count: usize,
    interval_ms: Option<f64>,
    #[serde(default)]
    trace_ms: Vec<f64>,
    #[serde(default)]
    jitter: f64,
    burst: Option<Burst>,
    #[serde(default)]
    drift_per_s: f64,
    #[serde(default)]
    pull_ms: f64,
    #[serde(default)]
    push_ms: f64,
    #[serde(default)]
    joins_at_s: f64,
    leaves_at_s: Option<f64>,
}

fn one() -> usize {
    1
}

/// Everything but the policy's own settings.
pub(crate) struct Setup {
    pub policy: Option<PolicySpec>,
    pub workers: Vec<WorkerModel>,
    pub batch: u32,
    pub duration_us: u64,
    pub seed: u64,
}

/// A time that was given in another unit, in µs.
pub(crate) fn micros(what: &str, value: f64, us_per_unit: f64) -> Result<u64, SimulateError> {
    let us = value * us_per_unit;
    if (0.0..=1e15).contains(&us) {
        return Ok(us.round() as u64);
    }
    Err(SimulateError::Flag { what: format!("{what} = {value}, expected a number from 0") })
}

/// `0.02:5:3`.
pub(crate) fn burst(text: &str) -> Result<Burst, String> {
    let parts: Vec<&str> = text.split(':').collect();
    let [probability, factor, iterations] = parts.as_slice() else {
        return Err("expected PROBABILITY:FACTOR:ITERATIONS, such as 0.02:5:3".into());
    };
    let number = |text: &str| text.parse::<f64>().map_err(|_| format!("`{text}` is no number"));
    let iterations = iterations.parse().map_err(|_| format!("`{iterations}` is no whole number"))?;
    Ok(Burst { probability: number(probability)?, factor: number(factor)?, iterations })
}

/// `3@2.5`: worker 3 after 2.5 seconds.
pub(crate) fn moment(text: &str) -> Result<(usize, f64), String> {
    let wrong = || "expected WORKER@SECONDS, such as 3@2.5".to_owned();
    let (worker, at_s) = text.split_once('@').ok_or_else(wrong)?;
    Ok((worker.parse().map_err(|_| wrong())?, at_s.parse().map_err(|_| wrong())?))
}

/// `100` or `100x3`.
fn intervals(texts: &[String]) -> Result<Vec<WorkerModel>, SimulateError> {
    let mut workers = Vec::new();
    for text in texts {
        let wrong = || SimulateError::Flag {
            what: format!(
                "--intervals-ms: `{text}`, expected milliseconds such as 100, or 100x3 for three workers"
            ),
        };
        let (ms, count) = text.split_once('x').unwrap_or((text, "1"));
        let count: usize = count.parse().ok().filter(|n| (1..=MAX_COUNT).contains(n)).ok_or_else(wrong)?;
        let ms: f64 = ms.parse().map_err(|_| wrong())?;
        let model = WorkerModel::steady(micros("--intervals-ms", ms, 1e3)?);
        workers.extend(std::iter::repeat_n(model, count));
    }
    Ok(workers)
}

impl Group {
    fn workers(&self) -> Result<impl Iterator<Item = WorkerModel> + use<>, SimulateError> {
        if !(1..=MAX_COUNT).contains(&self.count) {
            let what = format!("count = {}, expected 1 to {MAX_COUNT}", self.count);
            return Err(SimulateError::Flag { what });
        }
        let trace: Result<Vec<u64>, _> =
            self.trace_ms.iter().map(|ms| micros("trace_ms", *ms, 1e3)).collect();
        let interval_ms = self.interval_ms.or(self.trace_ms.first().copied()).ok_or_else(|| {
            SimulateError::Flag { what: "a group of workers has neither interval_ms nor trace_ms".into() }
        })?;
        let model = WorkerModel {
            jitter: self.jitter,
            burst: self.burst,
            drift_per_s: self.drift_per_s,
            trace_us: trace?,
            pull_us: micros("pull_ms", self.pull_ms, 1e3)?,
            push_us: micros("push_ms", self.push_ms, 1e3)?,
            joins_at_us: micros("joins_at_s", self.joins_at_s, 1e6)?,
            leaves_at_us: self.leaves_at_s.map(|s| micros("leaves_at_s", s, 1e6)).transpose()?,
            ..WorkerModel::steady(micros("interval_ms", interval_ms, 1e3)?)
        };
        Ok(std::iter::repeat_n(model, self.count))
    }
}

impl Setup {
    pub(crate) fn read(args: &SimulateArgs) -> Result<Self, SimulateError> {
        let file = match &args.scenario {
            None => File::default(),
            Some(path) => {
                let text = input::read_text(path, MAX_SCENARIO_BYTES)
                    .map_err(|source| SimulateError::Read { path: path.clone(), source })?;
                toml::from_str(&text)
                    .map_err(|source| SimulateError::Toml { path: path.clone(), source: source.into() })?
            }
        };
        let mut workers = Vec::new();
        if args.intervals_ms.is_empty() {
            for group in &file.workers {
                workers.extend(group.workers()?);
            }
        }
        if workers.is_empty() {
            let texts = match args.intervals_ms.as_slice() {
                [] => DEFAULT_INTERVALS.map(str::to_owned).to_vec(),
                given => given.to_vec(),
            };
            workers = intervals(&texts)?;
        }
        for worker in &mut workers {
            worker.jitter = args.jitter.unwrap_or(worker.jitter);
            worker.burst = args.burst.or(worker.burst);
            worker.drift_per_s = args.drift.unwrap_or(worker.drift_per_s);
            if let Some(ms) = args.network_ms {
                let us = micros("--network-ms", ms, 1e3)?;
                (worker.pull_us, worker.push_us) = (us / 2, us - us / 2);
            }
        }
        let count = workers.len();
        let index = |number: usize| {
            let absent =
                || SimulateError::Flag { what: format!("there is no worker {number}, only 1 to {count}") };
            number.checked_sub(1).filter(|i| *i < count).ok_or_else(absent)
        };
        for &(number, at_s) in &args.join {
            workers[index(number)?].joins_at_us = micros("--join", at_s, 1e6)?;
        }
        for &(number, at_s) in &args.leave {
            workers[index(number)?].leaves_at_us = Some(micros("--leave", at_s, 1e6)?);
        }
        Ok(Self {
            policy: file.policy,
            workers,
            batch: args.batch.or(file.batch).unwrap_or(32),
            duration_us: micros("--duration-s", args.duration_s.or(file.duration_s).unwrap_or(600.0), 1e6)?,
            seed: args.seed.or(file.seed).unwrap_or(0),
        })
    }

    /// The machines in a line.
    pub(crate) fn caption(&self) -> String {
        let mut groups: Vec<(f64, usize)> = Vec::new();
        for w in &self.workers {
            let ms = w.interval_us as f64 / 1e3;
            match groups.last_mut() {
                Some((last, count)) if *last == ms => *count += 1,
                _ => groups.push((ms, 1)),
            }
        }
        let groups: Vec<String> = groups
            .iter()
            .map(
                |(ms, count)| {
                    if *count == 1 { format!("{ms} ms") } else { format!("{count} \u{d7} {ms} ms") }
                },
            )
            .collect();
        let jitter = self.workers.iter().map(|w| w.jitter).fold(0.0, f64::max);
        let jitter = if jitter > 0.0 { format!(", jitter {:.0} %", jitter * 100.0) } else { String::new() };
        format!("iterations of {}{jitter}", groups.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_repeat_with_an_x() {
        let us = |texts: &[&str]| {
            let texts: Vec<String> = texts.iter().map(|t| (*t).to_owned()).collect();
            intervals(&texts).ok().map(|w| w.iter().map(|w| w.interval_us).collect::<Vec<_>>())
        };
        assert_eq!(us(&["100x2", "0.5"]), Some(vec![100_000, 100_000, 500]));
        for bad in ["", "x3", "100x0", "100x", "-1", "1e99", "NaN"] {
            assert_eq!(us(&[bad]), None, "{bad}");
        }
    }

    #[test]
    fn a_group_of_nobody_is_refused() {
        let group = |count: usize| -> Group {
            toml::from_str(&format!("count = {count}\ninterval_ms = 100.0")).unwrap()
        };
        assert_eq!(group(2).workers().unwrap().count(), 2);
        for bad in [0, MAX_COUNT + 1] {
            assert!(group(bad).workers().err().unwrap().to_string().contains("expected 1 to"), "{bad}");
        }
    }

    #[test]
    fn bursts_and_moments_read_as_shown_in_the_help() {
        assert_eq!(burst("0.02:5:3"), Ok(Burst { probability: 0.02, factor: 5.0, iterations: 3 }));
        assert!(burst("0.02:5").is_err() && burst("a:5:3").is_err());
        assert_eq!(moment("3@2.5"), Ok((3, 2.5)));
        assert!(moment("3").is_err() && moment("x@1").is_err());
    }

    #[test]
    fn the_scenarios_of_the_examples_load() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/scenarios");
        let mut count = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let text = std::fs::read_to_string(&path).unwrap();
            let file: File = toml::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            assert!(
                file.workers.iter().all(|g| g.workers().is_ok_and(|w| w.count() > 0)),
                "{}",
                path.display()
            );
            count += 1;
        }
        assert!(count > 0);
    }
}
