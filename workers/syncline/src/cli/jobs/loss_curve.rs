//! A loss curve as SVG, readable in any browser.

use syncline_rpc::status::{Entry, EvaluationPoint, MetricsPoint};
use syncline_scheduler::ids::JobId;
use syncline_scheduler::sim::svg::{BLUE, FAINT, INK, ORANGE, background, line, opening, text};

const WIDTH: f64 = 800.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 80.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 50.0;
const BOTTOM: f64 = 56.0;
/// Lines across the picture, those at the edges included.
const LINES: u32 = 5;

/// Draws what a training has told of itself.
pub(crate) fn of_job(
    job: &JobId,
    points: &[Entry<MetricsPoint>],
    tests: &[Entry<EvaluationPoint>],
) -> String {
    let curve: Vec<(u64, f64)> = points.iter().map(|point| (point.value.samples, point.value.loss)).collect();
    draw(job.as_str(), &curve, set_of(tests), &as_it_goes(tests))
}

/// The samples on which a training is evaluated as it goes.
pub(super) fn set_of(points: &[Entry<EvaluationPoint>]) -> &'static str {
    if points.iter().any(|point| point.value.is_validation()) { "validation" } else { "test" }
}

/// The losses on these, which make a line.
fn as_it_goes(points: &[Entry<EvaluationPoint>]) -> Vec<(u64, f64)> {
    let validates = set_of(points) == "validation";
    let points = points.iter().map(|entry| &entry.value).filter(|point| point.is_validation() == validates);
    points.map(|point| (point.samples, point.loss())).collect()
}

/// Draws the loss over the samples, and dots with a line for the loss on the samples of `set`. Points without a finite loss leave a gap.
fn draw(caption: &str, points: &[(u64, f64)], set: &str, tests: &[(u64, f64)]) -> String {
    let all = || points.iter().chain(tests);
    let finite = || all().filter(|(_, loss)| loss.is_finite());
    let most_samples = all().map(|(samples, _)| *samples).max().unwrap_or(1).max(1) as f64;
    let (low, high) = finite()
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), (_, loss)| (low.min(*loss), high.max(*loss)));
    // Nothing to show, or a flat line, has a height all the same.
    let (low, high) = match (low.is_finite(), low < high) {
        (false, _) => (0.0, 1.0),
        (true, false) => (low - 0.5, low + 0.5),
        (true, true) => (low, high),
    };
    let x = |samples: f64| LEFT + (WIDTH - LEFT - RIGHT) * samples / most_samples;
    let y = |loss: f64| HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (loss - low) / (high - low);

    let mut svg = String::new();
    line(&mut svg, &opening(WIDTH, HEIGHT));
    line(&mut svg, &background(WIDTH, HEIGHT));
    line(&mut svg, &text(LEFT, 30.0, 18.0, INK, "start", false, &format!("loss of {caption}")));
    for n in 0..LINES {
        let share = f64::from(n) / f64::from(LINES - 1);
        let (loss, samples) = (low + (high - low) * share, most_samples * share);
        let (across, along) = (y(loss), x(samples));
        let rule = format!(
            r##"<line x1="{LEFT}" y1="{across:.1}" x2="{:.1}" y2="{across:.1}" stroke="#DDDDDD"/>"##,
            WIDTH - RIGHT
        );
        line(&mut svg, &rule);
        line(&mut svg, &text(LEFT - 8.0, across + 4.0, 12.0, FAINT, "end", false, &tick(loss, high - low)));
        let (below, count) = (HEIGHT - BOTTOM + 20.0, format!("{samples:.0}"));
        let anchor = if n + 1 == LINES { "end" } else { "middle" };
        line(&mut svg, &text(along, below, 12.0, FAINT, anchor, false, &count));
    }
    line(&mut svg, &text((WIDTH + LEFT) / 2.0, HEIGHT - 12.0, 13.0, FAINT, "middle", false, "samples"));
    for (points, color) in [(points, BLUE), (tests, ORANGE)] {
        for run in points.split(|(_, loss)| !loss.is_finite()).filter(|run| !run.is_empty()) {
            let places =
                run.iter().map(|(samples, loss)| format!("{:.1},{:.1}", x(*samples as f64), y(*loss)));
            let places = places.collect::<Vec<_>>().join(" ");
            let curve =
                format!(r#"<polyline points="{places}" fill="none" stroke="{color}" stroke-width="2"/>"#);
            line(&mut svg, &curve);
        }
    }
    for (samples, loss) in tests.iter().filter(|(_, loss)| loss.is_finite()) {
        let (across, along) = (x(*samples as f64), y(*loss));
        line(&mut svg, &format!(r#"<circle cx="{across:.1}" cy="{along:.1}" r="4" fill="{ORANGE}"/>"#));
    }
    if !tests.is_empty() {
        line(&mut svg, &text(WIDTH - RIGHT, 30.0, 13.0, ORANGE, "end", false, &format!("on {set} samples")));
    }
    svg + "</svg>\n"
}

/// A figure at the axis: as many decimals as tell those of this span apart.
fn tick(loss: f64, span: f64) -> String {
    let decimals = 3 - span.log10().floor() as i32;
    match (span < 1e6, decimals) {
        (true, ..=8) => format!("{loss:.*}", decimals.max(1) as usize),
        // Small differences of figures that are not small.
        (true, 9..=15) if loss.abs() > 1e3 * span => format!("{loss:.*}", decimals as usize),
        _ => format!("{loss:.3e}"),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn figures_at_the_axis_differ_however_small_or_large_the_losses_are() {
        for (low, high) in [(0.0, 1e-9), (5e-5, 8e-5), (0.0, 3.0), (1e20, 3e20), (0.5, 0.50001)] {
            let ticks: BTreeSet<String> =
                (0..LINES).map(|n| tick(low + (high - low) * f64::from(n) / 4.0, high - low)).collect();
            assert_eq!(ticks.len(), LINES as usize, "{ticks:?}");
        }
        assert_eq!(
            [tick(0.0, 3.0), tick(2.25, 3.0), tick(40_000.0, 50_000.0)],
            ["0.000", "2.250", "40000.0"]
        );
    }

    #[test]
    fn a_curve_goes_from_the_first_point_to_the_last_and_has_a_gap_where_the_loss_was_none() {
        let svg = draw("digits", &[(100, 3.0), (200, 2.0), (300, f64::NAN), (400, 1.0)], "test", &[]);
        let lines: Vec<&str> = svg.lines().filter(|line| line.starts_with("<polyline")).collect();
        assert_eq!(lines.len(), 2, "{svg}");
        // 100 of 400 samples, and the highest loss.
        assert!(lines[0].contains(r#"points="254.0,50.0 428.0,207.0""#), "{}", lines[0]);
        assert!(lines[1].contains(r#"points="776.0,364.0""#), "{}", lines[1]);
        assert!(svg.contains(">loss of digits</text>") && svg.ends_with("</svg>\n"));
    }

    #[test]
    fn evaluations_are_dots_on_a_line_of_their_own_within_the_picture() {
        let svg = draw(
            "digits",
            &[(100, 3.0), (400, 1.0)],
            "test",
            &[(200, 5.0), (400, f64::INFINITY), (300, 2.0)],
        );
        let dots: Vec<&str> = svg.lines().filter(|line| line.starts_with("<circle")).collect();
        assert_eq!(dots.len(), 2, "{svg}");
        assert!(dots[0].contains(r#"cx="428.0" cy="50.0""#), "the highest of all: {}", dots[0]);
        assert!(svg.contains(">on test samples</text>"));
        assert!(!draw("digits", &[(100, 3.0)], "test", &[]).contains("test samples"));
    }

    #[test]
    fn no_points_and_a_flat_line_are_pictures_too() {
        for points in [&[][..], &[(10, 0.5), (20, 0.5)], &[(10, f64::NAN)]] {
            let svg = draw("x", points, "test", &[]);
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        }
    }
}
