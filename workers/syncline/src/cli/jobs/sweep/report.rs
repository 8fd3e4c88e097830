//! The trials of a sweep as a table and as JSON.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use syncline_scheduler::{core::significant, ids::JobId, spec::Metric};

use super::{
    measure::of_job,
    outcome::{Outcome, Standing, best},
    spread::{Spread, spreads, spreads_in_words},
};
use crate::cli::{
    describe_settings::{CELL_CHARS, shortened},
    figure_in_words, table,
};

/// Most fields that have a column: with more of them no row fits on a screen.
pub(super) const MOST_COLUMNS: usize = 6;

/// What `--json` prints.
#[derive(Debug, Serialize)]
pub(super) struct Report<'a> {
    pub name: &'a str,
    /// What the ids of its trials begin with: id of the job file, and name.
    pub prefix: &'a str,
    /// The metric by which they are ranked.
    pub by: String,
    /// Best first.
    pub trials: &'a [Outcome],
    /// The best of those that are done.
    pub best: Option<&'a JobId>,
    /// Of trials that differ in nothing but chance.
    pub spread: Vec<Spread>,
}

impl<'a> Report<'a> {
    /// `trials`: best first.
    pub(super) fn of(name: &'a str, prefix: &'a str, metric: Metric, trials: &'a [Outcome]) -> Self {
        let best = best(trials).map(|outcome| &outcome.id);
        let spread = spreads(trials, &figures(trials, metric));
        Self { name, prefix, by: metric.field(), trials, best, spread }
    }
}

/// By what they are ranked, a row for each, the best first, and what they give in the mean if they differ in
/// nothing but chance.
pub(super) fn in_words(outcomes: &[Outcome], metric: Metric) -> String {
    let mean = spreads_in_words(&spreads(outcomes, &figures(outcomes, metric)));
    let mean = mean.map_or(String::new(), |mean| format!("\n{mean}"));
    format!("{}\n{}{mean}", ranked_by(outcomes, metric), rows(outcomes, metric))
}

/// The figures of a trial that are shown: loss, accuracy where any has one, and the metric by which they are
/// ranked.
fn figures(outcomes: &[Outcome], metric: Metric) -> Vec<Metric> {
    let other = Some(metric).filter(|metric| !matches!(metric, Metric::Loss | Metric::Accuracy));
    let is_there = |metric: &Metric| outcomes.iter().any(|one| of_outcome(*metric, one).is_some());
    let accuracy = Some(Metric::Accuracy).filter(is_there);
    [Some(Metric::Loss), accuracy, other].into_iter().flatten().collect()
}

/// By which figure, of which set, and which value of it is the better one.
fn ranked_by(outcomes: &[Outcome], metric: Metric) -> String {
    let name = metric.name().replace('-', " ");
    let first = if metric.cost(1.0) > 0.0 { "lowest" } else { "highest" };
    let ranked = outcomes.iter().filter(|one| one.rank.is_some());
    let mut on: Vec<&str> = ranked.filter_map(|one| one.measured_on).collect();
    on.sort_unstable();
    on.dedup();
    match on[..] {
        [] => format!("ranked by {name}, which none of them has measured yet"),
        [on] => format!("ranked by {on} {name}, the {first} first"),
        _ => format!("ranked by {name}, the {first} first, each measured on {} samples", on.join(" or ")),
    }
}

fn rows(outcomes: &[Outcome], metric: Metric) -> String {
    let best = best(outcomes).map(|best| &best.id);
    let keys: Vec<&str> = {
        let mut keys: Vec<&str> =
            outcomes.iter().flat_map(|one| one.values.keys().map(String::as_str)).collect();
        keys.sort_unstable();
        keys.dedup();
        keys.truncate(MOST_COLUMNS);
        keys
    };
    let metrics = figures(outcomes, metric);
    let cells: Vec<BTreeMap<&str, String>> = keys.iter().map(|key| cells(outcomes, key)).collect();
    let mut on: Vec<&str> = outcomes.iter().filter_map(evaluated_on).collect();
    on.sort_unstable();
    on.dedup();
    let known = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let row = |one: &Outcome| {
        let mut row = vec![known(one.rank.map(|rank| rank.to_string())), one.id.to_string()];
        let told = |(key, cells): (&&str, &BTreeMap<&str, String>)| {
            known(one.values.get(*key).and_then(|value| cells.get(value.as_str()).cloned()))
        };
        row.extend(keys.iter().zip(&cells).map(told));
        row.push(state(one));
        row.push(known(one.job.as_ref().map(|job| format!("{}/{}", job.epochs_complete, job.epochs))));
        row.push(known(one.training_loss.map(significant)));
        row.extend(metrics.iter().map(|metric| {
            let value = of_outcome(*metric, one);
            known(value.map(|value| figure_in_words(*metric, value)))
        }));
        row.extend((on.len() > 1).then(|| known(evaluated_on(one).map(str::to_owned))));
        row.push(known(one.trained_s.map(|seconds| format!("{seconds:.1}"))));
        row.push(if best == Some(&one.id) { "best" } else { "" }.to_owned());
        row
    };
    let rows: Vec<Vec<String>> = outcomes.iter().map(row).collect();
    // Where all were evaluated on the same samples, these stand in the headings.
    let where_evaluated = match on[..] {
        [on] => format!("{on} "),
        _ => String::new(),
    };
    let metrics: Vec<String> = metrics
        .iter()
        .map(|metric| format!(">{where_evaluated}{}", metric.name().replace('-', " ")))
        .collect();
    let mut columns = vec![">rank", "job"];
    columns.extend(keys.iter().map(|key| key.strip_prefix("settings.").unwrap_or(key)));
    columns.extend(["state", ">epochs", ">training loss"]);
    columns.extend(metrics.iter().map(String::as_str));
    columns.extend((on.len() > 1).then_some("evaluated on"));
    columns.extend([">training s", ""]);
    table(&columns, &rows)
}

/// The values of a field as a column shows them. Of long ones, as tables are, what all begin with is left
/// out.
fn cells<'a>(outcomes: &'a [Outcome], key: &str) -> BTreeMap<&'a str, String> {
    let values: BTreeSet<&str> =
        outcomes.iter().filter_map(|one| one.values.get(key).map(String::as_str)).collect();
    let is_long = |value: &&str| value.chars().count() > CELL_CHARS;
    // All begin with what the first and the last in their order begin with. Words stay whole.
    let alike = match (values.first(), values.last()) {
        (Some(first), Some(last)) if values.iter().any(is_long) => {
            let alike = first.chars().zip(last.chars()).take_while(|(a, b)| a == b);
            let alike: usize = alike.map(|(letter, _)| letter.len_utf8()).sum();
            first[..alike].trim_end_matches(char::is_alphanumeric).len()
        }
        _ => 0,
    };
    let cell = |value: &&'a str| {
        let rest: String = value[alike..].chars().take(CELL_CHARS - 2).collect();
        let end = if alike + rest.len() < value.len() { "…" } else { "" };
        let cell = if alike > 0 { format!("…{rest}{end}") } else { shortened(value, CELL_CHARS) };
        (*value, cell)
    };
    values.iter().map(cell).collect()
}

/// On which samples it was evaluated.
fn evaluated_on(one: &Outcome) -> Option<&'static str> {
    one.job.as_ref().and_then(|job| of_job(Metric::Loss, job)).map(|(on, _)| on.name())
}

fn of_outcome(metric: Metric, one: &Outcome) -> Option<f64> {
    one.job.as_ref().and_then(|job| of_job(metric, job)).map(|(_, value)| value)
}

/// Where it stands, with the code of what failed.
fn state(one: &Outcome) -> String {
    let code = one.job.as_ref().and_then(|job| job.code.as_deref());
    match (one.standing, &one.job) {
        (Standing::Missing, _) | (_, None) => "not there".to_owned(),
        (Standing::Stopped, _) => "stopped".to_owned(),
        (Standing::Diverged, Some(job)) => format!("{}, diverged", job.state.word()),
        (Standing::Failed, Some(job)) => match code {
            Some(code) => format!("{} {code}", job.state.word()),
            None => job.state.word().to_owned(),
        },
        (_, Some(job)) => job.state.word().to_owned(),
    }
}

/// Why those did not come to their end that were not stopped by the sweep, a line each.
pub(super) fn reasons(outcomes: &[Outcome]) -> Vec<String> {
    let told = outcomes.iter().filter(|one| matches!(one.standing, Standing::Failed | Standing::Canceled));
    told.filter_map(|one| Some(format!("{}: {}", one.id, one.job.as_ref()?.outcome()?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{jobs::sweep::outcome::rank, support::describe::tests::job};

    fn outcome(id: &str, rate: &str, fields: Option<&[(&str, &str)]>, metric: Metric) -> Outcome {
        let values = BTreeMap::from([("settings.learning_rate".to_owned(), rate.to_owned())]);
        Outcome::of(id.parse().unwrap(), values, fields.map(job), Some(0.5), metric)
    }

    #[test]
    fn a_row_has_what_differs_and_how_it_went() {
        let done = [("state", "done"), ("epochs", "3"), ("epochs_complete", "3")];
        let tested =
            [&done[..], &[("test_loss", "0.25"), ("test_accuracy", "0.9"), ("training_seconds", "4.000")]]
                .concat();
        let stopped =
            [("state", "canceled"), ("reason", "sweep: ranked 2nd of 2 at epoch 1"), ("epochs", "3")];
        let failed = [("state", "failed"), ("code", "E351"), ("reason", "not finite"), ("epochs", "3")];
        let mut all = vec![
            outcome("a-1", "9", Some(&failed), Metric::Loss),
            outcome("a-2", "0.1", Some(&tested), Metric::Loss),
            outcome("a-3", "1", Some(&stopped), Metric::Loss),
            outcome("a-4", "2", None, Metric::Loss),
        ];
        rank(&mut all, Metric::Loss);
        let text = in_words(&all, Metric::Loss);
        let rows: Vec<String> =
            text.lines().map(|row| row.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        assert_eq!(
            rows,
            [
                "ranked by loss, the lowest first, each measured on test or training samples",
                "rank job learning_rate state epochs training loss test loss test accuracy training s",
                "1 a-2 0.1 done 3/3 0.500000 0.250000 90.00 % 4.0 best",
                "2 a-3 1 stopped 0/3 0.500000 - - -",
                "- a-4 2 not there - 0.500000 - - -",
                "- a-1 9 failed E351 0/3 0.500000 - - -",
            ]
        );
        let validated = [&done[..], &[("validation_loss", "0.5")]].concat();
        all.push(outcome("a-5", "3", Some(&validated), Metric::Loss));
        let text = in_words(&all, Metric::Loss);
        assert!(
            text.lines().nth(1).unwrap().ends_with("  loss  accuracy  evaluated on  training s"),
            "{text}"
        );
        all.pop();
        assert_eq!(reasons(&all), ["a-1: failed: [E351] not finite"]);
        let report = serde_json::to_value(Report::of("sweep", "a", Metric::Loss, &all)).unwrap();
        assert_eq!((&report["best"], &report["by"]), (&"a-2".into(), &"loss".into()));
        assert_eq!(report["trials"][3]["standing"], "failed");
        let by_recall = serde_json::to_value(Report::of("sweep", "a", Metric::MacroRecall, &all)).unwrap();
        assert_eq!(by_recall["by"], "macro_recall");
        let text = in_words(&all, Metric::MacroRecall);
        assert!(text.lines().nth(1).unwrap().contains("  test macro recall  "), "{text}");
        assert!(report["trials"][2]["job"].is_null());
    }

    #[test]
    fn of_seeds_the_last_line_is_the_mean() {
        let done = [("state", "done"), ("epochs", "3"), ("epochs_complete", "3"), ("test_loss", "0.25")];
        let mut all = vec![outcome("a-1", "1", Some(&done), Metric::Loss); 2];
        for one in &mut all {
            one.values = BTreeMap::from([("settings.seed".to_owned(), one.id.to_string())]);
        }
        let text = in_words(&all, Metric::Loss);
        let last = "mean ± standard deviation of 2 trials: test loss 0.250000 ± 0.000000";
        assert_eq!((text.lines().count(), text.lines().last()), (5, Some(last)), "{text}");
    }

    #[test]
    fn of_long_values_a_column_shows_where_they_differ() {
        let all = |values: &[&str]| -> Vec<Outcome> {
            values.iter().map(|value| outcome("a-1", value, None, Metric::Loss)).collect()
        };
        let shown = |values: &[&str]| -> Vec<String> {
            cells(&all(values), "settings.learning_rate").into_values().collect()
        };
        let fold =
            |n: u8| format!("{{ source = {{ npz = {{ path = \"fold{n}.npz\" }} }}, test_percent = 10 }}");
        let folds = [fold(0), fold(1)];
        let folds: Vec<&str> = folds.iter().map(String::as_str).collect();
        assert_eq!(shown(&folds), ["…fold0.npz\" } }, test_perce…", "…fold1.npz\" } }, test_perce…"]);
        assert_eq!(shown(&["0.1", "0.12"]), ["0.1", "0.12"]);
        assert_eq!(shown(&["a", folds[0]]), ["a", &shortened(folds[0], CELL_CHARS)]);
        let one = shown(&folds[..1]);
        assert_eq!(one.len(), 1, "{one:?}");
    }

    #[test]
    fn the_heading_says_by_which_figure_of_which_set_and_which_value_is_the_better_one_table() {
        type Fields = &'static [(&'static str, &'static str)];
        const TESTED: Fields = &[("state", "done"), ("test_loss", "0.25"), ("test_macro_f1", "0.5")];
        #[rustfmt::skip]
        let cases: [(Fields, Metric, &str); 4] = [
            (TESTED,                       Metric::Loss,     "ranked by test loss, the lowest first"),
            (TESTED,                       Metric::MacroF1,  "ranked by test macro f1, the highest first"),
            (&[("validation_loss", "1")],  Metric::Loss,     "ranked by validation loss, the lowest first"),
            (TESTED,                       Metric::Accuracy, "ranked by accuracy, which none of them has measured yet"),
        ];
        for (fields, metric, want) in cases {
            let failed = outcome("a-2", "9", Some(&[("state", "failed")]), metric);
            let mut all = [outcome("a-1", "1", Some(fields), metric), failed];
            rank(&mut all, metric);
            assert_eq!(ranked_by(&all, metric), want);
        }
    }
}
