//! One training as a table: its loss curve, or its evaluations.

use syncline_rpc::status::{Entry, EvaluationPoint, MetricsPoint};
use syncline_scheduler::{core::significant, spec::Metric};

use super::Training;
use crate::cli::{Failure, figure_in_words, print, say, table};

/// Rows of the table: as many as a screen shows.
const ROWS: usize = 20;

const NO_EVALUATION: &str =
    "no evaluation yet: it takes the setting `evaluate`, or a node that evaluates, see docs/data.md";

/// Some of the evaluations of each of several trainings, below its name.
pub(super) fn evaluations_of_each(all: &[Training]) -> String {
    let of = |of: &Training| {
        let shown = match of.evaluations.is_empty() {
            true => NO_EVALUATION.to_owned(),
            false => evaluations_in_words(&of.evaluations),
        };
        format!("{}\n{shown}", of.name)
    };
    all.iter().map(of).collect::<Vec<_>>().join("\n\n")
}

/// Prints some of the points, or of the evaluations.
pub(super) fn show(of: &Training, evaluations: bool) -> Result<(), Failure> {
    if evaluations {
        say_how_many(of.evaluations.len(), NO_EVALUATION);
        return print(&evaluations_in_words(&of.evaluations));
    }
    let none = match of.job.is_over() {
        true => "no curve: it ended before its first report",
        false => "no curve yet: the first point comes with the first report",
    };
    say_how_many(of.points.len(), none);
    print(&in_words(&of.points))
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
                point.averaged_iterations.to_string(),
                significant(point.loss),
                ms(point.step_us),
                ms(point.compute_us),
                ms(point.wait_us),
                format!("{:.2}", point.staleness_mean),
                point.staleness_max.to_string(),
            ]
        })
        .collect();
    let columns = [
        ">samples",
        ">averaged iterations",
        ">loss",
        ">step ms",
        ">compute ms",
        ">wait ms",
        ">staleness",
        ">at most",
    ];
    table(&columns, &rows)
}

/// Some of the evaluations, and the best one in any case, with the metrics that the loss has.
fn evaluations_in_words(points: &[Entry<EvaluationPoint>]) -> String {
    let metrics = [
        (">accuracy", Metric::Accuracy),
        (">macro F1", Metric::MacroF1),
        (">macro precision", Metric::MacroPrecision),
        (">macro recall", Metric::MacroRecall),
        (">F1", Metric::PositiveF1),
        (">precision", Metric::PositivePrecision),
        (">recall", Metric::PositiveRecall),
        (">top-k accuracy", Metric::TopKAccuracy),
        (">perplexity", Metric::Perplexity),
    ];
    let is_there =
        |metric: Metric| points.iter().any(|point| point.value.figures(point.value.set())[metric].is_some());
    let there: Vec<_> = metrics.iter().filter(|(_, metric)| is_there(*metric)).collect();
    let rows: Vec<Vec<String>> = with_best(points, ROWS)
        .map(|Entry { value: point, .. }| {
            let of = point.validation_samples.or(point.test_samples).unwrap_or_default();
            let mut row = vec![
                point.samples.to_string(),
                point.set().name().to_owned(),
                of.to_string(),
                significant(point.loss()),
            ];
            let cell = |metric: Metric| {
                let value = point.figures(point.set())[metric];
                value.map_or_else(|| "-".to_owned(), |value| figure_in_words(metric, value))
            };
            row.extend(there.iter().map(|(_, metric)| cell(*metric)));
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
    use super::*;
    use crate::cli::jobs::metrics::tests::{entry, training};

    #[test]
    fn the_best_evaluation_is_shown_wherever_it_is_and_so_is_the_last() {
        let at = |n: u64, best: bool| {
            let mut point = entry::<EvaluationPoint>(n, &[]);
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
    fn evaluations_of_several_stand_below_their_names() {
        let mut one = training(&[("id", "one")], &[]);
        one.evaluations = vec![entry(30, &[("test_loss", "0.25"), ("test_samples", "8")])];
        let text = evaluations_of_each(&[one, training(&[("id", "two")], &[])]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!((lines[0], lines[3], lines[4], lines[5]), ("one", "", "two", NO_EVALUATION), "{text}");
        assert!(lines[2].contains("30  test") && lines[2].contains("0.250000"), "{text}");
    }

    #[test]
    fn shares_are_per_cent_as_everywhere_else() {
        let fields = [
            ("test_loss", "0.5"),
            ("test_samples", "8"),
            ("test_accuracy", "0.965"),
            ("test_perplexity", "1.5"),
        ];
        let shown = evaluations_in_words(&[entry(10, &fields)]);
        let row: Vec<&str> = shown.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(row, ["10", "test", "8", "0.500000", "96.50", "%", "1.500000"]);
    }

    #[test]
    fn the_iterations_of_a_point_are_called_what_its_means_are_over() {
        let shown = in_words(&[entry(640, &[("iterations", "4"), ("loss", "0.5")])]);
        let lines: Vec<&str> = shown.lines().collect();
        assert!(lines[0].starts_with("samples  averaged iterations "), "{shown}");
        assert!(lines[1].trim_start().starts_with("640                    4  0.5"), "{shown}");
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
