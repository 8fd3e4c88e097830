//! Points and evaluations as CSV: a header, then a row for each, with the job in front.
//!
//! Columns are called as the fields in docs/json.md. Of what stands there only the name of a file may hold
//! what has to be quoted.

use syncline_rpc::status::{EvaluationPoint, Figures, MetricsPoint};
use syncline_scheduler::spec::Metric;

use super::Training;
use crate::cli::csv_field;

const POINTS: &str = "job,at_ms,elapsed_s,samples,averaged_iterations,loss,loss_samples,loss_weight,step_us,compute_us,wait_us,staleness_mean,staleness_max,learning_rate,generation,undone_beyond";

/// The loss curves.
pub(super) fn points(trainings: &[Training]) -> String {
    let rows = trainings.iter().flat_map(|of| of.points.iter().map(|point| point_row(of, &point.value)));
    whole(POINTS, rows)
}

/// The evaluations.
pub(super) fn evaluations(trainings: &[Training]) -> String {
    let rows =
        trainings.iter().flat_map(|of| of.evaluations.iter().map(|point| evaluation_row(of, &point.value)));
    whole(&evaluation_columns(), rows)
}

fn evaluation_columns() -> String {
    let set = |set: &str| {
        let figures = Metric::ALL.map(|metric| format!("{set}_{}", metric.field()));
        with_samples(figures, format!("{set}_samples")).join(",")
    };
    format!("job,at_ms,elapsed_s,samples,best,{},{},generation,undone_beyond", set("validation"), set("test"))
}

/// What stands for each metric, and behind the loss what stands for the samples on which they were measured.
fn with_samples(figures: [String; Metric::ALL.len()], samples: String) -> Vec<String> {
    let mut cells = Vec::from(figures);
    cells.insert(1, samples);
    cells
}

fn whole(header: &str, rows: impl Iterator<Item = Vec<String>>) -> String {
    rows.fold(format!("{header}\n"), |text, row| text + &row.join(",") + "\n")
}

fn point_row(of: &Training, point: &MetricsPoint) -> Vec<String> {
    vec![
        csv_field(&of.name),
        point.at_ms.to_string(),
        number(of.elapsed_s(point.at_ms)),
        point.samples.to_string(),
        point.averaged_iterations.to_string(),
        number(point.loss),
        point.loss_samples.to_string(),
        point.loss_weight.map(number).unwrap_or_default(),
        point.step_us.to_string(),
        point.compute_us.to_string(),
        point.wait_us.to_string(),
        number(point.staleness_mean),
        point.staleness_max.to_string(),
        point.learning_rate.map(number).unwrap_or_default(),
        count(point.generation),
        count(point.undone_beyond),
    ]
}

fn evaluation_row(of: &Training, point: &EvaluationPoint) -> Vec<String> {
    let set = |figures: &Figures, samples: Option<u64>| {
        let figures = Metric::ALL.map(|metric| figures[metric].map(number).unwrap_or_default());
        with_samples(figures, count(samples))
    };
    let mut row = vec![
        csv_field(&of.name),
        point.at_ms.to_string(),
        number(of.elapsed_s(point.at_ms)),
        point.samples.to_string(),
        point.best.to_string(),
    ];
    row.extend(set(&point.validation, point.validation_samples));
    row.extend(set(&point.test, point.test_samples));
    row.extend([point.generation, point.undone_beyond].map(count));
    row
}

fn count(value: Option<u64>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}

/// As short as can be read back exactly: `0.5`, `1e300`, `NaN`, `inf`.
fn number(value: f64) -> String {
    format!("{value:?}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::jobs::metrics::training::tests::{entry, training};

    /// Rows of fields.
    fn parsed(text: &str) -> Vec<Vec<&str>> {
        assert!(text.ends_with('\n'));
        text.lines().map(|line| line.split(',').collect()).collect()
    }

    #[test]
    fn every_point_of_every_job_is_a_row() {
        let first = training(&[("id", "a~3-2")], &[(10, "2.5"), (12, "NaN")]);
        let second = training(&[], &[(7, "1e300")]);
        let text = points(&[first, second]);
        let rows = parsed(&text);
        assert!(rows.iter().all(|row| row.len() == rows[0].len()), "{text}");
        let shown: Vec<_> = rows.iter().map(|row| (row[0], row[2], row[3], row[5])).collect();
        let header = ("job", "elapsed_s", "samples", "loss");
        let digits = ("digits", "0.0", "7", "1e300");
        assert_eq!(shown, [header, ("a~3-2", "0.0", "10", "2.5"), ("a~3-2", "2.0", "12", "NaN"), digits]);
        assert_eq!(points(&[]), format!("{POINTS}\n"));
    }

    #[test]
    fn a_name_that_holds_a_comma_stands_in_quotes() {
        let mut of = training(&[], &[(7, "1.5")]);
        of.name = "digits (a, \"b\".export)".to_owned();
        assert!(points(&[of]).contains("\n\"digits (a, \"\"b\"\".export)\",1764"));
    }

    #[test]
    fn an_evaluation_leaves_empty_what_it_did_not_measure() {
        let mut of = training(&[], &[(10, "2.5")]);
        of.evaluations = vec![entry(30, &[("test_loss", "0.25"), ("test_samples", "8")])];
        of.evaluations[0].value.best = true;
        let text = evaluations(&[of]);
        let rows = parsed(&text);
        assert_eq!(rows[0].len(), rows[1].len());
        let known: Vec<_> = rows[0].iter().zip(&rows[1]).filter(|(_, value)| !value.is_empty()).collect();
        let known: Vec<_> = known.into_iter().map(|(name, value)| (*name, *value)).collect();
        assert_eq!(
            known[2..],
            [
                ("elapsed_s", "20.0"),
                ("samples", "30"),
                ("best", "true"),
                ("test_loss", "0.25"),
                ("test_samples", "8")
            ]
        );
    }

    #[test]
    fn columns_are_the_fields_of_the_json() {
        let of = training(&[], &[(10, "2.5")]);
        let evaluation = entry::<EvaluationPoint>(1, &[]);
        let shapes = [
            (POINTS.to_owned(), serde_json::to_value(&of.points[0])),
            (evaluation_columns(), serde_json::to_value(&evaluation)),
        ];
        for (header, value) in shapes {
            let value = value.unwrap();
            let mut fields: Vec<&str> = value.as_object().unwrap().keys().map(String::as_str).collect();
            fields.retain(|name| *name != "cursor");
            fields.extend(["job", "elapsed_s"]);
            fields.sort_unstable();
            let mut columns: Vec<&str> = header.split(',').collect();
            columns.sort_unstable();
            assert_eq!(columns, fields);
        }
    }
}
