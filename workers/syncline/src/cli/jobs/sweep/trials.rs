//! Which trainings a sweep is made of: every combination of the values, or random ones. Pure.

use std::collections::BTreeSet;

use syncline_onnx::SplitMix64;

use super::values::{Axis, Choices};
use crate::cli::CliError;

/// More trials than this are taken for a mistake.
const MOST_TRIALS: u64 = 1_000;
/// How often a trial is drawn again that was drawn before.
const MOST_DRAWS: u32 = 1_000;

/// The values of one trial, in the order of the axes.
pub(super) type Values = Vec<(String, String)>;

/// Every combination: the last axis changes first, so that more values of the first one are more trials at
/// the end.
pub(super) fn grid(axes: &[Axis]) -> Result<Vec<Values>, CliError> {
    let mut lists = Vec::with_capacity(axes.len());
    for Axis { key, choices } in axes {
        match choices {
            Choices::List(values) => lists.push((key, values)),
            Choices::Range(_) => {
                let what = format!(
                    "`{key}` is a range, of which every combination cannot be tried: --samples N draws N trials"
                );
                return Err(CliError::Setting { what });
            }
        }
    }
    let count = lists.iter().try_fold(1u64, |count, (_, values)| count.checked_mul(values.len() as u64));
    check_count(count, "give fewer values, or draw some of them with --samples N")?;
    let mut trials: Vec<Values> = vec![Vec::new()];
    for (key, values) in lists {
        let with = |trial: &Values, value: &String| {
            let own = (key.clone(), value.clone());
            trial.iter().cloned().chain([own]).collect()
        };
        trials = trials.iter().flat_map(|trial| values.iter().map(move |value| with(trial, value))).collect();
    }
    Ok(trials)
}

/// So many different ones at random: the first of them are the same, however many follow.
pub(super) fn sample(axes: &[Axis], count: u64, seed: u64) -> Result<Vec<Values>, CliError> {
    check_count(Some(count), "--samples takes fewer")?;
    let all = axes.iter().map(Axis::count).try_fold(1u64, |all, axis| all.checked_mul(axis?));
    if let Some(all) = all.filter(|all| *all < count) {
        let what = format!("--samples {count}: the values have {all} combinations in all");
        return Err(CliError::Setting { what });
    }
    let mut random = SplitMix64::new(seed);
    let (mut trials, mut known) = (Vec::new(), BTreeSet::new());
    while (trials.len() as u64) < count {
        let mut draw =
            || -> Values { axes.iter().map(|axis| (axis.key.clone(), axis.draw(&mut random))).collect() };
        let fresh = (0..MOST_DRAWS).map(|_| draw()).find(|trial| !known.contains(trial));
        let Some(fresh) = fresh else {
            let what = format!(
                "--samples {count}: after {} trials nothing else was drawn; take fewer, or every combination without --samples",
                trials.len()
            );
            return Err(CliError::Setting { what });
        };
        known.insert(fresh.clone());
        trials.push(fresh);
    }
    Ok(trials)
}

/// `count`: `None` where it cannot be counted.
fn check_count(count: Option<u64>, hint: &str) -> Result<(), CliError> {
    match count {
        Some(0) => Err(CliError::Setting { what: "a sweep of no trials".to_owned() }),
        Some(count) if count <= MOST_TRIALS => Ok(()),
        count => {
            let count = count.map_or("too many".to_owned(), |count| count.to_string());
            let what = format!("these are {count} trials, and a sweep has at most {MOST_TRIALS}: {hint}");
            Err(CliError::Setting { what })
        }
    }
}

/// Values in words: `learning_rate 0.1, batch 32`.
pub(super) fn in_words(values: &Values) -> String {
    let short = |key: &str| key.strip_prefix("settings.").unwrap_or(key).to_owned();
    values.iter().map(|(key, value)| format!("{} {value}", short(key))).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axes(texts: &[&str]) -> Vec<Axis> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn values(trials: &[Values]) -> Vec<String> {
        let joined =
            |trial: &Values| trial.iter().map(|(_, value)| value.as_str()).collect::<Vec<_>>().join(" ");
        trials.iter().map(joined).collect()
    }

    #[test]
    fn a_grid_has_every_combination_and_the_last_axis_changes_first_table() {
        #[rustfmt::skip]
        let cases: [(&[&str], &[&str]); 4] = [
            (&[],                     &[""]),
            (&["a=1"],                &["1"]),
            (&["a=1,2", "b=x"],       &["1 x", "2 x"]),
            (&["a=1,2", "b=x,y,z"],   &["1 x", "1 y", "1 z", "2 x", "2 y", "2 z"]),
        ];
        for (texts, want) in cases {
            assert_eq!(values(&grid(&axes(texts)).unwrap()), want, "{texts:?}");
        }
    }

    #[test]
    fn more_values_of_the_first_axis_are_more_trials_at_the_end() {
        let few = grid(&axes(&["a=1,2", "b=x,y"])).unwrap();
        let more = grid(&axes(&["a=1,2,3", "b=x,y"])).unwrap();
        assert_eq!(more[..few.len()], few);
    }

    #[test]
    fn absurd_sweeps_are_refused() {
        let many: Vec<String> = (0..11).map(|n| n.to_string()).collect();
        let ten = format!("a={}", many[..10].join(","));
        let eleven = format!("b={}", many.join(","));
        assert_eq!(grid(&axes(&[&ten, &ten, &ten])).unwrap().len(), 1_000);
        let error = |result: Result<Vec<Values>, CliError>| result.unwrap_err().to_string();
        assert!(error(grid(&axes(&[&ten, &ten, &eleven]))).contains("these are 1100 trials"));
        let vast = vec![eleven.as_str(); 40];
        assert!(error(grid(&axes(&vast))).contains("these are too many trials"));
        assert!(error(grid(&axes(&["a=1..2"]))).contains("--samples N draws"));
        assert!(error(sample(&axes(&["a=1..2"]), 0, 0)).contains("no trials"));
        assert!(error(sample(&axes(&["a=1,2", "b=1..2"]), 5, 0)).contains("4 combinations in all"));
    }

    #[test]
    fn samples_differ_hang_on_the_seed_alone_and_the_first_stay_when_there_are_more() {
        let axes = axes(&["a=1e-4..1e-1:log", "b=16,32,64"]);
        for seed in 0..50 {
            let few = sample(&axes, 5, seed).unwrap();
            let more = sample(&axes, 20, seed).unwrap();
            assert_eq!(more[..5], few, "seed {seed}");
            let different: BTreeSet<_> = more.iter().collect();
            assert_eq!(different.len(), 20, "seed {seed}");
        }
        assert_ne!(sample(&axes, 5, 0).unwrap(), sample(&axes, 5, 1).unwrap());
    }

    #[test]
    fn as_many_samples_as_combinations_are_all_of_them() {
        let axes = axes(&["a=1,2,3", "b=1..4"]);
        let mut drawn = values(&sample(&axes, 12, 3).unwrap());
        drawn.sort();
        assert_eq!(drawn.len(), 12);
        drawn.dedup();
        assert_eq!(drawn.len(), 12);
    }
}
