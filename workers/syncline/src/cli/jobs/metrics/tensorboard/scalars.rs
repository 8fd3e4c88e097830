//! What a training has told, as events: which figure stands under which tag.

use syncline_rpc::{
    StreamCursor,
    status::{EvaluationPoint, Figures, MetricsPoint},
};
use syncline_scheduler::spec::Metric;

use super::event::Event;
use crate::cli::jobs::metrics::Training;

/// Up to where the loss curve and the evaluations of a job were written.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Written {
    point: Option<StreamCursor>,
    evaluation: Option<StreamCursor>,
}

/// What came behind what was written, in the order of time; that is written then.
pub(super) fn news(of: &Training, written: &mut Written) -> Vec<Event> {
    let after = |at: StreamCursor, last: Option<StreamCursor>| last.is_none_or(|last| at > last);
    let points = of.points.iter().filter(|entry| after(entry.cursor, written.point));
    let evaluations = of.evaluations.iter().filter(|entry| after(entry.cursor, written.evaluation));
    let mut events: Vec<Event> = points.map(|entry| point(&entry.value)).collect();
    events.extend(evaluations.map(|entry| evaluation(&entry.value)));
    events.sort_by_key(|event| event.at_ms);
    written.point = of.points.last().map(|entry| entry.cursor).max(written.point);
    written.evaluation = of.evaluations.last().map(|entry| entry.cursor).max(written.evaluation);
    events
}

fn point(point: &MetricsPoint) -> Event {
    let ms = |us: u64| us as f64 / 1e3;
    let mut scalars = vec![
        ("loss/train", point.loss),
        ("time/step_ms", ms(point.step_us)),
        ("time/compute_ms", ms(point.compute_us)),
        ("time/wait_ms", ms(point.wait_us)),
        ("staleness/mean", point.staleness_mean),
        ("staleness/max", point.staleness_max as f64),
    ];
    scalars.extend(point.learning_rate.map(|rate| ("learning_rate", rate)));
    let scalars = scalars.into_iter().map(|(tag, value)| (tag.to_owned(), value)).collect();
    Event { at_ms: point.at_ms, step: point.samples, scalars }
}

fn evaluation(point: &EvaluationPoint) -> Event {
    let sets = [("validation", &point.validation), ("test", &point.test)];
    let figures = |(set, figures): (&str, &Figures)| {
        Metric::ALL.map(|metric| Some((format!("{}/{set}", metric.field()), figures[metric]?)))
    };
    let scalars = sets.into_iter().flat_map(figures).flatten().collect();
    Event { at_ms: point.at_ms, step: point.samples, scalars }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::jobs::metrics::training::tests::{entry, training};

    #[test]
    fn every_figure_stands_under_its_tag_in_the_order_of_time() {
        let mut of = training(&[], &[(10, "2.5"), (30, "NaN")]);
        (of.points[0].value.step_us, of.points[0].value.learning_rate) = (1_500, Some(0.25));
        of.evaluations = vec![entry(20, &[("validation_loss", "0.5"), ("validation_accuracy", "0.75")])];
        let events = news(&of, &mut Written::default());
        assert_eq!(events.iter().map(|event| event.step).collect::<Vec<_>>(), [10, 20, 30]);
        let told = |event: usize| events[event].scalars.iter().map(|(tag, value)| (tag.as_str(), *value));
        let [first, second] = [0, 1].map(|event| told(event).collect::<Vec<_>>());
        assert_eq!(first[..2], [("loss/train", 2.5), ("time/step_ms", 1.5)]);
        assert_eq!(first.last(), Some(&("learning_rate", 0.25)));
        assert_eq!(second, [("loss/validation", 0.5), ("accuracy/validation", 0.75)]);
        assert!(events[2].scalars[0].1.is_nan());
    }

    #[test]
    fn what_was_written_is_not_told_again_and_what_came_is() {
        let mut written = Written::default();
        let mut of = training(&[], &[(10, "2.5")]);
        assert_eq!(news(&of, &mut written).len(), 1);
        assert_eq!(news(&of, &mut written), []);
        of.evaluations = vec![entry(5, &[("test_loss", "1")])];
        of.points.push(entry(20, &[("loss", "2")]));
        let steps: Vec<u64> = news(&of, &mut written).iter().map(|event| event.step).collect();
        assert_eq!(steps, [5, 20]);
        // The curve became rarer: its points stand for more, and the newest has the place it had.
        of.points.remove(0);
        assert_eq!(news(&of, &mut written), []);
    }
}
