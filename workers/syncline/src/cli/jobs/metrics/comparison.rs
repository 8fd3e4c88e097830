//! Several trainings side by side.

use serde::Serialize;
use syncline_rpc::status::{Entry, EvaluationPoint, Figures, JobStatus, MetricsPoint};
use syncline_scheduler::{
    core::{EvaluationSet, significant},
    spec::{Metric, SettingList},
};

use super::Training;
use crate::cli::{
    describe_settings::{CELL_CHARS, shortened},
    table,
};

/// Most settings that have a column: with more of them no row fits on a screen.
const SETTING_COLUMNS: usize = 5;
/// Most characters of a setting that is the same as that of another job when it is so short.
const LONG_CELL_CHARS: usize = 100;

/// One training of several, as JSON.
#[derive(Debug, Serialize)]
pub(super) struct Compared<'a> {
    name: &'a str,
    job: &'a JobStatus,
    /// `training_seconds` of the job.
    trained_s: Option<f64>,
    points: &'a [Entry<MetricsPoint>],
    evaluations: &'a [Entry<EvaluationPoint>],
}

/// What is printed of several trainings as JSON, in their order.
pub(super) fn as_json(trainings: &[Training]) -> Vec<Compared<'_>> {
    let compared = trainings.iter().map(|of| Compared {
        name: &of.name,
        job: &of.job,
        trained_s: of.job.training_seconds,
        points: &of.points,
        evaluations: &of.evaluations,
    });
    compared.collect()
}

/// What an evaluation says of a training: on which samples it was made, and what it measured there.
struct Verdict<'a> {
    on: EvaluationSet,
    figures: &'a Figures,
}

/// The best evaluation; where nothing says which of its own is the best, the newest.
fn verdict(job: &JobStatus) -> Option<Verdict<'_>> {
    if let (Some(on), Some(_), None) = (job.monitored_set(), job.best_samples, job.whose_best()) {
        return Some(Verdict { on, figures: &job.best });
    }
    let of =
        |on| Some(Verdict { on, figures: job.figures(on) }).filter(|of| of.figures[Metric::Loss].is_some());
    of(EvaluationSet::Validation).or_else(|| of(EvaluationSet::Test))
}

/// A row for each training, with what one compares: the settings in which they differ, and how they do.
pub(super) fn in_words(trainings: &[Training]) -> String {
    let known = |figure: Option<String>| figure.unwrap_or_else(|| "-".to_owned());
    let percent = |share: f64| format!("{:.2} %", share * 100.0);
    let verdicts: Vec<Option<Verdict<'_>>> = trainings.iter().map(|of| verdict(&of.job)).collect();
    let differing = differing_settings(trainings);
    let shown = &differing[..differing.len().min(SETTING_COLUMNS)];
    // Beside what was measured on validation samples stands what tests have to say.
    let has_tests = trainings.iter().zip(&verdicts).any(|(of, verdict)| {
        of.job.test[Metric::Loss].is_some()
            && verdict.as_ref().is_some_and(|v| v.on == EvaluationSet::Validation)
    });
    let rows: Vec<Vec<String>> = trainings
        .iter()
        .zip(&verdicts)
        .map(|(of, verdict)| {
            let (job, trained_s, verdict) = (&of.job, of.job.training_seconds, verdict.as_ref());
            let mut row =
                vec![of.name.clone(), known(Some(job.policy.clone()).filter(|policy| !policy.is_empty()))];
            row.extend(shown.iter().map(|name| known(setting_cell(trainings, job, name))));
            row.extend([
                job.state.word().to_owned(),
                job.samples_applied.to_string(),
                known(trained_s.map(|seconds| format!("{seconds:.1}"))),
                known(trained_s.map(|_| format!("{:.1}", job.samples_per_s))),
                known(job.loss.map(significant)),
                known(verdict.and_then(|verdict| verdict.figures[Metric::Loss]).map(significant)),
                known(verdict.and_then(|verdict| verdict.figures[Metric::Accuracy]).map(percent)),
                known(verdict.map(|verdict| verdict.on.name().to_owned())),
            ]);
            if has_tests {
                let test = [job.test[Metric::Loss].map(significant), job.test[Metric::Accuracy].map(percent)];
                row.extend(test.map(known));
            }
            row
        })
        .collect();
    let mut columns = vec!["job", "policy"];
    columns.extend(shown.iter().map(|name| name.trim_start_matches("settings.")));
    columns.extend([
        "state",
        ">samples",
        ">training s",
        ">samples/s",
        ">last loss",
        ">best loss",
        ">accuracy",
        "evaluated on",
    ]);
    if has_tests {
        columns.extend([">test loss", ">test accuracy"]);
    }
    table(&columns, &rows)
}

/// A setting as it stands in the table: the optimizer in words, and what is long shortened, unless that would
/// make it the same as what another job has.
fn setting_cell(trainings: &[Training], job: &JobStatus, name: &str) -> Option<String> {
    let words = |of: &JobStatus| match name {
        "settings.optimizer" => of.optimizer.clone().or_else(|| of.settings.get(name).map(str::to_owned)),
        _ => of.settings.get(name).map(str::to_owned),
    };
    let own = words(job)?;
    let short = shortened(&own, CELL_CHARS);
    let others = trainings.iter().filter_map(|other| words(&other.job));
    let is_ambiguous =
        others.filter(|other| *other != own).any(|other| shortened(&other, CELL_CHARS) == short);
    Some(if is_ambiguous { shortened(&own, LONG_CELL_CHARS) } else { short })
}

/// The settings that differ and have no room in the table, in words.
pub(super) fn left_out(trainings: &[Training]) -> Option<String> {
    let differing = differing_settings(trainings);
    let more = differing.get(SETTING_COLUMNS..).filter(|more| !more.is_empty())?;
    Some(format!("they differ in more settings, which --json has: {}", more.join(", ")))
}

/// Names of the settings that some of the trainings have otherwise than others, but for the policy, which is
/// always told. Those that an earlier release has taken in have no settings to compare.
fn differing_settings(trainings: &[Training]) -> Vec<&str> {
    let lists: Vec<&SettingList> =
        trainings.iter().map(|of| &of.job.settings).filter(|list| !list.is_empty()).collect();
    let mut names: Vec<&str> = Vec::new();
    for setting in lists.iter().flat_map(|list| list.iter()) {
        let name = setting.name.as_str();
        let differs = || lists.iter().any(|list| list.get(name) != Some(setting.value.as_str()));
        if name != "settings.policy" && !names.contains(&name) && differs() {
            names.push(name);
        }
    }
    // Of other files everybody expects that they hold something else.
    if names.iter().any(|name| name.starts_with("data.source.")) {
        names.retain(|name| *name != "data.digest");
    }
    // The settings first: data and model differ by long paths.
    let (settings, others): (Vec<&str>, Vec<&str>) =
        names.into_iter().partition(|name| name.starts_with("settings."));
    [settings, others].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::jobs::metrics::training::tests::training;

    #[test]
    fn a_row_has_what_one_compares_and_a_dash_where_nothing_is_known() {
        let run = [
            ("started_ms", "1000"),
            ("training_seconds", "2.500"),
            ("samples_applied", "640"),
            ("state", "done"),
        ];
        let run = [&run[..], &[("samples_per_s", "256"), ("loss", "0.5")]].concat();
        let best = [("monitor", "validation accuracy"), ("best_samples", "320"), ("best_loss", "0.25")];
        let newest = [("validation_loss", "0.75"), ("test_loss", "0.875"), ("test_accuracy", "0.5")];
        #[rustfmt::skip]
        let cases = [
            (training(&[("state", "queued")], &[]),  "digits bsp queued 0 - - - - - -"),
            (training(&run, &[]),                    "digits bsp done 640 2.5 256.0 0.500000 - - -"),
            (training(&[&run[..], &newest[1..]].concat(), &[]),
                                                     "digits bsp done 640 2.5 256.0 0.500000 0.875000 50.00 % test"),
            (training(&[&run[..], &newest[..]].concat(), &[]),
                                                     "digits bsp done 640 2.5 256.0 0.500000 0.750000 - validation 0.875000 50.00 %"),
            (training(&[&run[..], &newest[..], &best[..], &[("best_accuracy", "0.9")]].concat(), &[]),
                                                     "digits bsp done 640 2.5 256.0 0.500000 0.250000 90.00 % validation 0.875000 50.00 %"),
            (training(&[&run[..], &newest[1..], &best[..], &[("resumed_from", "before/3")]].concat(), &[]),
                                                     "digits bsp done 640 2.5 256.0 0.500000 0.875000 50.00 % test"),
            (training(&[("state", "failed"), ("loss", "NaN")], &[]), "digits bsp failed 0 - - NaN - - -"),
        ];
        for (training, want) in cases {
            let text = in_words(&[training]);
            let row: Vec<&str> = text.lines().nth(1).unwrap().split_whitespace().collect();
            assert_eq!(row.join(" "), want);
        }
    }

    #[test]
    fn settings_that_differ_have_columns_and_those_beyond_five_are_named() {
        let with = |settings: &str| training(&[("settings", settings)], &[]);
        let one = with(
            r#"{"data.digest":"a","settings.learning_rate":"0.1","settings.policy":"bsp","settings.seed":"0"}"#,
        );
        let other = with(
            r#"{"data.augment.crop":"4","data.digest":"a","settings.learning_rate":"0.2","settings.policy":"asp","settings.seed":"0"}"#,
        );
        let head = |all: &[Training]| in_words(all).lines().next().unwrap().to_owned();
        let both = [one.clone(), other];
        assert_eq!(differing_settings(&both), ["settings.learning_rate", "data.augment.crop"]);
        assert!(head(&both).contains("policy  learning_rate  data.augment.crop  state"), "{}", head(&both));
        let rows: Vec<String> = in_words(&both).lines().skip(1).map(str::to_owned).collect();
        assert!(rows[0].contains("0.1            -") && rows[1].contains("0.2            4"), "{rows:?}");
        assert_eq!(left_out(&both), None);
        let old = [one.clone(), training(&[], &[]), one.clone()];
        assert!(differing_settings(&old).is_empty(), "an earlier release has none");
        let long = |end: &str| {
            with(&format!(
                r#"{{"settings.decay":"{{ steps = [[0.5, {end}], [0.8, 0.01], [0.9, 0.001]] }}"}}"#
            ))
        };
        let text = in_words(&[long("0.1"), long("0.2")]);
        assert!(text.contains("[[0.5, 0.1]") && text.contains("[[0.5, 0.2]"), "{text}");
        let optimized = |words: &str| {
            training(
                &[
                    ("optimizer", words),
                    ("settings", &format!(r#"{{"settings.optimizer":"{{ {words} }}"}}"#)),
                ],
                &[],
            )
        };
        let text = in_words(&[optimized("sgd, momentum 0.8"), optimized("sgd, momentum 0.9")]);
        assert!(text.contains("  sgd, momentum 0.8  ") && text.contains("  sgd, momentum 0.9  "), "{text}");
        let many =
            with(r#"{"settings.a":"1","settings.b":"1","settings.c":"1","settings.d":"1","settings.e":"1"}"#);
        let said = left_out(&[one, many]).unwrap();
        assert!(said.ends_with(": settings.d, settings.e, data.digest"), "{said}");
    }

    #[test]
    fn json_has_each_job_with_its_points_in_the_order_asked_for() {
        let all = [training(&[("id", "b")], &[(10, "2"), (20, "NaN")]), training(&[("id", "a")], &[])];
        let value = serde_json::to_value(as_json(&all)).unwrap();
        assert_eq!((&value[0]["job"]["id"], &value[1]["job"]["id"]), (&"b".into(), &"a".into()));
        assert_eq!(value[0]["points"][1]["samples"], 20);
        assert!(value[0]["points"][1]["loss"].is_null() && value[1]["trained_s"].is_null());
    }
}
