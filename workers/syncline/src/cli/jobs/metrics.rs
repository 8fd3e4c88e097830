//! `syncline metrics`: how a training learns, as numbers or as a picture: its loss curve and its evaluations.

use std::{fs, path::PathBuf};

use syncline_rpc::status::{Entry, EvaluationPoint, MetricsPoint};
use syncline_scheduler::{core::significant, ids::JobId};
use syncline_workers::client::Client;

use super::loss_curve;
use crate::cli::{
    CliError, ConnectionArgs, Failure, block_on, log_as_command, print, print_json, say, svg_file, table,
};

/// Rows of the table: as many as a screen shows.
const ROWS: usize = 20;

#[derive(Debug, clap::Args)]
pub struct MetricsArgs {
    /// Id of the job, which may be running or over
    job: JobId,
    /// Show the evaluations instead, the best of them always among them
    #[arg(long)]
    evaluations: bool,
    /// Draw the loss over the samples into this file, as SVG, with the evaluations
    #[arg(long, value_name = "FILE", value_parser = svg_file)]
    plot: Option<PathBuf>,
    #[command(flatten)]
    connection: ConnectionArgs,
    /// One JSON array on stdout, with every point that is kept
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &MetricsArgs) -> Result<(), Failure> {
    log_as_command();
    let cluster = args.connection.find()?;
    let (points, tests) = block_on(async {
        let (client, _) = Client::connect(&cluster).await?;
        // A job that is not there has no curve, either.
        client.status(&args.job).await?;
        // The picture has both.
        let (mut points, mut tests) = (Vec::new(), Vec::new());
        if args.plot.is_some() || !args.evaluations {
            points = client.metrics(&args.job, None).await?;
        }
        if args.plot.is_some() || args.evaluations {
            tests = client.evaluations(&args.job, None).await?;
        }
        Ok((points, tests))
    })?;
    if let Some(path) = &args.plot {
        fs::write(path, loss_curve::of_job(&args.job, &points, &tests))
            .map_err(|source| CliError::Picture { path: path.clone(), source })?;
        say(&format!("drew {}", path.display()));
    }
    match (args.evaluations, args.json) {
        (true, true) => print_json(&tests),
        (false, true) => print_json(&points),
        (true, false) => {
            let none = "no evaluation yet: it takes the setting `evaluate`, or a node that evaluates, see docs/data.md";
            say_how_many(tests.len(), none);
            print(&evaluations_in_words(&tests))
        }
        (false, false) => {
            let none =
                "no curve yet: the first point comes with the first report, and a graph of tasks has none";
            say_how_many(points.len(), none);
            print(&in_words(&points))
        }
    }
}

/// Says that there is nothing, or that not everything is shown.
fn say_how_many(points: usize, none: &str) {
    if points == 0 {
        say(none);
    } else if points > ROWS {
        say(&format!("{ROWS} of {points} points; --json prints all"));
    }
}

/// Some of the points, the last one among them, as far from each other as they can be.
fn chosen<T>(points: &[T], most: usize) -> impl Iterator<Item = &T> {
    let shown = points.len().min(most);
    (1..=shown).map(move |n| &points[n * points.len() / shown - 1])
}

/// The same of evaluations, with the best one in place of its neighbor if it is not among them.
fn with_best(
    points: &[Entry<EvaluationPoint>],
    most: usize,
) -> impl Iterator<Item = &Entry<EvaluationPoint>> {
    let best = points.iter().position(|point| point.value.best);
    let shown = points.len().min(most);
    let mut places: Vec<usize> = (1..=shown).map(|n| n * points.len() / shown - 1).collect();
    if let Some(best) = best.filter(|best| !places.contains(best)) {
        // The last one stays, and stands behind the best, or is it.
        let next = places.partition_point(|&place| place < best);
        let replaced = if next + 1 < places.len() { next } else { next.saturating_sub(1) };
        places[replaced] = best;
    }
    places.into_iter().map(|place| &points[place])
}

fn in_words(points: &[Entry<MetricsPoint>]) -> String {
    let ms = |us: u64| format!("{:.1}", us as f64 / 1e3);
    let rows: Vec<Vec<String>> = chosen(points, ROWS)
        .map(|Entry { value: point, .. }| {
            vec![
                point.samples.to_string(),
                point.iterations.to_string(),
                significant(point.loss),
                ms(point.step_us),
                ms(point.compute_us),
                ms(point.wait_us),
                format!("{:.2}", point.staleness_mean),
                point.staleness_max.to_string(),
            ]
        })
        .collect();
    let columns =
        [">samples", ">iterations", ">loss", ">step ms", ">compute ms", ">wait ms", ">staleness", ">at most"];
    table(&columns, &rows)
}

/// Some of the evaluations, and the best one in any case, with the metrics that the loss has.
fn evaluations_in_words(points: &[Entry<EvaluationPoint>]) -> String {
    type Metric = fn(&EvaluationPoint) -> Option<f64>;
    let metrics: [(&str, Metric); 3] = [
        (">accuracy", |point| point.validation_accuracy.or(point.test_accuracy)),
        (">top-k accuracy", |point| point.validation_top_k_accuracy.or(point.test_top_k_accuracy)),
        (">perplexity", |point| point.validation_perplexity.or(point.test_perplexity)),
    ];
    let there =
        metrics.iter().filter(|(_, metric)| points.iter().any(|point| metric(&point.value).is_some()));
    let there: Vec<_> = there.collect();
    let rows: Vec<Vec<String>> = with_best(points, ROWS)
        .map(|Entry { value: point, .. }| {
            let set = if point.is_validation() { "validation" } else { "test" };
            let of = point.validation_samples.or(point.test_samples).unwrap_or_default();
            let mut row =
                vec![point.samples.to_string(), set.to_owned(), of.to_string(), significant(point.loss())];
            row.extend(
                there.iter().map(|(_, metric)| metric(point).map_or_else(|| "-".to_owned(), significant)),
            );
            row.push(if point.best { "best" } else { "" }.to_owned());
            row
        })
        .collect();
    let mut columns = vec![">samples", "evaluated on", ">of these", ">loss"];
    columns.extend(there.iter().map(|(name, _)| *name));
    columns.push("");
    table(&columns, &rows)
}

#[cfg(test)]
mod tests {
    use syncline_rpc::{StreamCursor, StreamEntry};

    use super::*;

    #[test]
    fn the_best_evaluation_is_shown_wherever_it_is_and_so_is_the_last() {
        let at = |n: u64, best: bool| {
            let fields = [("at_ms", n.to_string()), ("samples", n.to_string())];
            let fields = fields.map(|(name, value)| (name.to_owned(), value)).into();
            let at = StreamCursor { at_ms: n, number: 0 };
            let mut point = Entry::<EvaluationPoint>::read(&StreamEntry { at, fields }).unwrap();
            point.value.best = best;
            point
        };
        for best in 0..41 {
            let all: Vec<_> = (0..41).map(|n| at(n, n == best)).collect();
            let shown: Vec<_> = with_best(&all, ROWS).map(|point| point.value.samples).collect();
            assert!(shown.contains(&best) && shown.is_sorted(), "{shown:?}");
            assert_eq!((shown.len(), shown.last()), (ROWS, Some(&40)), "{best}");
            let only: Vec<_> = with_best(&all, 1).map(|point| point.value.samples).collect();
            assert_eq!(only, [best]);
        }
    }

    #[test]
    fn the_points_that_are_shown_are_spread_and_end_with_the_last() {
        let all: Vec<u32> = (1..=10).collect();
        let shown = |most| chosen(&all, most).copied().collect::<Vec<_>>();
        assert_eq!(shown(20), all);
        assert_eq!(shown(5), [2, 4, 6, 8, 10]);
        assert_eq!(shown(3), [3, 6, 10]);
        assert_eq!(chosen(&[0u8; 0], 3).count(), 0);
    }
}
